"""Invariants of what followers ask: in which epoch they are answered, and what they then have.

Each looks at one step of a leader, and answers with what it saw where it is broken; their names and
sentences are in the table. Not asked before KIP-320, where nobody names an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import (
    UNDEFINED_EPOCH,
    UNKNOWN_OFFSET,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition.partition_rules import Follower, Leader
from neaptide.nemesis.search.invariants.seen import Step, records_of

_ASKS = effects.SendOffsetForLeaderEpoch
_ASKED = events.FetchRequested | events.OffsetForLeaderEpochRequested
_ANSWERS = effects.RespondFetch | effects.RespondOffsetForLeaderEpoch


def asked_in(step: Step) -> int | None:
    """The leader epoch in which a follower asks, in this step, where an epoch of its log ends."""
    for effect in step.effects:
        for asked in effect.partitions if isinstance(effect, _ASKS) else ():
            if asked.partition == step.world.partition:
                return asked.current_leader_epoch
    return None


def epochs_are_fenced(step: Step) -> str | None:
    """Such a request is answered with an error, and nothing is learned of a follower by it."""
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
    if others and others == named and isinstance(event, events.FetchRequested):
        follower, role = event.replica_id, partition.role
        before = step.memory.remotes.get(step.broker_id, {}).get(follower)
        if isinstance(role, Leader) and role.remotes.get(follower) != before:
            return f"broker {step.broker_id} counts a fetch of {follower} in the epoch {others}"
    return None


def counts_what_is_asked(step: Step) -> str | None:
    """A follower's log ends where it fetches from, further back than before too (seed 000)."""
    event, partition = step.event, step.partition
    if partition is None or not isinstance(event, events.FetchRequested):
        return None
    follower, role = event.replica_id, partition.role
    before = step.memory.remotes.get(step.broker_id, {}).get(follower)
    if not isinstance(role, Leader) or role.remotes.get(follower) in (None, before):
        return None
    counted = role.remotes[follower].log_end_offset
    here = partition.topic_partition
    asked = [one.fetch_offset for one in event.partitions if one.partition == here]
    if counted in asked:
        return None
    return f"{follower} fetches from {asked}, and broker {step.broker_id} counts {counted}"


def epochs_end_as_in_the_log(step: Step) -> str | None:
    """KIP-101, KIP-279, KIP-595: by the records on the disk, whatever the core knows of epochs."""
    partition, asked = step.partition, _epochs_asked(step)
    if partition is None or asked is None:
        return None
    for named, end_offset in _ends_answered(step):
        epoch = asked if named == UNDEFINED_EPOCH else named
        held = records_of(step.world, step.broker_id)
        epochs = {record.epoch for record in held.values()}
        if end_offset == UNKNOWN_OFFSET:
            if asked in epochs:
                return f"leader {step.broker_id} has records of epoch {asked}, and does not know it"
            continue
        if epoch > asked or any(epoch < one <= asked for one in epochs):
            return f"leader {step.broker_id} answers for epoch {epoch}, asked for {asked}"
        later = (offset for offset, record in held.items() if record.epoch > epoch)
        expected = min(later, default=partition.log.end_offset)
        if end_offset != expected:
            return f"leader {step.broker_id}: epoch {epoch} ends at {expected}, not at {end_offset}"
    return None


def _epochs_asked(step: Step) -> int | None:
    """The epoch of which a follower, or a client, asks where it ends."""
    event, here = step.event, step.world.partition
    if isinstance(event, events.OffsetForLeaderEpochRequested):
        asked = [one.leader_epoch for one in event.partitions if one.partition == here]
    elif isinstance(event, events.FetchRequested):
        asked = [one.last_fetched_epoch for one in event.partitions if one.partition == here]
    else:
        return None
    return asked[0] if len(asked) == 1 and asked[0] != UNDEFINED_EPOCH else None


def _ends_answered(step: Step) -> list[tuple[int, int]]:
    """Epochs (UNDEFINED_EPOCH: not named) and their ends, as this step's answers have them."""
    request, here = getattr(step.event, "request", None), step.world.partition
    ends = []
    for effect in step.effects:
        match effect:
            case effects.RespondOffsetForLeaderEpoch(request=answered, results=of_epochs):
                ends += [
                    (one.leader_epoch, one.end_offset)
                    for one in of_epochs
                    if answered == request and one.partition == here and one.error is Error.NONE
                ]
            case effects.RespondFetch(request=answered, results=fetched):
                ends += [
                    one.diverging_epoch
                    for one in fetched
                    if answered == request and one.partition == here and one.diverging_epoch
                ]
    return ends


def fetched_is_prefix(step: Step) -> str | None:
    """Log matching: who fetches in a leader's epoch has, before its offset, what the leader has.

    From KIP-595 on it may have something else, if the leader answers that it diverges; a request
    that is refused shows nothing.
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
        if _is_refused_or_diverges(step.effects, event.request, asked.partition):
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


def _is_refused_or_diverges(
    done: Sequence[object], request: int, partition: TopicPartition
) -> bool:
    return any(
        result.partition == partition
        and (result.error is not Error.NONE or result.diverging_epoch is not None)
        for effect in done
        if isinstance(effect, effects.RespondFetch) and effect.request == request
        for result in effect.results
    )
