"""Invariants of requests that wait for their answers on a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects
from neaptide.clusters.broker.replication.interface.events import TimerFired
from neaptide.clusters.broker.replication.leader.produce import DelayedProduce
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import Leader
from neaptide.nemesis.search.invariants.seen import Step

_RESPONSES: Final = (
    effects.RespondProduce,
    effects.RespondFetch,
    effects.RespondOffsetForLeaderEpoch,
    effects.RespondListOffsets,
    effects.RespondOffsetCommit,
    effects.RespondOffsetFetch,
)


def parked_is_watched(step: Step) -> str | None:
    watched = {request for requests in step.broker.watchers.values() for request in requests}
    if watched == set(step.broker.delayed):
        return None
    odd = sorted(watched ^ set(step.broker.delayed))
    return f"broker {step.broker_id}: nobody wakes, or somebody would wake, {odd}"


def waits_on_a_leader(step: Step) -> str | None:
    """Who leads again later may have lost what was appended before."""
    partition = step.partition
    if partition is None or isinstance(partition.role, Leader):
        return None
    for request, operation in step.broker.delayed.items():
        appended = getattr(operation, "partitions", {}).get(partition.topic_partition)
        if appended is not None and appended.error is None:
            return f"broker {step.broker_id} lets {request} wait for acks, and does not lead"
    return None


def outcome_is_kept(step: Step) -> str | None:
    """Who loses its role and gets it back may have lost the record (DelayedProduce)."""
    if step.partition is None:
        return None
    here = step.partition.topic_partition
    now = {request: _outcomes(one) for request, one in step.broker.delayed.items()}
    for effect in step.effects:
        if isinstance(effect, effects.RespondProduce):
            now[effect.request] = {one.partition: one.error for one in effect.results}
    for request, waiting in step.memory.parked.get(step.broker_id, {}).items():
        before = _outcomes(waiting).get(here)
        after = now.get(request, {}).get(here, before)
        if before is not None and before is not after:
            was, became = before.name, "nothing" if after is None else after.name
            return f"broker {step.broker_id} knew {was} of {request}, and now {became}"
    return None


def _outcomes(waiting: object) -> Mapping[TopicPartition, Error | None]:
    if not isinstance(waiting, DelayedProduce):
        return {}
    return {tp: appended.error for tp, appended in waiting.partitions.items()}


def times_out_by_its_timer(step: Step) -> str | None:
    """An error of time before its time is over is a lie, if a harmless one."""
    if isinstance(step.event, TimerFired):
        return None
    for effect in step.effects:
        match effect:
            case effects.RespondProduce(request=request, results=produced):
                errors = [one.error for one in produced]
            case effects.RespondOffsetCommit(request=request, results=committed):
                errors = [error for _, error in committed]
            case _:
                continue
        if Error.REQUEST_TIMED_OUT in errors:
            return f"broker {step.broker_id} says that {request} timed out, and it did not"
    return None


def coordinator_leads(step: Step) -> str | None:
    """Another may have been elected, and have taken later commits."""
    for partition in step.broker.committed_offsets:
        if step.broker.led(partition) is None:
            return f"broker {step.broker_id} speaks for groups of {partition}, and does not lead it"
    return None


def answered_once(step: Step) -> str | None:
    """Only what was parked, or has just come, may be answered; not again, and not parked still."""
    asked = {getattr(step.event, "request", None)}
    open_requests = asked | step.memory.parked.get(step.broker_id, {}).keys()
    answered = [effect.request for effect in step.effects if isinstance(effect, _RESPONSES)]
    for request in answered:
        if request not in open_requests or answered.count(request) > 1:
            return f"broker {step.broker_id} answers {request}, for which nobody waits"
        if request in step.broker.delayed:
            return f"broker {step.broker_id} answers {request} and keeps it waiting"
    return None
