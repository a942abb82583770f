"""One broker and what it is given: the vocabulary of the tests that need no cluster."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from neaptide.clusters.broker.replication import broker as brokers
from neaptide.clusters.broker.replication.broker import Broker, StoredReplica
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import (
    Batch,
    BrokerRegistration,
    EpochEntry,
    LeaderAndIsr,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import EpochEnd
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition
from neaptide.clusters.broker.replication.partition.unified_log import UnifiedLog
from neaptide.clusters.broker.replication.settings import replication_settings
from neaptide.clusters.broker.replication.step import step
from neaptide.clusters.cluster import STILL

T = TopicPartition("t", 0)
A, B, C = 1, 2, 3
NOW = 1_000_000
Found = TypeVar("Found")
LEADER_OF_A = events.FetcherId(B, 0)  # the fetcher of `following`


def broker(
    generation: str = "0.11",
    stored: Mapping[TopicPartition, StoredReplica] | None = None,
    **settings: Any,
) -> Broker:
    """Broker A."""
    rules = GENERATIONS[generation]
    named = {
        name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }
    return brokers.start(A, rules, replication_settings({**STILL, **named}, rules), stored or {})


def stored(
    end: int, high_watermark: int, *, start: int = 0, epochs: Mapping[int, int] | None = None
) -> dict[TopicPartition, StoredReplica]:
    entries = tuple(EpochEntry(epoch, offset) for epoch, offset in (epochs or {}).items())
    return {T: StoredReplica(UnifiedLog(start, end, entries), high_watermark)}


def leader_and_isr(
    leader: int,
    epoch: int = 0,
    isr: tuple[int, ...] = (A, B, C),
    *,
    replicas: tuple[int, ...] = (A, B, C),
    version: int = 0,
    controller_epoch: int = 1,
    request: int = 900,
    **settings: Any,
) -> events.LeaderAndIsrRequested:
    named = {name.replace("_", "."): str(value).lower() for name, value in settings.items()}
    state = LeaderAndIsr(leader, epoch, isr, controller_epoch, version)
    return events.LeaderAndIsrRequested(
        request,
        C,
        controller_epoch,
        (events.PartitionState(T, state, replicas, named),),
        tuple(BrokerRegistration(b, ()) for b in replicas if b == leader),
    )


def leading(
    generation: str = "0.11",
    isr: tuple[int, ...] = (A, B, C),
    *,
    records: int = 0,
    high_watermark: int = 0,
    min_insync_replicas: int = 1,
    **settings: Any,
) -> Broker:
    """Broker A, leader of T in epoch 0, with so many records, all followers still to fetch."""
    epochs = {0: 0} if GENERATIONS[generation].records_epochs and records else {}
    one = broker(generation, stored(records, high_watermark, epochs=epochs), **settings)
    step(one, leader_and_isr(A, 0, isr, min_insync_replicas=min_insync_replicas), NOW)
    return one


def following(generation: str = "0.11", leader: int = B, epoch: int = 0, **log: Any) -> Broker:
    """Broker A, follower of B, with the log that is described; its first request is in flight."""
    one = broker(generation, stored(**log) if log else None)
    step(one, leader_and_isr(leader, epoch), NOW)
    return one


def fetching(generation: str = "0.11", **log: Any) -> Broker:
    """A follower whose fetch is in flight: it had nothing to truncate."""
    one = following(generation, **log)
    end = one.partitions[T].log.end_offset
    rules = GENERATIONS[generation]
    if rules.records_epochs and not rules.truncates_on_fetch:
        step(one, epochs_answer(one, end), NOW)
    return one


def produce(
    *sizes: int,
    acks: int = -1,
    request: int = 1,
    timeout_ms: int = 30_000,
    error: Error = Error.NONE,
    partition: TopicPartition = T,
) -> events.ProduceRequested:
    """One record for each size."""
    batches = tuple(events.ProducedBatch(1, size, f"r{request}", error) for size in sizes or (100,))
    return events.ProduceRequested(request, acks, timeout_ms, ((partition, batches),))


def fetch(
    replica: int,
    offset: int,
    *,
    request: int = 500,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    available: int = 0,
    start: int = 0,
    last_epoch: int = -1,
    believed: int = -1,
) -> events.FetchRequested:
    asked = events.FetchedPartition(
        T, offset, 1_048_576, available, start, believed, last_fetched_epoch=last_epoch
    )
    return events.FetchRequested(request, replica, max_wait_ms, min_bytes, (asked,))


def in_flight(one: Broker) -> int:
    """The sequence number of what broker A's fetcher has asked."""
    flying = one.fetchers[LEADER_OF_A].in_flight
    assert flying is not None
    return flying.sequence


def epochs_answer(
    one: Broker, end_offset: int, error: Error = Error.NONE, leader_epoch: int = -1
) -> events.OffsetForLeaderEpochResponded:
    ended = events.EpochEndOffset(T, error, end_offset, leader_epoch)
    return events.OffsetForLeaderEpochResponded(LEADER_OF_A, in_flight(one), (ended,))


def fetch_answer(
    one: Broker,
    *bases: int,
    high_watermark: int = 0,
    start: int = 0,
    error: Error = Error.NONE,
    epoch: int = 0,
) -> events.FetchResponded:
    """One record at each base offset."""
    batches = tuple(Batch(base, 1, epoch, 100, f"r{base}") for base in bases)
    result = events.FetchResult(T, error, high_watermark, start, batches)
    return events.FetchResponded(LEADER_OF_A, in_flight(one), (result,))


def diverging_answer(
    one: Broker, epoch: int, end_offset: int, high_watermark: int = 0
) -> events.FetchResponded:
    end = EpochEnd(epoch, end_offset)
    result = events.FetchResult(T, Error.NONE, high_watermark, 0, (), end)
    return events.FetchResponded(LEADER_OF_A, in_flight(one), (result,))


def offsets_answer(one: Broker, offset: int) -> events.ListOffsetsResponded:
    listed = events.ListedOffset(T, Error.NONE, offset)
    return events.ListOffsetsResponded(LEADER_OF_A, in_flight(one), (listed,))


G = TopicPartition(OFFSETS_TOPIC, 0)
LIVE = tuple(BrokerRegistration(number, ()) for number in (A, B, C))


class GroupCoordinator:
    """Broker A, which leads the groups' partition; `requests` are counted from 100 on."""

    def __init__(self, generation: str, isr: tuple[int, ...], settings: Mapping[str, str]) -> None:
        self.isr = isr
        self.broker: Broker = broker(generation, None, **settings)
        self.last = 100
        self.lead(A, 0)
        self.do(events.CommittedOffsetsRead(G, {}))

    def lead(self, leader: int, epoch: int) -> tuple[Effect, ...]:
        wanted = {"min.insync.replicas": "1"}
        state = events.PartitionState(
            G, LeaderAndIsr(leader, epoch, self.isr, 1, epoch), (A, B, C), wanted
        )
        self.do(events.UpdateMetadataRequested(1, C, 1, (state,), LIVE, {OFFSETS_TOPIC: 1}))
        return self.do(events.LeaderAndIsrRequested(1, C, 1, (state,), LIVE))

    def do(self, event: object) -> tuple[Effect, ...]:
        return step(self.broker, event, NOW)

    def number(self) -> int:
        self.last += 1
        return self.last


def subscription(owned: Iterable[int] = (), topics: tuple[str, ...] = ("t",)) -> bytes:
    """What a consumer joins with, in version 1; `owned`: partitions of the topic `t`."""
    numbers = tuple(owned)
    data = struct.pack(">hi", 1, len(topics))
    data += b"".join(struct.pack(">h1s", 1, name.encode()) for name in topics)
    data += struct.pack(">ii", -1, bool(numbers))
    if numbers:
        data += struct.pack(f">h1si{len(numbers)}i", 1, b"t", len(numbers), *numbers)
    return data


def one(done: tuple[Effect, ...], kind: type[Found]) -> Found:
    """The one effect of a kind."""
    [found] = [effect for effect in done if isinstance(effect, kind)]
    return found


def did(done: tuple[Effect, ...], *kinds: type) -> list[Effect]:
    """The effects, or those of some kinds, without the lines for the log."""
    return [
        effect
        for effect in done
        if not isinstance(effect, effects.Note) and (not kinds or isinstance(effect, kinds))
    ]


def informed(one: Broker, done: tuple[Effect, ...]) -> tuple[Effect, ...]:
    """What a controller does when the UpdateMetadata arrives that it has sent itself."""
    sent = [e for e in done if isinstance(e, effects.SendControl) and e.broker == one.broker_id]
    updates = [e.message for e in sent if isinstance(e.message, events.UpdateMetadataRequested)]
    return tuple(effect for update in updates for effect in step(one, update, NOW))


def of(one: Broker) -> Partition:
    return one.partitions[T]


def role(one: Broker) -> Leader:
    leader = of(one).role
    assert isinstance(leader, Leader)
    return leader


def remote(one: Broker, replica: int) -> int:
    """The leader's copy of a follower's log end offset."""
    return role(one).remotes[replica].log_end_offset
