"""Mutants of several partitions in one request and one fetcher: what of one is done to another.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.follower import replica_fetcher_manager
from neaptide.clusters.broker.replication.follower.replica_fetcher import (
    Fetching,
    PartitionFetchState,
    ReplicaFetcher,
    Truncating,
)
from neaptide.clusters.broker.replication.interface.effects import SendOffsetForLeaderEpoch
from neaptide.clusters.broker.replication.interface.events import (
    ACKS_ALL,
    EpochAsked,
    EpochEndOffset,
    FetcherId,
    FetchRequested,
)
from neaptide.clusters.broker.replication.leader import fetch, produce
from neaptide.clusters.broker.replication.leader.produce import Appended, DelayedProduce
from neaptide.clusters.broker.replication.model import UNKNOWN_OFFSET, TopicPartition
from neaptide.clusters.broker.replication.partition import leader_epoch_file_cache
from neaptide.clusters.broker.replication.partition.partition_rules import Partition
from neaptide.nemesis.search.mutants.mutant import unseen

# The core's own rules, whatever stands in their places while a mutant is searched.
_with_outcome = produce.with_outcome.own
_truncate = replica_fetcher_manager.truncate_as_answered.own
_respond = fetch.respond.own


def asks_all_for_one_epoch(broker: Broker, fetcher: ReplicaFetcher) -> bool:
    """By the first partition's latest epoch."""
    chosen = replica_fetcher_manager.in_state(broker, fetcher, Truncating)
    if chosen:
        epoch = leader_epoch_file_cache.latest_epoch(chosen[0][2].log.epochs)
        asked = tuple(EpochAsked(tp, epoch, followed.leader_epoch) for tp, followed, _ in chosen)
        sequence = replica_fetcher_manager.sent_to(broker, fetcher, chosen)
        broker.do(SendOffsetForLeaderEpoch(fetcher.fetcher_id, sequence, asked))
    return bool(chosen)


def ends_the_truncation_of_all(
    broker: Broker,
    fetcher_id: FetcherId,
    partition: Partition,
    result: EpochEndOffset,
    followed: PartitionFetchState,
    now_ms: int,
) -> None:
    _truncate(broker, fetcher_id, partition, result, followed, now_ms)
    fetcher = broker.fetchers[fetcher_id]
    going_on = {
        tp: replace(one, state=Fetching()) if isinstance(one.state, Truncating) else one
        for tp, one in fetcher.followed.items()
    }
    broker.fetchers[fetcher_id] = replace(fetcher, followed=going_on)


def answers_the_first_high_watermark(
    broker: Broker,
    message: FetchRequested,
    high_watermarks: Mapping[TopicPartition, int] | None = None,
) -> None:
    first = broker.led(message.partitions[0].partition) if message.partitions else None
    if first is not None:
        mark = first.high_watermark
        if high_watermarks is not None:
            mark = high_watermarks.get(first.topic_partition, mark)
        high_watermarks = {asked.partition: mark for asked in message.partitions}
    _respond(broker, message, high_watermarks)


def completes_with_any(self: DelayedProduce, broker: Broker) -> bool:
    return any(appended.error is not None for appended in self.partitions.values())


def finds_out_anew(
    broker: Broker, topic_partition: TopicPartition, appended: Appended, acks: int = ACKS_ALL
) -> Appended:
    forgotten = appended if appended.error is None else replace(appended, error=None)
    waits = appended.required_offset != UNKNOWN_OFFSET  # what was refused has nothing to wait for
    return _with_outcome(broker, topic_partition, forgotten if waits else appended, acks)


MUTANTS: Final = (
    unseen(
        "outcomes-found-anew",
        produce.with_outcome,
        finds_out_anew,
        "What became of a partition of a produce request is found out again while others wait.",
    ),
    unseen(
        "completes-with-any-partition",
        DelayedProduce.is_complete,
        completes_with_any,
        "A produce request is answered when one of its partitions is done.",
    ),
    unseen(
        "asks-all-for-one-epoch",
        replica_fetcher_manager.send_epochs,
        asks_all_for_one_epoch,
        "A follower asks for the first partition's latest epoch in the name of all.",
    ),
    unseen(
        "one-truncated-all-fetch",
        replica_fetcher_manager.truncate_as_answered,
        ends_the_truncation_of_all,
        "When one partition of a fetcher is truncated, the others fetch without being so.",
    ),
    unseen(
        "first-high-watermark-for-all",
        fetch.respond,
        answers_the_first_high_watermark,
        "An answer carries the high watermark of its first partition for all of them.",
    ),
)
