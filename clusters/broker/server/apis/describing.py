"""DescribeCluster, DescribeConfigs, DescribeLogDirs and AlterReplicaLogDirs: what the server does
without the core."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32, i64

from neaptide.clusters.broker.coordination.znodes import group_entity
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.settings import (
    CONSUMER_HEARTBEAT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
    ReplicationSettings,
    topic_settings,
)
from neaptide.clusters.broker.server.apis.entities import NO_THROTTLE, code, in_response
from neaptide.clusters.broker.server.apis.row import ApiContext, PendingRequest, ResponseLater
from neaptide.clusters.broker.server.dynamic_settings import DYNAMIC, DynamicSettings
from neaptide.clusters.broker.server.log_reader import LogInDirectory
from neaptide.clusters.broker.storage.config import (
    DEFAULTS_OF_OTHERS,
    SETTINGS,
    LogConfig,
    log_config,
)
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, response_class

_NOBODY_ASKED: Final = i32(-(2**31))  # what operations are allowed
_OF_NEAPTIDE: Final = "neaptide."
# Kafka's settings of the type PASSWORD have one of these in their names.
_SECRETS: Final = ("password", "secret", "jaas.config", "keystore.key", "certificate")


# --- DescribeCluster ------------------------------------------------------------------------------


def answer_describe_cluster(request: PendingRequest, entity: Any, context: ApiContext) -> Any:
    version, known = request.header.version, context.metadata()
    broker = in_response(Api.DESCRIBE_CLUSTER, version, "DescribeClusterBroker")
    return make(
        response_class(Api.DESCRIBE_CLUSTER, version),
        throttle_time=NO_THROTTLE,
        error_code=code(Error.NONE),
        error_message=None,
        endpoint_type=i8(1),  # of brokers
        cluster_id=context.cluster_id() or "",
        controller_id=BrokerId(known.controller_id),
        brokers=tuple(
            make(
                broker,
                broker_id=BrokerId(broker_id),
                host=endpoint.host,
                port=i32(endpoint.port),
                rack=registration.rack,
            )
            for broker_id, registration in sorted(known.brokers.items())
            for endpoint in registration.endpoints
            if endpoint.listener == request.connection.listener
        ),
        cluster_authorized_operations=_NOBODY_ASKED,
    )


# --- DescribeConfigs ------------------------------------------------------------------------------


class Source(IntEnum):
    """Where a value comes from, as Kafka numbers it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3  # of all brokers
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Resource(IntEnum):
    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Described(NamedTuple):
    name: str
    value: str | None
    source: Source
    kind: int  # of the value, as Kafka numbers it


_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE = 1, 2, 3, 5, 6


def answer_describe_configs(
    request: PendingRequest, entity: Any, context: ApiContext
) -> ResponseLater:
    """Those of topics are read from the coordination service, so that any broker can answer."""
    return ResponseLater(_describe_configs(request, entity, context))


async def _describe_configs(request: PendingRequest, entity: Any, context: ApiContext) -> Any:
    version = request.header.version
    results = [await _described(version, asked, context) for asked in entity.resources]
    return make(
        response_class(Api.DESCRIBE_CONFIGS, version),
        throttle_time=NO_THROTTLE,
        results=tuple(results),
    )


async def _described(version: int, asked: Any, context: ApiContext) -> Any:
    name, kind = str(asked.resource_name), int(asked.resource_type)
    found: list[Described] = []
    error, message = Error.NONE, None
    if kind == Resource.TOPIC and name in context.metadata().topics:
        own = await context.controller_requests.settings_of_topic(name)
        found = list(settings_of_topic(context.settings, own))
    elif kind == Resource.TOPIC:
        error = Error.UNKNOWN_TOPIC_OR_PARTITION
    elif kind == Resource.BROKER and context.settings.entity(name) is not None:
        found = list(settings_of_broker(context.settings, of_all=not name))
    elif kind == Resource.GROUP and name and context.config.generation.consumer_protocol:
        own = await context.controller_requests.settings_of(group_entity(name))
        found = list(settings_of_group(context.config.replication, own))
    else:
        error, message = Error.INVALID_REQUEST, f"{name!r} is not described by this broker"
    wanted = asked.configuration_keys
    return make(
        in_response(Api.DESCRIBE_CONFIGS, version, "DescribeConfigsResult"),
        error_code=code(error),
        error_message=message,
        resource_type=i8(kind),
        resource_name=name,
        configs=tuple(
            _config(version, one, read_only=kind == Resource.BROKER and one.name not in DYNAMIC)
            for one in found
            if wanted is None or one.name in wanted
        ),
    )


def _config(version: int, one: Described, *, read_only: bool) -> Any:
    """`read_only`: it cannot be altered while the broker runs."""
    is_secret = any(word in one.name for word in _SECRETS)
    return make(
        in_response(Api.DESCRIBE_CONFIGS, version, "DescribeConfigsResourceResult"),
        name=one.name,
        value=None if is_secret else one.value,
        read_only=read_only,
        config_source=i8(one.source),
        is_sensitive=is_secret,
        synonyms=(),
        config_type=i8(one.kind),
        documentation=None,
    )


def settings_of_topic(dynamic: DynamicSettings, own: Mapping[str, str]) -> Iterator[Described]:
    """What a topic may set, with the values that hold."""
    config = dynamic.current
    logs, rules = log_config(config.settings, own), topic_settings(own, config.replication)
    values = {one.topic_name: getattr(logs, one.field) for one in SETTINGS}
    values |= {one.name.replace("_", "."): getattr(rules, one.name) for one in fields(rules)}
    values |= {name: own.get(name, unset) for name, unset in DEFAULTS_OF_OTHERS.items()}
    of_brokers = {one.topic_name: [name for name, _ in one.broker_names] for one in SETTINGS}
    for name, value in sorted(values.items()):
        of_broker = _source(dynamic, *of_brokers.get(name, ()), name)
        yield _as_text(name, value, Source.TOPIC if name in own else of_broker)


def settings_of_group(
    replication: ReplicationSettings, own: Mapping[str, str]
) -> Iterator[Described]:
    of_broker = {
        CONSUMER_HEARTBEAT_INTERVAL: replication.group_consumer_heartbeat_interval_ms,
        CONSUMER_SESSION_TIMEOUT: replication.group_consumer_session_timeout_ms,
    }
    for name, value in of_broker.items():
        is_own = name in own
        source = Source.GROUP if is_own else Source.DEFAULT
        yield Described(name, own[name] if is_own else str(value), source, _INT)


def settings_of_broker(dynamic: DynamicSettings, *, of_all: bool) -> Iterator[Described]:
    """All that this broker was given, and what else it reads; or what is set for all brokers."""
    config = dynamic.current
    if of_all:
        for name, value in sorted(dynamic.of_all.items()):
            yield _as_text(name, value, Source.DYNAMIC_DEFAULT_BROKER)
        return
    replication, unset = config.replication, LogConfig()
    values = {
        name: getattr(unset, one.field)
        for one in SETTINGS
        for name, factor in one.broker_names
        if factor == 1
    }
    values |= {
        one.name.replace("_", "."): getattr(replication, one.name) for one in fields(replication)
    }
    values |= config.settings
    for name, value in sorted(values.items()):
        if not name.startswith(_OF_NEAPTIDE):
            yield _as_text(name, value, _source(dynamic, name))


def _source(dynamic: DynamicSettings, *names: str) -> Source:
    """`names`: of a broker's settings, any of which may give the value."""
    for is_given, source in (
        (dynamic.is_own, Source.DYNAMIC_BROKER),
        (dynamic.of_all.__contains__, Source.DYNAMIC_DEFAULT_BROKER),
        (dynamic.is_static, Source.STATIC_BROKER),
    ):
        if any(map(is_given, names)):
            return source
    return Source.DEFAULT


def _as_text(name: str, value: Any, source: Source) -> Described:
    if isinstance(value, bool):
        return Described(name, str(value).lower(), source, _BOOLEAN)
    if isinstance(value, int):
        return Described(name, str(value), source, _LONG)
    if isinstance(value, float):
        return Described(name, str(value), source, _DOUBLE)
    return Described(name, value, source, _STRING)


# --- DescribeLogDirs, AlterReplicaLogDirs ---------------------------------------------------------


def answer_describe_log_dirs(request: PendingRequest, entity: Any, context: ApiContext) -> Any:
    """Of each log directory, the offline ones too. No topics: all."""
    version = request.header.version
    wanted = (
        None
        if entity.topics is None
        else {(str(one.topic), int(number)) for one in entity.topics for number in one.partitions}
    )
    results = tuple(
        _log_directory(version, directory, wanted, held)
        for directory, held in context.reader.log_directories().items()
    )
    return make(
        response_class(Api.DESCRIBE_LOG_DIRS, version),
        throttle_time=NO_THROTTLE,
        error_code=code(Error.NONE),
        results=results,
    )


def _log_directory(
    version: int,
    directory: Path,
    wanted: Collection[tuple[str, int]] | None,
    held: Sequence[LogInDirectory] | None,
) -> Any:
    partition, topic, result = (
        in_response(Api.DESCRIBE_LOG_DIRS, version, f"DescribeLogDirs{part}")
        for part in ("Partition", "Topic", "Result")
    )
    topics: dict[str, list[Any]] = {}
    for one in held or ():
        place = one.partition
        if wanted is None or place in wanted:
            made = make(
                partition,
                partition_index=i32(place.partition),
                partition_size=i64(one.size_bytes),
                offset_lag=i64(one.lag),
                is_future_key=one.is_future,
            )
            topics.setdefault(place.topic, []).append(made)
    disk = None
    if held is not None:
        with contextlib.suppress(OSError):  # it has gone, which nobody has noticed yet
            disk = shutil.disk_usage(directory)
    return make(
        result,
        error_code=code(Error.KAFKA_STORAGE_ERROR if disk is None else Error.NONE),
        log_dir=str(directory.absolute()),
        topics=tuple(topic(name=name, partitions=tuple(of)) for name, of in topics.items()),
        total_bytes=i64(disk.total if disk else -1),
        usable_bytes=i64(disk.free if disk else -1),
    )


def answer_alter_replica_log_dirs(request: PendingRequest, entity: Any, context: ApiContext) -> Any:
    version = request.header.version
    results: dict[str, list[Any]] = {}
    partition_class = in_response(
        Api.ALTER_REPLICA_LOG_DIRS, version, "AlterReplicaLogDirPartitionResult"
    )
    for directory in entity.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                place = TopicPartition(str(topic.name), int(number))
                error = context.move_replica(place, Path(str(directory.path)))
                made = partition_class(partition_index=i32(number), error_code=code(error))
                results.setdefault(place.topic, []).append(made)
    topic_class = in_response(Api.ALTER_REPLICA_LOG_DIRS, version, "AlterReplicaLogDirTopicResult")
    return make(
        response_class(Api.ALTER_REPLICA_LOG_DIRS, version),
        throttle_time=NO_THROTTLE,
        results=tuple(
            topic_class(topic_name=name, partitions=tuple(of)) for name, of in results.items()
        ),
    )
