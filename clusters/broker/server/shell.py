"""The event loop around the core: an event goes in, its effects are performed in their order.

Events go into `step` one at a time; the next one waits until the effects of the last are done.
An effect that takes long is done by a thread: then all of that waits, but not the event loop.
Where an effect fails, nothing is done after it: the broker ends, as Kafka halts. But where a log
directory fails and another is left, the core takes the event once more, without that directory.
The rules of replication are not here: whoever looks for an `if` about ISR or HW is in the wrong
file. Requests and their responses are in `kafka_apis`, effects on the log in `log_effects`, on
other brokers in `peer_effects`, on time in `timers`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from neaptide.clusters.broker.coordination.znodes import (
    GROUPS,
    USERS,
    MalformedZnodeError,
    name_of,
    topic_entity,
)
from neaptide.clusters.broker.coordination.zookeeper import ZooKeeperCoordination
from neaptide.clusters.broker.replication.broker import Broker, start
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import FetchSessions
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    TopicConfiguration,
    TopicPartition,
)
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache
from neaptide.clusters.broker.replication.settings import (
    GroupSettings,
    InvalidSettingError,
    group_settings,
)
from neaptide.clusters.broker.replication.step import begin, shut_down, step
from neaptide.clusters.broker.server.apis.row import ApiContext
from neaptide.clusters.broker.server.apis.table import client_apis, replication_apis
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.server.controller_requests import ControllerRequests
from neaptide.clusters.broker.server.crowd import Crowd, CrowdLimits
from neaptide.clusters.broker.server.dynamic_settings import DynamicSettings
from neaptide.clusters.broker.server.fetch_session import FetchSessionCache
from neaptide.clusters.broker.server.flushing import flush_beside
from neaptide.clusters.broker.server.kafka_apis import KafkaApis
from neaptide.clusters.broker.server.listener import Connection
from neaptide.clusters.broker.server.log_effects import (
    InThread,
    LogEffects,
    Performer,
    stored_replicas,
)
from neaptide.clusters.broker.server.log_reader import LogReader
from neaptide.clusters.broker.server.moving import ReplicaAlterLogDirs
from neaptide.clusters.broker.server.peer_effects import PeerEffects
from neaptide.clusters.broker.server.replication_quota import ReplicationQuota
from neaptide.clusters.broker.server.sasl import SCRAM, SaslAuthenticator, ScramUsers
from neaptide.clusters.broker.server.timers import Timers
from neaptide.clusters.broker.server.topic_creation import AutoTopicCreation
from neaptide.clusters.broker.storage.config import SettingError
from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.broker.storage.log_manager import LogManager
from neaptide.clusters.broker.storage.removal import remove_now
from neaptide.clusters.broker.wire.topic_ids import TopicNames

_log = logging.getLogger("broker")
T = TypeVar("T")
_THREADS: Final = 2


# The dictionaries of a broker are its own, what is in them is never changed in place.
_DICTIONARIES: Final = tuple(one.name for one in fields(Broker) if one.default_factory is dict)
_OTHERS: Final = tuple(one.name for one in fields(Broker) if one.name not in _DICTIONARIES)
_dictionaries_of: Final = attrgetter(*_DICTIONARIES)
_others_of: Final = attrgetter(*_OTHERS)


_State = tuple[list[dict[Any, Any]], tuple[Any, ...]]


def _state_of(core: Broker) -> _State:
    """As `Broker.copy`, in a fraction of its time: this is done before each event."""
    return list(map(dict.copy, _dictionaries_of(core))), _others_of(core)


def _raise(error: StorageError) -> None:
    raise error


def _restore(core: Broker, state: _State) -> None:
    for names, values in zip((_DICTIONARIES, _OTHERS), state, strict=True):
        for name, value in zip(names, values, strict=True):
            setattr(core, name, value)


@dataclass(frozen=True, slots=True)
class _Work:
    """Waits among the events for its turn."""

    work: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Taken:
    """An event whose effects are being performed: how the core was before it, and those done."""

    event: object
    before: _State
    done: list[Effect] = field(default_factory=list)


class HaltedError(Exception):
    """The core has ended the broker: the message says why."""


class BrokerShell:
    """`fail` is called once, with what this broker cannot go on after; `stop` when it may end
    cleanly."""

    def __init__(
        self,
        config: ServerConfig,
        logs: LogManager,
        fail: Callable[[Exception], None],
        crowd: Crowd | None = None,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config
        self.logs = logs
        self.settings = DynamicSettings(config, self._on_broker_settings)
        self.scram_users = ScramUsers()
        self.coordination: ZooKeeperCoordination | None = None
        self._fail = fail
        self._on_shutdown = stop
        self._loop = asyncio.get_running_loop()
        self.core = start(
            config.broker_id,
            config.generation,
            config.replication,
            stored_replicas(logs),
            has_offline_log_directory=bool(logs.offline),
        )
        self._events: deque[object] = deque()
        self._effects: deque[Effect] = deque()
        self._taken: _Taken | None = None
        self._is_busy = False
        self._in_work: tuple[Future[Any], Callable[[Any], None]] | None = None  # by a thread
        self._has_ended = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._disk_threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="disk")
        # Each may need twice the 100 MiB that a batch may come to: so there are few.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="beside")
        logs.remove_by(self._remove)
        self.topic_creation = AutoTopicCreation(
            config.replication.auto_create_topics_enable,
            self._metadata,
            self.submit,
            self._loop.time,
        )
        self.moving = ReplicaAlterLogDirs(
            logs, lambda: self.core.offline, self.when_free, self.lose_directory
        )
        self._controller_requests = ControllerRequests(
            config, logs, self.topic_creation, self._metadata, self.submit, self.spawn
        )
        self.apis = KafkaApis(
            self._context(crowd or Crowd(CrowdLimits())), self.spawn, self._in_thread
        )
        self._peers = PeerEffects(
            config,
            self.submit,
            self.spawn,
            self._follower_address,
            self._controlled_address,
            self._quota("follower"),
        )
        self._timers = Timers(self._loop, self.submit)
        of_logs = LogEffects(
            logs,
            self._submit_first,
            config.generation,
            self._clock_ms,
            lambda log: self.spawn(flush_beside(log, self.lose_directory)),
        ).performers
        self._of_logs = frozenset(of_logs)
        self.performers: Mapping[type, Performer] = {
            **dict.fromkeys(get_args(effects.Answer), self.apis.respond),
            **of_logs,
            **self._peers.performers,
            **self._timers.performers,
            effects.Coordinate: self._coordinate,
            effects.Halt: self._halt,
            effects.Shutdown: self._stop,
            effects.Note: self._note,
        }

    def _context(self, crowd: Crowd) -> ApiContext:
        between_brokers = self.config.inter_broker_listener
        of_clients = client_apis(self.config.generation.name)
        of_brokers = replication_apis(self.config.generation.name)
        return ApiContext(
            self.settings,
            crowd,
            LogReader(self.logs, self._in_thread, self.lose_directory),
            self.topic_creation,
            self._controller_requests,
            self.submit,
            self._metadata,
            lambda: self.coordination.cluster_id if self.coordination else None,
            lambda listener: of_brokers if listener == between_brokers else of_clients,
            self.moving.move,
            TopicNames(self._topic_names, lambda: self.core.metadata.topic_ids),
            self._fetch_sessions(),
            self._quota("leader"),
        )

    def _quota(self, side: str) -> ReplicationQuota:
        """Of what this broker sends as a leader, or fetches as a follower."""
        listed = f"{side}.replication.throttled.replicas"
        return ReplicationQuota(
            self.config.broker_id,
            lambda: self.settings.rate(f"{side}.replication.throttled.rate"),
            lambda topic: self._controller_requests.topic_setting(topic, listed),
            self._loop.time,
        )

    def _fetch_sessions(self) -> FetchSessionCache | None:
        kind = self.config.generation.fetch_sessions
        if kind is FetchSessions.NONE:
            return None
        return FetchSessionCache(
            self.config.max_incremental_fetch_session_cache_slots,
            lambda: time.monotonic_ns() // 1_000_000,
            age_while_used=kind is FetchSessions.AGE_WHILE_USED,
        )

    def begin(self, coordination: ZooKeeperCoordination) -> None:
        """Before the coordination service is started: what is set for this broker is asked first,
        for no replica may fetch before its throttle is known (Kafka reads it before it begins)."""
        self.coordination = coordination
        self._controller_requests.coordination = coordination
        for entity in self.settings.entities:
            self.spawn(self._take_broker_settings(entity, coordination.settings(entity)))
        self._effects.extend(begin(self.core))
        self._work()
        if self.config.generation.consumer_protocol:
            self.spawn(self._read_settings_of_groups())
        if any(SCRAM.keys() & one.mechanisms for one in self.config.security.values()):
            self.spawn(self._read_users())
        self.spawn(self.moving.run())

    # --- events and effects ----------------------------------------------------------------------

    def submit(self, event: object) -> None:
        """An event for the core: now, or as soon as it is done with those before."""
        self._events.append(event)
        if not self._is_busy:
            self._work()

    def _submit_first(self, event: object) -> None:
        """What the core must know before anything that waits: where its log really ends."""
        self._events.appendleft(event)

    def when_free(self, work: Callable[[], None]) -> None:
        """Work that cuts logs: in its turn, and not while a thread reads them."""
        self.submit(_Work(work))

    def _work(self, first: Callable[[], None] = lambda: None) -> None:
        """Performs the effects that there are, then those of the events that wait."""
        self._is_busy = True
        try:
            first()
            while True:
                try:
                    self._is_busy = self._go_on()
                    return
                except StorageError as error:
                    self._go_on_without(error)
        except (StorageError, SettingError, InvalidSettingError) as error:
            self.end(error)
        except Exception as error:
            _log.exception("the broker cannot go on")
            self.end(error)

    def _go_on(self) -> bool:
        """Whether a thread has begun with something: then all else waits for it."""
        waiting, events = self._effects, self._events
        while not self._has_ended:
            if waiting:
                effect = waiting.popleft()
                left = self.performers[type(effect)](effect)
                if left is not None:
                    self.spawn(self._finish(effect, left))
                    return True
                if self._taken is not None:
                    self._taken.done.append(effect)
            elif events:
                event = events.popleft()
                self._taken = None
                if type(event) is _Work:
                    event.work()
                else:
                    waiting.extend(self._take(event))
            else:
                break
        return False

    async def _finish(self, effect: Effect, left: InThread) -> None:
        """The rest of an effect that takes long; then what waits for it."""
        future = self._disk_threads.submit(left.work)
        self._in_work = future, left.done
        try:
            found = await asyncio.wrap_future(future)
        except StorageError as error:
            self._in_work = None
            if not self._has_ended:
                self._work(partial(self._go_on_without, error))
            return
        self._in_work = None
        if not self._has_ended:
            left.done(found)
            if self._taken is not None:
                self._taken.done.append(effect)
            self._work()

    def lose_directory(self, error: StorageError) -> None:
        """Whoever works beside the core has found that a log directory cannot be used."""
        self.when_free(partial(_raise, error))

    def _go_on_without(self, error: StorageError) -> None:
        """The event that could not be carried out is taken again, by a core without the replicas of
        that directory; what was done is not done again. Raises StorageError where that cannot
        be."""
        taken, self._taken = self._taken, None
        if taken is None and self.logs.is_offline(error):
            return
        lost = self.logs.fail(error)
        if lost is None:
            raise error
        if taken is None:
            self._effects.extend(self._take(events.LogDirectoryFailed(lost)))
            return
        self._effects.clear()
        _restore(self.core, taken.before)
        for effect in self._take(events.LogDirectoryFailed(lost)):  # none of them is of a log
            self.performers[type(effect)](effect)
        again = list(self._take(taken.event, taken.done))
        for effect in taken.done:
            if effect in again:
                again.remove(effect)
            elif type(effect) in self._of_logs and getattr(effect, "partition", None) not in lost:
                raise error  # this log has what the core does not know
        self._effects.extend(again)

    def _finish_effects(self) -> None:
        """All effects of the last event, before the end: half of them would be a damaged broker."""
        if self._in_work is not None:
            future, done = self._in_work
            done(future.result())
        while self._effects and not self._has_ended:
            effect = self._effects.popleft()
            left = self.performers[type(effect)](effect)
            if left is not None:
                left.done(left.work())

    def _take(self, event: object, done: Sequence[Effect] = ()) -> tuple[Effect, ...]:
        """A step that fails changes nothing. Where it was a request's, only that one has failed.

        Nobody waits for an error of any other event, and without it the broker would not go on.
        """
        before = _state_of(self.core)
        self._taken = _Taken(event, before, list(done))
        try:
            return step(self.core, event, self._clock_ms())
        except Exception:
            _restore(self.core, before)
            if not self.apis.is_request(event):
                raise
            _log.exception("%s failed, and is answered with an error", type(event).__name__)
            self.apis.respond_with_error(event, Error.UNKNOWN_SERVER_ERROR)
            return ()

    def _clock_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _coordinate(self, effect: effects.Coordinate) -> None:
        assert self.coordination is not None
        self.coordination.execute(effect.request)

    def _note(self, effect: effects.Note) -> None:
        _log.info("%s", effect.text)

    def _halt(self, effect: effects.Halt) -> None:
        self.end(HaltedError(effect.reason))

    def _stop(self, effect: effects.Shutdown) -> None:
        self._on_shutdown()

    def end(self, error: Exception) -> None:
        """Nothing is read, answered or written from now on."""
        if not self._has_ended:
            self._has_ended = True
            self._effects.clear()
            self._events.clear()
            self._fail(error)

    # --- where events come from ------------------------------------------------------------------

    def handle(self, connection: Connection, frame: bytes) -> None:
        """One request frame. Raises MalformedMessageError for the connection to deal with."""
        if not self._has_ended:
            self.apis.handle(connection, frame)

    def on_opened(self, connection: Connection) -> None:
        self.apis.on_opened(connection)

    def on_closed(self, connection: Connection) -> None:
        self.apis.on_closed(connection)

    def on_settings(self, entity: str, settings: Mapping[str, str]) -> None:
        """They have changed while this broker runs."""
        if self._has_ended:
            return
        if entity in self.settings.entities:
            self.settings.take(entity, settings)
        elif entity.startswith(f"{USERS}/"):
            self.scram_users.take(name_of(entity), settings)
        elif entity.startswith(f"{GROUPS}/"):
            self._on_settings_of_group(name_of(entity), settings)
        else:
            topic = entity.removeprefix(topic_entity(""))
            self._controller_requests.on_topic_settings(topic, settings)

    def authenticator(self, listener: str) -> SaslAuthenticator | None:
        """Of a new connection; None: whoever connects there may ask."""
        security = self.config.security[listener]
        if not security.mechanisms:
            return None
        reauth_ms = security.max_reauth_ms if self.config.generation.topic_ids else {}
        return SaslAuthenticator(
            security.mechanisms, security.plain_users, self.scram_users, reauth_ms
        )

    async def _read_users(self) -> None:
        """Where somebody logs in by SCRAM."""
        assert self.coordination is not None
        for entity, settings in (await self.coordination.settings_of_all(USERS)).items():
            self.on_settings(entity, settings)
        self.scram_users.are_known.set()

    async def _read_settings_of_groups(self) -> None:
        assert self.coordination is not None
        for entity, settings in (await self.coordination.settings_of_all(GROUPS)).items():
            self.on_settings(entity, settings)

    def _on_settings_of_group(self, group: str, settings: Mapping[str, str]) -> None:
        try:
            found = group_settings(settings, self.config.replication)
        except InvalidSettingError as error:
            _log.warning("the group %r has the broker's settings: %s", group, error)
            found = GroupSettings()
        self.submit(events.GroupSettingsChanged(group, found))

    async def _take_broker_settings(self, entity: str, read: Awaitable[Mapping[str, str]]) -> None:
        try:
            self.on_settings(entity, await read)
        except MalformedZnodeError as error:
            _log.warning("%s", error)

    def _on_broker_settings(self) -> None:
        current = self.settings.current
        self.logs.use_settings(current.settings)
        self.submit(events.BrokerSettingsChanged(current.replication))
        self._controller_requests.on_broker_settings()

    # --- what the core knows ---------------------------------------------------------------------

    def _metadata(self) -> MetadataCache:
        return self.core.metadata

    def _topic_names(self) -> dict[str, str]:
        """By their ids, as this broker knows them from its metadata, or as the controller; as a
        replica too where its metadata do not have the topic yet."""
        controlled: Mapping[str, TopicConfiguration] = getattr(self.core.controller, "topics", {})
        ids = self.core.metadata.topic_ids
        known = [
            *(
                (one.topic_id, tp.topic)
                for tp, one in self.core.partitions.items()
                if tp.topic not in ids
            ),
            *((one.topic_id, name) for name, one in controlled.items()),
            *((topic_id, name) for name, topic_id in ids.items()),
        ]
        return {topic_id: name for topic_id, name in known if topic_id is not None}

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Of the replicas that a controller has named."""
        return {tp: one.high_watermark for tp, one in self.core.partitions.items()}

    def _follower_address(self, leader: int) -> tuple[str, int] | None:
        """Where a follower finds its leader: from the controller's requests."""
        return self._replication_endpoint(self.core.metadata.brokers.get(leader))

    def _controlled_address(self, broker_id: int) -> tuple[str, int] | None:
        """The controller knows the brokers from the coordination service."""
        brokers: Mapping[int, BrokerRegistration] = getattr(self.core.controller, "brokers", {})
        found = self._replication_endpoint(brokers.get(broker_id))
        return found or self._follower_address(broker_id)

    def _replication_endpoint(
        self, registration: BrokerRegistration | None
    ) -> tuple[str, int] | None:
        for endpoint in registration.endpoints if registration else ():
            if endpoint.listener == self.config.inter_broker_listener:
                return endpoint.host, endpoint.port
        return None

    # --- tasks, and the end ----------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task whose failure is the broker's."""
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._see_end)
        return task

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """What takes long, and changes nothing: by a thread, so that nobody else has to wait."""
        return await self._loop.run_in_executor(self._threads, work)

    def _remove(self, doomed: Sequence[Path]) -> None:
        """Deleted files: nobody waits. What is not removed when the broker ends is at its start."""

        async def remove() -> None:
            await self._loop.run_in_executor(self._disk_threads, remove_now, tuple(doomed))

        self.spawn(remove())

    def _see_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, StorageError):
            _log.error("a task of the broker failed", exc_info=error)
        self.end(error if isinstance(error, Exception) else RuntimeError(str(error)))

    def shut_down(self) -> None:
        """The clean end: high watermarks to disk, logs flushed, nothing left running."""
        self._is_busy = True
        self._finish_effects()
        self._has_ended = True
        self._timers.close()
        for task in tuple(self._tasks):
            task.cancel()
        for threads in (self._threads, self._disk_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        self._peers.close()
        for effect in shut_down(self.core):
            self.performers[type(effect)](effect)
        self.logs.shutdown()
