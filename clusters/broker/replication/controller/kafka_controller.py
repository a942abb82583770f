"""The controller: becomes it, ceases to be it, and learns which brokers and topics come and go.

Every change of brokers, topics or ISRs has the partitions that it concerns reconsidered: see
partition_state_machine. As Kafka's KafkaController (C1, C2, I7).
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import leader_election, pending
from neaptide.clusters.broker.replication.controller.alter_partition import refuse_alterations
from neaptide.clusters.broker.replication.controller.controller_channel_manager import (
    send_leader_and_isr,
    send_update_metadata,
)
from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
    Loading,
    Standby,
    with_known_ids,
)
from neaptide.clusters.broker.replication.controller.partition_state_machine import reconsider
from neaptide.clusters.broker.replication.controller.reassignments import (
    loaded,
    refuse_postponed,
    with_own_assignments,
)
from neaptide.clusters.broker.replication.controller.shutdowns import refuse_shutdowns
from neaptide.clusters.broker.replication.controller.topic_deletion import (
    delete_on,
    mark,
    on_replicas_deleted,
)
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.administration import (
    AutoPreferredReplicaLeaderElection,
)
from neaptide.clusters.broker.replication.interface.coordination_service import (
    BrokersChanged,
    ClusterLoaded,
    ControllerChanged,
    ControllerElected,
    DeleteIsrChangeNotifications,
    DeleteLogDirEventNotifications,
    IsrChangeNotified,
    LoadCluster,
    LogDirEventNotified,
    ResignController,
    SessionExpired,
    SessionStarted,
    TopicsChanged,
    TryBecomeController,
)
from neaptide.clusters.broker.replication.interface.effects import StopSendingControl
from neaptide.clusters.broker.replication.interface.events import (
    ControlResponded,
)
from neaptide.clusters.broker.replication.model import TopicConfiguration
from neaptide.clusters.broker.replication.rule import rule

FIRST_REBALANCE_MS = 5_000  # after an election of the controller


def on_session_started(broker: Broker, event: SessionStarted, now_ms: int) -> None:
    broker.controller = Standby(registered=True)
    broker.coordinate(TryBecomeController())


def on_session_expired(broker: Broker, event: SessionExpired, now_ms: int) -> None:
    """Neither controller nor registered any more; whatever was being written is unanswered."""
    _cease(broker, registered=False)


def _cease(broker: Broker, *, registered: bool) -> None:
    pending.refuse_all(broker)
    refuse_alterations(broker)
    refuse_shutdowns(broker)
    refuse_postponed(broker)
    broker.controller = Standby(registered)
    broker.do(StopSendingControl(None))


def on_controller_changed(broker: Broker, event: ControllerChanged, now_ms: int) -> None:
    if event.controller_id == broker.broker_id:
        return
    if not isinstance(broker.controller, Standby):
        broker.note("another broker is the controller now")
        _cease(broker, registered=True)
    if event.controller_id is None and broker.controller == Standby(registered=True):
        broker.coordinate(TryBecomeController())


def on_controller_elected(broker: Broker, event: ControllerElected, now_ms: int) -> None:
    broker.note(f"elected controller, epoch {event.controller_epoch}")
    broker.controller = Loading(event.controller_epoch)
    broker.coordinate(LoadCluster(event.controller_epoch, gives_topic_ids=broker.rules.topic_ids))


def on_cluster_loaded(broker: Broker, event: ClusterLoaded, now_ms: int) -> None:
    if broker.controller != Loading(event.controller_epoch):
        return
    broker.controller = Active(
        event.controller_epoch,
        event.brokers,
        event.topics,
        dict(event.states),
        unclean=leader_election.came_back_torn(event.states, event.brokers),
        reassignments=loaded(event.topics),
    )
    mark(broker, event.marked)
    states = broker.controller.states
    known = tuple(states)
    send_update_metadata(broker, known, event.brokers)
    # What one led that came back torn waits for the next state: to follow it is to be cut.
    torn = broker.controller.unclean
    obeyed = tuple(tp for tp in known if states[tp].leader not in torn.get(tp, ()))
    send_leader_and_isr(broker, obeyed, event.brokers)
    reconsider(broker, broker.controller.all_partitions())
    if broker.settings.auto_leader_rebalance_enable:
        broker.set_timer(AutoPreferredReplicaLeaderElection(), FIRST_REBALANCE_MS)


def on_control_responded(broker: Broker, event: ControlResponded, now_ms: int) -> None:
    """A broker that knows a later controller says so: this one's time is over (C1)."""
    controller = broker.active_controller
    if controller is None or event.controller_epoch != controller.controller_epoch:
        return
    if event.error is Error.STALE_CONTROLLER_EPOCH:
        broker.note("resigning: a later controller is known")
        _cease(broker, registered=True)
        broker.coordinate(ResignController())
        return
    on_replicas_deleted(broker, event)
    _know_offline(broker, event)


# --- brokers, topics, ISRs -----------------------------------------------------------------------


def on_brokers_changed(broker: Broker, event: BrokersChanged, now_ms: int) -> None:
    """Who has come (or come back in a new session), who has gone (C2)."""
    controller = broker.active_controller
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
    for topic_partition in controller.all_partitions():
        # It may be back before this is decided, without its tail: so it must be dead once.
        dead = set(gone) & set(controller.replicas(topic_partition))
        if dead:
            fallen[topic_partition] = fallen.get(topic_partition, frozenset()) | dead
        if torn := doubted & set(controller.replicas(topic_partition)):
            unclean[topic_partition] = unclean.get(topic_partition, frozenset()) | torn
    leaving = {b: led for b, led in controller.shutting_down.items() if b not in gone}
    # Who has started again says itself which replicas it does not have.
    offline = {tp: of - set(gone) - set(come) for tp, of in controller.offline.items()}
    broker.controller = replace(
        controller,
        brokers=event.brokers,
        fallen=fallen,
        unclean=unclean,
        offline={tp: of for tp, of in offline.items() if of},
        shutting_down=leaving,
    )
    if gone:
        broker.do(StopSendingControl(gone))
    known = tuple(controller.states)
    send_update_metadata(broker, (), [b for b in event.brokers if b not in come])
    send_update_metadata(broker, known, come)
    # What a fallen broker led waits for the next state: in the old one it would lead on.
    states = controller.states
    obeyed = tuple(tp for tp in known if states[tp].leader not in fallen.get(tp, ()))
    send_leader_and_isr(broker, obeyed, come)
    delete_on(broker, come)
    changed = set(gone) | set(come)
    reconsider(
        broker,
        [tp for tp in controller.all_partitions() if changed & set(controller.replicas(tp))],
    )


def on_topics_changed(broker: Broker, event: TopicsChanged, now_ms: int) -> None:
    controller = broker.active_controller
    if controller is not None:
        before = controller.topics
        doomed = controller.deletions.left
        found = {name: one for name, one in event.topics.items() if name not in doomed}
        read = with_known_ids(before, found)
        # Who has another id is another topic: one that was made again under the same name.
        same = {name for name, one in read.items() if _is_same(before.get(name), one)}
        states = {tp: one for tp, one in controller.states.items() if tp.topic in same}
        topics = with_own_assignments(controller, read)
        broker.controller = replace(controller, topics=topics, states=states)
        # With other settings a partition may have a leader now (unclean.leader.election.enable).
        changed = {
            topic
            for topic, configuration in found.items()
            if topic in before and before[topic].settings != configuration.settings
        }
        all_partitions = broker.controller.all_partitions()
        reconsider(broker, [tp for tp in all_partitions if tp not in states or tp.topic in changed])


def _is_same(before: TopicConfiguration | None, now: TopicConfiguration) -> bool:
    return before is None or before.topic_id is None or before.topic_id == now.topic_id


def on_isr_change_notified(broker: Broker, event: IsrChangeNotified, now_ms: int) -> None:
    """Reads what the leaders wrote, informs all brokers, deletes the notifications (I7)."""
    if broker.active_controller is not None:
        reconsider(broker, event.partitions)
        broker.coordinate(DeleteIsrChangeNotifications(event.names))


# --- log directories (KIP-112) -------------------------------------------------------------------


@rule
def on_log_dir_event(broker: Broker, event: LogDirEventNotified, now_ms: int) -> None:
    """A broker has lost a log directory. Which replicas, its answer to LeaderAndIsr says."""
    controller = broker.active_controller
    if controller is None:
        return
    broker.note(f"a log directory has failed on brokers {list(event.brokers)}")
    send_leader_and_isr(broker, tuple(controller.states), event.brokers)
    broker.coordinate(DeleteLogDirEventNotifications(event.names))


@rule
def _know_offline(broker: Broker, event: ControlResponded) -> None:
    """Their partitions are decided again: nobody leads, or is in sync, in a failed directory."""
    controller = broker.active_controller
    if controller is None or not (event.offline or controller.offline):
        return
    offline, lost = dict(controller.offline), []
    for tp in event.offline:
        before = offline.get(tp, frozenset())
        if event.broker not in before and tp.topic in controller.topics:
            offline[tp] = before | {event.broker}
            lost.append(tp)
    for tp in event.online:
        if left := offline.pop(tp, frozenset()) - {event.broker}:
            offline[tp] = left
    broker.controller = replace(controller, offline=offline)
    if lost:
        broker.note(f"broker {event.broker} has lost the log directory of {len(lost)} replicas")
        reconsider(broker, lost)
