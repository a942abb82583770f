"""AlterConfigs and IncrementalAlterConfigs (KIP-339): of topics and of brokers (KIP-226), in the
coordination service.

Any broker writes them, as in Kafka with ZooKeeper; all learn of it by their watches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from typing import Any, Final

from kio.static.primitive import i8

from neaptide.clusters.broker.coordination.znodes import group_entity, topic_entity
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.settings import (
    InvalidSettingError,
    group_settings,
    topic_settings,
)
from neaptide.clusters.broker.server.apis.describing import Resource
from neaptide.clusters.broker.server.apis.entities import NO_THROTTLE, code, in_response
from neaptide.clusters.broker.server.apis.row import ApiContext, PendingRequest, ResponseLater
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.server.dynamic_settings import DynamicSettings
from neaptide.clusters.broker.storage.config import SettingError, check_topic, log_config
from neaptide.clusters.broker.wire.codec import make, response_class

Settings = Mapping[str, str]
Change = Callable[[Settings], Settings]


class Operation(IntEnum):
    """What is done to a setting, as Kafka numbers it. The last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# What each is where nothing is set.
_LISTS: Final = {
    "cleanup.policy": "delete",
    "follower.replication.throttled.replicas": "",
    "leader.replication.throttled.replicas": "",
    "log.cleanup.policy": "delete",
}


class _RefusedError(Exception):
    """What cannot be altered so, and the error that says it."""

    def __init__(self, error: Error, why: str) -> None:
        super().__init__(why)
        self.error = error


def answer_alter_configs(
    request: PendingRequest, entity: Any, context: ApiContext
) -> ResponseLater:
    """A topic has these settings then, and no others."""
    return ResponseLater(_alter(request, entity, context, _replaced))


def answer_incremental_alter_configs(
    request: PendingRequest, entity: Any, context: ApiContext
) -> ResponseLater:
    return ResponseLater(_alter(request, entity, context, _changed))


async def _alter(
    request: PendingRequest,
    entity: Any,
    context: ApiContext,
    change: Callable[[Any, Settings], Settings],
) -> Any:
    api, version = request.header.api, request.header.version
    response = in_response(api, version, "AlterConfigsResourceResponse")
    responses = []
    for resource in entity.resources:
        error, message = Error.NONE, None
        try:
            await _alter_one(resource, context, change, checks_only=bool(entity.validate_only))
        except _RefusedError as refused:
            error, message = refused.error, str(refused)
        responses.append(
            make(
                response,
                error_code=code(error),
                error_message=message,
                resource_type=i8(int(resource.resource_type)),
                resource_name=str(resource.resource_name),
            )
        )
    return make(response_class(api, version), throttle_time=NO_THROTTLE, responses=tuple(responses))


async def _alter_one(
    resource: Any,
    context: ApiContext,
    change: Callable[[Any, Settings], Settings],
    *,
    checks_only: bool,
) -> None:
    name = str(resource.resource_name)
    requests, changed = context.controller_requests, partial(change, resource)
    match int(resource.resource_type):
        case Resource.TOPIC:
            if name not in context.metadata().topics:
                raise _RefusedError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            entity, checked = topic_entity(name), partial(_of_topic, context.config, changed)
        case Resource.BROKER:
            of_broker = context.settings.entity(name)
            if of_broker is None:
                raise _RefusedError(
                    Error.INVALID_REQUEST,
                    f"this is broker {context.config.broker_id}: it cannot alter broker {name!r}",
                )
            entity, checked = of_broker, partial(_of_broker, context.settings, of_broker, changed)
        case Resource.GROUP if context.config.generation.consumer_protocol and name:
            entity, checked = group_entity(name), partial(_of_group, context.config, changed)
        case _:
            raise _RefusedError(
                Error.INVALID_REQUEST, f"settings of {name!r} cannot be altered here"
            )
    checked(await requests.settings_of(entity))
    if not checks_only:
        await requests.alter_settings(entity, checked)


def _of_topic(config: ServerConfig, change: Change, before: Settings) -> Settings:
    after = change(before)
    try:
        check_topic(after)
        log_config(config.settings, after)
        topic_settings(after, config.replication)
    except (SettingError, InvalidSettingError) as error:
        raise _RefusedError(Error.INVALID_CONFIG, str(error)) from None
    return after


def _of_group(config: ServerConfig, change: Change, before: Settings) -> Settings:
    after = change(before)
    try:
        group_settings(after, config.replication)
    except InvalidSettingError as error:
        raise _RefusedError(Error.INVALID_CONFIG, str(error)) from None
    return after


def _of_broker(dynamic: DynamicSettings, entity: str, change: Change, before: Settings) -> Settings:
    after = change(before)
    try:
        dynamic.check(entity, after)
    except (SettingError, InvalidSettingError) as error:
        raise _RefusedError(Error.INVALID_REQUEST, str(error)) from None
    return after


def _replaced(resource: Any, before: Settings) -> Settings:
    given = {str(one.name): one.value for one in resource.configs}
    for name, value in given.items():
        if value is None:
            raise _RefusedError(Error.INVALID_CONFIG, f"{name} has no value")
    return {name: str(value) for name, value in given.items()}


def _changed(resource: Any, before: Settings) -> Settings:
    after = dict(before)
    for one in resource.configs:
        name, operation = str(one.name), int(one.config_operation)
        if operation == Operation.DELETE:
            after.pop(name, None)
            continue
        if one.value is None:
            raise _RefusedError(Error.INVALID_CONFIG, f"{name} has no value")
        value = str(one.value)
        if operation in (Operation.APPEND, Operation.SUBTRACT):
            if name not in _LISTS:
                raise _RefusedError(Error.INVALID_CONFIG, f"{name} is no list")
            there = [word for word in after.get(name, _LISTS[name]).split(",") if word]
            given = [word for word in value.split(",") if word]
            kept = [word for word in there if word not in given]
            added = [*there, *(word for word in dict.fromkeys(given) if word not in there)]
            value = ",".join(kept if operation == Operation.SUBTRACT else added)
        elif operation != Operation.SET:
            raise _RefusedError(Error.INVALID_REQUEST, f"there is no operation {operation}")
        after[name] = value
    return after
