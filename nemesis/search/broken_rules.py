"""Rules of replication, each broken in one place: what mutants put where the core's own rule was.

Not a second core: each is the core's own function with one thing wrong, and keeps its signature.
Which mutant replaces what by which of these is in mutants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from clusters.broker.replication import (
    control,
    controlling,
    election,
    eligible,
    following,
    leading,
    partition,
    truncation,
)
from clusters.broker.replication import fetcher as fetchers
from clusters.broker.replication import log as logs
from clusters.broker.replication.broker import Broker, StoredReplica
from clusters.broker.replication.controller_state import Active
from clusters.broker.replication.coordination import LeaderAndIsrConflict, LeaderAndIsrWritten
from clusters.broker.replication.effects import Effect, WriteLeaderEpochCheckpoint
from clusters.broker.replication.eligible import Eligibility
from clusters.broker.replication.epochs import EpochEnd
from clusters.broker.replication.errors import Error
from clusters.broker.replication.fencing import leader_error
from clusters.broker.replication.fetcher import Fetching, Truncating
from clusters.broker.replication.generation import GENERATIONS, Generation
from clusters.broker.replication.log import Log
from clusters.broker.replication.messages import FetcherRequestFailed, ListedOffset, PartitionState
from clusters.broker.replication.model import Batch, LeaderAndIsr, TopicPartition
from clusters.broker.replication.partition import (
    CommittedIsr,
    Follower,
    Leader,
    Partition,
    PendingShrinkIsr,
)
from clusters.broker.replication.purgatory import Appended, produce_outcome
from clusters.broker.replication.replica import is_caught_up
from clusters.simulation.disk import Disk
from clusters.simulation.service import Service

# The core's own rules, whatever stands in their places while a mutant is searched.
_truncate = truncation.truncate
_log_truncate_to = logs.truncate_to
_partition_truncate_to = partition.truncate_to
_make_leader = partition.make_leader
_append_as_follower = partition.append_as_follower
_on_request_failed = following.on_request_failed
_refusal = leading._refusal
_next_state = election.next_state
_next_eligible_state = eligible.next_state
_decide = controlling._decide
_write = Service._write
_stored = Disk.stored
_carry_out = Disk.carry_out

# --- truncation ----------------------------------------------------------------------------------


def truncates_one_too_far(broker: Broker, led: Partition, offset: int) -> Partition:
    if offset >= led.log.end_offset:
        return led
    return _truncate(broker, led, max(led.log.start_offset, offset - 1))


def truncates_one_too_little(broker: Broker, led: Partition, offset: int) -> Partition:
    return _truncate(broker, led, offset + 1)


def truncates_nothing(broker: Broker, led: Partition, offset: int) -> Partition:
    return led


def fetches_without_an_answer(broker: Broker, event: FetcherRequestFailed, now_ms: int) -> None:
    fetcher = broker.fetchers.get(event.fetcher)
    for topic_partition, followed in tuple(fetcher.followed.items()) if fetcher else ():
        if isinstance(followed.state, Truncating):
            held = broker.partitions[topic_partition]
            _truncate(broker, held, held.high_watermark)
            broker.fetchers[event.fetcher] = fetchers.follow(
                broker.fetchers[event.fetcher], topic_partition, replace(followed, state=Fetching())
            )
    _on_request_failed(broker, event, now_ms)


def keeps_epochs(log: Log, offset: int) -> Log:
    return replace(_log_truncate_to(log, offset), epochs=log.epochs)


def keeps_high_watermark(held: Partition, offset: int) -> Partition:
    return replace(_partition_truncate_to(held, offset), high_watermark=held.high_watermark)


def forgets_no_epoch(broker: Broker, held: Partition) -> None:
    """In place of `_forget_empty_epochs`."""


def answers_its_log_end(log: Log, epoch: int, rules: Generation) -> EpochEnd:
    return EpochEnd(epoch, log.end_offset)


def starts_afresh_always(
    broker: Broker, fetcher_id: Any, held: Partition, listed: ListedOffset, *, asked_earliest: bool
) -> None:
    truncation.start_afresh(broker, held, listed.offset)
    following._set_state(broker, fetcher_id, held.topic_partition, Fetching())


# --- the high watermark --------------------------------------------------------------------------

Members = Callable[[Leader], Collection[int]]
MoveHighWatermark = Callable[..., Partition]


def moves_to(offset_of: Callable[[Partition, Leader], int]) -> MoveHighWatermark:
    """The high watermark is what `offset_of` says, if that is further."""

    def rule(led: Partition, *, now_ms: int, lag_time_max_ms: int, rules: Generation) -> Partition:
        assert isinstance(led.role, Leader)
        offset = offset_of(led, led.role)
        return led if offset <= led.high_watermark else partition.set_high_watermark(led, offset)

    return rule


def waits_for(members: Members, *, for_caught_up: bool = True) -> MoveHighWatermark:
    """The high watermark waits for these, and not for the maximal ISR."""

    def rule(led: Partition, *, now_ms: int, lag_time_max_ms: int, rules: Generation) -> Partition:
        assert isinstance(led.role, Leader)
        counted = set(members(led.role))
        if for_caught_up:
            remotes = led.role.remotes.items()
            counted |= {r for r, one in remotes if is_caught_up(one, now_ms, lag_time_max_ms)}
        lowest = lowest_of(led, led.role, counted)
        return led if lowest <= led.high_watermark else partition.set_high_watermark(led, lowest)

    return rule


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


def without_leaving(leader: Leader) -> Collection[int]:
    isr = leader.isr
    leaving = isr.leaving if isinstance(isr, PendingShrinkIsr) else ()
    return set(isr.maximal) - set(leaving)


def written_isr(leader: Leader) -> Collection[int]:
    return leader.isr.isr


def maximal_isr(leader: Leader) -> Collection[int]:
    return leader.isr.maximal


def goes_back(led: Partition, *, now_ms: int, lag_time_max_ms: int, rules: Generation) -> Partition:
    assert isinstance(led.role, Leader)
    return partition.set_high_watermark(led, max(0, lowest_of(led, led.role, led.role.isr.maximal)))


def believes_all_level(
    led: Partition, told: PartitionState, *, broker_id: int, now_ms: int, rules: Generation
) -> Partition:
    made = _make_leader(led, told, broker_id=broker_id, now_ms=now_ms, rules=rules)
    assert isinstance(made.role, Leader)
    remotes = {
        r: replace(one, log_end_offset=made.log.end_offset) for r, one in made.role.remotes.items()
    }
    return replace(made, role=replace(made.role, remotes=remotes))


def never_under_min_isr(isr: Collection[int], assigned: Collection[int], min_isr: int) -> bool:
    return False


# --- following -----------------------------------------------------------------------------------


def believes_its_log_committed(
    held: Partition, batches: tuple[Batch, ...], **rest: Any
) -> Partition:
    appended = _append_as_follower(held, batches, **rest)
    return partition.set_high_watermark(appended, appended.log.end_offset)


def notes_no_epochs(
    held: Partition, batches: tuple[Batch, ...], *, rules: Generation, **rest: Any
) -> Partition:
    return _append_as_follower(held, batches, rules=GENERATIONS["0.10"], **rest)


def takes_late_answers(broker: Broker, fetcher_id: Any, sequence: int) -> Any:
    fetcher = broker.fetchers.get(fetcher_id)
    if fetcher is None or fetcher.in_flight is None:
        return None
    broker.fetchers[fetcher_id] = replace(fetcher, in_flight=None)
    return fetcher.in_flight


def means_always(
    broker: Broker, fetcher_id: Any, in_flight: Any, topic_partition: TopicPartition
) -> Partition | None:
    fetcher, held = broker.fetchers.get(fetcher_id), broker.partitions.get(topic_partition)
    if fetcher is None or held is None or topic_partition not in fetcher.followed:
        return None
    return held if isinstance(held.role, Follower) else None


def follows_always(log: Log, batches: tuple[Batch, ...]) -> bool:
    return True


# --- the ISR -------------------------------------------------------------------------------------


def joins_where(is_far_enough: Callable[[Partition, Leader, int], bool]) -> Callable[..., bool]:
    """Who is not in the ISR joins it where this says so of its log end offset."""

    def rule(led: Partition, replica_id: int, rules: Generation) -> bool:
        leader = led.role
        assert isinstance(leader, Leader)
        if not isinstance(leader.isr, CommittedIsr) or replica_id in leader.isr.isr:
            return False
        remote = leader.remotes.get(replica_id)
        return remote is not None and is_far_enough(led, leader, remote.log_end_offset)

    return rule


def takes_what_it_wanted(led: Partition) -> Partition:
    """A lost race ends with the ISR that was to be written."""
    leader = led.role
    assert isinstance(leader, Leader)
    return replace(led, role=replace(leader, isr=CommittedIsr(tuple(without_leaving(leader)))))


def takes_the_old_isr(led: Partition) -> Partition:
    leader = led.role
    assert isinstance(leader, Leader)
    return replace(led, role=replace(leader, isr=CommittedIsr(leader.isr.isr)))


def nobody_is_out_of_sync(led: Partition, **rest: Any) -> tuple[int, ...]:
    return ()


# --- acknowledgements ----------------------------------------------------------------------------


def acks_at_append(waiting: Appended, led: Partition | None) -> Error | None:
    outcome = produce_outcome(waiting, led)
    return Error.NONE if outcome is None else outcome


def acks_at_min_insync(waiting: Appended, led: Partition | None) -> Error | None:
    outcome = produce_outcome(waiting, led)
    if outcome is not None or led is None or not isinstance(led.role, Leader):
        return outcome
    ends = (one.log_end_offset for one in led.role.remotes.values())
    copies = 1 + sum(end >= waiting.required_offset for end in ends)
    return Error.NONE if copies >= led.settings.min_insync_replicas else None


def acks_whatever_the_isr(waiting: Appended, led: Partition | None) -> Error | None:
    outcome = produce_outcome(waiting, led)
    return Error.NONE if outcome is Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND else outcome


def acks_on_stepping_down(waiting: Appended, led: Partition | None) -> Error | None:
    outcome = produce_outcome(waiting, led)
    stepped_down = waiting.error is None and outcome is Error.NOT_LEADER_OR_FOLLOWER
    return Error.NONE if stepped_down else outcome


def appends_under_min_isr(
    broker: Broker, topic_partition: TopicPartition, produced: Any, acks: int
) -> Error:
    error = _refusal(broker, topic_partition, produced, acks)
    return Error.NONE if error is Error.NOT_ENOUGH_REPLICAS else error


def appends_as_follower(
    broker: Broker, topic_partition: TopicPartition, produced: Any, acks: int
) -> Error:
    error = _refusal(broker, topic_partition, produced, acks)
    is_here = topic_partition in broker.partitions
    return Error.NONE if error is Error.NOT_LEADER_OR_FOLLOWER and is_here else error


def reads_to_log_end(led: Partition, replica_id: int) -> int:
    return led.log.end_offset


def serves_any_offset(broker: Broker, asked: Any) -> Error:
    return leader_error(broker, asked.partition, asked.current_leader_epoch)


def parks_unwatched(broker: Broker, operation: Any, watched: Any, timeout_ms: int) -> None:
    broker.delayed[operation.request] = operation


def stays_parked(broker: Broker, operation: Any) -> None:
    """In place of `_unpark`."""


# --- the controller ------------------------------------------------------------------------------


def never_stale(broker: Broker, controller_epoch: int) -> bool:
    return False


def believes_any_controller(broker: Broker, controller_epoch: int) -> bool:
    broker.controller_epoch = controller_epoch
    return False


def becomes_where(is_stale: Callable[[int, int], bool]) -> Callable[..., Error]:
    """A state is refused where this says so of its leader epoch and the known one."""

    def rule(broker: Broker, told: PartitionState, now_ms: int) -> Error:
        if broker.broker_id not in told.replicas:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        held = control._get_or_create(broker, told)
        if is_stale(told.state.leader_epoch, held.leader_epoch):
            return Error.STALE_CONTROLLER_EPOCH
        leads = told.state.leader == broker.broker_id
        become = control._become_leader if leads else control._become_follower
        become(broker, held, told, now_ms)
        leading.complete_delayed(broker, told.partition, now_ms)
        return Error.NONE

    return rule


def forgets_who_fell(
    broker: Broker, controller: Active, tp: TopicPartition, state: LeaderAndIsr | None
) -> LeaderAndIsr | None:
    return _decide(broker, replace(controller, fallen={}), tp, state)


def trusts_the_torn(
    broker: Broker, controller: Active, tp: TopicPartition, state: LeaderAndIsr | None
) -> LeaderAndIsr | None:
    return _decide(broker, replace(controller, unclean={}), tp, state)


def nobody_came_back_torn(states: Any, brokers: Any) -> dict[TopicPartition, frozenset[int]]:
    return {}


Live = Collection[int]


def elects_unclean(
    state: LeaderAndIsr, assigned: tuple[int, ...], live: Live, epoch: int, *, unclean: bool
) -> LeaderAndIsr | None:
    return _next_state(state, assigned, live, epoch, unclean=True)


def elects_the_first(
    state: LeaderAndIsr, assigned: tuple[int, ...], live: Live, epoch: int, *, unclean: bool
) -> LeaderAndIsr | None:
    decided = _next_state(state, assigned, live, epoch, unclean=unclean)
    first = next((replica for replica in assigned if replica in live), None)
    if decided is None or first is None or decided.leader == state.leader:
        return decided
    isr = tuple(r for r in assigned if r == first or r in decided.isr)
    return replace(decided, leader=first, isr=isr)


def elects_in_the_old_epoch(
    state: LeaderAndIsr, assigned: tuple[int, ...], live: Live, epoch: int, *, unclean: bool
) -> LeaderAndIsr | None:
    decided = _next_state(state, assigned, live, epoch, unclean=unclean)
    return decided and replace(decided, leader_epoch=state.leader_epoch)


def takes_all_living_as_in_sync(
    state: LeaderAndIsr, assigned: tuple[int, ...], live: Live, epoch: int, *, unclean: bool
) -> LeaderAndIsr | None:
    decided = _next_state(state, assigned, live, epoch, unclean=unclean)
    return decided and replace(decided, isr=tuple(r for r in assigned if r in live))


def keeps_the_dead_in_sync(
    state: LeaderAndIsr, assigned: tuple[int, ...], live: Live, epoch: int, *, unclean: bool
) -> LeaderAndIsr | None:
    decided = _next_state(state, assigned, live, epoch, unclean=unclean)
    if decided is None or decided.leader == state.leader:
        return None
    return replace(decided, isr=state.isr)


def never_clears_eligible(
    members: Collection[int], isr: Live, assigned: tuple[int, ...], eligibility: Eligibility
) -> tuple[int, ...]:
    candidates = set(members) - set(isr) - eligibility.unclean
    return tuple(replica for replica in assigned if replica in candidates)


def prefers_the_last_leader(
    state: LeaderAndIsr,
    assigned: tuple[int, ...],
    live: Live,
    epoch: int,
    *,
    unclean: bool,
    eligibility: Eligibility,
) -> LeaderAndIsr | None:
    known = max(state.leader, state.last_known_leader)
    if known in live and known in eligibility.unclean:
        decided = replace(state, leader=known, isr=(known,), elr=(), last_known_leader=-1)
        return replace(decided, leader_epoch=state.leader_epoch + 1, controller_epoch=epoch)
    return _next_eligible_state(
        state, assigned, live, epoch, unclean=unclean, eligibility=eligibility
    )


# --- the service, and the disk -------------------------------------------------------------------

Written = LeaderAndIsrWritten | LeaderAndIsrConflict


def writes_for_any_controller(service: Service, request: Any) -> Written:
    answer = _write(service, replace(request, by_controller=False))
    return replace(answer, by_controller=request.by_controller)


def writes_any_version(service: Service, request: Any) -> Written:
    known = service.states.get(request.partition)
    if request.by_controller or known is None:
        return _write(service, request)
    return _write(service, replace(request, state=replace(request.state, version=known.version)))


def reads_log_end_as_high_watermark(disk: Disk) -> Mapping[TopicPartition, StoredReplica]:
    stored = _stored(disk)
    return {tp: replace(one, high_watermark=one.log.end_offset) for tp, one in stored.items()}


def reads_no_high_watermark(disk: Disk) -> Mapping[TopicPartition, StoredReplica]:
    return {tp: replace(one, high_watermark=0) for tp, one in _stored(disk).items()}


def writes_no_epochs(disk: Disk, effect: Effect) -> int | None:
    is_epochs = isinstance(effect, WriteLeaderEpochCheckpoint)
    return None if is_epochs else _carry_out(disk, effect)
