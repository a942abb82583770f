"""Changes of what a Kafka cluster consists of, while it runs: replicas, leaders, topics, settings.

By the admin API where Kafka has all of it (2.4: KIP-455), which is in `admin`; before that as
Kafka's own tools of the time did it, by znodes. Asked for, not waited for: when it is done the
cluster's metadata shows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.replication.model import TopicPartition

Replicas = Mapping[int, Sequence[int]]
ADMIN_SINCE: Final = (2, 4)
_ZOOKEEPER_S: Final = 8.0
_DELETE_PATH: Final = "/admin/delete_topics"
_CHANGES_PATH: Final = "/config/changes/config_change_"


class RefusedChangeError(Exception):
    """The cluster does not do it, or nobody was there to be asked: a sentence."""


class Members(Protocol):
    """Calls block; each raises RefusedChangeError."""

    def reassign(self, topic: str, replicas: Replicas) -> None: ...

    def elect(self, topic: str, partitions: Sequence[int], *, unclean: bool = False) -> None:
        """The preferred leader of each: the first assigned. Or, unclean, one that lives, where
        nobody of the ISR does."""
        ...

    def add_partitions(self, topic: str, replicas: Replicas) -> None:
        """`replicas`: of all partitions, the old ones too."""
        ...

    def set(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """None: as if it had never been set."""
        ...

    def create(self, topic: str, replicas: Replicas) -> None: ...

    def delete(self, topic: str) -> None: ...


class ZooKeeperMembers:
    """By the znodes that Kafka's controller watches."""

    def __init__(self, connect: str) -> None:
        self._connect = connect

    def reassign(self, topic: str, replicas: Replicas) -> None:
        targets = {TopicPartition(topic, p): tuple(brokers) for p, brokers in replicas.items()}
        self._ask("create", znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments(targets))

    def elect(self, topic: str, partitions: Sequence[int], *, unclean: bool = False) -> None:
        if unclean:
            raise RefusedChangeError("before Kafka 2.4 nobody can ask for an unclean election")
        chosen = [TopicPartition(topic, partition) for partition in partitions]
        path = znodes.PREFERRED_REPLICA_ELECTION
        self._ask("create", path, znodes.encode_partitions(chosen))

    def add_partitions(self, topic: str, replicas: Replicas) -> None:
        assignment = {p: tuple(brokers) for p, brokers in replicas.items()}
        path = znodes.topic_path(topic)
        self._with_client(f"set {path}", lambda client: _set_partitions(client, topic, assignment))

    def set(self, topic: str, settings: Mapping[str, str | None]) -> None:
        path = znodes.topic_config_path(topic)
        self._with_client(f"set {path}", lambda client: _set_settings(client, topic, settings))
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
        self._with_client(
            f"{what} {path}", lambda client: getattr(client, what)(path, *arguments, **named)
        )

    def _with_client(self, what: str, work: Callable[[KazooClient], object]) -> None:
        client = KazooClient(hosts=self._connect, timeout=_ZOOKEEPER_S)
        try:
            client.start(_ZOOKEEPER_S)
            work(client)
        except (KazooException, KazooTimeoutError) as error:
            raise RefusedChangeError(f"{what}: {type(error).__name__}") from None
        finally:
            client.stop()
            client.close()


def _set_settings(client: KazooClient, topic: str, changed: Mapping[str, str | None]) -> None:
    """The others stay."""
    path = znodes.topic_config_path(topic)
    data, stat = client.get(path)
    settings = {**znodes.decode_settings(path, data), **changed}
    kept = {name: value for name, value in settings.items() if value is not None}
    client.set(path, znodes.encode_settings(kept), version=stat.version)


def _set_partitions(
    client: KazooClient, topic: str, assignment: Mapping[int, tuple[int, ...]]
) -> None:
    """What else the znode has, such as the topic's id, stays. Raises BadVersionError where somebody
    else has written it meanwhile."""
    path = znodes.topic_path(topic)
    data, stat = client.get(path)
    client.set(path, znodes.with_partitions(topic, data, assignment), stat.version)


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
