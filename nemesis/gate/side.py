"""One socket of a connection: what it receives goes to the connection, what it is given goes out.

Nothing is judged here. One buffer serves all sockets; what is in it has been sent on or copied
before the next socket is read.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Final, Protocol, cast

from neaptide.nemesis.gate.exchange import Exchange
from neaptide.nemesis.gate.fetch_answer import FetchAnswer
from neaptide.nemesis.gate.frames import HEAD_BYTES, FrameSplitter
from neaptide.nemesis.gate.lane import Lane
from neaptide.nemesis.gate.model import LinkSpec
from neaptide.nemesis.gate.pressure import keep_pressure
from neaptide.nemesis.gate.said import Message

_RECEIVED: Final = memoryview(bytearray(1024 * 1024))
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Passing:
    """A message, all of which but its last part goes on before it is whole.

    A large Fetch response, which is read meanwhile, or what is too much to be kept and is not read.
    """

    __slots__ = ("_begun", "_exchange", "answer", "missing_bytes")

    def __init__(
        self, begun: bytes, size: int, read: tuple[Exchange, FetchAnswer] | None = None
    ) -> None:
        self._begun = begun[:HEAD_BYTES]
        self._exchange: Exchange | None = None
        self.answer: FetchAnswer | None = None  # None: the gate does not read it
        if read is not None:
            self._exchange, self.answer = read
        self.missing_bytes = size

    def message(self, now_ns: int) -> Message | None:
        """All of it is here."""
        if self.answer is None or self._exchange is None:
            return None
        return self._exchange.passed(self._begun, self.answer.end(), now_ns)


class TwoSides(Protocol):
    """The connection of a side, to which it reports what happens to its socket."""

    link: LinkSpec

    def joined(self, side: Side) -> None: ...
    def received(self, side: Side, data: memoryview) -> None: ...
    def ended(self, side: Side) -> None: ...
    def was_reset(self, side: Side) -> None: ...
    def left(self, side: Side) -> None: ...
    def refresh_reading(self) -> None: ...
    def pass_unread(self, side: Side) -> None: ...


class Side(asyncio.BufferedProtocol):
    """One socket of a connection. `lane` is fed by what it receives."""

    __slots__ = (
        "_descriptor",
        "connection",
        "gone",
        "lane",
        "passing",
        "splitter",
        "transport",
        "write_paused",
    )

    def __init__(self, connection: TwoSides) -> None:
        self.connection = connection
        self.transport: asyncio.Transport | None = None
        self.splitter = FrameSplitter()
        self.passing: Passing | None = None
        self.gone = False
        self.write_paused = False
        self.lane: Lane
        self._descriptor = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._descriptor = transport.get_extra_info("socket").fileno()
        if self.connection.link.purpose == "client":
            keep_pressure(self.transport)
        self.connection.joined(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _RECEIVED

    def buffer_updated(self, nbytes: int) -> None:
        self.connection.received(self, _RECEIVED[:nbytes])

    def eof_received(self) -> bool:
        self.connection.ended(self)
        return True  # the transport stays open until the lane has drained

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if isinstance(exc, ConnectionResetError):
            self.connection.was_reset(self)
        self.connection.ended(self)
        self.connection.left(self)

    def pause_writing(self) -> None:
        self.write_paused = True
        self.connection.refresh_reading()

    def resume_writing(self) -> None:
        self.write_paused = False
        self.connection.refresh_reading()

    def write(self, data: bytes | memoryview) -> None:
        """Send, or keep a copy of what cannot be sent at once."""
        if self.transport is None or self.transport.is_closing():
            return
        sent = 0
        if not self.transport.get_write_buffer_size():
            try:
                sent = os.write(self._descriptor, data)
            except OSError:  # the transport will meet it too, and close if it must
                sent = 0
        if sent < len(data):
            self.transport.write(bytes(data[sent:]))

    def reset(self) -> None:
        """Closes at once, so that whoever is there sees a reset."""
        if self.transport is not None:
            opened = self.transport.get_extra_info("socket")
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self.transport.abort()

    def abort(self) -> None:
        """Closes at once, whatever is still to be written."""
        if self.transport is not None:
            self.transport.abort()

    def read(self, wanted: bool) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()
