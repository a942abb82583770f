"""A cluster of three real broker processes and a ZooKeeper, for tests that speak to it.

Not the harness: no links, no gate, no ledger of the user's. Brokers are reached at their own ports.
Whoever waits, waits for a condition, with a deadline.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kio.schema.metadata.v1.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import TopicName

from neaptide.clusters.broker.cluster import BrokerCluster
from neaptide.clusters.cluster import ClusterSpec, Listeners, TopicSpec
from neaptide.clusters.hosts.here import LocalNodes
from neaptide.clusters.hosts.local import LocalHost
from neaptide.clusters.kafka.cluster import KafkaCluster
from neaptide.clusters.placed_cluster import PlacedCluster
from tests.live.raw import RawConnection

BROKERS = (0, 1, 2)
DEADLINE_S = 60.0
# What was asked for may have been done.
_NO_ANSWER = (
    *(KafkaError._PARTIAL, KafkaError._TRANSPORT, KafkaError._TIMED_OUT),
    KafkaError.REQUEST_TIMED_OUT,
)
_POLL_S = 0.02
T = TypeVar("T")


def until(condition: Callable[[], T | None], what: str, deadline_s: float = DEADLINE_S) -> T:
    """The first answer that is neither None nor False."""
    deadline = time.monotonic() + deadline_s
    while True:
        found = condition()
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {deadline_s} s: {what}")
        time.sleep(_POLL_S)


def known_brokers(admin: AdminClient) -> frozenset[int]:
    """Those that the metadata names; none while nobody answers: whoever waits for more asks again.

    A client that has just been made may have half an answer (`_PARTIAL`).
    """
    try:
        return frozenset(admin.list_topics(timeout=DEADLINE_S).brokers)
    except KafkaException:
        return frozenset()


@contextmanager
def running(
    system: str,
    directory: Path,
    settings: Mapping[str, str],
    members: tuple[int, ...] = BROKERS,
) -> Iterator[LiveCluster]:
    """Brokers of a system by its name, `neaptide:4.0` or `kafka:3.9.1`, while the block lasts."""
    kind, _, version = system.partition(":")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        cluster = (
            LiveCluster(directory / "cluster", settings, version, members)
            if kind == "neaptide"
            else LiveCluster(directory / "cluster", settings, members=members, kafka=version)
        )
        try:
            yield cluster
        finally:
            cluster.close()


class LiveCluster:
    """Start it with `LiveCluster(directory)`; end it with `close`."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        generation: str = "0.11",
        members: tuple[int, ...] = BROKERS,
        kafka: str | None = None,
    ) -> None:
        """`kafka`: a version of Apache Kafka, whose brokers are started in place of our own."""
        self.members = members
        self.generation = generation
        self._loop = asyncio.new_event_loop()
        self.host = LocalHost()
        spec = ClusterSpec(members, settings, TopicSpec("unused", {}, {}))
        nodes = LocalNodes(self.host)
        self.brokers: PlacedCluster = (
            BrokerCluster(nodes, directory, generation, spec)
            if kafka is None
            else KafkaCluster(nodes, directory, kafka, spec)
        )
        self.do(self.brokers.start_coordination())
        self.zookeeper = KazooClient(f"127.0.0.1:{self.brokers.coordination_port}")
        self.zookeeper.start()
        self.start(*members)
        self.await_registered(*members)
        until(lambda: self.controller() is not None, "a controller")
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self._may_be_created = ""  # a topic that was asked for, without an answer
        until(self._all_are_in_metadata, f"{len(members)} brokers in the metadata")

    def close(self) -> None:
        self.zookeeper.stop()
        self.zookeeper.close()
        self.do(self.host.close())
        self.brokers.close()
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    # --- brokers ---------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.client_port(broker)}" for broker in self.members)

    def client_port(self, broker: int) -> int:
        return self.brokers.ports(broker)[0]

    def replication_port(self, broker: int) -> int:
        return self.brokers.ports(broker)[1]

    def start(self, *brokers: int) -> None:
        for broker in brokers:
            through = Listeners(*self.brokers.ports(broker), self.brokers.coordination_port)
            self.do(self.brokers.start(broker, through))

    def await_registered(self, *brokers: int) -> None:
        for broker in brokers:
            path = f"/brokers/ids/{broker}"
            until(lambda path=path: self.zookeeper.exists(path), f"broker {broker} registers")  # type: ignore[misc]

    def kill(self, broker: int) -> None:
        """SIGKILL, and ZooKeeper does not wait for the end of the session."""
        self.do(self.brokers.kill(broker))
        self.do(self.brokers.forget_session(broker))

    def restart(self, broker: int) -> None:
        self.start(broker)
        self.await_registered(broker)

    def pause(self, broker: int) -> None:
        self.do(self.brokers.pause(broker))

    def resume(self, broker: int) -> None:
        self.do(self.brokers.resume(broker))

    def log(self, broker: int) -> str:
        return self.brokers.logs()[f"broker-{broker}"].read_text(encoding="utf-8")

    def log_directory(self, broker: int) -> Path:
        return self.brokers.log_directory(broker)

    # --- what ZooKeeper says ---------------------------------------------------------------------

    def znode(self, path: str) -> Any:
        """Its JSON; None where it is not there."""
        try:
            return json.loads(self.zookeeper.get(path)[0])
        except NoNodeError:
            return None

    def controller(self) -> int | None:
        content = self.znode("/controller")
        return None if content is None else int(content["brokerid"])

    def controller_epoch(self) -> int:
        return int(self.znode("/controller_epoch"))

    def state(self, topic: str, partition: int = 0) -> Any:
        return self.znode(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def await_leader(self, topic: str, *, other_than: int, partition: int = 0) -> int:
        def leader() -> int | None:
            found = self.state(topic, partition)["leader"]
            return None if found in (-1, other_than) else int(found)

        return until(leader, f"{topic} is led by another broker than {other_than}")

    def await_isr(self, topic: str, isr: Sequence[int], partition: int = 0) -> None:
        until(
            lambda: sorted(self.state(topic, partition)["isr"]) == sorted(isr),
            f"{topic}-{partition} has ISR {isr}",
        )

    # --- topics ----------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        assignment: Sequence[Sequence[int]] = (BROKERS,),
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """As a client does it; returns the name when every partition has a leader."""
        new = NewTopic(
            name,
            num_partitions=len(assignment),
            replica_assignment=[list(replicas) for replicas in assignment],
            config=dict(settings or {}),
        )
        until(lambda: self._is_created(new), f"a controller that creates {name}")
        until(lambda: self.is_known(name, len(assignment)), f"{name} is in the metadata")
        return name

    def _is_created(self, new: NewTopic) -> bool:
        """A client that knows an earlier controller asks again; librdkafka leaves that to us."""
        creation = self.admin.create_topics([new], operation_timeout=DEADLINE_S)
        try:
            creation[new.topic].result(DEADLINE_S)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS and self._may_be_created == new.topic:
                return True
            if code not in (KafkaError.NOT_CONTROLLER, *_NO_ANSWER):
                raise
            if code in _NO_ANSWER:
                self._may_be_created = new.topic
            known_brokers(self.admin)  # and with them, the controller
            return False
        return True

    def is_known(self, topic: str, partitions: int) -> bool:
        """To every broker, since a client may ask any. One that has just started may not listen."""
        request = MetadataRequest(topics=(MetadataRequestTopic(name=TopicName(topic)),))
        for broker in self.members:
            if not self.brokers.is_up(broker):
                continue
            try:
                with RawConnection(self.client_port(broker)) as connection:
                    found = connection.ask(request).topics[0].partitions
            except ConnectionError:
                return False
            if len(found) != partitions or any(one.error_code.name != "none" for one in found):
                return False
        return True

    def _all_are_in_metadata(self) -> bool:
        return len(known_brokers(self.admin)) == len(self.members)
