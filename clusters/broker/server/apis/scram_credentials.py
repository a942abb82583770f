"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554): who can log in by SCRAM.

The controller alone alters them, as in Kafka with ZooKeeper; all brokers learn of it by watches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from kio.static.primitive import i8, i32

from neaptide.clusters.broker.coordination.znodes import USERS, name_of, user_entity
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.server.apis.entities import NO_THROTTLE, code, in_response
from neaptide.clusters.broker.server.apis.row import ApiContext, PendingRequest, ResponseLater
from neaptide.clusters.broker.server.sasl import SCRAM, ScramCredential, scram_credentials
from neaptide.clusters.broker.wire.codec import make, response_class

_MECHANISMS: Final = dict(enumerate(SCRAM, 1))  # as Kafka numbers them
_NUMBERS: Final = {name: number for number, name in _MECHANISMS.items()}
_ITERATIONS: Final = range(4096, 16_385)
_NAMELESS: Final = "Username must not be empty"


# --- DescribeUserScramCredentials -----------------------------------------------------------------


def answer_describe(request: PendingRequest, entity: Any, context: ApiContext) -> ResponseLater:
    return ResponseLater(_describe(request, entity, context))


async def _describe(request: PendingRequest, entity: Any, context: ApiContext) -> Any:
    """All users that have any, where none is named."""
    api, version = request.header.api, request.header.version
    users = await context.controller_requests.settings_of_all(USERS)
    named = {name_of(entity): settings for entity, settings in users.items()}
    of = {user: scram_credentials(user, settings) for user, settings in named.items()}
    asked = Counter(str(user.name) for user in entity.users or ())
    results = []
    for user in asked or sorted(name for name, found in of.items() if found):
        error, message = Error.NONE, None
        if not user:
            error, message = Error.RESOURCE_NOT_FOUND, _NAMELESS
        elif asked[user] > 1:
            error = Error.DUPLICATE_RESOURCE
            message = f"Cannot describe SCRAM credentials for user {user} twice in a request"
        elif not of.get(user):
            error = Error.RESOURCE_NOT_FOUND
            message = f"User {user} has no SCRAM credentials"
        found = {} if error is not Error.NONE else of[user]
        results.append(
            make(
                in_response(api, version, "DescribeUserScramCredentialsResult"),
                user=user,
                error_code=code(error),
                error_message=message,
                credential_infos=tuple(
                    make(
                        in_response(api, version, "CredentialInfo"),
                        mechanism=i8(_NUMBERS[mechanism]),
                        iterations=i32(found[mechanism].iterations),
                    )
                    for mechanism in SCRAM
                    if mechanism in found
                ),
            )
        )
    return make(
        response_class(api, version),
        throttle_time=NO_THROTTLE,
        error_code=code(Error.NONE),
        error_message=None,
        results=tuple(results),
    )


# --- AlterUserScramCredentials --------------------------------------------------------------------


class _RefusedError(Exception):
    """What cannot be altered so, and the error that says it."""

    def __init__(self, error: Error, why: str) -> None:
        super().__init__(why)
        self.error = error


def answer_alter(request: PendingRequest, entity: Any, context: ApiContext) -> ResponseLater:
    return ResponseLater(_alter(request, entity, context))


async def _alter(request: PendingRequest, entity: Any, context: ApiContext) -> Any:
    """A user's changes are all made, or none."""
    api, version = request.header.api, request.header.version
    changes: dict[str, list[Any]] = defaultdict(list)
    for change in (*entity.deletions, *entity.upsertions):
        changes[str(change.name)].append(change)
    is_controller = context.metadata().controller_id == context.config.broker_id
    results = []
    for user, of_user in changes.items():
        error, message = Error.NONE, None
        try:
            if not is_controller:
                raise _RefusedError(Error.NOT_CONTROLLER, "another broker is the controller")
            _check(user, of_user)
            changed = partial(_changed, of_user)
            await context.controller_requests.alter_settings(user_entity(user), changed)
        except _RefusedError as refused:
            error, message = refused.error, str(refused)
        results.append(
            make(
                in_response(api, version, "AlterUserScramCredentialsResult"),
                user=user,
                error_code=code(error),
                error_message=message,
            )
        )
    return make(response_class(api, version), throttle_time=NO_THROTTLE, results=tuple(results))


def _check(user: str, changes: Iterable[Any]) -> None:
    """Raises _RefusedError."""
    if not user:
        raise _RefusedError(Error.UNACCEPTABLE_CREDENTIAL, _NAMELESS)
    mechanisms = Counter(int(change.mechanism) for change in changes)
    if mechanisms.keys() - _MECHANISMS.keys():
        raise _RefusedError(Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    for iterations in (int(one.iterations) for one in changes if hasattr(one, "iterations")):
        if iterations not in _ITERATIONS:
            few = iterations < _ITERATIONS.start
            why = f"Too {'few' if few else 'many'} iterations"
            raise _RefusedError(Error.UNACCEPTABLE_CREDENTIAL, why)
    if max(mechanisms.values()) > 1:
        raise _RefusedError(
            Error.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in a request"
        )


def _changed(changes: Iterable[Any], before: Mapping[str, str]) -> dict[str, str]:
    after = dict(before)
    for change in changes:
        mechanism = _MECHANISMS[int(change.mechanism)]
        if hasattr(change, "iterations"):
            credential = ScramCredential.of_salted(
                mechanism, bytes(change.salt), bytes(change.salted_password), int(change.iterations)
            )
            after[mechanism] = str(credential)
        elif after.pop(mechanism, None) is None:
            raise _RefusedError(
                Error.RESOURCE_NOT_FOUND, "Attempt to delete a credential that does not exist"
            )
    return after
