"""A connection to one controller of a KRaft quorum: a typed request out, its response in.

Not a client of brokers, and not through the links: it is for whoever watches the cluster. One
request at a time. Messages are kio's.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from kio.index import load_payload_module
from kio.serial import entity_reader
from kio.static.constants import EntityType

from neaptide.clusters.broker.wire.codec import LENGTH_BYTES, encode_request

CLIENT_ID: Final = "neaptide-observer"


class ControllerConnection:
    """Open one with `async with ControllerConnection(address, port) as connection`."""

    def __init__(self, address: str, port: int) -> None:
        self._address = address
        self._port = port
        self._correlation_id = 0
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> ControllerConnection:
        """Raises OSError where nobody listens."""
        self._reader, self._writer = await asyncio.open_connection(self._address, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, request: Any) -> Any:
        """Raises OSError or asyncio.IncompleteReadError (EOFError) if the controller goes away."""
        self._correlation_id += 1
        self._writer.write(
            encode_request(request, correlation_id=self._correlation_id, client_id=CLIENT_ID)
        )
        length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
        return _decode(await self._reader.readexactly(length), request)


def _decode(frame: bytes, request: Any) -> Any:
    cls = type(request)
    module = load_payload_module(cls.__api_key__, cls.__version__, EntityType.response)
    response: Any = getattr(module, cls.__name__.removesuffix("Request") + "Response")
    _, size = entity_reader(response.__header_schema__)(frame, 0)
    entity, _ = entity_reader(response)(frame, size)
    return entity
