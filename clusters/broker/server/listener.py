"""Connections that others made to this broker: frames in, one request at a time, frames out.

Like Kafka, a connection has one request under way: the next is looked at when the answer is
written, so that answers come in order and a pipelining producer keeps its order too. A peer that
does not read its answers gets no further ones made, and one that sends faster than it is answered
is read ahead a little and then not: so what a connection can hold here is bounded, and what all of
them hold is (crowd). Bytes that are no Kafka request close the connection, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from neaptide.clusters.broker.server.crowd import Crowd, CrowdLimits
from neaptide.clusters.broker.server.sasl import (
    RECEIVE_BYTES_MAX,
    AuthenticationFailedError,
    SaslAuthenticator,
)
from neaptide.clusters.broker.wire.codec import LENGTH_BYTES, MalformedMessageError

_log = logging.getLogger("listener")
_READ_AHEAD_BYTES: Final = 1 << 20  # of requests behind the one that is under way
_READ_AHEAD_REQUESTS: Final = 16
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
        crowd: Crowd | None = None,
        is_between_brokers: bool = False,
        sasl: SaslAuthenticator | None = None,
    ) -> None:
        self.listener = listener
        self.is_between_brokers = is_between_brokers
        self.sasl = sasl  # None: whoever connects may ask
        self.peer = "?"
        self.ip = "?"
        self._crowd = crowd or Crowd(CrowdLimits())
        self._max_bytes = max_bytes
        self._handle = handle
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._received = bytearray()
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0  # of those
        self._under_way_bytes = 0
        self._wanted_bytes = 0  # of the frame that is being received, once that is known
        self._unread_bytes = 0
        self._active_at = time.monotonic()
        self._busy = False
        self._is_reading = True
        self._is_read = True  # by the peer: its answers do not pile up
        self._is_admitted = False
        self._transport: asyncio.Transport | None = None

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        peername = transport.get_extra_info("peername")
        self.peer = _address(peername)
        self.ip = str(peername[0]) if peername else "?"
        self._is_admitted = self._crowd.admit(self)
        if not self._is_admitted:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_UNREAD_ANSWER_BYTES_MAX)
        self._on_opened(self)

    def data_received(self, data: bytes) -> None:
        self._active_at = time.monotonic()
        self._received += data
        try:
            self._split()
        except MalformedMessageError as error:
            self.refuse(error)
            return
        self._next()

    def pause_writing(self) -> None:
        self._is_read = False
        if self._transport is not None:
            self._keep_unread(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._active_at = time.monotonic()
        self._is_read = True
        self._keep_unread(0)
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._is_admitted:
            return
        self._keep_unread(0)
        self._crowd.leave(self)
        kept = self._queued_bytes + self._under_way_bytes + self._wanted_bytes
        self._crowd.queue(-len(self._frames), -kept)
        self._frames.clear()
        self._received.clear()
        self._queued_bytes = self._under_way_bytes = self._wanted_bytes = 0
        self._on_closed(self)

    # --- of all connections together ---

    def _keep_unread(self, size: int) -> None:
        self._crowd.keep_unread(size - self._unread_bytes)
        self._unread_bytes = size

    def idle_since(self) -> float | None:
        """A request under way is not idleness, an answer that is not read is."""
        return None if self._busy and self._is_read else self._active_at

    def end_idle(self) -> None:
        _log.info("closing the connection from %s on %s: it is idle", self.peer, self.listener)
        self._end()

    def look_again(self) -> None:
        asyncio.get_running_loop().call_soon(self._next)

    # --- requests ---

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_logging_in(self) -> bool:
        return self.sasl is not None and not self.sasl.is_complete

    @property
    def must_log_in_again(self) -> bool:
        return self.sasl is not None and self.sasl.is_expired

    @property
    def takes_tokens(self) -> bool:
        """The next frame is a token of SASL, and no request."""
        return self.sasl is not None and self.sasl.takes_tokens

    def take_token(self, token: bytes) -> None:
        assert self.sasl is not None
        try:
            answer = self.sasl.take_token(token)
        except AuthenticationFailedError as error:
            self.refuse(error)
            return
        self.respond(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)

    @property
    def _request_bytes_max(self) -> int:
        return min(self._max_bytes, RECEIVE_BYTES_MAX) if self.is_logging_in else self._max_bytes

    def _split(self) -> None:
        position = 0
        received = self._received
        while len(received) - position >= LENGTH_BYTES:
            start = position + LENGTH_BYTES
            length = int.from_bytes(received[position:start], "big", signed=True)
            if not 0 < length <= self._request_bytes_max:
                raise MalformedMessageError(f"a request of {length} bytes")
            if not self._wanted_bytes:
                self._wanted_bytes = length
                self._crowd.queue(0, length)
            if len(received) < start + length:
                break
            position = start + length
            self._frames.append(bytes(received[start:position]))
            self._crowd.queue(1, 0)
            self._queued_bytes += length
            self._wanted_bytes = 0
        if position:
            del received[:position]

    def _next(self) -> None:
        while self._frames and self._is_open and self._is_read and not self._busy:
            frame = self._frames.popleft()
            self._queued_bytes -= len(frame)
            self._under_way_bytes = len(frame)
            self._crowd.queue(-1, 0)
            self._busy = True
            try:
                self._handle(self, frame)
            except MalformedMessageError as error:
                self.refuse(error)
            except Exception as error:  # whatever it is: nobody else's connection has to do with it
                _log.exception("a request from %s could not be handled", self.peer)
                self.refuse(error)
        self._read_or_not()

    def _may_read(self) -> bool:
        """Whether more is taken. What has begun is received to its end, or nothing would move."""
        if not self._busy and not self._frames:
            return bool(self._wanted_bytes) or self._crowd.has_room(self)
        ahead = self._queued_bytes + len(self._received)
        is_little = ahead <= _READ_AHEAD_BYTES and len(self._frames) <= _READ_AHEAD_REQUESTS
        return is_little and self._crowd.has_room(self)

    def _read_or_not(self) -> None:
        if self._transport is None or not self._is_open:
            return
        may_read = self._may_read()
        if may_read is self._is_reading:
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
        self._active_at = time.monotonic()
        if frame is not None:
            self._transport.write(frame)
        self._crowd.queue(0, -self._under_way_bytes)
        self._under_way_bytes = 0
        self._busy = False
        if self._frames or not self._is_reading:
            asyncio.get_running_loop().call_soon(self._next)

    def refuse(self, error: Exception) -> None:
        _log.warning("closing the connection from %s on %s: %s", self.peer, self.listener, error)
        self._end()

    def _end(self) -> None:
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
