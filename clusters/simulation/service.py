"""The coordination service of the simulation: dictionaries with versions, sessions and watches.

Not a ZooKeeper: it answers at once; the links to it delay, lose and hold. Rule
(replication/coordination.py): every condition is checked, every request of a session that lives is
answered, every broker is notified of `/controller`, only the controller of the rest.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, assert_never
from uuid import NAMESPACE_URL, uuid5

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import coordination_service
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    TopicConfiguration,
    TopicPartition,
)
from neaptide.clusters.broker.replication.rule import rule

Notifications = list[tuple[int, object]]
PRODUCER_IDS_IN_BLOCK: Final = 1_000


class Service:
    __slots__ = (
        "_gives_topic_ids",
        "_producer_id_blocks",
        "_sequence",
        "_topic_ids",
        "_transactions",
        "assignment_writes",
        "controller",
        "controller_epoch",
        "elections",
        "isr_changes",
        "log_dir_events",
        "marked",
        "notifications",
        "reassignments",
        "sessions",
        "states",
        "topics",
        "watched",
    )

    def __init__(self) -> None:
        self.sessions: dict[int, BrokerRegistration] = {}
        self.controller: int | None = None
        self.controller_epoch = 0
        self.topics: dict[str, TopicConfiguration] = {}
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.notifications: dict[str, tuple[TopicPartition, ...]] = {}
        self.log_dir_events: dict[str, int] = {}
        self.isr_changes: dict[TopicPartition, int] = {}
        # What /admin/preferred_replica_election and /admin/reassign_partitions name (None, empty:
        # they are not there), and who watches which states meanwhile.
        self.elections: tuple[TopicPartition, ...] | None = None
        self.reassignments: Mapping[TopicPartition, tuple[int, ...]] = {}
        self.marked: tuple[str, ...] = ()  # in /admin/delete_topics
        self.watched: dict[TopicPartition, frozenset[int]] = {}
        self.assignment_writes: dict[TopicPartition, int] = {}  # how often controllers wrote them
        self._transactions = 0  # every write has its number, as in ZooKeeper
        self._sequence = 0
        self._gives_topic_ids = False  # to topics that the controller finds without one
        self._topic_ids = 0  # how many were given
        self._producer_id_blocks = 0  # likewise

    def copy(self) -> Service:
        other = Service()
        other.sessions = dict(self.sessions)
        other.controller = self.controller
        other.controller_epoch = self.controller_epoch
        other.topics = self.topics
        other.states = dict(self.states)
        other.notifications = dict(self.notifications)
        other.log_dir_events = dict(self.log_dir_events)
        other.isr_changes = dict(self.isr_changes)
        other.elections = self.elections
        other.reassignments = self.reassignments
        other.marked = self.marked
        other.watched = dict(self.watched)
        other.assignment_writes = dict(self.assignment_writes)
        other._transactions = self._transactions
        other._sequence = self._sequence
        other._gives_topic_ids = self._gives_topic_ids
        other._topic_ids = self._topic_ids
        other._producer_id_blocks = self._producer_id_blocks
        return other

    # --- sessions --------------------------------------------------------------------------------

    def register(self, broker: int, *, unclean_shutdown: bool = False) -> Notifications:
        """A new session; its broker says whether it has just started, and how it ended before."""
        self._transactions += 1
        epoch = self._transactions
        self.sessions[broker] = BrokerRegistration(
            broker, (), epoch=epoch, unclean_shutdown=unclean_shutdown
        )
        started: Notifications = [(broker, coordination_service.SessionStarted(epoch))]
        if self.controller is not None:
            started.append((broker, coordination_service.ControllerChanged(self.controller)))
        return [*started, *self._brokers_changed()]

    def expire(self, broker: int) -> Notifications:
        """The session ends: its ephemeral nodes are gone. The broker is not notified here."""
        if self.sessions.pop(broker, None) is None:
            return []
        watched = ((tp, watchers - {broker}) for tp, watchers in self.watched.items())
        self.watched = {tp: watchers for tp, watchers in watched if watchers}
        return [*self._free_controller(broker), *self._brokers_changed()]

    def depose(self) -> Notifications:
        """Somebody deletes `/controller`: who was it is notified, and keeps its session."""
        return [] if self.controller is None else self._free_controller(self.controller)

    # --- requests --------------------------------------------------------------------------------

    def execute(
        self, broker: int, request: coordination_service.CoordinationRequest
    ) -> Notifications:
        match request:
            case coordination_service.WriteLeaderAndIsr():
                return self._write_and_notify(broker, request)
            case coordination_service.ReadLeaderAndIsr():
                return [(broker, self._read(broker, request))]
            case coordination_service.TryBecomeController():
                return self._elect(broker)
            case coordination_service.ResignController():
                return self._free_controller(broker)
            case coordination_service.LoadCluster(epoch, gives):
                if epoch == self.controller_epoch:
                    self._gives_topic_ids = gives
                    return self._load(broker, epoch)
            case (
                coordination_service.NotifyIsrChange()
                | coordination_service.DeleteIsrChangeNotifications()
                | coordination_service.NotifyLogDirEvent()
                | coordination_service.DeleteLogDirEventNotifications()
            ):
                return self._notify(broker, request)
            case coordination_service.CreateTopic(number, topic, configuration, gives):
                return self._create(broker, number, topic, configuration, gives_topic_id=gives)
            case coordination_service.AllocateProducerIds():
                return self._allocate_producer_ids(broker)
            case _:
                return self._administer(broker, request)
        return []

    def _notify(
        self, broker: int, request: coordination_service.NotificationRequest
    ) -> Notifications:
        match request:
            case coordination_service.NotifyIsrChange(partitions):
                self._sequence += 1
                name = f"isr_change_{self._sequence:010}"
                self.notifications[name] = partitions
                changed = coordination_service.IsrChangeNotified((name,), partitions)
                return self._to_controller(changed)
            case coordination_service.NotifyLogDirEvent():
                self._sequence += 1
                name = f"log_dir_event_{self._sequence:010}"
                self.log_dir_events[name] = broker
                failed = coordination_service.LogDirEventNotified((name,), (broker,))
                return self._to_controller(failed)
            case coordination_service.DeleteIsrChangeNotifications(names):
                for name in names:
                    self.notifications.pop(name, None)
            case coordination_service.DeleteLogDirEventNotifications(names):
                for name in names:
                    self.log_dir_events.pop(name, None)
        return []

    def _allocate_producer_ids(self, broker: int) -> Notifications:
        """Behind those that clients of a simulation give themselves."""
        self._producer_id_blocks += 1
        first = self._producer_id_blocks * PRODUCER_IDS_IN_BLOCK
        end = first + PRODUCER_IDS_IN_BLOCK
        return [(broker, coordination_service.ProducerIdsAllocated(first, end))]

    def _administer(
        self, broker: int, request: coordination_service.AdministrationRequest
    ) -> Notifications:
        match request:
            case coordination_service.DeletePreferredReplicaElection():
                if not self.is_refused(request):
                    self.elections = None
            case coordination_service.SetPartitionReassignment(targets):
                if not self.is_refused(request):
                    self.reassignments = targets
            case coordination_service.WriteAssignment():
                return self._assign(broker, request)
            case coordination_service.MarkTopicForDeletion(topic):
                return self.mark(topic)
            case coordination_service.UnmarkTopics(topics):
                if not self.is_refused(request):
                    self.marked = tuple(topic for topic in self.marked if topic not in topics)
            case coordination_service.DeleteTopic(topic):
                if not self.is_refused(request):
                    return self._delete(broker, topic)
            case _:
                assert_never(request)
        return []

    @rule
    def is_refused(self, request: coordination_service.FencedRequest) -> bool:
        """Whether it is of an earlier controller, and fenced."""
        return request.is_fenced and request.controller_epoch != self.controller_epoch

    def _load(self, broker: int, epoch: int) -> Notifications:
        """Notifications that nobody has handled come after all that there is."""
        loaded = coordination_service.ClusterLoaded(
            epoch, dict(self.sessions), self._identified_topics(), dict(self.states), self.marked
        )
        notified: Notifications = [(broker, loaded)]
        if self.notifications:
            partitions = tuple(dict.fromkeys(tp for n in self.notifications.values() for tp in n))
            notified.append(
                (
                    broker,
                    coordination_service.IsrChangeNotified(tuple(self.notifications), partitions),
                )
            )
        if self.log_dir_events:
            brokers = tuple(dict.fromkeys(self.log_dir_events.values()))
            failed = coordination_service.LogDirEventNotified(tuple(self.log_dir_events), brokers)
            notified.append((broker, failed))
        if self.elections is not None:
            found = coordination_service.PreferredReplicaElectionFound(self.elections)
            notified.append((broker, found))
        if self.reassignments:
            wanted = coordination_service.PartitionReassignmentFound(self.reassignments)
            notified.append((broker, wanted))
        return notified

    def _elect(self, broker: int) -> Notifications:
        if self.controller is not None:
            if self.controller == broker:
                return [(broker, coordination_service.ControllerElected(self.controller_epoch))]
            return [(broker, coordination_service.ControllerChanged(self.controller))]
        self.controller = broker
        self.controller_epoch += 1
        others: Notifications = [
            (other, coordination_service.ControllerChanged(broker))
            for other in self.sessions
            if other != broker
        ]
        return [(broker, coordination_service.ControllerElected(self.controller_epoch)), *others]

    def _free_controller(self, broker: int) -> Notifications:
        if self.controller != broker:
            return []
        self.controller = None
        return [(other, coordination_service.ControllerChanged(None)) for other in self.sessions]

    @rule
    def write(
        self, request: coordination_service.WriteLeaderAndIsr
    ) -> coordination_service.LeaderAndIsrWritten | coordination_service.LeaderAndIsrConflict:
        tp, state = request.partition, request.state
        known = self.states[tp].version if tp in self.states else -1
        fenced = request.is_fenced and state.controller_epoch != self.controller_epoch
        if fenced or state.version != known:
            return coordination_service.LeaderAndIsrConflict(tp, state, request.by_controller)
        self._transactions += 1
        before = self.states.get(tp)
        if before is not None and set(before.isr) != set(state.isr):
            self.isr_changes[tp] = self.isr_changes.get(tp, 0) + 1
        self.states[tp] = replace(state, version=known + 1, written_at=self._transactions)
        return coordination_service.LeaderAndIsrWritten(tp, self.states[tp], request.by_controller)

    def _read(
        self, broker: int, request: coordination_service.ReadLeaderAndIsr
    ) -> coordination_service.LeaderAndIsrRead:
        partitions = request.partitions
        if request.is_watched:
            for tp in partitions:
                self.watched[tp] = self.watched.get(tp, frozenset()) | {broker}
        states = {tp: self.states[tp] for tp in partitions if tp in self.states}
        return coordination_service.LeaderAndIsrRead(partitions, states)

    def _write_and_notify(
        self, broker: int, request: coordination_service.WriteLeaderAndIsr
    ) -> Notifications:
        answer = self.write(request)
        notified: Notifications = [(broker, answer)]
        if isinstance(answer, coordination_service.LeaderAndIsrWritten):
            changed = coordination_service.LeaderAndIsrChanged((request.partition,))
            watchers = self.watched.pop(request.partition, frozenset())
            notified += [(watcher, changed) for watcher in sorted(watchers)]
        return notified

    def _assign(self, broker: int, request: coordination_service.WriteAssignment) -> Notifications:
        tp, assignment = request.partition, request.assignment
        known = self.topics.get(tp.topic)
        error = Error.NONE
        if self.is_refused(request):
            error = Error.NOT_CONTROLLER
        elif known is None:
            error = Error.UNKNOWN_TOPIC_OR_PARTITION
        answered = coordination_service.AssignmentWritten(tp, assignment, error)
        notified: Notifications = [(broker, answered)]
        if known is not None and error is Error.NONE:
            number = tp.partition
            self.assignment_writes[tp] = self.assignment_writes.get(tp, 0) + 1
            changed = replace(known, assignment={**known.assignment, number: assignment.replicas})
            if request.names_moves:
                changed = replace(
                    changed,
                    adding={**known.adding, number: assignment.adding},
                    removing={**known.removing, number: assignment.removing},
                )
            self.topics = {**self.topics, tp.topic: changed}
            notified += self.topics_changed()
        return notified

    def _create(
        self,
        broker: int,
        number: int,
        topic: str,
        configuration: TopicConfiguration,
        *,
        gives_topic_id: bool,
    ) -> Notifications:
        if topic in self.topics:
            return [
                (broker, coordination_service.TopicCreated(number, topic, "TOPIC_ALREADY_EXISTS"))
            ]
        if gives_topic_id:
            configuration = replace(configuration, topic_id=self._new_topic_id(topic))
        self.add_topic(topic, configuration)
        created = coordination_service.TopicCreated(number, topic, None)
        return [(broker, created), *self.topics_changed()]

    def _new_topic_id(self, topic: str) -> str:
        """The same in every run that gives as many before it."""
        self._topic_ids += 1
        digest = uuid5(NAMESPACE_URL, f"{topic}/{self._topic_ids}").bytes
        return urlsafe_b64encode(digest).decode().rstrip("=")

    def _identified_topics(self) -> Mapping[str, TopicConfiguration]:
        """All topics; those without an id get one, if the controller wants that."""
        if self._gives_topic_ids and any(one.topic_id is None for one in self.topics.values()):
            self.topics = {
                name: replace(one, topic_id=one.topic_id or self._new_topic_id(name))
                for name, one in self.topics.items()
            }
        return self.topics

    def add_topic(self, topic: str, configuration: TopicConfiguration) -> None:
        self.topics = {**self.topics, topic: configuration}

    def topics_changed(self) -> Notifications:
        """After `add_topic` by somebody who is no broker."""
        if self.controller is None:
            return []
        return [(self.controller, coordination_service.TopicsChanged(self._identified_topics()))]

    def elect(self, partitions: tuple[TopicPartition, ...]) -> Notifications:
        """Somebody who is no broker writes `/admin/preferred_replica_election`."""
        self.elections = partitions
        return self._to_controller(coordination_service.PreferredReplicaElectionFound(partitions))

    def reassign(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> Notifications:
        """Somebody who is no broker writes `/admin/reassign_partitions`."""
        self.reassignments = targets
        return self._to_controller(coordination_service.PartitionReassignmentFound(targets))

    def mark(self, topic: str) -> Notifications:
        """Somebody writes `/admin/delete_topics/T`."""
        self.marked = tuple(sorted({*self.marked, topic}))
        return self._to_controller(coordination_service.TopicsMarkedForDeletion(self.marked))

    def _delete(self, broker: int, topic: str) -> Notifications:
        self.topics = {name: one for name, one in self.topics.items() if name != topic}
        self.states = {tp: one for tp, one in self.states.items() if tp.topic != topic}
        self.marked = tuple(name for name in self.marked if name != topic)
        deleted = coordination_service.TopicDeleted(topic)
        return [(broker, deleted), *self.topics_changed()]

    def _brokers_changed(self) -> Notifications:
        return self._to_controller(coordination_service.BrokersChanged(dict(self.sessions)))

    def _to_controller(self, event: object) -> Notifications:
        return [] if self.controller is None else [(self.controller, event)]
