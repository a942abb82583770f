"""The controller: elects leaders, takes dead replicas out of ISRs, tells all brokers (C1–C6).

A partition is reconsidered when a broker that holds a replica of it comes or goes: its state is
read, because its leader may have changed the ISR meanwhile; the next state is decided (election);
it is written with the version that was read; when that is done the brokers are told. A lost race
reads again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import leader_election
from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
    Loading,
    Standby,
)
from neaptide.clusters.broker.replication.controller.topic_creation import (
    complete_creations,
    refuse_creations,
)
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.interface.coordination_service import (
    BrokersChanged,
    ClusterLoaded,
    ControllerChanged,
    ControllerElected,
    CoordinationRequest,
    DeleteIsrChangeNotifications,
    IsrChangeNotified,
    LeaderAndIsrConflict,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    LoadCluster,
    ReadLeaderAndIsr,
    ResignController,
    SessionExpired,
    SessionStarted,
    TopicsChanged,
    TryBecomeController,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.interface.effects import (
    Coordinate,
    SendControl,
    StopSendingControl,
)
from neaptide.clusters.broker.replication.interface.events import (
    ControlResponded,
    LeaderAndIsrRequested,
    PartitionState,
    UpdateMetadataRequested,
)
from neaptide.clusters.broker.replication.model import LeaderAndIsr, TopicPartition
from neaptide.clusters.broker.replication.partition import eligible_leader_replicas
from neaptide.clusters.broker.replication.partition.eligible_leader_replicas import Eligibility
from neaptide.clusters.broker.replication.settings import topic_settings

UNSENT = 0  # `request` of a message that this broker sends: the shell gives it a correlation id


def _coordinate(broker: Broker, request: CoordinationRequest) -> None:
    broker.do(Coordinate(request))


def active(broker: Broker) -> Active | None:
    return broker.controller if isinstance(broker.controller, Active) else None


# --- becoming and ceasing to be ------------------------------------------------------------------


def on_session_started(broker: Broker, event: SessionStarted, now_ms: int) -> None:
    broker.controller = Standby(registered=True)
    _coordinate(broker, TryBecomeController())


def on_session_expired(broker: Broker, event: SessionExpired, now_ms: int) -> None:
    """Neither controller nor registered any more; whatever was being written is unanswered."""
    _cease(broker, registered=False)


def _cease(broker: Broker, *, registered: bool) -> None:
    refuse_creations(broker)
    broker.controller = Standby(registered)
    broker.do(StopSendingControl(None))


def on_controller_changed(broker: Broker, event: ControllerChanged, now_ms: int) -> None:
    if event.controller_id == broker.broker_id:
        return
    if not isinstance(broker.controller, Standby):
        broker.note("another broker is the controller now")
        _cease(broker, registered=True)
    if event.controller_id is None and broker.controller == Standby(registered=True):
        _coordinate(broker, TryBecomeController())


def on_controller_elected(broker: Broker, event: ControllerElected, now_ms: int) -> None:
    broker.note(f"elected controller, epoch {event.controller_epoch}")
    broker.controller = Loading(event.controller_epoch)
    _coordinate(broker, LoadCluster(event.controller_epoch))


def on_cluster_loaded(broker: Broker, event: ClusterLoaded, now_ms: int) -> None:
    if broker.controller != Loading(event.controller_epoch):
        return
    broker.controller = Active(
        event.controller_epoch,
        event.brokers,
        event.topics,
        dict(event.states),
        unclean=eligible_leader_replicas.came_back_torn(event.states, event.brokers),
    )
    known = tuple(event.states)
    _tell_metadata(broker, known, event.brokers)
    # What one led that came back torn waits for the next state: to follow it is to be cut.
    torn = broker.controller.unclean
    told = tuple(tp for tp in known if event.states[tp].leader not in torn.get(tp, ()))
    _tell_replicas(broker, told, event.brokers)
    _reconsider(broker, _all_partitions(broker.controller))


def on_control_responded(broker: Broker, event: ControlResponded, now_ms: int) -> None:
    """A broker that knows a later controller says so: this one's time is over (C1)."""
    controller = active(broker)
    if controller is None or event.controller_epoch != controller.controller_epoch:
        return
    if event.error is Error.STALE_CONTROLLER_EPOCH:
        broker.note("resigning: a later controller is known")
        _cease(broker, registered=True)
        _coordinate(broker, ResignController())


# --- brokers, topics, ISRs -----------------------------------------------------------------------


def on_brokers_changed(broker: Broker, event: BrokersChanged, now_ms: int) -> None:
    """Who has come (or come back in a new session), who has gone (C2)."""
    controller = active(broker)
    if controller is None:
        return
    before = controller.brokers
    gone = tuple(sorted(b for b in before if event.brokers.get(b) != before[b]))
    come = tuple(sorted(b for b in event.brokers if before.get(b) != event.brokers[b]))
    doubted = {b for b in come if event.brokers[b].unclean_shutdown}
    if not gone and not come:
        return
    broker.note(f"brokers gone {list(gone)}, come {list(come)}")
    fallen, unclean = dict(controller.fallen), dict(controller.unclean)
    for topic_partition in _all_partitions(controller):
        # It may be back before this is decided, without its tail: so it must be dead once.
        dead = set(gone) & set(_replicas(controller, topic_partition))
        if dead:
            fallen[topic_partition] = fallen.get(topic_partition, frozenset()) | dead
        if torn := doubted & set(_replicas(controller, topic_partition)):
            unclean[topic_partition] = unclean.get(topic_partition, frozenset()) | torn
    broker.controller = replace(controller, brokers=event.brokers, fallen=fallen, unclean=unclean)
    if gone:
        broker.do(StopSendingControl(gone))
    known = tuple(controller.states)
    _tell_metadata(broker, (), [b for b in event.brokers if b not in come])
    _tell_metadata(broker, known, come)
    # What a fallen broker led waits for the next state: in the old one it would lead on.
    states = controller.states
    told = tuple(tp for tp in known if states[tp].leader not in fallen.get(tp, ()))
    _tell_replicas(broker, told, come)
    changed = set(gone) | set(come)
    _reconsider(
        broker,
        [tp for tp in _all_partitions(controller) if changed & set(_replicas(controller, tp))],
    )


def on_topics_changed(broker: Broker, event: TopicsChanged, now_ms: int) -> None:
    controller = active(broker)
    if controller is not None:
        states = {tp: one for tp, one in controller.states.items() if tp.topic in event.topics}
        before = controller.topics
        broker.controller = replace(controller, topics=event.topics, states=states)
        # With other settings a partition may have a leader now (unclean.leader.election.enable).
        changed = {
            topic
            for topic, configuration in event.topics.items()
            if topic in before and before[topic].settings != configuration.settings
        }
        all_partitions = _all_partitions(broker.controller)
        _reconsider(
            broker, [tp for tp in all_partitions if tp not in states or tp.topic in changed]
        )


def on_isr_change_notified(broker: Broker, event: IsrChangeNotified, now_ms: int) -> None:
    """Reads what the leaders wrote, tells all brokers, deletes the notifications (I7)."""
    if active(broker) is not None:
        _reconsider(broker, event.partitions)
        _coordinate(broker, DeleteIsrChangeNotifications(event.names))


def _all_partitions(controller: Active) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition)
        for topic, configuration in sorted(controller.topics.items())
        for partition in sorted(configuration.assignment)
    ]


def _replicas(controller: Active, topic_partition: TopicPartition) -> tuple[int, ...]:
    return tuple(controller.topics[topic_partition.topic].assignment[topic_partition.partition])


# --- reconsidering a partition: read, decide, write, tell ----------------------------------------


def _reconsider(broker: Broker, partitions: Iterable[TopicPartition]) -> None:
    controller = active(broker)
    assert controller is not None
    wanted = tuple(dict.fromkeys(partitions))
    fresh = tuple(tp for tp in wanted if tp not in controller.reconsidering)
    broker.controller = replace(
        controller,
        reconsidering=controller.reconsidering | set(fresh),
        again=controller.again | (set(wanted) - set(fresh)),
    )
    if fresh:
        _coordinate(broker, ReadLeaderAndIsr(fresh))


def on_leader_and_isr_read(broker: Broker, event: LeaderAndIsrRead, now_ms: int) -> None:
    controller = active(broker)
    if controller is None:
        return
    settled: list[tuple[TopicPartition, LeaderAndIsr | None]] = []
    writing = set(controller.writing)
    for topic_partition in event.partitions:
        if topic_partition not in controller.reconsidering:
            continue
        state = event.states.get(topic_partition)
        decided = _decide(broker, controller, topic_partition, state)
        if decided is not None:
            writing.add(topic_partition)
            is_fenced = broker.rules.fences_controller_writes
            _coordinate(broker, WriteLeaderAndIsr(topic_partition, decided, True, is_fenced))
        else:
            settled.append((topic_partition, state))
    broker.controller = replace(controller, writing=frozenset(writing))
    _settle(broker, settled, changed=False)


def _decide(
    broker: Broker,
    controller: Active,
    topic_partition: TopicPartition,
    state: LeaderAndIsr | None,
) -> LeaderAndIsr | None:
    configuration = controller.topics.get(topic_partition.topic)
    if configuration is None or topic_partition.partition not in configuration.assignment:
        return None
    assigned = tuple(configuration.assignment[topic_partition.partition])
    live = set(controller.brokers) - controller.fallen.get(topic_partition, frozenset())
    if state is None:
        return leader_election.initial_state(assigned, live, controller.controller_epoch)
    settings = topic_settings(configuration.settings, broker.settings)
    unclean, epoch = settings.unclean_leader_election_enable, controller.controller_epoch
    if not broker.rules.eligible_leader_replicas:
        return leader_election.next_state(state, assigned, live, epoch, unclean=unclean)
    doubted = controller.unclean.get(topic_partition, frozenset())
    eligibility = Eligibility(settings.min_insync_replicas, doubted)
    return eligible_leader_replicas.next_state(
        state, assigned, live, epoch, unclean=unclean, eligibility=eligibility
    )


def on_state_written(broker: Broker, event: LeaderAndIsrWritten, now_ms: int) -> None:
    controller = active(broker)
    if controller is None:
        return
    broker.controller = replace(controller, writing=controller.writing - {event.partition})
    broker.note(
        f"{event.partition}: leader {event.state.leader}, epoch {event.state.leader_epoch},"
        f" ISR {list(event.state.isr)}"
    )
    _settle(broker, [(event.partition, event.state)], changed=True)


def on_state_conflict(broker: Broker, event: LeaderAndIsrConflict, now_ms: int) -> None:
    """Somebody else wrote first: read again, and decide anew."""
    controller = active(broker)
    if controller is not None and event.partition in controller.reconsidering:
        broker.controller = replace(controller, writing=controller.writing - {event.partition})
        _coordinate(broker, ReadLeaderAndIsr((event.partition,)))
        _send_written(broker)


def _settle(
    broker: Broker,
    settled: list[tuple[TopicPartition, LeaderAndIsr | None]],
    *,
    changed: bool,
) -> None:
    """Ends the reconsideration of partitions, tells the brokers, and begins again where asked."""
    controller = active(broker)
    if controller is None or not settled:
        return
    names = {topic_partition for topic_partition, _ in settled}
    states = dict(controller.states)
    news = []
    for topic_partition, state in settled:
        if state is not None:
            if states.get(topic_partition) != state:
                news.append(topic_partition)
            states[topic_partition] = state
    returned = {tp for tp, dead in controller.fallen.items() if dead & set(controller.brokers)}
    again = tuple(sorted(names & (controller.again | returned)))
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
    )
    if changed:
        _send_written(broker)
    elif news:
        _tell_metadata(broker, tuple(news), controller.brokers)
    complete_creations(broker)
    if again:
        _reconsider(broker, again)


def _send_written(broker: Broker) -> None:
    """One LeaderAndIsr and one UpdateMetadata a broker for all that was written together.

    A leader that fell after it was decided on is not to lead: the next state comes at once.
    """
    controller = active(broker)
    assert controller is not None
    if controller.writing or not controller.unsent:
        return
    broker.controller = replace(controller, unsent=())
    unsent = tuple(dict.fromkeys(controller.unsent))
    states, fallen = controller.states, controller.fallen
    known = tuple(tp for tp in unsent if tp in states)
    obeyed = tuple(tp for tp in known if states[tp].leader not in fallen.get(tp, ()))
    _tell_replicas(broker, obeyed, controller.brokers)
    _tell_metadata(broker, known, controller.brokers)


# --- telling -------------------------------------------------------------------------------------


def _partition_states(
    controller: Active, partitions: Iterable[TopicPartition]
) -> tuple[PartitionState, ...]:
    return tuple(
        PartitionState(
            topic_partition,
            controller.states[topic_partition],
            _replicas(controller, topic_partition),
            controller.topics[topic_partition.topic].settings,
        )
        for topic_partition in partitions
        if topic_partition.topic in controller.topics
    )


def _tell_replicas(
    broker: Broker, partitions: tuple[TopicPartition, ...], receivers: Collection[int]
) -> None:
    """LeaderAndIsr, to each receiver for the partitions of which it holds a replica."""
    controller = active(broker)
    assert controller is not None
    states = _partition_states(controller, partitions)
    for receiver in sorted(set(receivers) & set(controller.brokers)):
        held = tuple(told for told in states if receiver in told.replicas)
        if not held:
            continue
        leaders = sorted({told.state.leader for told in held} & set(controller.brokers))
        message = LeaderAndIsrRequested(
            UNSENT,
            broker.broker_id,
            controller.controller_epoch,
            held,
            tuple(controller.brokers[leader] for leader in leaders),
            _broker_epoch(broker, controller, receiver),
        )
        broker.do(SendControl(receiver, message))


def _offsets_partitions(controller: Active) -> int:
    configuration = controller.topics.get(OFFSETS_TOPIC)
    return 0 if configuration is None else len(configuration.assignment)


def _tell_metadata(
    broker: Broker, partitions: tuple[TopicPartition, ...], receivers: Collection[int]
) -> None:
    """UpdateMetadata: these partitions, and always the whole list of live brokers."""
    controller = active(broker)
    assert controller is not None
    message = UpdateMetadataRequested(
        UNSENT,
        broker.broker_id,
        controller.controller_epoch,
        _partition_states(controller, partitions),
        tuple(controller.brokers[b] for b in sorted(controller.brokers)),
        _offsets_partitions(controller),
    )
    for receiver in sorted(set(receivers) & set(controller.brokers)):
        epoch = _broker_epoch(broker, controller, receiver)
        broker.do(SendControl(receiver, replace(message, broker_epoch=epoch)))


def _broker_epoch(broker: Broker, controller: Active, receiver: int) -> int:
    """Of the registration that a request is for (KIP-380)."""
    return controller.brokers[receiver].epoch if broker.rules.checks_broker_epochs else -1
