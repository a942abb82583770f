"""Invariants of what a leader promises: by an acknowledgement, to a consumer, by a high watermark.

Each looks at one step of a broker, and answers with what it saw where it is broken; their names and
sentences are in the table. Not asked where a rule makes no such promise: acks=1, followers.
"""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.group_coordinator import DelayedCommit
from neaptide.clusters.broker.replication.interface import effects
from neaptide.clusters.broker.replication.interface.events import ACKS_ALL, FetchRequested
from neaptide.clusters.broker.replication.leader.produce import (
    Appended,
    DelayedProduce,
    has_too_small_an_isr,
)
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import CommittedIsr, Leader
from neaptide.nemesis.search.invariants.seen import Step, obeys_for_the_process_before


def _newly_acked(step: Step) -> Iterator[int]:
    """The offsets that acks=all has acknowledged of the partition, by what this step found out.

    A request waits for its slowest partition. The outcome of each is kept once it is known, as in
    Kafka's DelayedProduce: how the partition is when the answer goes out is no matter.
    """
    assert step.partition is not None
    here = step.partition.topic_partition
    parked = step.memory.parked.get(step.broker_id, {})
    for request, waiting in step.broker.delayed.items():
        outcome = _acked_in(waiting, here)
        if outcome is not None and _acked_in(parked.get(request), here) is None:
            yield outcome.base_offset
    for effect in step.effects:
        if not isinstance(effect, effects.RespondProduce) or effect.acks != ACKS_ALL:
            continue
        if _acked_in(parked.get(effect.request), here) is not None:
            continue
        for result in effect.results:
            if result.partition == here and result.error is Error.NONE:
                yield result.base_offset


def _acked_in(waiting: object, topic_partition: TopicPartition) -> Appended | None:
    """What is acknowledged already of a parked request to acks=all."""
    if not isinstance(waiting, DelayedProduce) or waiting.acks != ACKS_ALL:
        return None
    appended = waiting.partitions.get(topic_partition)
    return appended if appended is not None and appended.error is Error.NONE else None


def acked_is_committed(step: Step) -> str | None:
    partition = step.partition
    if partition is None:
        return None
    mark = partition.high_watermark
    for offset in _newly_acked(step):
        if offset >= mark:
            return f"offset {offset} is acknowledged to acks=all, with HW {mark}"
    return None


def acked_commit_is_committed(step: Step) -> str | None:
    """Of a group's positions that had to wait: their record is on all of the ISR."""
    parked = step.memory.parked.get(step.broker_id, {})
    for effect in step.effects:
        if not isinstance(effect, effects.RespondOffsetCommit):
            continue
        waited = parked.get(effect.request)
        led = step.broker.led(waited.partition) if isinstance(waited, DelayedCommit) else None
        if led is None or not isinstance(waited, DelayedCommit):
            continue
        is_acked = any(error is Error.NONE for _, error in effect.results)
        if is_acked and waited.appended.required_offset > led.high_watermark:
            end, mark = waited.appended.required_offset, led.high_watermark
            return f"a commit up to offset {end} is acknowledged, with HW {mark}"
    return None


def acked_by_min_insync(step: Step) -> str | None:
    """Else the producer receives NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    isr, rules = partition.role.isr.isr, step.broker.rules
    for offset in _newly_acked(step):
        if has_too_small_an_isr(partition, rules):
            return f"offset {offset} is acknowledged to acks=all, with ISR {isr}"
    return None


def reads_below_high_watermark(step: Step) -> str | None:
    event, partition = step.event, step.partition
    if partition is None or not isinstance(event, FetchRequested) or event.replica_id >= 0:
        return None
    for effect in step.effects:
        if not isinstance(effect, effects.RespondFetch) or effect.request != event.request:
            continue
        for result in effect.results:
            end = result.records.end if result.records else 0
            if result.partition == partition.topic_partition and end > partition.high_watermark:
                return f"a consumer is sent up to {end}, with HW {partition.high_watermark}"
    return None


def answers_no_more_than_high_watermark(step: Step) -> str | None:
    """To followers and consumers alike: what was read of it before is less."""
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    for effect in step.effects:
        for result in effect.results if isinstance(effect, effects.RespondFetch) else ():
            is_here = result.partition == partition.topic_partition
            if is_here and result.high_watermark > partition.high_watermark:
                mark = partition.high_watermark
                return f"an answer carries HW {result.high_watermark}, the leader's is {mark}"
    return None


def high_watermark_waits(step: Step) -> str | None:
    """Looked at when it moves: who joins later is behind, and that is no matter. A process that
    starts moves nothing: it knows what it had checkpointed."""
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    mark, before = partition.high_watermark, step.memory.high_watermarks.get(step.broker_id)
    if before is None or mark <= before:
        return None
    for member in sorted(partition.role.isr.maximal):
        remote = partition.role.remotes.get(member)
        if remote is not None and remote.log_end_offset < mark:
            return f"HW {mark} did not wait for {member}, which is at {remote.log_end_offset}"
    return None


def isr_as_written(step: Step) -> str | None:
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    written = step.memory.written.get(partition.version)
    isr = partition.role.isr
    if written is None or not isinstance(isr, CommittedIsr) or set(isr.isr) == set(written):
        return None
    return f"leader {step.broker_id} believes in {isr.isr}, version {partition.version}: {written}"


def written_isr_is_counted(step: Step) -> str | None:
    """In its leader epoch nobody but the leader changes the ISR that is written."""
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    written = step.world.service.states.get(step.world.partition)
    if written is None or written.leader_epoch != partition.leader_epoch:
        return None
    if obeys_for_the_process_before(step):
        return None
    left_out = sorted(set(written.isr) - set(partition.role.isr.maximal))
    if not left_out:
        return None
    return f"leader {step.broker_id} does not count {left_out}, in the ISR {written.isr} as written"
