"""Invariants of a term: what a broker knows or does comes from its own leader epoch, and is done.

Each looks at one step of a broker, and answers with what it saw where it is broken; their names and
sentences are in the table. The first ones break long before a record is lost, the last ones where
nothing is lost at all and somebody waits for ever.
"""

from __future__ import annotations

from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.leader.produce import DelayedProduce, produce_outcome
from neaptide.clusters.broker.replication.model import UNKNOWN_OFFSET
from neaptide.clusters.broker.replication.partition.partition_rules import (
    Follower,
    Leader,
    maybe_increment_high_watermark,
)
from neaptide.nemesis.search.invariants.seen import NO_EPOCHS, Step

_TO_LEADERS = effects.SendFetch | effects.SendOffsetForLeaderEpoch | effects.SendListOffsets


def knows_by_fetches(step: Step) -> str | None:
    """A new leader knows nothing yet of its followers' log ends (seed 000)."""
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    if partition.role.remotes is step.memory.remotes.get(step.broker_id):
        return None
    epoch = step.memory.brokers.get(step.broker_id, NO_EPOCHS).leader
    has_led = step.memory.leaders.get(epoch) == step.broker_id
    known = step.memory.remotes.get(step.broker_id, {}) if has_led else {}
    for follower, remote in partition.role.remotes.items():
        before = known[follower].log_end_offset if follower in known else UNKNOWN_OFFSET
        if remote.log_end_offset == before:
            continue
        event = step.event
        if not isinstance(event, events.FetchRequested) or event.replica_id != follower:
            return (
                f"leader {step.broker_id} takes {follower} to end at {remote.log_end_offset},"
                f" not at {before}, and {follower} did not fetch"
            )
    return None


def fetches_from_the_leader(step: Step) -> str | None:
    """By what it asks last: in one step it may be named several leaders, one after another."""
    partition = step.partition
    if partition is None or not step.effects:
        return None
    leader = partition.role.leader if isinstance(partition.role, Follower) else None
    asked = [
        effect.fetcher.leader
        for effect in step.effects
        if isinstance(effect, _TO_LEADERS)
        and any(one.partition == partition.topic_partition for one in effect.partitions)
    ]
    if not asked or asked[-1] == leader:
        return None
    return f"broker {step.broker_id} asks {asked[-1]}, its leader is {leader}"


def cut_by_an_answer_of_now(step: Step) -> str | None:
    """Up to 0.10 nobody asks: what is cut is cut when the leader is named."""
    partition, asked_in = step.partition, step.memory.asked_in.get(step.broker_id)
    if partition is None or not isinstance(step.event, events.OffsetForLeaderEpochResponded):
        return None
    for effect in step.effects:
        if not isinstance(effect, effects.TruncateLog):
            continue
        if effect.partition == partition.topic_partition and asked_in != partition.leader_epoch:
            return (
                f"broker {step.broker_id} cuts its log in epoch {partition.leader_epoch} by what"
                f" it had asked in {asked_in}"
            )
    return None


def moves_by_the_written_isr(step: Step) -> str | None:
    """KIP-966: what is committed then is on min.insync.replicas for sure."""
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    if not step.broker.rules.eligible_leader_replicas:
        return None
    before = step.memory.high_watermarks.get(step.broker_id)
    written = step.memory.written.get(partition.version)
    if before is None or written is None or partition.high_watermark <= before:
        return None
    least = min(partition.settings.min_insync_replicas, len(partition.assigned))
    if len(written) >= least:
        return None
    return f"leader {step.broker_id} moves HW to {partition.high_watermark}, with ISR {written}"


def moves_as_far_as_it_may(step: Step) -> str | None:
    """Else a consumer waits for what is committed, and a producer for its acknowledgement.

    Looked at when it appends, or counts a fetch: that somebody has gone, or is caught up no more, a
    leader may find out later (Kafka's Partition.maybeIncrementLeaderHW is called by those two).
    """
    partition, broker = step.partition, step.broker
    if partition is None or not isinstance(partition.role, Leader):
        return None
    is_counted = partition.role.remotes is not step.memory.remotes.get(step.broker_id)
    if not isinstance(step.event, events.ProduceRequested) and not (
        is_counted and isinstance(step.event, events.FetchRequested)
    ):
        return None
    moved = maybe_increment_high_watermark.own(
        partition,
        now_ms=step.world.nodes[step.broker_id].now_ms(),
        lag_time_max_ms=broker.settings.replica_lag_time_max_ms,
        rules=broker.rules,
        ineligible=broker.ineligible_replicas(partition),
    )
    if moved.high_watermark == partition.high_watermark:
        return None
    mark = partition.high_watermark
    return f"leader {step.broker_id} leaves HW at {mark}, and all have {moved.high_watermark}"


def waits_for_something(step: Step) -> str | None:
    partition, broker = step.partition, step.broker
    if partition is None or not broker.delayed:
        return None
    led = broker.led(partition.topic_partition)
    for request, waiting in broker.delayed.items():
        if not isinstance(waiting, DelayedProduce):
            continue
        appended = waiting.partitions.get(partition.topic_partition)
        if appended is None or appended.error is not None:
            continue
        outcome = produce_outcome.own(broker, appended, led, waiting.acks)
        if outcome is not None:
            return f"leader {step.broker_id} lets {request} wait, and could answer {outcome.name}"
    return None
