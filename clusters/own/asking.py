"""Asks a cluster for its metadata as a client does, and has topics created and deleted.

Calls block; whoever has an event loop makes them on a thread. All topics are asked for, never one
by name: a broker may create a topic for having been asked. No sentence has the value of a setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from neaptide.clusters.cluster import TopicSpec
from neaptide.clusters.errors import MissingPartError, RefusedError, UsageError
from neaptide.clusters.own.model import Used

ASK_S: Final = 10.0
_CHANGE_S: Final = 30.0
_HIDDEN_LENGTH_MIN: Final = 3  # what is shorter hides nothing, and is in every text
_COMMON: Final[Mapping[str, Any]] = {
    "broker.address.family": "v4",
    "log_level": 0,
    "socket.timeout.ms": 8_000,
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What metadata says. `brokers`: host:port by id."""

    brokers: Mapping[int, str]
    controller: int | None
    topics: Mapping[str, Mapping[int, Any]]  # by partition: leader, isrs, replicas


class AskedCluster:
    """One that is asked at an address, with the settings of a client. Raises UsageError for
    settings that librdkafka does not take."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str], where: str) -> None:
        self._settings = settings
        wanted: dict[str, Any] = {**_COMMON, **settings, "error_cb": _ignore}
        wanted["bootstrap.servers"] = bootstrap
        try:
            self._client = AdminClient(wanted)
        except (KafkaException, ValueError) as error:
            raise UsageError(f"{where}: {self._said(error)}.") from None

    def look(self, timeout_s: float = ASK_S) -> Seen | None:
        """None: nobody answers."""
        try:
            answer = self._client.list_topics(timeout=timeout_s)
        except KafkaException:
            return None
        return Seen(
            {number: f"{one.host}:{one.port}" for number, one in answer.brokers.items()},
            None if answer.controller_id < 0 else int(answer.controller_id),
            {name: topic.partitions for name, topic in answer.topics.items()},
        )

    def create(self, topic: TopicSpec) -> None:
        """Raises RefusedError."""
        assignment = [list(topic.assignment[number]) for number in sorted(topic.assignment)]
        new = NewTopic(
            topic.name,
            num_partitions=len(assignment),
            replica_assignment=assignment,
            config=dict(topic.settings),
        )
        try:
            [future] = self._client.create_topics([new], operation_timeout=_CHANGE_S).values()
            future.result(_CHANGE_S)
        except (KafkaException, TimeoutError) as error:
            raise RefusedError(
                f"The cluster does not create the topic {topic.name}: {self._said(error)}."
            ) from None

    def delete(self, topics: Sequence[str]) -> tuple[str, ...]:
        """Those that stay."""
        if not topics:
            return ()
        left = []
        asked = self._client.delete_topics(list(topics), operation_timeout=_CHANGE_S)
        for name, future in asked.items():
            try:
                future.result(_CHANGE_S)
            except (KafkaException, TimeoutError):
                left.append(name)
        return tuple(left)

    def _said(self, error: BaseException) -> str:
        text = str(error.args[0].str() if isinstance(error, KafkaException) else error)
        for value in self._settings.values():
            if len(value) >= _HIDDEN_LENGTH_MIN:
                text = text.replace(value, "…")
        return text.rstrip(".") or type(error).__name__


def brokers_of(used: Used) -> tuple[int, ...]:
    """The ids of the brokers of a cluster that is used. Raises MissingPartError, UsageError."""
    seen = AskedCluster(used.bootstrap, used.client, f"{used.file}, [client]").look()
    if seen is None or not seen.brokers:
        raise MissingPartError(
            f"Nobody answers at {used.bootstrap}, the bootstrap of {used.file}: start the cluster,"
            " and see that this machine reaches it and that [client] is what it takes."
        )
    return tuple(sorted(seen.brokers))


def advertised_at(address: str, settings: Mapping[str, str], where: str) -> Mapping[int, str]:
    """What a listener advertises to its clients, by broker; empty: nobody answers.

    `settings`: with which clients come in. Raises UsageError, as of `where`, for what they are not.
    """
    seen = AskedCluster(address, settings, where).look()
    return {} if seen is None else seen.brokers


def _ignore(_: object) -> None:
    """What counts is what becomes of each call."""
