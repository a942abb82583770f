"""Invariants of what replicas hold: logs, high watermarks, and what is committed in the ISR.

Rule: the two ISR properties have the names and the meaning of the TLA+ models of Kafka's
replication (docs/simulation-results.md).
"""

from __future__ import annotations

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import Leader
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.invariants import fetches
from neaptide.nemesis.search.invariants.seen import (
    NO_EPOCHS,
    Memory,
    Step,
    begin_alike,
    differs,
    obeys_for_the_process_before,
    records_of,
    with_committed,
)


def monotonic_high_watermark(step: Step) -> str | None:
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    before = step.memory.high_watermarks.get(step.broker_id, 0)
    if partition.high_watermark >= before:
        return None
    return f"leader {step.broker_id}'s went back from {before} to {partition.high_watermark}"


def high_watermark_in_log(step: Step) -> str | None:
    partition = step.partition
    if partition is None or 0 <= partition.high_watermark <= partition.log.end_offset:
        return None
    end_offset = partition.log.end_offset
    return f"broker {step.broker_id} has HW {partition.high_watermark}, LEO {end_offset}"


def log_start_below_high_watermark(step: Step) -> str | None:
    """Not asked of followers up to 2.1: they take a high watermark of their new leader that is
    below what they have deleted (from 2.4 on Log.updateHighWatermark does not)."""
    partition = step.partition
    if partition is None or partition.log.start_offset <= partition.high_watermark:
        return None
    is_bounded = GENERATIONS[step.broker.rules.name].bounds_high_watermark
    if not isinstance(partition.role, Leader) and not is_bounded:
        return None
    start_offset = partition.log.start_offset
    return f"broker {step.broker_id} starts at {start_offset}, HW {partition.high_watermark}"


def log_start_by_retention(step: Step) -> str | None:
    partition = step.partition
    if partition is None or not partition.log.start_offset:
        return None
    deleted = step.world.deleted_before(step.world.partition)
    if partition.log.start_offset <= deleted:
        return None
    start_offset = partition.log.start_offset
    return f"broker {step.broker_id} starts at {start_offset}, retention deleted to {deleted}"


def epochs_begin_in_log(step: Step) -> str | None:
    """A leader that has written nothing yet has its epoch begin where its log ends."""
    partition = step.partition
    if partition is None:
        return None
    end_offset, epochs = partition.log.end_offset, partition.log.epochs
    beyond = [entry for entry in epochs if entry.start_offset > end_offset]
    if not beyond:
        return None
    return f"broker {step.broker_id} has LEO {end_offset}, and {beyond[0]}"


def truncation_gets_on(step: Step) -> str | None:
    """KIP-279: where the histories have not met, what is asked for next is older than the answer.

    Else a follower would ask for ever, and receive the same answer. With KIP-595 a fetch asks, and
    its answer names an epoch where the histories diverge. Whose leader epoch is another than the
    one that it asked in may drop the answer (KAFKA-7395), and asks what it had asked.
    """
    if step.partition is None:
        return None
    answer = _answered_epochs(step.event).get(step.world.partition)
    asked_in = step.memory.asked_in.get(step.broker_id)
    for effect in step.effects if answer is not None else ():
        is_of_log = isinstance(effect, effects.SendOffsetForLeaderEpoch)
        if is_of_log and fetches.asked_in(step) != asked_in:
            continue
        for partition, epoch in _asked_epochs(effect):
            if partition == step.world.partition and answer is not None and epoch > answer:
                return (
                    f"broker {step.broker_id} received the answer for epoch"
                    f" {answer}, and asks for {epoch} again"
                )
    return None


def _answered_epochs(event: object) -> dict[TopicPartition, int]:
    """The epochs that a leader's answer names, of which the ends are in it."""
    match event:
        case events.OffsetForLeaderEpochResponded(results=ends):
            return {one.partition: one.leader_epoch for one in ends if one.error is Error.NONE}
        case events.FetchResponded(results=fetched):
            return {
                one.partition: one.diverging_epoch.epoch
                for one in fetched
                if one.error is Error.NONE and one.diverging_epoch is not None
            }
    return {}


def _asked_epochs(effect: object) -> list[tuple[TopicPartition, int]]:
    """The epochs that a follower names, to learn where they end."""
    match effect:
        case effects.SendOffsetForLeaderEpoch(partitions=asked):
            return [(one.partition, one.leader_epoch) for one in asked]
        case effects.SendFetch(partitions=fetched):
            return [(one.partition, one.last_fetched_epoch) for one in fetched]
    return []


def core_and_disk_agree(step: Step) -> str | None:
    partition = step.partition
    if partition is None:
        return None
    log = step.world.nodes[step.broker_id].disk.logs.get(step.world.partition)
    if log is None:
        return f"broker {step.broker_id} has the partition, and no log of it"
    held, on_disk = partition.log, (log.start_offset, log.end_offset, log.epochs)
    if (held.start_offset, held.end_offset, held.epochs) == on_disk:
        return None
    return f"broker {step.broker_id} believes in {held}, its disk has {on_disk}"


def epochs_of_the_log(step: Step) -> str | None:
    """The next one may begin at the log's end, as a leader's does that has not written yet."""
    partition, world = step.partition, step.world
    log = world.nodes[step.broker_id].disk.logs.get(world.partition)
    if partition is None or log is None or not step.broker.rules.records_epochs:
        return None
    start_offset, end_offset = partition.log.start_offset, partition.log.end_offset
    begun: dict[int, int] = {}
    for offset, epoch, _ in log.values():
        if start_offset <= offset < end_offset:
            begun.setdefault(epoch, offset)
    known = partition.log.epochs
    if known and known[-1].start_offset == end_offset:
        known = known[:-1]
    if known == tuple(begun.items()):
        return None
    return f"broker {step.broker_id} notes {partition.log.epochs}, its records have {begun}"


def producers_of_the_log(step: Step) -> str | None:
    """Not asked where retention deletes: what it deletes may be remembered, or forgotten."""
    partition, world = step.partition, step.world
    log = world.nodes[step.broker_id].disk.logs.get(world.partition)
    if partition is None or log is None or world.spec.retention_check_ms is not None:
        return None
    if not world.spec.producer.idempotence or partition.log.producers == log.producers:
        return None
    known, held = dict(partition.log.producers), dict(log.producers)
    return f"broker {step.broker_id} remembers {known}, its log has {held}"


def weak_isr(step: Step) -> str | None:
    """Every one of the ISR in which this leader believes has what lies below its HW.

    A replica that was reassigned away, and is deleted, may be in it until the leader learns that;
    so may one that has come back since, with a new log.
    """
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    if obeys_for_the_process_before(step):
        return None
    world, high_watermark = step.world, partition.high_watermark
    for member in partition.role.isr.isr:
        if begin_alike(world, step.broker_id, member, high_watermark):
            continue
        was_gone = partition.leader_epoch <= step.memory.deleted.get(member, NO_EPOCHS.leader)
        if _is_gone(world, member, was_gone=was_gone):
            continue
        found = differs(world, member, records_of(world, step.broker_id), high_watermark)
        if found is not None:
            return f"leader {step.broker_id} has committed offset {found[0]}; {member} has not"
    return None


def _is_gone(world: World, broker_id: int, *, was_gone: bool) -> bool:
    """Whether a broker has no replica, or had none, and the service does not have it in the ISR."""
    state = world.service.states.get(world.partition)
    has_log = world.partition in world.nodes[broker_id].disk.logs
    return (was_gone or not has_log) and state is not None and broker_id not in state.isr


def strong_isr(step: Step) -> str | None:
    if not moves_log(step) and not has_committed(step):
        return None
    return strong_isr_of_service(step.world, with_committed(step))


def has_committed(step: Step) -> bool:
    partition = step.partition
    return (
        partition is not None
        and isinstance(partition.role, Leader)
        and partition.high_watermark > step.memory.high_watermarks.get(step.broker_id, 0)
    )


def moves_log(step: Step) -> bool:
    return any(
        isinstance(
            effect,
            effects.AppendToLog
            | effects.TruncateLog
            | effects.TruncateFullyAndStartAt
            | effects.AdvanceLogStartOffset,
        )
        for effect in step.effects
    )


def strong_isr_of_service(world: World, memory: Memory) -> str | None:
    """What a leader's retention has deleted is no promise any more. A follower that had something
    else there is in the ISR with it for one fetch round: its leader has no epochs of what it has
    deleted, so that nothing is truncated, and the answer moves the log start (KIP-101; Kafka's
    LeaderEpochFileCache.endOffsetFor)."""
    first = world.deleted_before(world.partition)
    state = world.service.states.get(world.partition)
    if state is None or not memory.committed:
        return None
    end_offset = max(memory.committed) + 1
    for member in state.isr:
        found = differs(world, member, memory.committed, end_offset, first)
        if found is not None:
            offset, held = found
            return (
                f"offset {offset} is committed as {memory.committed[offset].value};"
                f" {member} of the ISR has {held.value if held else 'nothing'} there"
            )
    return None
