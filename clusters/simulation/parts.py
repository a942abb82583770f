"""What the nodes have in common: the spec of their world, what they put off, who looks on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import (
    LeaderAndIsr,
    TopicConfiguration,
    TopicPartition,
)
from neaptide.clusters.broker.replication.settings import ReplicationSettings
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TRANSACTIONS_TOPIC,
)
from neaptide.clusters.producer import ProducerOptions
from neaptide.clusters.simulation.clients import GroupOperation, Read
from neaptide.clusters.simulation.network import Clock, Entry, Noise


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """What a world is made of. Durations in the units that their names say."""

    rules: Generation
    settings: ReplicationSettings
    brokers: tuple[int, ...]  # in the order in which they start: the first is controller
    topic: str
    configuration: TopicConfiguration
    latency_us: int = 500
    session_timeout_ms: int = 6_000
    socket_timeout_ms: int = 30_000  # replica.socket.timeout.ms
    retention_check_ms: int | None = None  # None: nothing is ever deleted
    noise: Noise | None = None
    clocks: Mapping[int, Clock] = field(default_factory=dict)
    producer: ProducerOptions = field(default_factory=ProducerOptions)
    offsets: TopicConfiguration | None = None  # `__consumer_offsets`; None: there is none
    transactions: TopicConfiguration | None = None  # `__transaction_state`; None: there is none
    second_client: bool = False  # of every group: asks all brokers where it is, too
    # Acknowledgements that promise something, where producers differ; None: all of them.
    acks_promised: frozenset[int] | None = None
    linger_ms: int = 0  # of producers; above 0 a request takes a record of each partition

    @property
    def internal_topics(self) -> Mapping[str, TopicConfiguration]:
        named = {OFFSETS_TOPIC: self.offsets, TRANSACTIONS_TOPIC: self.transactions}
        return {topic: one for topic, one in named.items() if one is not None}


class TimerDue(NamedTuple):
    broker: int
    timer: events.Timer


class RequestTimedOut(NamedTuple):
    """A follower has waited for an answer for replica.socket.timeout.ms."""

    number: int


class RetentionDue(NamedTuple):
    """A broker looks whether its logs are too large (log.retention.check.interval.ms)."""

    broker: int
    started_us: int


class SessionTimedOut(NamedTuple):
    broker: int
    silent_since_us: int


class Register(NamedTuple):
    """A broker that has started asks for a session."""

    unclean_shutdown: bool


class Asked(NamedTuple):
    """A follower's request that waits for its answer."""

    broker: int
    leader: int
    effect: effects.SendFetch | effects.SendOffsetForLeaderEpoch | effects.SendListOffsets
    sent_us: int


class Call(NamedTuple):
    """A broker's request that waits for its answer. `number`: `request` in the message."""

    number: int
    target: int
    sequence: int
    sent_us: int


class FetchPosition(NamedTuple):
    """What the wire has shown of a follower: its LEO by its request, its HW by the answer."""

    leader: int
    leader_epoch: int
    round: int
    log_end_offset: int
    high_watermark: int | None
    at_us: int  # when the request was sent


class Recorder(Protocol):
    """Gets what a run directory keeps. A search has none."""

    def asked(self, entry: Entry) -> None: ...
    def answered(self, entry: Entry) -> None: ...
    def event(self, entry: Entry) -> None: ...
    def blocked(self, entry: Entry) -> None: ...
    def dropped(self, entry: Entry) -> None: ...
    def state(self, partition: TopicPartition, state: LeaderAndIsr) -> None: ...
    def polled(self, reading: Read, values: list[tuple[int, int, object]]) -> None: ...
    def of_group(self, done: GroupOperation) -> None: ...
