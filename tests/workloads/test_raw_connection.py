"""Who coordinates is what the first broker says that knows it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from neaptide.workloads.raw_connection import Address, find_coordinator

_NOT_AVAILABLE = 15


@contextmanager
def broker(
    error: int, node: int, *, hangs_up: bool = False
) -> Iterator[tuple[Address, list[bytes]]]:
    """Answers one FindCoordinator of version 0 or 1; what it was asked."""
    asked: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            size = int.from_bytes(connection.recv(4), "big")
            request = connection.recv(size)
            asked.append(request)
            if hangs_up:
                return
            version = int.from_bytes(request[2:4], "big")
            text = b"\xff\xff" if version else b""  # no error message
            throttle = struct.pack(">i", 0) if version else b""
            host = struct.pack(">ihi", node, 1, 9092)
            host = host[:6] + b"h" + host[6:]
            body = request[4:8] + throttle + struct.pack(">h", error) + text + host
            connection.sendall(struct.pack(">i", len(body)) + body)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[:2], asked
    finally:
        thread.join()
        server.close()


def closed() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()[:2]
        return str(host), int(port)


def test_the_first_that_knows_is_believed() -> None:
    with broker(_NOT_AVAILABLE, -1) as (lost, _), broker(0, 2) as (knows, asked):
        assert find_coordinator([closed(), lost, knows], "g", "group") == 2
    assert asked[0][:4] == b"\x00\x0a\x00\x00"  # FindCoordinator, version 0
    assert asked[0].endswith(b"\x00\x01g")


def test_of_a_transaction_the_kind_is_asked_too() -> None:
    with broker(0, 1) as (address, asked):
        assert find_coordinator([address], "txn-0", "transaction") == 1
    assert asked[0][2:4] == b"\x00\x01"
    assert asked[0].endswith(b"txn-0\x01")


def test_nobody_knows_where_all_hang_up_or_are_not_ready() -> None:
    with broker(_NOT_AVAILABLE, -1) as (lost, _), broker(0, 1, hangs_up=True) as (gone, _):
        assert find_coordinator([lost, gone, closed()], "g", "group") is None
