"""A reserved port is nobody else's."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from clusters.hosts.ports import reserve_port


def test_a_reserved_port_is_not_given_twice_even_while_no_socket_holds_it(tmp_path: Path) -> None:
    first = reserve_port(tmp_path)
    first.release_socket()
    second = reserve_port(tmp_path)
    assert first.port != second.port
    first.close()
    second.close()
    third = reserve_port(tmp_path)
    assert third.port == first.port
    third.close()


def test_a_reserved_port_can_be_bound_once_its_socket_is_released(tmp_path: Path) -> None:
    reservation = reserve_port(tmp_path)
    with socket.socket() as listener:
        with pytest.raises(OSError, match="in use"):
            listener.bind(("127.0.0.1", reservation.port))
        listener.bind(("127.0.0.1", reservation.release_socket()))
    reservation.close()
