"""Changes of what a Kafka cluster consists of, while it runs: replicas, leaders, topics, settings.

By the admin API of kafka-python where Kafka has all of it (2.4: KIP-455), before that as Kafka's
own tools of the time did it, by znodes. Asked for, not waited for: when it is done the cluster's
metadata shows it. Not for the brokers of this project, which serve nothing of this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from neaptide.clusters.broker.coordination import znodes

Replicas = Mapping[int, Sequence[int]]
ADMIN_SINCE: Final = (2, 4)
_REQUEST_MS: Final = 8_000
_ZOOKEEPER_S: Final = 8.0
_PREFERRED: Final = 0
_REASSIGN_PATH: Final = "/admin/reassign_partitions"
_ELECT_PATH: Final = "/admin/preferred_replica_election"
_DELETE_PATH: Final = "/admin/delete_topics"
_CHANGES_PATH: Final = "/config/changes/config_change_"


class RefusedChangeError(Exception):
    """The cluster does not do it, or nobody was there to be asked: a sentence."""


class Members(Protocol):
    """Calls block; each raises RefusedChangeError."""

    def reassign(self, topic: str, replicas: Replicas) -> None: ...

    def elect(self, topic: str, partitions: Sequence[int]) -> None:
        """The preferred leader of each: the first assigned."""
        ...

    def add_partitions(self, topic: str, replicas: Replicas) -> None:
        """`replicas`: of all partitions, the old ones too."""
        ...

    def set(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """None: as if it had never been set."""
        ...

    def create(self, topic: str, replicas: Replicas) -> None: ...

    def delete(self, topic: str) -> None: ...


class AdminMembers:
    """By the admin API. A client for each call: brokers come and go."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def reassign(self, topic: str, replicas: Replicas) -> None:
        asked = {TopicPartition(topic, p): list(brokers) for p, brokers in replicas.items()}
        answers = self._ask("alter_partition_reassignments", asked, timeout_ms=_REQUEST_MS)
        for partition, error in answers.items():
            if error is not None:
                raise RefusedChangeError(f"{partition}: {error.__name__}")

    def elect(self, topic: str, partitions: Sequence[int]) -> None:
        wanted = {topic: list(partitions)}
        self._ask("elect_leaders", _PREFERRED, wanted, timeout_ms=_REQUEST_MS, raise_errors=False)

    def add_partitions(self, topic: str, replicas: Replicas) -> None:
        self._ask("create_partitions", {topic: len(replicas)}, timeout_ms=_REQUEST_MS)

    def set(self, topic: str, settings: Mapping[str, str | None]) -> None:
        changes = {
            name: ("DELETE", None) if value is None else ("SET", value)
            for name, value in settings.items()
        }
        self._ask("alter_configs", [ConfigResource(ConfigResourceType.TOPIC, topic, changes)])

    def create(self, topic: str, replicas: Replicas) -> None:
        assignments = {p: list(brokers) for p, brokers in replicas.items()}
        self._ask("create_topics", {topic: {"assignments": assignments}}, timeout_ms=_REQUEST_MS)

    def delete(self, topic: str) -> None:
        self._ask("delete_topics", [topic], timeout_ms=_REQUEST_MS)

    def _ask(self, what: str, *arguments: Any, **named: Any) -> Any:
        try:
            client = KafkaAdminClient(
                bootstrap_servers=self._bootstrap.split(","), request_timeout_ms=_REQUEST_MS
            )
        except (KafkaError, OSError) as error:
            raise RefusedChangeError(f"{what}: nobody answers: {error}") from None
        try:
            return getattr(client, what)(*arguments, **named)
        except (KafkaError, OSError) as error:
            raise RefusedChangeError(f"{what}: {type(error).__name__}: {error}") from None
        finally:
            client.close()


class ZooKeeperMembers:
    """By the znodes that Kafka's controller watches."""

    def __init__(self, connect: str) -> None:
        self._connect = connect

    def reassign(self, topic: str, replicas: Replicas) -> None:
        self._ask("create", _REASSIGN_PATH, _document(_partitions(topic, replicas)))

    def elect(self, topic: str, partitions: Sequence[int]) -> None:
        chosen = [{"topic": topic, "partition": partition} for partition in partitions]
        self._ask("create", _ELECT_PATH, _document(chosen))

    def add_partitions(self, topic: str, replicas: Replicas) -> None:
        assignment = {p: tuple(brokers) for p, brokers in replicas.items()}
        encoded = znodes.encode_assignment(assignment, None)
        self._ask("set", znodes.topic_path(topic), encoded)

    def set(self, topic: str, settings: Mapping[str, str | None]) -> None:
        kept = {name: value for name, value in settings.items() if value is not None}
        self._ask("set", znodes.topic_config_path(topic), znodes.encode_settings(kept))
        change = {"version": 2, "entity_path": f"topics/{topic}"}
        self._ask("create", _CHANGES_PATH, json.dumps(change).encode(), sequence=True)

    def create(self, topic: str, replicas: Replicas) -> None:
        assignment = {p: tuple(brokers) for p, brokers in replicas.items()}
        self._ask("ensure_path", znodes.topic_config_path(topic))
        self._ask("set", znodes.topic_config_path(topic), znodes.encode_settings({}))
        encoded = znodes.encode_assignment(assignment, None)
        self._ask("create", znodes.topic_path(topic), encoded)

    def delete(self, topic: str) -> None:
        self._ask("ensure_path", f"{_DELETE_PATH}/{topic}")

    def _ask(self, what: str, path: str, *arguments: Any, **named: Any) -> None:
        client = KazooClient(hosts=self._connect, timeout=_ZOOKEEPER_S)
        try:
            client.start(_ZOOKEEPER_S)
            getattr(client, what)(path, *arguments, **named)
        except (KazooException, KazooTimeoutError) as error:
            raise RefusedChangeError(f"{what} {path}: {type(error).__name__}") from None
        finally:
            client.stop()
            client.close()


def _partitions(topic: str, replicas: Replicas) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": partition, "replicas": list(brokers)}
        for partition, brokers in replicas.items()
    ]


def _document(partitions: list[dict[str, Any]]) -> bytes:
    return json.dumps({"version": 1, "partitions": partitions}).encode()


def move_controller(connect: str) -> None:
    """Has another broker become controller, with ZooKeeper. Raises RefusedChangeError."""
    client = KazooClient(hosts=connect, timeout=_ZOOKEEPER_S)
    try:
        client.start(_ZOOKEEPER_S)
        client.delete(znodes.CONTROLLER)
    except (KazooException, KazooTimeoutError) as error:
        raise RefusedChangeError(f"no controller was removed: {type(error).__name__}") from None
    finally:
        client.stop()
        client.close()
