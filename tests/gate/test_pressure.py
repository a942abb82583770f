"""What a client's connection takes in while nobody reads at its other end: little."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

import uvloop

from neaptide.nemesis.gate.pressure import RECEIVE_BYTES, keep_pressure

PIECE: Final = bytes(16 * 1024)
LITTLE: Final = 4 * RECEIVE_BYTES  # what the kernel gives for it, at either end


class Waiting(asyncio.Protocol):
    """Knows whether it has to wait."""

    reported = False

    def pause_writing(self) -> None:
        self.reported = True


async def taken(*, pressed: bool) -> tuple[int, int]:
    """Bytes that are written before it has to wait, for a peer that reads none; and the size
    of its receive buffer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        loop = asyncio.get_running_loop()
        transport, waiting = await loop.create_connection(Waiting, *listening.getsockname())
        peer, _ = listening.accept()
    if pressed:
        keep_pressure(transport)
    size = 0
    while not waiting.reported:
        transport.write(PIECE)
        size += len(PIECE)
    buffer = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    transport.abort()
    peer.close()
    return size, buffer


def test_a_connection_under_pressure_takes_little() -> None:
    size, buffer = uvloop.run(taken(pressed=True))
    assert size <= LITTLE
    assert buffer == 2 * RECEIVE_BYTES  # Linux doubles what it is asked for


def test_without_pressure_it_takes_more() -> None:
    size, _ = uvloop.run(taken(pressed=False))
    assert size > LITTLE
