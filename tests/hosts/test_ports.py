"""A reserved port is nobody else's."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts import ports
from neaptide.clusters.hosts.ports import reserve_port


def test_a_reserved_port_is_not_given_twice_even_while_no_socket_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = reserve_port()
    first.release_socket()
    # Another harness may keep its state elsewhere; the ports of the machine are the same.
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path))
    second = reserve_port()
    assert first.port != second.port
    second.close()
    first.close()


def test_a_port_that_was_given_back_is_free() -> None:
    reservation = reserve_port()
    reservation.release_socket()
    reservation.close()
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as free:
            free.bind(("127.0.0.1", reservation.port))


def test_a_reserved_port_can_be_bound_once_its_socket_is_released() -> None:
    reservation = reserve_port()
    with socket.socket() as listener:
        with pytest.raises(OSError, match="in use"):
            listener.bind(("127.0.0.1", reservation.port))
        listener.bind(("127.0.0.1", reservation.release_socket()))
    reservation.close()


def test_a_port_that_somebody_else_took_is_named_when_it_is_to_be_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ports, "FREE_WITHIN_S", 0.0)
    reservation = reserve_port()
    reservation.release_socket()
    with socket.socket() as other:
        other.bind(("127.0.0.1", reservation.port))
        other.listen()
        with pytest.raises(MissingPartError, match=f"Port {reservation.port}, .* is in use"):
            reservation.release_socket()
    assert reservation.release_socket() == reservation.port
    reservation.close()


def test_connections_that_a_dead_server_left_do_not_take_its_port() -> None:
    reservation = reserve_port()
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", reservation.release_socket()))
        server.listen()
        client = socket.create_connection(("127.0.0.1", reservation.port))
        accepted, _ = server.accept()
    accepted.close()  # closed first, so that the connection lingers at this port
    assert reservation.release_socket() == reservation.port
    client.close()
    reservation.close()


def test_a_socket_that_a_starting_process_still_has_is_waited_for() -> None:
    """Between its fork and its exec a process has all that its parent had open."""
    reservation = reserve_port()
    reservation.release_socket()
    other = socket.socket()
    other.bind(("127.0.0.1", reservation.port))
    other.listen()
    threading.Timer(0.3, other.close).start()
    assert reservation.release_socket() == reservation.port
    reservation.close()
