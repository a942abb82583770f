"""Mutants of the high watermark: for whom it waits, where it begins, what moves it back.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.broker import StoredReplica
from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.interface.events import PartitionState
from neaptide.clusters.broker.replication.model import (
    UNKNOWN_BROKER_EPOCH,
    Batch,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition import partition_rules
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition
from neaptide.clusters.broker.replication.partition.remote_replica import (
    RemoteReplica,
    is_caught_up,
)
from neaptide.clusters.simulation.disk import Disk
from neaptide.nemesis.search.mutants.isr import without_leaving
from neaptide.nemesis.search.mutants.mutant import ONE, STALE, UNCLEAN, Mutant, rule, unseen

# The core's own rules, whatever stands in their places while a mutant is searched.
_partition_truncate_to = partition_rules.truncate_to.own
_make_leader = partition_rules.make_leader.own
_append_as_follower = partition_rules.append_as_follower.own
_record_follower_fetch = partition_rules.record_follower_fetch.own
_stored = Disk.stored.own
Members = Callable[[Leader], Collection[int]]
MoveHighWatermark = Callable[..., Partition]


def keeps_high_watermark(held: Partition, offset: int) -> Partition:
    return replace(_partition_truncate_to(held, offset), high_watermark=held.high_watermark)


def log_ends_never_go_back(
    partition: Partition,
    replica_id: int,
    *,
    fetch_offset: int,
    log_start_offset: int,
    now_ms: int,
    rules: Generation,
    broker_epoch: int = UNKNOWN_BROKER_EPOCH,
) -> Partition:
    assert isinstance(partition.role, Leader)
    before = partition.role.remotes.get(replica_id, RemoteReplica()).log_end_offset
    return _record_follower_fetch(
        partition,
        replica_id,
        fetch_offset=max(before, fetch_offset),
        log_start_offset=log_start_offset,
        now_ms=now_ms,
        rules=rules,
        broker_epoch=broker_epoch,
    )


def moves_to(offset_of: Callable[[Partition, Leader], int]) -> MoveHighWatermark:
    """The high watermark is what `offset_of` says, if that is further."""

    def moved(
        led: Partition, *, now_ms: int, lag_time_max_ms: int, rules: Generation, **_: Any
    ) -> Partition:
        assert isinstance(led.role, Leader)
        offset = offset_of(led, led.role)
        return (
            led if offset <= led.high_watermark else partition_rules.set_high_watermark(led, offset)
        )

    return moved


def waits_for(members: Members, *, for_caught_up: bool = True) -> MoveHighWatermark:
    """The high watermark waits for these, and not for the maximal ISR."""

    def moved(
        led: Partition, *, now_ms: int, lag_time_max_ms: int, rules: Generation, **_: Any
    ) -> Partition:
        assert isinstance(led.role, Leader)
        counted = set(members(led.role))
        if for_caught_up:
            remotes = led.role.remotes.items()
            counted |= {r for r, one in remotes if is_caught_up(one, now_ms, lag_time_max_ms)}
        lowest = lowest_of(led, led.role, counted)
        return (
            led if lowest <= led.high_watermark else partition_rules.set_high_watermark(led, lowest)
        )

    return moved


def lowest_of(led: Partition, leader: Leader, counted: Collection[int]) -> int:
    known = [one.log_end_offset for r, one in leader.remotes.items() if r in counted]
    return min(known, default=led.log.end_offset)


def majority(led: Partition, leader: Leader) -> int:
    ends = [led.log.end_offset, *(one.log_end_offset for one in leader.remotes.values())]
    return sorted(ends, reverse=True)[len(ends) // 2]


def log_end(led: Partition, leader: Leader) -> int:
    return led.log.end_offset


def fastest(led: Partition, leader: Leader) -> int:
    ends = [one.log_end_offset for r, one in leader.remotes.items() if r in leader.isr.maximal]
    return max(ends, default=led.log.end_offset)


def written_isr(leader: Leader) -> Collection[int]:
    return leader.isr.isr


def maximal_isr(leader: Leader) -> Collection[int]:
    return leader.isr.maximal


def goes_back(led: Partition, **_: Any) -> Partition:
    assert isinstance(led.role, Leader)
    return partition_rules.set_high_watermark(
        led, max(0, lowest_of(led, led.role, led.role.isr.maximal))
    )


def believes_all_level(
    led: Partition, sent: PartitionState, *, broker_id: int, now_ms: int, rules: Generation
) -> Partition:
    made = _make_leader(led, sent, broker_id=broker_id, now_ms=now_ms, rules=rules)
    assert isinstance(made.role, Leader)
    remotes = {
        r: replace(one, log_end_offset=made.log.end_offset) for r, one in made.role.remotes.items()
    }
    return replace(made, role=replace(made.role, remotes=remotes))


def believes_its_log_committed(
    held: Partition, batches: tuple[Batch, ...], **rest: Any
) -> Partition:
    appended = _append_as_follower(held, batches, **rest)
    return partition_rules.set_high_watermark(appended, appended.log.end_offset)


def reads_log_end_as_high_watermark(disk: Disk) -> Mapping[TopicPartition, StoredReplica]:
    stored = _stored(disk)
    return {tp: replace(one, high_watermark=one.log.end_offset) for tp, one in stored.items()}


def reads_no_high_watermark(disk: Disk) -> Mapping[TopicPartition, StoredReplica]:
    return {tp: replace(one, high_watermark=0) for tp, one in _stored(disk).items()}


def moves_hw(name: str, by: MoveHighWatermark, sentence: str, **rest: Any) -> Mutant:
    return rule(name, partition_rules.maybe_increment_high_watermark, by, sentence, **rest)


MUTANTS: Final = (
    unseen(
        "log-ends-never-go-back",
        partition_rules.record_follower_fetch,
        log_ends_never_go_back,
        "A follower that has lost records is counted with those that it had fetched.",
    ),
    moves_hw(
        "hw-of-the-majority",
        moves_to(majority),
        "The high watermark is what most replicas have.",
    ),
    moves_hw(
        "hw-is-log-end",
        moves_to(log_end),
        "The high watermark is the leader's log end.",
    ),
    moves_hw(
        "hw-of-the-fastest",
        moves_to(fastest),
        "The high watermark is what the fastest of the ISR has.",
    ),
    moves_hw(
        "pending-expansion-ignored",
        waits_for(written_isr, for_caught_up=False),
        "The high watermark does not wait for one whose joining is being written.",
        shown="a leader that does not learn that a joining is written",
    ),
    moves_hw(
        "pending-shrink-counts-at-once",
        waits_for(without_leaving),
        "The high watermark does not wait for one whose leaving is being written.",
        topic_settings=ONE,
        faults=STALE,
        shown="a leader that is cut off and wants all others out of the ISR",
    ),
    moves_hw(
        "caught-up-outsiders-ignored",
        waits_for(maximal_isr, for_caught_up=False),
        "The high watermark does not wait for one who is caught up and not yet in the ISR.",
        hidden="only its joining gets harder: from when it is written on it is waited for",
    ),
    moves_hw(
        "hw-goes-back",
        goes_back,
        "The high watermark follows the slowest of the ISR, back too.",
    ),
    rule(
        "believes-all-level",
        partition_rules.make_leader,
        believes_all_level,
        "A new leader believes that its followers have all that it has.",
    ),
    rule(
        "followers-believe-all-committed",
        partition_rules.append_as_follower,
        believes_its_log_committed,
        "A follower takes all that it has for committed.",
    ),
    rule(
        "hw-read-as-log-end",
        Disk.stored,
        reads_log_end_as_high_watermark,
        "A broker that starts takes all that it has for committed.",
    ),
    rule(
        "hw-not-read",
        Disk.stored,
        reads_no_high_watermark,
        "A broker that starts knows no high watermark.",
        hidden="from 0.11 on it only delays: a high watermark that is too low decides nothing",
    ),
    rule(
        "hw-not-truncated",
        partition_rules.truncate_to,
        keeps_high_watermark,
        "A high watermark stays where it was when the log before it is cut.",
        settings=UNCLEAN,
    ),
)
