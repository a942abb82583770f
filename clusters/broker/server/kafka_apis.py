"""Requests in, responses out, by the table of APIs (Kafka's KafkaApis).

A frame becomes an event for the core, or is answered at once; an effect of the core becomes the
response of the request that waits for it. What an API needs is in its row, not here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar, assert_never

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.server.apis.cluster import encode_api_versions
from neaptide.clusters.broker.server.apis.row import (
    AnsweredByCore,
    AnsweredByServer,
    ApiContext,
    CloseConnection,
    DecodeInThread,
    NoResponse,
    PendingRequest,
    Refused,
    Response,
    ResponseLater,
    SendAndClose,
    SendResponse,
)
from neaptide.clusters.broker.server.apis.table import BEFORE_LOGIN, BY_EVENT, TABLE
from neaptide.clusters.broker.server.listener import Connection
from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.broker.wire.apis import Api, Versions
from neaptide.clusters.broker.wire.codec import (
    Header,
    MalformedMessageError,
    UnsupportedVersionError,
    decode_request,
    encode_response,
)

_log = logging.getLogger("broker")
T = TypeVar("T")


def _as_response(answer: Any) -> Response:
    """Most answers of the server are an entity to send."""
    is_response = isinstance(answer, ResponseLater | SendAndClose | CloseConnection)
    return answer if is_response else SendResponse(answer)


class KafkaApis:
    """`spawn` starts a task whose failure is the broker's."""

    def __init__(
        self,
        context: ApiContext,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._context = context
        self._spawn = spawn
        self._in_thread = in_thread
        self._next_request = 1
        self._pending: dict[int, PendingRequest] = {}
        self._requests_of: dict[Connection, set[int]] = {}

    # --- connections and their requests -----------------------------------------------------------

    def on_opened(self, connection: Connection) -> None:
        self._requests_of[connection] = set()

    def on_closed(self, connection: Connection) -> None:
        for request in sorted(self._requests_of.pop(connection, set())):
            if self._pending.pop(request, None) is not None:
                self._context.submit(events.RequestAbandoned(request))

    def handle(self, connection: Connection, frame: bytes) -> None:
        """One request frame. Raises MalformedMessageError for the connection to deal with."""
        apis = self._context.apis_on(connection.listener)
        if connection.is_logging_in:
            if connection.takes_tokens:
                connection.take_token(frame)
                return
            apis = {api: versions for api, versions in apis.items() if api in BEFORE_LOGIN}
        try:
            header, entity = decode_request(frame, apis)
        except UnsupportedVersionError as error:
            self._refuse_version(connection, apis, error)
            return
        except MalformedMessageError as error:
            if connection.is_logging_in:
                raise MalformedMessageError(f"the client has not logged in: {error}") from error
            raise
        if connection.must_log_in_again and header.api is not Api.SASL_HANDSHAKE:
            raise MalformedMessageError("the client has not logged in again in time")
        answered = TABLE[header.api].answered
        match answered:
            case AnsweredByCore():
                self._ask_core(answered, connection, header, entity)
            case AnsweredByServer():
                self._answer(answered, self._begin(connection, header, entity), entity)
            case _:
                assert_never(answered)

    def _refuse_version(
        self,
        connection: Connection,
        apis: Mapping[Api, Versions],
        error: UnsupportedVersionError,
    ) -> None:
        """ApiVersions is answered in v0, so that the client learns what it may ask (KIP-511)."""
        if error.header.api is not Api.API_VERSIONS:
            connection.refuse(error)
            return
        refusal = encode_api_versions(0, apis, Error.UNSUPPORTED_VERSION)
        connection.respond(encode_response(refusal, error.header.correlation_id))

    def _begin(self, connection: Connection, header: Header, entity: Any) -> PendingRequest:
        number = self._next_request
        self._next_request += 1
        request = PendingRequest(number, connection, header, int(getattr(entity, "max_bytes", 0)))
        self._pending[number] = request
        self._requests_of[connection].add(number)
        return request

    def _answer(self, row: AnsweredByServer, request: PendingRequest, entity: Any) -> None:
        answer = row.answer(request, entity, self._context)
        self._send(request, _as_response(answer))

    def _ask_core(
        self, row: AnsweredByCore, connection: Connection, header: Header, entity: Any
    ) -> None:
        request = self._begin(connection, header, entity)
        try:
            event = row.decode(request, entity, self._context)
        except (StorageError, MalformedMessageError):
            raise
        except Exception as error:  # whatever is wrong with a request is the fault of its sender
            reason = f"{type(error).__name__}: {error}"
            raise MalformedMessageError(
                f"{header.api.name} v{header.version} cannot be understood: {reason}"
            ) from error
        if isinstance(event, DecodeInThread):
            self._spawn(self._guarded(request, self._decode_in_thread(row, event)))
        elif isinstance(event, Refused):
            self.respond(row.error(event.event, event.error))
        else:
            row.handle(self._context, event)

    async def _decode_in_thread(self, row: AnsweredByCore, decode: DecodeInThread) -> None:
        row.handle(self._context, await self._in_thread(decode.work))

    # --- responses --------------------------------------------------------------------------------

    def respond(self, effect: Any) -> None:
        """An answer of the core. One that cannot be made costs its connection, never the broker."""
        request = self._pending.get(effect.request)
        if request is None:  # its connection is gone
            return
        answered = TABLE[request.header.api].answered
        assert isinstance(answered, AnsweredByCore)
        try:
            self._send(request, answered.encode(request, effect, self._context))
        except StorageError:
            raise
        except Exception as error:
            self._give_up(request, error)

    @staticmethod
    def is_request(event: object) -> bool:
        """Whether somebody waits for its response."""
        return type(event) in BY_EVENT

    def respond_with_error(self, event: object, error: Error) -> None:
        """Answers the request that became this event."""
        self.respond(BY_EVENT[type(event)].error(event, error))

    def _send(self, request: PendingRequest, response: Response) -> None:
        match response:
            case SendResponse(entity):
                frame = encode_response(entity, request.header.correlation_id)
                self._end(request)
                request.connection.respond(frame)
            case SendAndClose(entity, reason):
                self._send(request, SendResponse(entity))
                _log.info("%s: %s", request.connection.peer, reason)
                request.connection.close()
            case NoResponse():
                self._end(request)
                request.connection.respond(None)
            case CloseConnection(reason):
                self._end(request)
                _log.info("%s", reason)
                request.connection.close()
            case ResponseLater(work):
                self._spawn(self._guarded(request, self._send_later(request, work)))
            case _:
                assert_never(response)

    async def _send_later(self, request: PendingRequest, work: Coroutine[Any, Any, Any]) -> None:
        answer = await work
        if request.id in self._pending:
            self._send(request, _as_response(answer))

    async def _guarded(self, request: PendingRequest, work: Coroutine[Any, Any, None]) -> None:
        """Its failure is that of the connection that waits for the response."""
        try:
            await work
        except StorageError:
            raise
        except Exception as error:
            self._give_up(request, error)

    def _give_up(self, request: PendingRequest, error: Exception) -> None:
        self._end(request)
        _log.error("no answer to %s could be made", request.header.api.name, exc_info=error)
        request.connection.refuse(error)

    def _end(self, request: PendingRequest) -> None:
        self._pending.pop(request.id, None)
        self._requests_of.get(request.connection, set()).discard(request.id)
