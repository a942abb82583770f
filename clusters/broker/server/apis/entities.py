"""What all APIs need to make kio's entities, and to read them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, Final, cast

from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i32, i32Timedelta, i64Timedelta

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import entity_class

NO_THROTTLE: Final = i32Timedelta.parse(timedelta(0))
READ_UNCOMMITTED: Final = i8(0)
_READ_COMMITTED: Final = 1
_ISOLATION_LEVELS: Final = (0, _READ_COMMITTED)


def code(error: Error) -> ErrorCode:
    return ErrorCode(int(error))


def error_of(given: ErrorCode) -> Error:
    """A code that the core does not know is an error all the same."""
    known = Error._value2member_map_.get(int(given.value), Error.UNKNOWN_SERVER_ERROR)
    return cast(Error, known)


def in_request(api: Api, version: int, name: str) -> type[Any]:
    """A class that is nested in a request."""
    return entity_class(api, version, EntityType.request, name)


def in_response(api: Api, version: int, name: str) -> type[Any]:
    return entity_class(api, version, EntityType.response, name)


def by_topic(
    results: Iterable[Any],
    topic: Callable[[TopicName, tuple[Any, ...]], Any],
    partition: Callable[[Any], Any],
    partition_of: Callable[[Any], TopicPartition] = lambda result: result.partition,
) -> tuple[Any, ...]:
    """One entity a topic, in order, each with those of its partitions."""
    topics: dict[str, list[Any]] = {}
    for result in results:
        topics.setdefault(partition_of(result).topic, []).append(partition(result))
    return tuple(topic(TopicName(name), tuple(made)) for name, made in topics.items())


def numbers_by_topic(
    partitions: Iterable[tuple[str, int]],
) -> Iterator[tuple[str, tuple[i32, ...]]]:
    """Partitions as they are sent: in order, once for each topic."""
    for topic, each in itertools.groupby(sorted(partitions), key=lambda one: one[0]):
        yield topic, tuple(i32(number) for _, number in each)


def has_isolation_level(entity: Any) -> bool:
    """Whether the isolation level is one that Kafka knows; early versions name none."""
    return int(getattr(entity, "isolation_level", READ_UNCOMMITTED)) in _ISOLATION_LEVELS


def reads_committed(entity: Any) -> bool:
    return int(getattr(entity, "isolation_level", READ_UNCOMMITTED)) == _READ_COMMITTED


def milliseconds(duration: Any) -> int:
    return int(duration.total_seconds() * 1000)


def duration(ms: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=ms))


def long_duration(ms: int) -> i64Timedelta:
    return i64Timedelta.parse(timedelta(milliseconds=ms))
