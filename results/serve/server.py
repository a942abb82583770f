"""The server: a socket, uvicorn, and an end as soon as somebody asks for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn

from neaptide.results.serve.app import create_app
from neaptide.results.serve.pages import NotServed

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_GRACE_S: Final = 1


class _Server(uvicorn.Server):
    """Says that it ends, so that streams end with it."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping_event = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stopping_event.set()
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """Raises OSError: the port is taken, the address is none of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def address_of(listener: socket.socket) -> str:
    """As a browser wants it."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def serve(
    runs: Path,
    listener: socket.socket,
    host: str,
    *,
    not_served: NotServed,
    nights: Path | None = None,
    on_ready: Callable[[], None],
) -> None:
    """Until SIGINT or SIGTERM; raises KeyboardInterrupt then."""
    stopping = asyncio.Event()
    everywhere = host not in LOOPBACK
    names = {"localhost", host, *({socket.gethostname(), socket.getfqdn()} if everywhere else ())}
    app = create_app(
        runs,
        names=names,
        any_address=everywhere,
        not_served=not_served,
        nights=nights,
        stopping=stopping,
    )
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=_GRACE_S,
    )
    on_ready()
    _Server(config, stopping).run(sockets=[listener])
