"""SaslHandshake and SaslAuthenticate (KIP-43, KIP-152): a client logs in on its connection."""

from __future__ import annotations

from typing import Any

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.server.apis.entities import code, long_duration
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
    PendingRequest,
    ResponseLater,
    SendAndClose,
)
from neaptide.clusters.broker.server.sasl import (
    SCRAM,
    AuthenticationFailedError,
    IllegalSaslStateError,
    ScramUsers,
)
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, response_class


def answer_sasl_handshake(request: PendingRequest, entity: Any, context: ApiContext) -> Any:
    """Not before the users are known: a broker has just started, and nobody is refused for that."""
    sasl = request.connection.sasl
    if sasl is not None:
        sasl.begin_again()
    if sasl is None or sasl.scram_users.are_known.is_set() or entity.mechanism not in SCRAM:
        return _handshake(request, entity)
    return ResponseLater(_handshake_later(sasl.scram_users, request, entity))


async def _handshake_later(users: ScramUsers, request: PendingRequest, entity: Any) -> Any:
    await users.are_known.wait()
    return _handshake(request, entity)


def _handshake(request: PendingRequest, entity: Any) -> Any:
    """Whoever has logged in, or need not, is in no state for it, and goes on, as in Kafka."""
    version, connection = request.header.version, request.connection
    response = response_class(Api.SASL_HANDSHAKE, version)
    if connection.sasl is None or not connection.is_logging_in:
        return make(response, error_code=code(Error.ILLEGAL_SASL_STATE), mechanisms=())
    mechanism, enabled = str(entity.mechanism), connection.sasl.mechanisms
    try:
        is_enabled = connection.sasl.choose(version, mechanism)
    except IllegalSaslStateError as error:
        refused = make(response, error_code=code(Error.ILLEGAL_SASL_STATE), mechanisms=())
        return SendAndClose(refused, f"SaslHandshake: {error}")
    if not is_enabled:
        refused = make(
            response, error_code=code(Error.UNSUPPORTED_SASL_MECHANISM), mechanisms=enabled
        )
        return SendAndClose(refused, f"the SASL mechanism {mechanism!r} is not enabled")
    return make(response, error_code=code(Error.NONE), mechanisms=enabled)


def answer_sasl_authenticate(request: PendingRequest, entity: Any, context: ApiContext) -> Any:
    connection = request.connection
    response = response_class(Api.SASL_AUTHENTICATE, request.header.version)
    if connection.sasl is None or not connection.is_logging_in:
        return make(
            response,
            error_code=code(Error.ILLEGAL_SASL_STATE),
            error_message="SaslAuthenticate request received after successful authentication",
            auth_bytes=b"",
        )
    try:
        answer = connection.sasl.authenticate(bytes(entity.auth_bytes))
    except (AuthenticationFailedError, IllegalSaslStateError) as error:
        is_failed = isinstance(error, AuthenticationFailedError)
        why = Error.SASL_AUTHENTICATION_FAILED if is_failed else Error.ILLEGAL_SASL_STATE
        refused = make(response, error_code=code(why), error_message=str(error), auth_bytes=b"")
        return SendAndClose(refused, str(error))
    return make(
        response,
        error_code=code(Error.NONE),
        error_message=None,
        auth_bytes=answer,
        session_lifetime=long_duration(connection.sasl.lifetime_ms),
    )
