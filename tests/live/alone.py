"""One broker, of our own or of Apache Kafka's, and phantoms that lead or follow beside it.

What a test here says of our broker it says of the Apache Kafka of that age too.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.live.cluster import LiveCluster, known_brokers, until
from tests.live.phantom import Phantom
from tests.live.struct_messages import (
    FETCH,
    LEADER_AND_ISR,
    LIST_OFFSETS,
    NONE,
    OFFSET_FOR_LEADER_EPOCH,
    STOP_REPLICA,
    Asked,
    EpochEnd,
    Fetch,
    Fetched,
    LeaderAndIsr,
    Place,
    Reader,
    StopReplica,
    encode_epochs,
    encode_list_offsets,
    read_ended,
    read_fetched,
    read_listed,
    request,
)
from tests.storage.batches import batch, message

_TIMEOUT_S = 30.0
CONSUMER = -1
REAL = 0  # the only broker that is one


@dataclass(frozen=True)
class System:
    """`fetch`: the version of Fetch that brokers of this age send each other."""

    name: str
    generation: str  # of ours
    fetch: int
    kafka: str | None = None

    @property
    def has_epochs(self) -> bool:
        return self.generation != "0.10"


SYSTEMS = (
    System("neaptide:0.10", "0.10", 5),
    System("neaptide:2.1", "2.1", 10),
    System("kafka:0.10.2.2", "0.10", 3, "0.10.2.2"),
    System("kafka:3.9.1", "2.1", 10, "3.9.1"),  # speaks to brokers as 2.1 does
)
# Of the age in which followers have fetch sessions and name no last epoch yet.
WITH_SESSIONS = (
    System("neaptide:2.0", "2.0", 8),
    System("neaptide:2.1", "2.1", 10),
    System("kafka:2.0.1", "2.0", 8, "2.0.1"),
    System("kafka:3.9.1", "2.1", 10, "3.9.1"),
)
# Of the age in which fetches have sessions and name the epoch of the last record. The tests write
# those requests themselves; `fetch` is a version that these brokers take too.
NEWER = (
    System("neaptide:2.8", "2.8", 10),
    System("neaptide:4.0", "4.0", 10),
    System("kafka:3.9.1", "2.1", 10, "3.9.1"),
)
# `make test` plays these, `make proof` the others too.
ALWAYS = frozenset({"neaptide:2.1", "neaptide:4.0", "kafka:3.9.1"})
_SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "500",
    "log.retention.ms": "-1",  # records that are made by hand are of 1970
    "num.replica.fetchers": "2",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "zookeeper.session.timeout.ms": "20000",
}


class Connection:
    """To the broker's replication listener, with messages by hand."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._stream = self._socket.makefile("rb")

    def send(self, api: int, version: int, body: bytes) -> None:
        frame = request(api, version, 1, body)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> Reader:
        size = int.from_bytes(self._stream.read(4), "big")
        reader = Reader(self._stream.read(size))
        assert reader.int32() == 1
        return reader

    def ask(self, api: int, version: int, body: bytes) -> Reader:
        self.send(api, version, body)
        return self.receive()

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


class Sent:
    """A record on its way; `error`: what its producer has been answered, None while it waits."""

    def __init__(
        self, cluster: Alone, topic: str, value: bytes, acks: int, timeout_ms: int
    ) -> None:
        self._answers: list[Any] = []
        options = {"acks": acks, "retries": 0, "request.timeout.ms": timeout_ms}
        self._producer = cluster.producer(options)
        self._producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: self._answers.append(error)
        )
        self._producer.poll(0)

    @property
    def answer(self) -> str | None:
        """ "acked", the name of an error, or None."""
        self._producer.poll(0)
        if not self._answers:
            return None
        return "acked" if self._answers[0] is None else str(self._answers[0].name())

    def await_answer(self) -> str:
        return until(lambda: self.answer, "the producer is answered")


class Alone(LiveCluster):
    """`connection` is a follower's or a consumer's, as the test says in each request."""

    def __init__(self, directory: Path, system: System, settings: Mapping[str, str]) -> None:
        self.system = system
        protocol = {"inter.broker.protocol.version": "2.1"} if system.name == "kafka:3.9.1" else {}
        super().__init__(
            directory,
            {**_SETTINGS, **protocol, **settings},
            system.generation,
            (REAL,),
            system.kafka,
        )
        self._next_phantom = 10
        self._phantoms: list[Phantom] = []

    # --- phantoms --------------------------------------------------------------------------------

    def phantom(
        self, *, registered: bool = True, again: int | None = None, rack: str | None = None
    ) -> Phantom:
        """Of an id that no other test has had, or `again` one that has left."""
        if again is None:
            self._next_phantom += 1
        broker = self._next_phantom if again is None else again
        phantom = Phantom(broker, self.brokers.coordination_port)
        self._phantoms.append(phantom)
        if registered:
            self.register(phantom, rack)
        return phantom

    def register(self, phantom: Phantom, rack: str | None = None) -> None:
        phantom.register(self.znode(f"/brokers/ids/{REAL}"), rack)
        until(lambda: phantom.broker in self.live(), f"{phantom.broker} is in the metadata")

    def live(self) -> frozenset[int]:
        return known_brokers(self.admin)

    def end_phantoms(self) -> None:
        for phantom in self._phantoms:
            phantom.leave()
        self._phantoms.clear()

    # --- asking the broker -----------------------------------------------------------------------

    def connect(self) -> Connection:
        return Connection(self.replication_port(REAL))

    def ask(self, api: int, version: int, body: bytes) -> Reader:
        connection = self.connect()
        try:
            return connection.ask(api, version, body)
        finally:
            connection.close()

    def fetch_all(self, fetch: Fetch) -> dict[Place, Fetched]:
        version = self.system.fetch
        return read_fetched(self.ask(FETCH, version, fetch.encode(version)), version)

    def fetch(self, replica: int, topic: str, offset: int, epoch: int = -1) -> Fetched:
        """At once, of partition 0; `epoch`: the leader epoch that the sender knows."""
        fetch = Fetch(replica, {(topic, 0): Asked(offset, epoch=epoch)})
        return self.fetch_all(fetch)[topic, 0]

    def list_offset(self, topic: str, timestamp: int) -> int:
        body = encode_list_offsets((topic, 0), timestamp)
        error, offset = read_listed(self.ask(LIST_OFFSETS, 1, body))
        assert error == NONE
        return offset

    def epoch_end(self, topic: str, epoch: int, current: int = -1) -> EpochEnd:
        return read_ended(
            self.ask(OFFSET_FOR_LEADER_EPOCH, 2, encode_epochs((topic, 0), epoch, current))
        )

    def stop_replica(self, epoch: int, topic: str, *, delete: bool) -> int:
        """As the controller in this epoch; the error of the whole answer."""
        message_ = StopReplica(REAL, epoch, (topic, 0), delete)
        return self.ask(STOP_REPLICA, 0, message_.encode()).int16()

    def leader_and_isr(self, topic: str, leader: Phantom, leader_epoch: int) -> int:
        """As the controller: this phantom leads; the error of the whole answer."""
        version = 0 if self.system.fetch == 3 else 1
        message_ = LeaderAndIsr(
            REAL,
            self.controller_epoch(),
            (topic, 0),
            leader.broker,
            leader_epoch,
            [leader.broker, REAL],
            leader.port,
        )
        return self.ask(LEADER_AND_ISR, version, message_.encode(version)).int16()

    def send(self, topic: str, value: bytes, acks: int = -1, timeout_ms: int = 30_000) -> Sent:
        return Sent(self, topic, value, acks, timeout_ms)

    def producer(self, options: Mapping[str, Any]) -> Producer:
        return Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 0, "log_level": 0, **options}
        )

    def produce(self, topic: str, partition: int, value: bytes) -> None:
        """One batch, which the leader alone confirms."""
        producer = self.producer({"acks": 1})
        producer.produce(topic, value, partition=partition)
        assert producer.flush(_TIMEOUT_S) == 0

    def append(self, topic: str, count: int) -> None:
        """Records of a batch each, which the leader alone confirms."""
        producer = self.producer({"acks": 1})
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=0)
            assert producer.flush(_TIMEOUT_S) == 0

    # --- what there is ---------------------------------------------------------------------------

    def records(self, base: int, values: Sequence[bytes], epoch: int = 0) -> bytes:
        """In the format of this age."""
        if self.system.fetch == 3:
            parts = [message(base + at, value, magic=1) for at, value in enumerate(values)]
            return b"".join(parts)
        return batch(base, values, epoch=epoch if self.system.has_epochs else -1)

    def isr(self, topic: str) -> list[int]:
        return sorted(self.state(topic)["isr"])
