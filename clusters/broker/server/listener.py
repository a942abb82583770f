"""Connections that others made to this broker: frames in, one request at a time, frames out.

Like Kafka, a connection has one request under way: the next is looked at when the answer is
written, so that answers come in order and a pipelining producer keeps its order too. A peer that
does not read its answers gets no further ones made, and one that sends faster than it is answered
is not read: so what a connection can hold here is bounded. Bytes that are no Kafka request close
the connection, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from neaptide.clusters.broker.wire.codec import LENGTH_BYTES, MalformedMessageError

_log = logging.getLogger("listener")
_QUEUED_FRAMES_MAX: Final = 16
_UNREAD_ANSWER_BYTES_MAX: Final = 1 << 20  # beyond it the next request waits


class RequestHandler(Protocol):
    """Handles one frame; answers by `connection.respond`, now or later. May raise
    MalformedMessageError."""

    def __call__(self, connection: Connection, frame: bytes) -> None: ...


class Connection(asyncio.Protocol):
    def __init__(
        self,
        listener: str,
        max_bytes: int,
        handle: RequestHandler,
        on_opened: Callable[[Connection], None],
        on_closed: Callable[[Connection], None],
    ) -> None:
        self.listener = listener
        self.peer = "?"
        self._max_bytes = max_bytes
        self._handle = handle
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._received = bytearray()
        self._frames: deque[bytes] = deque()
        self._busy = False
        self._is_reading = True
        self._is_read = True  # by the peer: its answers do not pile up
        self._transport: asyncio.Transport | None = None

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._transport.set_write_buffer_limits(high=_UNREAD_ANSWER_BYTES_MAX)
        self.peer = _address(transport.get_extra_info("peername"))
        self._on_opened(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            self._split()
        except MalformedMessageError as error:
            self.refuse(error)
            return
        self._next()

    def pause_writing(self) -> None:
        self._is_read = False

    def resume_writing(self) -> None:
        self._is_read = True
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._frames.clear()
        self._on_closed(self)

    # --- requests ---

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def _split(self) -> None:
        position = 0
        received = self._received
        while len(received) - position >= LENGTH_BYTES:
            start = position + LENGTH_BYTES
            length = int.from_bytes(received[position:start], "big", signed=True)
            if not 0 < length <= self._max_bytes:
                raise MalformedMessageError(f"a request of {length} bytes")
            if len(received) < start + length:
                break
            position = start + length
            self._frames.append(bytes(received[start:position]))
        del received[:position]

    def _next(self) -> None:
        while self._frames and self._is_open and self._is_read and not self._busy:
            frame = self._frames.popleft()
            self._busy = True
            try:
                self._handle(self, frame)
            except MalformedMessageError as error:
                self.refuse(error)
        self._read_or_not()

    def _read_or_not(self) -> None:
        may_read = len(self._frames) <= _QUEUED_FRAMES_MAX
        if self._transport is None or not self._is_open or may_read is self._is_reading:
            return
        self._is_reading = may_read
        if may_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def respond(self, frame: bytes | None) -> None:
        """Ends the request under way. None: it has no answer (acks=0)."""
        if self._transport is None or not self._is_open:
            return
        if frame is not None:
            self._transport.write(frame)
        self._busy = False
        if self._frames:
            asyncio.get_running_loop().call_soon(self._next)

    def refuse(self, error: Exception) -> None:
        _log.warning("closing the connection from %s on %s: %s", self.peer, self.listener, error)
        if self._transport is not None and not self._is_read:
            self._transport.abort()  # it may never read, and would never be rid of
        else:
            self.close()

    def close(self) -> None:
        """What was answered before is still sent."""
        if self._transport is not None:
            self._transport.close()


def _address(peername: tuple[object, ...] | None) -> str:
    return ":".join(str(part) for part in peername[:2]) if peername else "?"
