"""One listener of the gate: its port is the gate's for good, but it listens only while its target
can be reached.

So whoever connects to a dead broker is refused, as without a gate. A connection that is accepted
and then closed would be another fault: a client that sends before it receives anything (any
client of Kafka before 0.10) loses a request in it.
Source: on Linux a listening socket that was shut down keeps the port it was bound to, and may
listen again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from neaptide.nemesis.gate.model import LinkSpec, Target

BACKLOG: Final = 1024
_LOOK_S: Final = 0.02  # nothing reports that somebody listens at last
_CONNECT_WITHIN_S: Final = 2.0


class Door:
    """Where a link is entered. Make one with `Door(…)`, then `await follow(False)`."""

    def __init__(
        self, link: LinkSpec, address: str, accept: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.link = link
        self._accept = accept
        self._socket = _bound(address, link.port)
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def follow(self, severed: bool) -> None:
        """The target or the network has changed: open if there is somebody behind it, else shut.

        If nobody is there yet, it opens as soon as somebody is.
        """
        self.shut()
        if not severed and self.link.target is not None:
            tried = asyncio.Event()
            self._look(self.link.target, tried)
            await tried.wait()

    def lost(self) -> None:
        """The target refuses connections: shut until it does not."""
        if self._server is not None and self.link.target is not None:
            self.shut()
            self._look(self.link.target, asyncio.Event())

    def shut(self) -> None:
        """Refuse connections; those that there are go on."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.shut()
        self._socket.close()

    def _look(self, target: Target, tried: asyncio.Event) -> None:
        work = self._open_when_reachable(target, tried)
        self._looking = asyncio.get_running_loop().create_task(work)

    async def _open_when_reachable(self, target: Target, tried: asyncio.Event) -> None:
        """Sets `tried` once it is known whether the target can be reached now."""
        try:
            while not await _is_reachable(target):
                tried.set()
                await asyncio.sleep(_LOOK_S)
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                self._accept, sock=self._socket.dup(), backlog=BACKLOG
            )
        finally:
            tried.set()


async def _is_reachable(target: Target) -> bool:
    """Whether a connection to it is accepted; that connection is closed again."""
    try:
        async with asyncio.timeout(_CONNECT_WITHIN_S):
            _, writer = await asyncio.open_connection(target.host, target.port)
    except OSError:  # TimeoutError is one
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _bound(address: str, port: int) -> socket.socket:
    """A socket whose port was asked for by number: only such a one is kept while not listening."""
    while True:
        number = port or _free_port(address)
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((address, number))
        except OSError:
            bound.close()
            if port:
                raise
            continue  # somebody was quicker
        return bound


def _free_port(address: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as chosen:
        chosen.bind((address, 0))
        return int(chosen.getsockname()[1])
