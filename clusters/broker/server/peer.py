"""Connections of this broker to others: a fetcher's, and the controller's to each broker.

A request is answered, or fails; there is no retry here but the control channel's, which sends its
requests one at a time, in order, until each is answered or the channel is closed (Kafka's
ControllerChannelManager).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import (
    LENGTH_BYTES,
    MalformedMessageError,
    decode_response,
    encode_request,
)

_log = logging.getLogger("peer")
_CONTROL_RETRY_S = 0.1


class PeerError(Exception):
    """No answer: not connected, disconnected, not in time, or not understood."""


class PeerConnection:
    """One request at a time to one address; connects when needed, again after a failure."""

    def __init__(self, client_id: str, timeout_s: float, response_max_bytes: int) -> None:
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._response_max_bytes = response_max_bytes
        self._correlation_id = 0
        self._address: tuple[str, int] | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, address: tuple[str, int], entity: Any) -> Any:
        """Sends to `address`, returns the response. Raises PeerError."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(address, entity)
        except (OSError, EOFError, TimeoutError, MalformedMessageError) as error:
            self.close()
            raise PeerError(
                f"{address[0]}:{address[1]}: {error or type(error).__name__}"
            ) from error
        except asyncio.CancelledError:
            self.close()
            raise

    async def _exchange(self, address: tuple[str, int], entity: Any) -> Any:
        if self._streams is None or self._address != address:
            self.close()
            self._streams = await asyncio.open_connection(*address, limit=2**24)
            self._address = address
        reader, writer = self._streams
        self._correlation_id += 1
        writer.write(
            encode_request(entity, correlation_id=self._correlation_id, client_id=self._client_id)
        )
        await writer.drain()
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big", signed=True)
        if not LENGTH_BYTES <= length <= self._response_max_bytes:
            raise MalformedMessageError(f"a response of {length} bytes")
        frame = await reader.readexactly(length)
        cls = type(entity)
        correlation_id, response = decode_response(frame, Api(cls.__api_key__), cls.__version__)
        if correlation_id != self._correlation_id:
            raise MalformedMessageError("an answer to another request")
        return response

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class ControlChannel:
    """The controller's ordered requests to one broker."""

    def __init__(
        self,
        client_id: str,
        timeout_s: float,
        response_max_bytes: int,
        address: Callable[[], tuple[str, int] | None],
        on_response: Callable[[Any, Any], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._connection = PeerConnection(client_id, timeout_s, response_max_bytes)
        self._address = address
        self._on_response = on_response
        self._spawn = spawn
        self._queue: deque[tuple[Any, Any]] = deque()
        self._task: asyncio.Task[None] | None = None

    def send(self, entity: Any, context: Any) -> None:
        self._queue.append((entity, context))
        if self._task is None:
            self._task = self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._queue:
                entity, context = self._queue[0]
                address = self._address()
                try:
                    if address is None:
                        raise PeerError("its address is not known")
                    response = await self._connection.request(address, entity)
                except PeerError as error:
                    _log.info("control request not answered, trying again: %s", error)
                    # The only thing that ends this wait is the other broker, or close().
                    await asyncio.sleep(_CONTROL_RETRY_S)
                    continue
                self._queue.popleft()
                self._on_response(context, response)
        finally:
            self._task = None

    def close(self) -> None:
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()
        self._connection.close()
