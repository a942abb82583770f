"""What a follower does when its leader answers OFFSET_OUT_OF_RANGE (seed 000: cases A, B1 and B2).

It asks for the leader's latest offset. If its own log is longer (B1), it cuts its log there, or
halts: see `_must_not_truncate`. Otherwise it asks for the leader's earliest offset. If its own log
ends before that (A), it drops its log and starts afresh there; if not (B2), the leader has grown
past it meanwhile, and it fetches on. As Kafka's AbstractFetcherThread.fetchOffsetAndTruncate.
"""

from __future__ import annotations

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.follower.replica_fetcher import (
    Fetching,
    FetchState,
    OutOfRange,
)
from neaptide.clusters.broker.replication.follower.truncation import start_afresh, truncate
from neaptide.clusters.broker.replication.interface.effects import Halt
from neaptide.clusters.broker.replication.interface.events import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListedOffset,
)
from neaptide.clusters.broker.replication.partition.partition_rules import Partition
from neaptide.clusters.broker.replication.rule import rule


def timestamp(state: FetchState) -> int:
    """What a follower that is out of range asks ListOffsets for."""
    asks_earliest = isinstance(state, OutOfRange) and state.asks_earliest
    return EARLIEST_TIMESTAMP if asks_earliest else LATEST_TIMESTAMP


@rule
def next_state(
    broker: Broker, leader: int, partition: Partition, listed: ListedOffset, *, asked_earliest: bool
) -> FetchState | None:
    """Adjusts the log by the leader's answer; returns what is next, or None: this broker halts."""
    if asked_earliest:
        if listed.offset > partition.log.end_offset:  # A: all that this log had is gone there
            start_afresh(broker, partition, listed.offset)
        # else B2: the leader has grown past this log's end meanwhile; go on from there.
        return Fetching()
    if listed.offset >= partition.log.end_offset:
        return OutOfRange(asks_earliest=True)
    if _must_not_truncate(broker, partition):  # B1: the leader's log is shorter
        broker.do(
            Halt(
                f"{partition.topic_partition}: log truncation is not allowed: the log end offset"
                f" {listed.offset} of leader {leader} is below"
                f" {partition.log.end_offset}, and unclean.leader.election.enable is false"
            )
        )
        return None
    truncate(broker, partition, listed.offset)
    return Fetching()


def _must_not_truncate(broker: Broker, partition: Partition) -> bool:
    """Whether a leader behind this replica can only be an unclean one, where none is allowed."""
    unclean = partition.settings.unclean_leader_election_enable
    return broker.rules.halts_on_shorter_leader and not unclean
