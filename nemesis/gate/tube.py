"""A socket of the gate, which can also send on what another receives without having looked at it.

What nobody has to look at goes through a pipe from socket to socket (splice(2)), so that the kernel
passes its pages on in place of copying them into this process and out again. Knows no message.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from collections import deque
from typing import Final, Protocol

READ_BYTES: Final = 256 * 1024
# Less than that is cheaper to copy. What a socket had for its last reader says what it will have.
BULK_BYTES: Final = 64 * 1024
PIPE_BYTES: Final = 1024 * 1024
WRITE_HIGH_BYTES: Final = 64 * 1024
_SPLICE: Final = getattr(os, "splice", None)  # Linux alone has it


class Owner(Protocol):
    """Whose socket it is."""

    def data_received(self, data: bytes) -> None: ...
    def unseen(self) -> tuple[Tube, int] | None:
        """Where to, and how many, of the next bytes may go without being looked at."""

    def passed_unseen(self, count: int) -> None: ...
    def eof_received(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class _Pipe:
    """Bytes on their way from one socket to another: closed when neither knows it any more."""

    __slots__ = ("count", "reading", "writing")

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a user's pipes are full: a small one will do
            fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.count = 0

    def __del__(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


class Tube:
    """A connected socket. Reads nothing until `resume_reading`."""

    __slots__ = (
        "_closing",
        "_ended",
        "_last_read",
        "_loop",
        "_out",
        "_out_bytes",
        "_owner",
        "_paused_writer",
        "_pipe",
        "_reading",
        "_socket",
        "_writing",
    )

    def __init__(self, owner: Owner, connected: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._socket = connected
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._out: deque[bytes | _Pipe] = deque()
        self._out_bytes = 0
        self._pipe: _Pipe | None = None  # of what is read here
        self._last_read = 0
        self._reading = self._writing = self._ended = False
        self._paused_writer = False
        self._closing = False

    @property
    def idle(self) -> bool:
        """Whether all that was written is out."""
        return not self._out

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        if not (self._reading or self._ended or self._closing):
            self._reading = True
            self._loop.add_reader(self._socket, self._readable)

    def write(self, data: bytes) -> None:
        """Send, or keep until it can be sent."""
        if self._closing or not data:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._writing:
            self._flush()

    def close(self) -> None:
        """Close when all that was written is out."""
        if self._closing:
            return
        self.pause_reading()
        self._closing = True
        if not self._out:
            self._end(None)

    def abort(self) -> None:
        """Close now."""
        if not self._closing or self._out:
            self._closing = True
            self._end(None)

    def _readable(self) -> None:
        try:
            unseen = self._owner.unseen() if self._last_read >= BULK_BYTES else None
            if unseen is not None and _SPLICE is not None and unseen[0].idle:
                self._pass(*unseen)
            else:
                self._read()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)

    def _read(self) -> None:
        data = self._socket.recv(READ_BYTES)
        self._last_read = len(data)
        if data:
            self._owner.data_received(data)
        else:
            self._eof()

    def _eof(self) -> None:
        self.pause_reading()
        self._ended = True
        self._owner.eof_received()

    def _pass(self, to: Tube, count: int) -> None:
        pipe = self._pipe = self._pipe or _Pipe()
        passed = os.splice(
            self._socket.fileno(), pipe.writing, min(count, PIPE_BYTES), flags=os.SPLICE_F_NONBLOCK
        )
        self._last_read = passed
        if passed == 0:
            self._eof()
            return
        pipe.count += passed
        to._take(pipe)
        self._owner.passed_unseen(passed)

    def _take(self, pipe: _Pipe) -> None:
        self._out.append(pipe)
        self._out_bytes += pipe.count
        self._flush()

    def _flush(self) -> None:
        """Send what can be sent; what is left is sent when the socket can take more."""
        try:
            while self._out:
                self._send(self._out[0])
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._end(error)
            return
        if self._out and not self._writing:
            self._writing = True
            self._loop.add_writer(self._socket, self._flush)
        elif not self._out and self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket)
        if not self._out and self._closing:
            self._end(None)
        else:
            self._tell()

    def _send(self, first: bytes | _Pipe) -> None:
        if isinstance(first, _Pipe):
            sent = os.splice(
                first.reading, self._socket.fileno(), first.count, flags=os.SPLICE_F_NONBLOCK
            )
            first.count -= sent
            left = first.count
        else:
            sent = self._socket.send(first)
            left = len(first) - sent
            if left:
                self._out[0] = first[sent:]
        self._out_bytes -= sent
        if not left:
            self._out.popleft()

    def _tell(self) -> None:
        """Say when too much waits to be sent, and when it does no more."""
        if not self._paused_writer and self._out_bytes > WRITE_HIGH_BYTES:
            self._paused_writer = True
            self._owner.pause_writing()
        elif self._paused_writer and not self._out:
            self._paused_writer = False
            self._owner.resume_writing()

    def _end(self, error: Exception | None) -> None:
        if self._socket.fileno() < 0:
            return
        self._closing = True
        self.pause_reading()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket)
        self._out.clear()
        self._pipe = None
        self._socket.close()
        self._loop.call_soon(self._owner.connection_lost, error)
