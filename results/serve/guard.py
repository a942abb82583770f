"""Who may ask, and what every response says.

A page elsewhere whose name is made to point at this machine (DNS rebinding) sends that name as its
Host: it gets nothing. An address of numbers cannot be made to point elsewhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAME_ORIGIN_ONLY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# A page that is a file of a run or of a night: it has its styles inside, and may do nothing.
STORED_PAGE: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; sandbox allow-popups"
)
# A picture that is made of a run: SVG with styles inside.
PICTURE: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": SAME_ORIGIN_ONLY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def host_of(header: str) -> str:
    """The name in a Host header, without its port: `[::1]:8080` is `::1`."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rpartition(":")[0] if name.count(":") == 1 else name


def is_ours(header: str, names: Collection[str], *, any_address: bool) -> bool:
    """Whether a request with this Host is for us.

    `names`: what we are called. `any_address`: whether it may also be any address of numbers, as
    where we listen to other machines; otherwise a loopback one.
    """
    host = host_of(header)
    if host in names:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any_address or address.is_loopback


class Guard:
    """The middleware: refuses other hosts and all but GET and HEAD, and sets headers."""

    def __init__(self, app: ASGIApp, names: Collection[str], any_address: bool) -> None:
        self.app = app
        self.names = frozenset(name.lower() for name in names)
        self.any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        header = Headers(scope=scope).get("host", "")
        refusal = None
        if not is_ours(header, self.names, any_address=self.any_address):
            text = f"{header!r} is not this server: ask for it by its address, or as localhost.\n"
            refusal = PlainTextResponse(text, 421)
        elif scope["method"] not in ("GET", "HEAD"):
            refusal = PlainTextResponse(
                "Nothing is changed here: GET and HEAD only.\n", 405, {"Allow": "GET, HEAD"}
            )
        app = refusal or self.app
        await app(scope, receive, send_with_headers)
