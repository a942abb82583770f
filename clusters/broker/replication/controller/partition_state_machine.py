"""What the controller does about a partition: read its state, decide, write, inform the brokers.

A partition is reconsidered when a broker that holds a replica of it comes or goes: its state is
read, because its leader may have changed the ISR meanwhile; the next state is decided (see
leader_election); it is written with the version that was read; when that is done the brokers are
informed. A lost race reads again. As Kafka's PartitionStateMachine (C3 to C6). The ISR changes that
leaders ask for (KIP-497) are decided here as well, so that a partition has one writer at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import leader_election
from neaptide.clusters.broker.replication.controller.alter_partition import (
    answer_complete,
    decide,
    refusal_of_all,
)
from neaptide.clusters.broker.replication.controller.controller_channel_manager import (
    send_leader_and_isr,
    send_update_metadata,
)
from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
    Alteration,
)
from neaptide.clusters.broker.replication.controller.elections import make_elections
from neaptide.clusters.broker.replication.controller.reassignments import (
    delete_unneeded,
    finish_where_done,
)
from neaptide.clusters.broker.replication.controller.shutdowns import answer_shutdowns
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.administration import ElectionType
from neaptide.clusters.broker.replication.interface.coordination_service import (
    LeaderAndIsrConflict,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    ReadLeaderAndIsr,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.interface.effects import RespondAlterPartition
from neaptide.clusters.broker.replication.interface.events import (
    AlteredResult,
    AlterPartitionRequested,
)
from neaptide.clusters.broker.replication.model import LeaderAndIsr, TopicPartition
from neaptide.clusters.broker.replication.partition.eligible_leader_replicas import Eligibility
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.settings import topic_settings


def reconsider(broker: Broker, partitions: Iterable[TopicPartition]) -> None:
    controller = broker.active_controller
    assert controller is not None
    wanted = tuple(dict.fromkeys(partitions))
    fresh = tuple(tp for tp in wanted if tp not in controller.reconsidering)
    broker.controller = replace(
        controller,
        reconsidering=controller.reconsidering | set(fresh),
        again=controller.again | (set(wanted) - set(fresh)),
    )
    ongoing = controller.reassignments.ongoing
    for is_watched in (False, True):  # a reassignment goes on when the ISR has grown
        if read := tuple(tp for tp in fresh if (tp in ongoing) == is_watched):
            broker.coordinate(ReadLeaderAndIsr(read, is_watched))


def on_leader_and_isr_read(broker: Broker, event: LeaderAndIsrRead, now_ms: int) -> None:
    controller = broker.active_controller
    if controller is None:
        return
    settled: list[tuple[TopicPartition, LeaderAndIsr | None]] = []
    writing = set(controller.writing)
    altered = {one.asked.partition for one in controller.alterations if one.is_written}
    for topic_partition in event.partitions:
        if topic_partition not in controller.reconsidering or topic_partition in altered:
            continue
        state = event.states.get(topic_partition)
        decided = decide_state(broker, controller, topic_partition, state)
        if decided is not None:
            writing.add(topic_partition)
            is_fenced = broker.rules.fences_controller_writes
            broker.coordinate(WriteLeaderAndIsr(topic_partition, decided, True, is_fenced))
        else:
            settled.append((topic_partition, state))
    broker.controller = replace(controller, writing=frozenset(writing))
    settle(broker, settled, changed=False)


@rule
def decide_state(
    broker: Broker,
    controller: Active,
    topic_partition: TopicPartition,
    state: LeaderAndIsr | None,
) -> LeaderAndIsr | None:
    configuration = controller.topics.get(topic_partition.topic)
    if configuration is None or topic_partition.partition not in configuration.assignment:
        return None
    assigned = tuple(configuration.assignment[topic_partition.partition])
    up = controller.brokers.keys() - controller.dead(topic_partition)
    if state is None:
        new = up - controller.shutting_down.keys()
        return leader_election.initial_state(assigned, new, controller.controller_epoch)
    leaving = _leaving(controller, topic_partition, state, up)
    live = leader_election.may_be_counted_on(state, up, leaving) & set(assigned)
    settings = topic_settings(configuration.settings, broker.settings)
    election = controller.elections.wanted.get(topic_partition)
    unclean = settings.unclean_leader_election_enable or election is ElectionType.UNCLEAN
    epoch = controller.controller_epoch
    if broker.rules.eligible_leader_replicas:
        doubted = controller.unclean.get(topic_partition, frozenset())
        eligibility = Eligibility(settings.min_insync_replicas, doubted)
        decided = leader_election.next_state_with_elr(
            state,
            assigned,
            live,
            epoch,
            unclean=unclean,
            eligibility=eligibility,
            shrinks_in_new_epoch=broker.rules.shrinks_in_new_epoch,
        )
    else:
        decided = leader_election.next_state(state, assigned, live, epoch, unclean=unclean)
    if election is ElectionType.PREFERRED:
        decided = leader_election.with_preferred(decided, state, assigned, live, epoch)
    reassignments = controller.reassignments
    ongoing = reassignments.ongoing.get(topic_partition)
    if ongoing is not None and topic_partition not in reassignments.written:
        target = ongoing.target
        decided = leader_election.with_reassigned(decided, state, target, live, epoch)
    if topic_partition in reassignments.renewed:
        decided = leader_election.renewed(decided, state, epoch)
    return decided


def _leaving(
    controller: Active, tp: TopicPartition, state: LeaderAndIsr, up: Collection[int]
) -> Collection[int]:
    """Who is in controlled shutdown is never elected, and leaves the ISR when it asks for that."""
    if state.leader not in up:
        return controller.shutting_down.keys()
    return {one.broker_id for one in controller.shutdown_requests if tp in one.partitions}


def on_state_written(broker: Broker, event: LeaderAndIsrWritten, now_ms: int) -> None:
    controller = broker.active_controller
    if controller is None:
        return
    altered = _take_written(broker, event.partition)
    if altered is not None:
        result = AlteredResult(event.partition, Error.NONE, event.state)
        _know_result(broker, altered, result)
        settle(broker, [(event.partition, event.state)], changed=False)
        return
    broker.controller = replace(controller, writing=controller.writing - {event.partition})
    finish_where_done(broker, event.partition, event.state)
    broker.note(
        f"{event.partition}: leader {event.state.leader}, epoch {event.state.leader_epoch},"
        f" ISR {list(event.state.isr)}"
    )
    settle(broker, [(event.partition, event.state)], changed=True)


def on_state_conflict(broker: Broker, event: LeaderAndIsrConflict, now_ms: int) -> None:
    """Somebody else wrote first: read again, and decide anew."""
    controller = broker.active_controller
    if controller is not None and event.partition in controller.reconsidering:
        altered = _take_written(broker, event.partition)
        if altered is not None:
            result = AlteredResult(event.partition, Error.INVALID_UPDATE_VERSION)
            _know_result(broker, altered, result)
            answer_complete(broker)
            controller = broker.active_controller
            assert controller is not None
        broker.controller = replace(controller, writing=controller.writing - {event.partition})
        is_watched = event.partition in controller.reassignments.ongoing
        broker.coordinate(ReadLeaderAndIsr((event.partition,), is_watched))
        send_written(broker)


@rule
def settle(
    broker: Broker,
    settled: list[tuple[TopicPartition, LeaderAndIsr | None]],
    *,
    changed: bool,
) -> None:
    """Ends the reconsideration of partitions, informs brokers, and begins again where asked."""
    controller = broker.active_controller
    if controller is None or not settled:
        return
    names = {topic_partition for topic_partition, _ in settled}
    states, new = dict(controller.states), set(controller.new)
    news = []
    for topic_partition, state in settled:
        if state is not None and topic_partition.topic in controller.topics:
            if states.get(topic_partition) != state:
                news.append(topic_partition)
            if changed and topic_partition not in states:
                new.add(topic_partition)
            states[topic_partition] = state
    returned = {tp for tp, dead in controller.fallen.items() if dead & set(controller.brokers)}
    unread = controller.reassignments.unread
    again = tuple(sorted(names & (controller.again | returned | unread)))
    # What fell after the state was decided has not been counted as dead yet.
    counted = names - controller.again
    broker.controller = replace(
        controller,
        states=states,
        reconsidering=controller.reconsidering - names,
        again=controller.again - names,
        fallen={tp: dead for tp, dead in controller.fallen.items() if tp not in counted},
        unclean={tp: torn for tp, torn in controller.unclean.items() if tp not in counted},
        unsent=(*controller.unsent, *news) if changed else controller.unsent,
        new=frozenset(new),
        reassignments=replace(controller.reassignments, unread=unread - names),
    )
    make_elections(broker, counted)
    if changed:
        send_written(broker)
    elif news:
        send_update_metadata(broker, tuple(news), controller.brokers)
    if again:
        reconsider(broker, again)
    answer_shutdowns(broker, counted)
    _alter_next(broker)


@rule
def send_written(broker: Broker) -> None:
    """One LeaderAndIsr and one UpdateMetadata a broker for all that was written together.

    A leader that fell after it was decided on is not to lead: the next state comes at once.
    """
    controller = broker.active_controller
    assert controller is not None
    if controller.writing or not controller.unsent:
        return
    broker.controller = replace(controller, unsent=(), new=frozenset())
    unsent = tuple(dict.fromkeys(controller.unsent))
    states = controller.states
    known = tuple(tp for tp in unsent if tp in states)
    obeyed = tuple(tp for tp in known if states[tp].leader not in controller.dead(tp))
    send_leader_and_isr(broker, obeyed, controller.brokers, new=controller.new)
    delete_unneeded(broker, unsent)
    send_update_metadata(broker, known, controller.brokers)


# --- ISR changes of leaders (KIP-497) -------------------------------------------------------------


def on_alter_partition(broker: Broker, event: AlterPartitionRequested, now_ms: int) -> None:
    """Each partition has its turn after whatever is being decided or written of it already."""
    controller = broker.active_controller
    if controller is None:
        broker.do(RespondAlterPartition(event.request, Error.NOT_CONTROLLER))
        return
    error = refusal_of_all(controller, event)
    if error is not Error.NONE:
        broker.do(RespondAlterPartition(event.request, error))
        return
    if not event.partitions:
        broker.do(RespondAlterPartition(event.request, Error.NONE))
        return
    asked = (Alteration(event.request, event.broker_id, one) for one in event.partitions)
    broker.controller = replace(controller, alterations=(*controller.alterations, *asked))
    _alter_next(broker)


def _alter_next(broker: Broker) -> None:
    """Decides the changes whose partition nobody else is changing, in their order."""
    controller = broker.active_controller
    if controller is None or not controller.alterations:
        return
    reconsidering = set(controller.reconsidering)
    alterations = []
    for one in controller.alterations:
        if one.result is None and one.asked.partition not in reconsidering:
            decided = decide(broker, controller, one.leader, one.asked)
            if isinstance(decided, Error):
                one = replace(one, result=AlteredResult(one.asked.partition, decided))
            elif decided is controller.states[one.asked.partition]:
                one = replace(one, result=AlteredResult(one.asked.partition, Error.NONE, decided))
            else:
                one = replace(one, is_written=True)
                reconsidering.add(one.asked.partition)
                is_fenced = broker.rules.fences_controller_writes
                broker.coordinate(WriteLeaderAndIsr(one.asked.partition, decided, True, is_fenced))
        alterations.append(one)
    broker.controller = replace(
        controller, reconsidering=frozenset(reconsidering), alterations=tuple(alterations)
    )
    answer_complete(broker)


def _take_written(broker: Broker, topic_partition: TopicPartition) -> Alteration | None:
    """The ISR change whose write is answered; None: it was the controller's own write."""
    controller = broker.active_controller
    for one in controller.alterations if controller is not None else ():
        if one.is_written and one.asked.partition == topic_partition:
            return one
    return None


def _know_result(broker: Broker, altered: Alteration, result: AlteredResult) -> None:
    controller = broker.active_controller
    assert controller is not None
    known = replace(altered, result=result, is_written=False)
    alterations = tuple(known if one is altered else one for one in controller.alterations)
    broker.controller = replace(controller, alterations=alterations)
