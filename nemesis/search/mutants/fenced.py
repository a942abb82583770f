"""Mutants of zombies over several epochs: what is refused to them, and what of theirs counts.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.effects import EpochEndOffsetResult
from neaptide.clusters.broker.replication.interface.events import (
    EpochAsked,
    FetchedPartition,
    FetchRequested,
)
from neaptide.clusters.broker.replication.leader import (
    fencing,
    fetch,
    in_sync_replicas,
    log_offsets,
)
from neaptide.clusters.broker.replication.model import (
    UNDEFINED_EPOCH,
    LeaderAndIsr,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition import leader_epoch_file_cache
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import (
    EpochEnd,
    Epochs,
    MeetingPoint,
)
from neaptide.clusters.broker.replication.partition.partition_rules import Partition
from neaptide.nemesis.search.mutants.mutant import unseen

# The core's own rules, whatever stands in their places while a mutant is searched.
_meeting_point = leader_epoch_file_cache.meeting_point.own
_record_follower_fetch = fetch.record_follower_fetch.own
_leader_error = fencing.leader_error.own
_fetch_error = fetch.fetch_error.own
_epoch_end = log_offsets.epoch_end.own


def refuses_no_later_epoch(
    broker: Broker,
    topic_partition: TopicPartition,
    current_leader_epoch: int = UNDEFINED_EPOCH,
    *,
    or_follower: bool = False,
) -> Error:
    held = broker.partitions.get(topic_partition)
    is_later = held is not None and current_leader_epoch > held.leader_epoch
    epoch = UNDEFINED_EPOCH if is_later else current_leader_epoch
    return _leader_error(broker, topic_partition, epoch, or_follower=or_follower)


def fetches_of_any_epoch(broker: Broker, event: FetchRequested, asked: FetchedPartition) -> Error:
    return _fetch_error(broker, event, replace(asked, current_leader_epoch=UNDEFINED_EPOCH))


def ends_for_any_epoch(broker: Broker, asked: EpochAsked) -> EpochEndOffsetResult:
    return _epoch_end(broker, replace(asked, current_leader_epoch=UNDEFINED_EPOCH))


def led_in_any_epoch(
    broker: Broker, topic_partition: TopicPartition, state: LeaderAndIsr
) -> Partition | None:
    return broker.led(topic_partition)


def meets_at_the_leaders_end(
    epochs: Epochs, log_end_offset: int, leaders: EpochEnd
) -> MeetingPoint:
    point = _meeting_point(epochs, log_end_offset, leaders)
    if not point.have_met:
        return point
    return MeetingPoint(min(leaders.end_offset, log_end_offset), have_met=True)


def counts_every_epoch(
    broker: Broker, event: FetchRequested, asked: FetchedPartition, now_ms: int
) -> None:
    of_now = replace(asked, current_leader_epoch=UNDEFINED_EPOCH)
    _record_follower_fetch(broker, event, of_now, now_ms)


def ends_at_high_watermark(broker: Broker, asked: EpochAsked) -> EpochEndOffsetResult:
    result, held = _epoch_end(broker, asked), broker.led(asked.partition)
    if held is None or result.error is not Error.NONE:
        return result
    return replace(result, end_offset=min(result.end_offset, held.high_watermark))


MUTANTS: Final = (
    unseen(
        "fenced-fetches-counted",
        fetch.record_follower_fetch,
        counts_every_epoch,
        "A fetch of another leader epoch is refused, and counted all the same.",
    ),
    unseen(
        "epochs-end-at-the-high-watermark",
        log_offsets.epoch_end,
        ends_at_high_watermark,
        "No epoch ends, for who asks, past the leader's high watermark.",
    ),
    unseen(
        "later-epochs-answered",
        fencing.leader_error,
        refuses_no_later_epoch,
        "A request of a later leader epoch is answered.",
    ),
    unseen(
        "fetches-of-any-epoch",
        fetch.fetch_error,
        fetches_of_any_epoch,
        "A fetch of another leader epoch is answered; questions for epoch ends are not.",
    ),
    unseen(
        "epoch-ends-for-any-epoch",
        log_offsets.epoch_end,
        ends_for_any_epoch,
        "A question for an epoch's end in another leader epoch is answered; fetches are not.",
    ),
    unseen(
        "isr-answers-of-any-epoch",
        in_sync_replicas.led_in_epoch,
        led_in_any_epoch,
        "A leader takes the answer to an ISR change of an earlier leader epoch for one of now.",
    ),
    unseen(
        "meets-at-the-leaders-end",
        leader_epoch_file_cache.meeting_point,
        meets_at_the_leaders_end,
        "Where both logs know an epoch, a follower forgets that its own may end before.",
        shown="the found schedule kip-279-divergence",
    ),
)
