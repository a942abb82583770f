"""The driver of `replication/coordination.py` on a real ZooKeeper, by kazoo.

It decides nothing: requests of the core become reads and conditional writes of Kafka's znodes, what
ZooKeeper says becomes events, handled on the event loop in the order in which it was done. Nothing
blocks the loop: one thread (`worker.Worker`) speaks to ZooKeeper.

Rules:
- Every request is answered, except those that a session's end overtook: after SessionExpired
  nothing comes that was asked before it. A LoadCluster of an epoch that has passed has no answer
  either; ControllerChanged says why.
- Watches only say that something changed. They are set again by the very read that they cause, so
  no update is lost between; a connection that was lost sets them off too.
- A controller's writes carry a check of `/controller_epoch`, so that ZooKeeper itself refuses a
  zombie's (KAFKA-6082, Kafka 2.x). `fence_controller_writes=False` is how it was before: then only
  the version of the written znode is checked.
- `/controller` is watched by every broker. Its own election is reported by ControllerElected alone.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar, assert_never

from kazoo.client import TransactionRequest
from kazoo.exceptions import ConnectionClosedError, SessionExpiredError
from kazoo.protocol.states import KazooState, WatchedEvent

from neaptide.clusters.broker.coordination import (
    administration,
    cluster_view,
    producer_id_blocks,
    session,
    znodes,
)
from neaptide.clusters.broker.coordination.client import Client, Watch
from neaptide.clusters.broker.coordination.conditional import ConditionalWrite, Written
from neaptide.clusters.broker.coordination.topic_ids import TopicsOfTerm, random_topic_id
from neaptide.clusters.broker.coordination.worker import Batched, Worker
from neaptide.clusters.broker.coordination.writes import StateWriter, create_topic, write_states
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AdministrationRequest,
    AllocateProducerIds,
    BrokersChanged,
    ClusterLoaded,
    ControllerChanged,
    ControllerElected,
    CoordinationEvent,
    CoordinationRequest,
    CreateTopic,
    DeleteIsrChangeNotifications,
    DeleteLogDirEventNotifications,
    DeletePreferredReplicaElection,
    DeleteTopic,
    IsrChangeNotified,
    LeaderAndIsrChanged,
    LeaderAndIsrRead,
    LoadCluster,
    LogDirEventNotified,
    MarkTopicForDeletion,
    NotificationRequest,
    NotifyIsrChange,
    NotifyLogDirEvent,
    ReadLeaderAndIsr,
    ResignController,
    SessionExpired,
    SessionStarted,
    SetPartitionReassignment,
    TopicsChanged,
    TryBecomeController,
    UnmarkTopics,
    WriteAssignment,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.model import BrokerRegistration, TopicPartition

Clock = Callable[[], int]
T = TypeVar("T")
_log = logging.getLogger("broker")
_NOTIFIED_AT_ONCE: Final = 1_000  # partitions of the longest names then still fit into a znode


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class ZooKeeperCoordination:
    """`start`, then `execute` what the core asks; `on_event` is called on the loop; `close`."""

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        registration: BrokerRegistration,
        on_event: Callable[[CoordinationEvent], None],
        loop: asyncio.AbstractEventLoop,
        *,
        on_settings: Callable[[str, Mapping[str, str]], None] = lambda _, __: None,
        clock: Clock = wall_clock_ms,
        new_topic_id: Callable[[], str] = random_topic_id,
    ) -> None:
        self._settings_are = on_settings
        self._registration = registration
        self._on_event = on_event
        self._loop = loop
        self._clock = clock
        self._new_topic_id = new_topic_id
        self._new_cluster_id = session.derived_cluster_id(connect)
        self._client = Client(connect, session_timeout_ms)
        self._writer = StateWriter(self._client)
        self._isr_changes = cluster_view.isr_changes(self._client)
        self._log_dir_events = cluster_view.log_dir_events(self._client)
        self._worker: Worker[tuple[int, WriteLeaderAndIsr]] = Worker(
            f"zookeeper-{registration.broker_id}", self._write_states, self._on_error
        )
        self._closing = False
        # Of the loop: how many expiries the core knew of when it asked.
        self._expiries_reported = 0
        # Of the worker's thread.
        self._expiries = 0
        self._in_session = False
        self._is_registered = False
        self._deferred: list[Callable[[], None]] = []
        self._term: session.Term | None = None
        self._topics: TopicsOfTerm | None = None  # of a controller
        self._holder_reported: session.Holder | None = None
        # One object each: kazoo keeps watches in sets, so that each is set once.
        self._on_freed = self._watch(self._register)
        self._on_controller = self._watch(self._controller_changed)
        self._on_brokers = self._watch(self._brokers_changed)
        self._on_topics = self._watch(self._topics_changed)
        self._on_isr_changes = self._watch(self._isr_changed)
        self._on_log_dir_events = self._watch(self._log_directory_failed)
        self._on_administration = self._watch(self._administration_wanted)
        self._on_state_change: Watch = self._on_state
        self._on_settings: dict[str, Watch] = {}  # by entity
        self._on_kinds: dict[str, Watch] = {}  # of entities that come and go
        self.cluster_id: str | None = None  # known when SessionStarted is reported

    # --- for the broker, on its event loop -------------------------------------------------------

    def start(self) -> None:
        """Begin to connect; SessionStarted follows when ZooKeeper is there."""
        self._worker.start()
        self._client.kazoo.add_listener(self._on_connection)
        self._client.kazoo.start_async()

    def execute(self, request: CoordinationRequest) -> None:
        """Do what the core asks; the answer is an event."""
        if isinstance(request, WriteLeaderAndIsr):
            self._worker.put(Batched((self._expiries_reported, request)))
        else:
            self._worker.put(partial(self._execute, self._expiries_reported, request))

    def settings(self, entity: str) -> Awaitable[Mapping[str, str]]:
        """What is set for a topic, a broker or all brokers; `on_settings` is called when that
        changes. What is asked before `start` is answered before the broker is registered. Raises
        MalformedZnodeError.
        """
        return self._read(partial(self._read_settings, entity))

    async def alter_settings(
        self, entity: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        """Writes what the settings come to. Raises what `change` raises, and
        MalformedZnodeError."""
        await self._read(partial(self._alter_settings, entity, change))

    def settings_of_all(self, kind: str) -> Awaitable[Mapping[str, Mapping[str, str]]]:
        """What is set for each user or each group, by entity; `on_settings` is called when that
        changes, and for those that come. What is malformed is left out."""
        return self._read(partial(self._read_settings_of_all, kind))

    async def topic_partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 where there is none. Raises MalformedZnodeError."""
        return await self._read(partial(self._count_partitions, topic))

    def _read(self, read: Callable[[], T]) -> asyncio.Future[T]:
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._worker.put(partial(self._answer, read, answer))
        return asyncio.wrap_future(answer)

    def close(self) -> None:
        """End the session and the threads; no event comes after this."""
        self._closing = True
        self._client.close()
        self._worker.stop()

    # --- threads ---------------------------------------------------------------------------------

    def _notify(self, event: CoordinationEvent) -> None:
        if not self._closing:
            self._loop.call_soon_threadsafe(self._deliver, event)

    def _deliver(self, event: CoordinationEvent) -> None:
        if isinstance(event, SessionExpired):
            self._expiries_reported += 1
        if not self._closing:
            self._on_event(event)

    def _on_error(self, error: Exception) -> None:
        """A session that ends has an event of its own; all else goes to the broker."""
        if self._closing or isinstance(error, SessionExpiredError | ConnectionClosedError):
            return
        context = {"message": f"coordination failed: {error}", "exception": error}
        self._loop.call_soon_threadsafe(self._loop.call_exception_handler, context)

    def _on_connection(self, state: str) -> None:
        """Called by kazoo's thread, which must not wait."""
        if state == KazooState.LOST:
            self._worker.put(self._end_session)
        elif state == KazooState.CONNECTED:
            self._worker.put(self._begin_session)

    def _watch(self, task: Callable[[], None]) -> Watch:
        def fired(_: WatchedEvent) -> None:
            self._worker.put(task)

        return fired

    # --- the session -----------------------------------------------------------------------------

    def _begin_session(self) -> None:
        if self._in_session:  # the connection is back, the session was never lost
            return
        self.cluster_id = session.prepare(self._client, self._new_cluster_id)
        self._in_session = True
        for entity in self._on_settings:
            self._worker.put(partial(self._settings_changed, entity))
        for kind in self._on_kinds:
            self._worker.put(partial(self._kind_changed, kind))
        deferred, self._deferred = self._deferred, []
        for task in deferred:
            self._worker.put(task)
        # Last: whoever is registered is given replicas, and must know by then what is set for them.
        self._worker.put(self._register)

    def _register(self) -> None:
        if not self._in_session or self._is_registered:
            return
        epoch = session.register(self._client, self._registration, self._clock(), self._on_freed)
        if epoch is not None:
            self._is_registered = True
            # The next session is of the same process, which has lost nothing meanwhile.
            self._registration = replace(self._registration, unclean_shutdown=False)
            self._notify(SessionStarted(epoch))
            self._controller_changed()

    def _end_session(self) -> None:
        if self._closing:
            return
        self._expiries += 1
        self._in_session = False
        self._is_registered = False
        self._holder_reported = None
        self._stop_controlling()
        self._writer.forget_parents()
        self._notify(SessionExpired())

    def _stop_controlling(self) -> None:
        self._term = None
        self._topics = None

    @property
    def _is_controlling(self) -> bool:
        return self._topics is not None

    # --- what changed ----------------------------------------------------------------------------

    def _controller_changed(self) -> None:
        if not self._in_session:
            return
        holder = session.holder(self._client, self._on_controller)
        if holder is not None and holder.session_id == self._client.session_id:
            self._holder_reported = holder
        elif holder != self._holder_reported:
            self._notify_controller(holder)

    def _notify_controller(self, holder: session.Holder | None) -> None:
        self._stop_controlling()
        self._holder_reported = holder
        self._notify(ControllerChanged(None if holder is None else holder.broker_id))

    def _brokers_changed(self) -> None:
        if self._is_controlling:
            self._notify(BrokersChanged(cluster_view.brokers(self._client, self._on_brokers)))

    def _topics_changed(self) -> None:
        if self._topics is not None:
            self._notify(TopicsChanged(self._topics.read(self._on_topics)))

    def _isr_changed(self) -> None:
        if not self._is_controlling:
            return
        found = self._isr_changes.unread(self._on_isr_changes)
        if found is not None:
            self._notify(IsrChangeNotified(*found))

    def _log_directory_failed(self) -> None:
        if not self._is_controlling:
            return
        found = self._log_dir_events.unread(self._on_log_dir_events)
        if found is not None:
            self._notify(LogDirEventNotified(*found))

    def _administration_wanted(self) -> None:
        """By operators: elections, reassignments, deletions."""
        if not self._is_controlling:
            return
        for wanted in (
            administration.election_wanted,
            administration.reassignment_wanted,
            administration.deletion_wanted,
        ):
            found = wanted(self._client, self._on_administration)
            if found is not None:
                self._notify(found)

    def _on_state(self, event: WatchedEvent) -> None:
        """Of a partition that is being reassigned. Without a path it is of the connection."""
        if event.path:
            self._worker.put(partial(self._state_changed, event.path))

    def _state_changed(self, path: str) -> None:
        if self._is_controlling:
            self._notify(LeaderAndIsrChanged((znodes.partition_of_state_path(path),)))

    # --- what the core asks ----------------------------------------------------------------------

    def _execute(self, expiries: int, request: CoordinationRequest) -> None:
        if expiries != self._expiries:
            return
        if not self._in_session:
            self._deferred.append(partial(self._execute, expiries, request))
            return
        self._perform(expiries, request)

    def _perform(self, expiries: int, request: CoordinationRequest) -> None:
        match request:
            case TryBecomeController():
                self._try_become_controller()
            case ResignController():
                self._resign()
            case LoadCluster():
                self._load_cluster(request)
            case ReadLeaderAndIsr(partitions, is_watched):
                watch = self._on_state_change if is_watched else None
                states = cluster_view.states(self._client, partitions, watch)
                self._notify(LeaderAndIsrRead(partitions, states))
            case WriteLeaderAndIsr():
                self._write_states([(expiries, request)])
            case (
                NotifyIsrChange()
                | DeleteIsrChangeNotifications()
                | NotifyLogDirEvent()
                | DeleteLogDirEventNotifications()
            ):
                self._notify_controller_of(request)
            case CreateTopic():
                topic_id = self._new_topic_id() if request.gives_topic_id else None
                self._notify(create_topic(self._client, request, topic_id))
            case DeletePreferredReplicaElection() | WriteAssignment() | SetPartitionReassignment():
                self._administer(request)
            case MarkTopicForDeletion() | UnmarkTopics() | DeleteTopic():
                self._administer(request)
                self._writer.forget_parents()
            case AllocateProducerIds():
                broker_id = self._registration.broker_id
                self._notify(producer_id_blocks.allocate(self._client, broker_id))
            case _:
                assert_never(request)

    def _administer(self, request: AdministrationRequest) -> None:
        answer = administration.administer(self._client, request, self._term)
        if answer is not None:
            self._notify(answer)

    def _notify_controller_of(self, request: NotificationRequest) -> None:
        match request:
            case NotifyIsrChange(partitions):
                self._notify_isr_change(partitions)
            case NotifyLogDirEvent():
                data = znodes.encode_log_dir_event(self._registration.broker_id)
                self._client.create_sequential(znodes.LOG_DIR_EVENT_PREFIX, data)
            case DeleteIsrChangeNotifications(names):
                self._isr_changes.delete(names)
            case DeleteLogDirEventNotifications(names):
                self._log_dir_events.delete(names)

    def _notify_isr_change(self, partitions: tuple[TopicPartition, ...]) -> None:
        for first in range(0, len(partitions), _NOTIFIED_AT_ONCE):
            data = znodes.encode_partitions(partitions[first : first + _NOTIFIED_AT_ONCE])
            self._client.create_sequential(znodes.ISR_CHANGE_PREFIX, data)

    def _write_states(self, batch: Sequence[tuple[int, WriteLeaderAndIsr]]) -> None:
        """Neighbouring writes share a round trip; each is answered by itself."""
        current = [request for expiries, request in batch if expiries == self._expiries]
        if not self._in_session:
            self._deferred += [partial(self._execute, self._expiries, r) for r in current]
            return
        for event in write_states(self._writer, current, self._term):
            self._notify(event)

    def _try_become_controller(self) -> None:
        result = session.elect(self._client, self._registration.broker_id, self._clock())
        if isinstance(result, session.Term):
            self._term = result
            self._notify(ControllerElected(result.controller_epoch))
        else:
            self._notify_controller(result)

    def _resign(self) -> None:
        self._stop_controlling()
        holder = session.holder(self._client)
        if holder is not None and holder.session_id == self._client.session_id:
            self._client.delete(znodes.CONTROLLER)

    def _load_cluster(self, request: LoadCluster) -> None:
        """All that there is, with the watches set first; notifications that wait come after it."""
        if self._term is None or self._term.controller_epoch != request.controller_epoch:
            return
        new_id = self._new_topic_id if request.gives_topic_ids else None
        self._topics = TopicsOfTerm(self._client, self._term, new_id)
        brokers = cluster_view.brokers(self._client, self._on_brokers)
        topics = self._topics.read(self._on_topics)
        partitions = [
            TopicPartition(topic, partition)
            for topic, configuration in topics.items()
            for partition in configuration.assignment
        ]
        states = cluster_view.states(self._client, partitions)
        marked = administration.marked_topics(self._client)
        self._writer.forget_parents()  # another controller may have deleted topics
        self._notify(ClusterLoaded(request.controller_epoch, brokers, topics, states, marked))
        self._isr_changes = cluster_view.isr_changes(self._client)
        self._log_dir_events = cluster_view.log_dir_events(self._client)
        self._isr_changed()
        self._log_directory_failed()
        self._administration_wanted()

    def _answer(self, read: Callable[[], T], answer: concurrent.futures.Future[T]) -> None:
        """Reads for somebody who waits, in this session or in the next one."""
        if not self._in_session:
            self._deferred.append(partial(self._answer, read, answer))
            return
        try:
            found = read()
        except SessionExpiredError:
            self._deferred.append(partial(self._answer, read, answer))
        except Exception as error:  # the asker's to handle, as its own
            answer.set_exception(error)
        else:
            answer.set_result(found)

    def _count_partitions(self, topic: str) -> int:
        znode = self._client.get(znodes.topic_path(topic))
        return 0 if znode is None else len(znodes.decode_topic(topic, znode.data, None).assignment)

    def _read_settings(self, entity: str) -> Mapping[str, str]:
        """Sets a watch, which reports changes."""
        return self._watched_settings(entity) or {}

    def _read_settings_of_all(self, kind: str) -> Mapping[str, Mapping[str, str]]:
        if kind not in self._on_kinds:
            self._on_kinds[kind] = self._watch(partial(self._kind_changed, kind))
        found = {}
        for entity in self._entities(kind):
            try:
                found[entity] = self._watched_settings(entity) or {}
            except znodes.MalformedZnodeError as error:
                _log.warning("%s", error)
        return found

    def _entities(self, kind: str) -> list[str]:
        """Sets a watch, which reports that there are others."""
        path = znodes.config_path(kind)
        self._client.ensure(path)
        return [f"{kind}/{name}" for name in self._client.children(path, self._on_kinds[kind])]

    def _kind_changed(self, kind: str) -> None:
        """One that went has no settings any more."""
        if not self._in_session:
            return  # the next session looks at them
        for entity in self._entities(kind):
            if entity not in self._on_settings:
                self._settings_changed(entity)

    def _alter_settings(
        self, entity: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        """Again where somebody else has written meanwhile."""
        path = znodes.config_path(entity)
        while True:
            znode = self._client.get(path)
            before = {} if znode is None else znodes.decode_settings(entity, znode.data)
            data = znodes.encode_settings(change(before))
            version = None if znode is None else znode.stat.version
            fill = partial(_write_settings, path, data, version)
            if isinstance(ConditionalWrite(self._client, fill, path, data).result(), Written):
                break
        self._client.create_sequential(znodes.CONFIG_CHANGE, znodes.encode_config_change(entity))

    def _watched_settings(self, entity: str) -> Mapping[str, str] | None:
        """None where there are none: a topic may be about to go."""
        watch = self._on_settings.get(entity)
        if watch is None:
            watch = self._watch(partial(self._settings_changed, entity))
            self._on_settings[entity] = watch
        znode = self._client.watched(znodes.config_path(entity), watch)
        return None if znode is None else znodes.decode_settings(entity, znode.data)

    def _settings_changed(self, entity: str) -> None:
        if not self._in_session:
            return  # the next session looks at all of them
        try:
            settings = self._watched_settings(entity)
        except znodes.MalformedZnodeError as error:
            _log.warning("settings stay as they are: %s", error)
            return
        if settings is None and entity.partition("/")[0] in self._on_kinds:
            settings = {}  # it may come again; of a topic that is about to go nothing is said
        if settings is not None and not self._closing:
            self._loop.call_soon_threadsafe(self._settings_are, entity, settings)


def _write_settings(
    path: str, data: bytes, version: int | None, transaction: TransactionRequest
) -> None:
    if version is None:
        transaction.create(path, data)
    else:
        transaction.set_data(path, data, version=version)
