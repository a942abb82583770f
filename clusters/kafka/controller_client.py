"""A connection to one controller of a KRaft quorum: a typed request out, its response in.

Not a client of brokers, and not through the links: it is for whoever watches the cluster. One
request at a time. Messages are kio's.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from kio.index import load_payload_module
from kio.static.constants import EntityType

from neaptide.clusters.broker.wire.codec import (
    LENGTH_BYTES,
    MalformedMessageError,
    encode_request,
)
from neaptide.clusters.broker.wire.reading import UnreadableError, read_entity

_ANSWER_BYTES_MAX: Final = 512 * 1024 * 1024
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
        """Raises OSError or asyncio.IncompleteReadError (EOFError) if the controller goes away,
        MalformedMessageError if its answer is none.
        """
        self._correlation_id += 1
        self._writer.write(
            encode_request(request, correlation_id=self._correlation_id, client_id=CLIENT_ID)
        )
        head = await self._reader.readexactly(LENGTH_BYTES)
        length = int.from_bytes(head, "big", signed=True)
        if not 0 < length <= _ANSWER_BYTES_MAX:
            raise MalformedMessageError(f"a response of {length} bytes")
        return _decode(await self._reader.readexactly(length), request)


def _decode(frame: bytes, request: Any) -> Any:
    cls = type(request)
    module = load_payload_module(cls.__api_key__, cls.__version__, EntityType.response)
    response: Any = getattr(module, cls.__name__.removesuffix("Request") + "Response")
    try:
        _, frame, size = read_entity(response.__header_schema__, frame)
        entity, _, _ = read_entity(response, frame, size)
    except UnreadableError as error:
        raise MalformedMessageError(f"response to {cls.__name__}: {error}") from error
    return entity
