"""Invariants of what followers ask: in which epoch they are answered, and what they then have.

Each looks at one step of a leader, and answers with what it saw where it is broken; their names and
sentences are in the table. Not asked before KIP-320, where nobody names an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import UNDEFINED_EPOCH, TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import Follower
from neaptide.nemesis.search.invariants.seen import Step, records_of

_ASKED = events.FetchRequested | events.OffsetForLeaderEpochRequested
_ANSWERS = effects.RespondFetch | effects.RespondOffsetForLeaderEpoch


def epochs_are_fenced(step: Step) -> str | None:
    event, partition = step.event, step.partition
    if partition is None or not step.broker.rules.fences_leader_epochs:
        return None
    if not isinstance(event, _ASKED):
        return None
    here = partition.topic_partition
    named = {asked.current_leader_epoch for asked in event.partitions if asked.partition == here}
    others = named - {UNDEFINED_EPOCH, partition.leader_epoch}
    for effect in step.effects if others else ():
        if not isinstance(effect, _ANSWERS) or effect.request != event.request:
            continue
        if any(one.partition == here and one.error is Error.NONE for one in effect.results):
            epoch = partition.leader_epoch
            return f"broker {step.broker_id}, in epoch {epoch}, answers a request of {others}"
    return None


def fetched_is_prefix(step: Step) -> str | None:
    """Log matching: who fetches in a leader's epoch has, before its offset, what the leader has.

    From KIP-595 on it may have something else, if the leader answers that it diverges.
    """
    event, partition = step.event, step.partition
    if partition is None or not isinstance(event, events.FetchRequested) or event.replica_id < 0:
        return None
    follower = step.world.brokers.get(event.replica_id)
    held = None if follower is None else follower.partitions.get(partition.topic_partition)
    is_led = step.broker.led(partition.topic_partition) is not None
    if held is None or not is_led or not isinstance(held.role, Follower):
        return None
    for asked in event.partitions:
        epochs = {asked.current_leader_epoch, held.leader_epoch, partition.leader_epoch}
        is_here = asked.partition == partition.topic_partition
        end_offset = partition.log.end_offset
        if _is_answered_to_diverge(step.effects, event.request, asked.partition):
            continue
        if not is_here or len(epochs) > 1 or asked.fetch_offset != held.log.end_offset:
            continue
        if asked.fetch_offset > end_offset:
            return f"{event.replica_id} fetches from {asked.fetch_offset}, its leader ends before"
        theirs, own = (
            records_of(step.world, event.replica_id),
            records_of(step.world, step.broker_id),
        )
        for offset in sorted(theirs.keys() & own.keys()):
            if theirs[offset] != own[offset]:
                return (
                    f"{event.replica_id} fetches, with another record at {offset} than its leader"
                )
    return None


def _is_answered_to_diverge(
    done: Sequence[object], request: int, partition: TopicPartition
) -> bool:
    return any(
        result.partition == partition and result.diverging_epoch is not None
        for effect in done
        if isinstance(effect, effects.RespondFetch) and effect.request == request
        for result in effect.results
    )
