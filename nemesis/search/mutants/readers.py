"""Mutants of what is read and what is deleted: consumers' reads, log starts, retention.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.follower import out_of_range
from neaptide.clusters.broker.replication.follower.replica_fetcher import Fetching, FetchState
from neaptide.clusters.broker.replication.follower.truncation import start_afresh
from neaptide.clusters.broker.replication.interface.events import (
    CONSUMER,
    FetchRequested,
    ListedOffset,
)
from neaptide.clusters.broker.replication.leader import fetch
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition
from neaptide.clusters.simulation.disk import SimulatedLog
from neaptide.nemesis.search.mutants.mutant import unseen

# The core's own rules, whatever stands in their places while a mutant is searched.
_readable_end = fetch.readable_end.own
_respond = fetch.respond.own
_next_state = out_of_range.next_state.own
_retain = SimulatedLog.retain.own


def shows_what_it_had(led: Partition, replica_id: int, *, is_committed: bool = False) -> int:
    end = _readable_end(led, replica_id, is_committed=is_committed)
    if replica_id != CONSUMER or not isinstance(led.role, Leader):
        return end
    return max(end, led.role.epoch_start_offset)


def answers_log_end(
    broker: Broker,
    message: FetchRequested,
    high_watermarks: Mapping[TopicPartition, int] | None = None,
) -> None:
    if message.replica_id == CONSUMER:
        led = {one.partition: broker.led(one.partition) for one in message.partitions}
        high_watermarks = {tp: one.log.end_offset for tp, one in led.items() if one is not None}
    _respond(broker, message, high_watermarks)


def starts_at_the_high_watermark(led: Partition) -> int:
    return max(led.log.start_offset, led.high_watermark)


def starts_afresh_at_the_end(
    broker: Broker, leader: int, partition: Partition, listed: ListedOffset, *, asked_earliest: bool
) -> FetchState | None:
    if not asked_earliest and listed.offset > partition.log.end_offset:
        start_afresh(broker, partition, listed.offset)
        return Fetching()
    return _next_state(broker, leader, partition, listed, asked_earliest=asked_earliest)


def retains_nothing_committed(log: SimulatedLog, high_watermark: int) -> bool:
    return _retain(log, log.end_offset)


MUTANTS: Final = (
    unseen(
        "new-leader-shows-all-it-had",
        fetch.readable_end,
        shows_what_it_had,
        "A new leader lets consumers read all that it had when it became leader.",
    ),
    unseen(
        "consumers-receive-the-log-end",
        fetch.respond,
        answers_log_end,
        "Answers to consumers carry the log end offset as the high watermark.",
    ),
    unseen(
        "log-start-is-high-watermark",
        fetch.shown_log_start,
        starts_at_the_high_watermark,
        "A leader's answers carry the high watermark as the log start offset.",
    ),
    unseen(
        "starts-afresh-at-the-end",
        out_of_range.next_state,
        starts_afresh_at_the_end,
        "A follower that is out of range starts afresh where its leader's log ends.",
    ),
    unseen(
        "retention-ignores-high-watermark",
        SimulatedLog.retain,
        retains_nothing_committed,
        "Retention deletes what is not committed yet.",
    ),
)
