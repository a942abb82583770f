"""The real world around the core: requests, timers and ZooKeeper for one broker process.

Events go into `step` one at a time; effects are carried out in their order before the next event.
Where an effect fails, nothing is done after it: the broker ends, as Kafka halts.
The rules of replication are not here: whoever looks for an `if` about ISR or HW is in the wrong
file. Effects on the log are in `log_effects`, those on other brokers in `peer_effects`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar, get_args

from neaptide.clusters.broker.coordination.znodes import MalformedZnodeError
from neaptide.clusters.broker.coordination.zookeeper import ZooKeeperCoordination
from neaptide.clusters.broker.replication.broker import start
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    TopicPartition,
    is_topic_name,
)
from neaptide.clusters.broker.replication.settings import InvalidSettingError, topic_settings
from neaptide.clusters.broker.replication.step import begin, shut_down, step
from neaptide.clusters.broker.server import requests, responses
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.server.crowd import Crowd, CrowdLimits
from neaptide.clusters.broker.server.listener import Connection
from neaptide.clusters.broker.server.log_effects import LogEffects, stored_replicas
from neaptide.clusters.broker.server.peer_effects import PeerEffects
from neaptide.clusters.broker.server.produced import RECORDS_AT_ONCE, TooMuchAtOnceError
from neaptide.clusters.broker.server.responses import Found
from neaptide.clusters.broker.storage.compression import NONE
from neaptide.clusters.broker.storage.config import LOG_APPEND_TIME, SettingError, log_config
from neaptide.clusters.broker.storage.errors import (
    OffsetOutOfRangeError,
    RecordBatchError,
    StorageError,
)
from neaptide.clusters.broker.storage.log import wall_clock_ms
from neaptide.clusters.broker.storage.log_directory import LogDirectory
from neaptide.clusters.broker.storage.record_batch import first_at_or_after
from neaptide.clusters.broker.wire.apis import Api, Versions, client_apis, replication_apis
from neaptide.clusters.broker.wire.codec import (
    Header,
    MalformedMessageError,
    UnsupportedVersionError,
    decode_request,
    encode_response,
)

_log = logging.getLogger("broker")
ANSWERS: Final = frozenset(get_args(effects.Answer))
T = TypeVar("T")
_THREADS: Final = 2
_BEING_CREATED_MAX: Final = 1_000
_CREATION_WAITED_FOR_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that has not been answered."""

    connection: Connection
    header: Header
    max_bytes: int = 0  # of a whole Fetch response
    # The times that the records of a Produce request got, where they do not keep their own.
    append_times: dict[TopicPartition, int] = field(default_factory=dict)


class HaltedError(Exception):
    """The core has ended the broker: the message says why."""


class BrokerShell:
    """`fail` is called once, with what this broker cannot go on after."""

    def __init__(
        self,
        config: ServerConfig,
        logs: LogDirectory,
        fail: Callable[[Exception], None],
        crowd: Crowd | None = None,
    ) -> None:
        self.config = config
        self._crowd = crowd or Crowd(CrowdLimits())
        self.logs = logs
        self._fail = fail
        self._client_apis = client_apis(config.generation.name)
        self._replication_apis = replication_apis(config.generation.name)
        self._loop = asyncio.get_running_loop()
        self._broker = start(
            config.broker_id, config.generation, config.replication, stored_replicas(logs)
        )
        self._events: deque[object] = deque()
        self._stepping = False
        self._has_ended = False
        self._next_request = 1
        self._waiting: dict[int, Waiting] = {}
        self._requests_of: dict[Connection, set[int]] = {}
        self._timers: dict[events.Timer, asyncio.TimerHandle] = {}
        self._being_created: dict[str, float] = {}  # until when it is waited for
        self._tasks: set[asyncio.Task[None]] = set()
        self._topic_settings: dict[str, Mapping[str, str]] = {}
        self._leader_and_isr_order = asyncio.Lock()
        # Each may need twice the 100 MiB that a batch may come to: so there are few.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="beside")
        self._peers = PeerEffects(
            config, self.tell, self.spawn, self._follower_address, self._controlled_address
        )
        self._handlers: dict[type, Callable[[Any], None]] = {
            **LogEffects(logs, self._tell_next).handlers,
            **self._peers.handlers,
            effects.RespondProduce: self._respond_produce,
            effects.RespondInitProducerId: self._respond_init_producer_id,
            effects.RespondFindCoordinator: self._respond_find_coordinator,
            effects.RespondOffsetCommit: self._respond_offset_commit,
            effects.RespondOffsetFetch: self._respond_offset_fetch,
            effects.RespondFetch: self._respond_fetch,
            effects.RespondOffsetForLeaderEpoch: self._respond_epochs,
            effects.RespondListOffsets: self._respond_list_offsets,
            effects.RespondControl: self._respond_control,
            effects.RespondCreateTopics: self._respond_create_topics,
            effects.SetTimer: self._set_timer,
            effects.CancelTimer: self._cancel_timer,
            effects.Coordinate: self._coordinate,
            effects.Halt: self._halt,
            effects.Note: self._note,
        }
        self.coordination: ZooKeeperCoordination | None = None

    def begin(self, coordination: ZooKeeperCoordination) -> None:
        self.coordination = coordination
        self._work(begin(self._broker))

    # --- events and effects ----------------------------------------------------------------------

    def tell(self, event: object) -> None:
        """Feeds the core, now or as soon as it is done with what it is at."""
        self._events.append(event)
        if not self._stepping:
            self._work(())

    def _tell_next(self, event: object) -> None:
        """For what the core must hear before anything that waits: where its log really ends."""
        self._events.appendleft(event)

    def _work(self, done: tuple[Effect, ...]) -> None:
        """Carries out effects, then the events that wait."""
        self._stepping = True
        try:
            self._carry_out(done)
            while self._events and not self._has_ended:
                now_ms = int(self._loop.time() * 1000)
                self._carry_out(step(self._broker, self._events.popleft(), now_ms))
        except (StorageError, SettingError, InvalidSettingError) as error:
            # One log directory is all there is: without it this broker is no broker (Kafka halts).
            self.end(error)
        except Exception as error:
            _log.exception("the broker cannot go on")
            self.end(error)
        finally:
            self._stepping = False

    def _carry_out(self, done: tuple[Effect, ...]) -> None:
        for effect in done:
            if self._has_ended:
                return
            if type(effect) in ANSWERS:
                self._answer(effect)
            else:
                self._handlers[type(effect)](effect)

    def _answer(self, effect: Any) -> None:
        """An answer that cannot be made costs its connection, never the broker."""
        waiting = self._waiting.get(effect.request)
        try:
            self._handlers[type(effect)](effect)
        except StorageError:
            raise
        except Exception as error:
            self._take(effect.request)
            if waiting is not None:
                _log.exception("no answer to %s could be made", waiting.header.api.name)
                waiting.connection.refuse(error)

    def _halt(self, effect: effects.Halt) -> None:
        self.end(HaltedError(effect.reason))

    def end(self, error: Exception) -> None:
        """Nothing is read, answered or written from now on."""
        if not self._has_ended:
            self._has_ended = True
            self._events.clear()
            self._fail(error)

    # --- requests --------------------------------------------------------------------------------

    def on_opened(self, connection: Connection) -> None:
        self._requests_of[connection] = set()

    def on_closed(self, connection: Connection) -> None:
        for request in sorted(self._requests_of.pop(connection, set())):
            if self._waiting.pop(request, None) is not None:
                self.tell(events.RequestAbandoned(request))

    def apis_of(self, connection: Connection) -> Mapping[Api, Versions]:
        between_brokers = connection.listener == self.config.inter_broker_listener
        return self._replication_apis if between_brokers else self._client_apis

    def handle(self, connection: Connection, frame: bytes) -> None:
        """One request frame. Raises MalformedMessageError for the connection to deal with."""
        if self._has_ended:
            return
        apis = self.apis_of(connection)
        try:
            header, entity = decode_request(frame, apis)
        except UnsupportedVersionError as error:
            if error.header.api is not Api.API_VERSIONS:
                connection.refuse(error)
                return
            refusal = responses.api_versions(0, apis, Error.UNSUPPORTED_VERSION)
            connection.respond(encode_response(refusal, error.header.correlation_id))
            return
        if header.api is Api.API_VERSIONS:
            answer = responses.api_versions(header.version, apis, Error.NONE)
            connection.respond(encode_response(answer, header.correlation_id))
        elif header.api is Api.METADATA:
            self._answer_metadata(connection, header, entity)
        else:
            self._tell_request(connection, header, entity)

    def _tell_request(self, connection: Connection, header: Header, entity: Any) -> None:
        request = self._next_request
        self._next_request += 1
        self._waiting[request] = Waiting(connection, header, int(getattr(entity, "max_bytes", 0)))
        self._requests_of[connection].add(request)
        event = self._understood(header, lambda: self._event(request, header, entity))
        match event:
            case events.CreateTopicsRequested():
                self._create_topics(event)
            case events.StopReplicaRequested():
                self._stop_replica(event)
            case events.UpdateMetadataRequested():
                self._update_metadata(event)
            case events.LeaderAndIsrRequested():
                self.spawn(self._leader_and_isr(event))
            case None:
                self._spawn_answer(request, self._produce(request, header, entity))
            case _:
                self.tell(event)

    def _event(self, request: int, header: Header, entity: Any) -> object | None:
        """None: to validate what was produced takes long, so it is done beside all else."""
        plain = requests.PLAIN.get(header.api)
        if plain is not None:
            return plain(request, entity)
        match header.api:
            case Api.PRODUCE:
                try:
                    return self._produced(request, header, entity, at_once=True)
                except TooMuchAtOnceError:
                    return None
            case Api.FETCH:
                return requests.fetch(request, entity, self._bytes_available)
            case Api.LEADER_AND_ISR:
                return requests.leader_and_isr(request, entity, self.config.inter_broker_listener)
            case _:
                assert header.api is Api.OFFSET_COMMIT
                with_epoch = self.config.generation.fences_leader_epochs
                now_ms = wall_clock_ms()
                return requests.offset_commit(request, entity, now_ms, with_epoch=with_epoch)

    def _understood(self, header: Header, build: Callable[[], T]) -> T:
        """Whatever is wrong with what a request says is the fault of its connection."""
        try:
            return build()
        except (StorageError, MalformedMessageError):
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise MalformedMessageError(
                f"{header.api.name} v{header.version} cannot be understood: {reason}"
            ) from error

    def _produced(
        self, request: int, header: Header, entity: Any, *, at_once: bool
    ) -> events.ProduceRequested:
        waiting = self._waiting.get(request)
        append_times = {} if waiting is None else waiting.append_times
        now_ms = wall_clock_ms()

        def append_time_ms(topic_partition: TopicPartition) -> int | None:
            log = self.logs.logs.get(topic_partition)
            if log is None or log.config.message_timestamp_type != LOG_APPEND_TIME:
                return None
            append_times[topic_partition] = now_ms
            return now_ms

        return requests.produce(
            request,
            entity,
            header.version,
            append_time_ms,
            names_invalid_records=self.config.generation.names_invalid_records,
            at_once=at_once,
        )

    def _update_metadata(self, event: events.UpdateMetadataRequested) -> None:
        names_offsets = any(one.partition.topic == OFFSETS_TOPIC for one in event.partitions)
        if names_offsets and not self._broker.metadata.offsets_partitions:
            self.spawn(self._count_offsets_partitions(event))
        else:
            self._take_metadata(event)

    async def _count_offsets_partitions(self, event: events.UpdateMetadataRequested) -> None:
        """Groups belong to one of all partitions; the request names those that have a state."""
        assert self.coordination is not None
        async with self._leader_and_isr_order:
            try:
                partitions = await self.coordination.topic_partitions(OFFSETS_TOPIC)
            except MalformedZnodeError as error:
                _log.warning("no group has a coordinator: %s", error)
                partitions = 0
            self._take_metadata(replace(event, offsets_partitions=partitions))

    def _take_metadata(self, event: events.UpdateMetadataRequested) -> None:
        self.tell(event)
        for topic in tuple(self._being_created):
            if topic in self._broker.metadata.topics:
                del self._being_created[topic]

    async def _produce(self, request: int, header: Header, entity: Any) -> None:
        """Large batches are validated by a thread; their connection waits, nobody else does."""
        self.tell(
            await self._beside(partial(self._produced, request, header, entity, at_once=False))
        )

    def _create_topics(self, event: events.CreateTopicsRequested) -> None:
        """A topic is refused alone for a setting that its log could not be opened with."""
        topics = []
        for new in event.topics:
            try:
                log_config(self.config.settings, new.settings)
            except SettingError as error:
                new = replace(new, refused=str(error))
            topics.append(new)
        self.tell(replace(event, topics=tuple(topics)))

    def _stop_replica(self, event: events.StopReplicaRequested) -> None:
        if event.delete_partitions:
            for partition in event.partitions:
                self._topic_settings.pop(partition.topic, None)
        self.tell(event)

    async def _leader_and_isr(self, event: events.LeaderAndIsrRequested) -> None:
        """A topic's settings are in the coordination service, not in the request.

        They are read when the first of the topic's replicas comes here, and given to the logs that
        were there before: a broker that has just started knows its logs, not their settings. The
        lock keeps the order in which the requests came, whichever has to wait for its settings.
        """
        assert self.coordination is not None
        async with self._leader_and_isr_order:
            for topic in dict.fromkeys(state.partition.topic for state in event.partitions):
                if topic not in self._topic_settings:
                    self._take_settings(topic, await self._read_settings(topic))
            partitions = tuple(
                replace(state, settings=self._topic_settings[state.partition.topic])
                for state in event.partitions
            )
            self.tell(replace(event, partitions=partitions))

    async def _read_settings(self, topic: str) -> Mapping[str, str]:
        assert self.coordination is not None
        try:
            return await self.coordination.topic_settings(topic)
        except MalformedZnodeError as error:
            _log.warning("topic %s has the broker's settings: %s", topic, error)
            return {}

    def on_topic_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """They have changed while this broker runs."""
        if topic in self._topic_settings and not self._has_ended:
            self._take_settings(topic, settings)
            self.tell(events.TopicSettingsChanged(topic, self._topic_settings[topic]))

    def _take_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """What is no setting is left out, with a line in the log: others of its topic are good."""
        usable = dict(settings)
        for name in settings:
            try:
                log_config(self.config.settings, {name: settings[name]})
                topic_settings({name: settings[name]}, self.config.replication)
            except (SettingError, InvalidSettingError) as error:
                _log.warning("topic %s: %s", topic, error)
                del usable[name]
        self._topic_settings[topic] = usable
        self.logs.reconfigure(topic, usable)

    def _answer_metadata(self, connection: Connection, header: Header, entity: Any) -> None:
        known = self._broker.metadata
        asked = entity.topics
        every = asked is None or (header.version == 0 and not asked)
        topics = None if every else tuple(str(topic.name) for topic in asked)
        if topics is not None and getattr(entity, "allow_auto_topic_creation", True):
            for topic in topics:
                self._want(topic)
        answer = responses.metadata(
            header.version,
            known,
            topics,
            listener=connection.listener,
            cluster_id=self.coordination.cluster_id if self.coordination else None,
            being_created=self._being_created,
        )
        connection.respond(encode_response(answer, header.correlation_id))

    def _want(self, topic: str) -> None:
        """Auto-creation, where the broker may do it."""
        may_create = self.config.replication.auto_create_topics_enable
        if not may_create or topic in self._broker.metadata.topics or not is_topic_name(topic):
            return
        now = self._loop.time()
        being_created = self._being_created
        while being_created and next(iter(being_created.values())) < now:
            del being_created[next(iter(being_created))]  # it came to nothing
        if topic not in being_created and len(being_created) < _BEING_CREATED_MAX:
            being_created[topic] = now + _CREATION_WAITED_FOR_S
            self.tell(events.TopicWanted(topic))

    def _bytes_available(self, topic_partition: TopicPartition, offset: int) -> int:
        log = self.logs.logs.get(topic_partition)
        if log is None or not log.log_start_offset <= offset <= log.log_end_offset:
            return 0
        try:
            return log.bytes_from(offset)
        except RecordBatchError:  # who reads there is answered with an error
            return 0

    # --- answers ---------------------------------------------------------------------------------

    def _take(self, request: int) -> Waiting | None:
        waiting = self._waiting.pop(request, None)
        if waiting is not None:
            self._requests_of.get(waiting.connection, set()).discard(request)
        return waiting

    def _respond(self, request: int, build: Callable[[Header], Any]) -> None:
        waiting = self._take(request)
        if waiting is not None:
            frame = encode_response(build(waiting.header), waiting.header.correlation_id)
            waiting.connection.respond(frame)

    def _respond_produce(self, effect: effects.RespondProduce) -> None:
        waiting = self._take(effect.request)
        if waiting is None:
            return
        if effect.acks != 0:
            answer = responses.produce(waiting.header.version, effect, waiting.append_times)
            waiting.connection.respond(encode_response(answer, waiting.header.correlation_id))
            return
        failed = [result for result in effect.results if result.error is not Error.NONE]
        if failed:
            # With acks=0 a broken connection is the only way to say that something went wrong.
            _log.info("acks=0: %s for %s", failed[0].error.name, failed[0].partition)
            waiting.connection.close()
        else:
            waiting.connection.respond(None)

    def _respond_fetch(self, effect: effects.RespondFetch) -> None:
        waiting = self._take(effect.request)
        if waiting is None:
            return
        budget = min(waiting.max_bytes, self.config.fetch_max_bytes)
        if not self._crowd.may_answer_at_length:
            budget = 0
        nothing_yet = True
        results = []
        read: dict[TopicPartition, bytes] = {}
        for result in effect.results:
            wanted = result.records
            if wanted is None:
                results.append(result)
                continue
            # The first partition with records may exceed its limit by one batch, no other may.
            limit = max(0, min(wanted.max_bytes, budget))
            if limit or nothing_yet:
                records, error = self._read(result.partition, wanted, limit, nothing_yet)
                budget -= len(records)
                nothing_yet = nothing_yet and not records
                read[result.partition] = records
                result = result if error is Error.NONE else replace(result, error=error)
            results.append(result)
        answer = responses.fetch(
            waiting.header.version, replace(effect, results=tuple(results)), read
        )
        waiting.connection.respond(encode_response(answer, waiting.header.correlation_id))

    def _read(
        self,
        topic_partition: TopicPartition,
        wanted: effects.LogSlice,
        limit: int,
        at_least_one: bool,
    ) -> tuple[bytes, Error]:
        """What is damaged on disk is an error of its partition."""
        try:
            log = self.logs.logs[topic_partition]
            return log.read(wanted.offset, wanted.end, limit, at_least_one), Error.NONE
        except OffsetOutOfRangeError:
            return b"", Error.NONE
        except RecordBatchError as error:
            _log.warning(
                "%s cannot be read at offset %s: %s", topic_partition, wanted.offset, error
            )
            return b"", Error.CORRUPT_MESSAGE

    def _respond_list_offsets(self, effect: effects.RespondListOffsets) -> None:
        """A look-up may have to open large batches, and there may be many: nobody waits for it."""
        wanted = [result for result in effect.results if result.look_up is not None]
        if wanted:
            self._spawn_answer(effect.request, self._look_up_all(effect, wanted))
        else:
            self._respond_found(effect, {})

    async def _look_up_all(
        self, effect: effects.RespondListOffsets, wanted: list[effects.OffsetResult]
    ) -> None:
        found = {}
        for asked in wanted:
            await asyncio.sleep(0)
            found[asked.partition] = await self._look_up(asked)
        self._respond_found(effect, found)

    async def _look_up(self, asked: effects.OffsetResult) -> Found:
        """The first record that is not older. What is damaged is an error of its partition."""
        assert asked.look_up is not None
        offset = -1
        try:
            while True:
                log = self.logs.logs.get(asked.partition)
                if log is None:
                    return Found(Error.UNKNOWN_TOPIC_OR_PARTITION)
                start = log.log_start_offset
                candidate = log.batch_for_timestamp(asked.look_up, max(offset, start))
                if candidate is None:
                    return Found()
                batch, header = candidate
                find = partial(first_at_or_after, batch, header, asked.look_up, start)
                is_short = header.compression == NONE and header.record_count <= RECORDS_AT_ONCE
                record = find() if is_short else await self._beside(find)
                if record is not None:
                    timestamp, found = record
                    return Found(Error.NONE, timestamp, found) if found < asked.end else Found()
                offset = header.next_offset
        except RecordBatchError as error:
            _log.warning("%s cannot be searched from %s on: %s", asked.partition, offset, error)
            return Found(Error.CORRUPT_MESSAGE)

    def _respond_found(
        self, effect: effects.RespondListOffsets, found: Mapping[TopicPartition, Found]
    ) -> None:
        self._respond(
            effect.request, lambda header: responses.list_offsets(header.version, effect, found)
        )

    def _respond_epochs(self, effect: effects.RespondOffsetForLeaderEpoch) -> None:
        self._respond(
            effect.request,
            lambda header: responses.offset_for_leader_epoch(header.version, effect),
        )

    def _respond_init_producer_id(self, effect: effects.RespondInitProducerId) -> None:
        self._respond(
            effect.request, lambda header: responses.init_producer_id(header.version, effect)
        )

    def _respond_find_coordinator(self, effect: effects.RespondFindCoordinator) -> None:
        waiting = self._waiting.get(effect.request)
        listener = waiting.connection.listener if waiting else ""
        self._respond(
            effect.request,
            lambda header: responses.find_coordinator(
                header.version, effect, self._broker.metadata, listener=listener
            ),
        )

    def _respond_offset_commit(self, effect: effects.RespondOffsetCommit) -> None:
        self._respond(
            effect.request, lambda header: responses.offset_commit(header.version, effect)
        )

    def _respond_offset_fetch(self, effect: effects.RespondOffsetFetch) -> None:
        self._respond(effect.request, lambda header: responses.offset_fetch(header.version, effect))

    def _respond_control(self, effect: effects.RespondControl) -> None:
        self._respond(effect.request, lambda header: responses.control_response(header.api, effect))

    def _respond_create_topics(self, effect: effects.RespondCreateTopics) -> None:
        self._respond(
            effect.request, lambda header: responses.create_topics(header.version, effect)
        )

    # --- time, coordination, log lines -----------------------------------------------------------

    def _set_timer(self, effect: effects.SetTimer) -> None:
        self._cancel_timer(effects.CancelTimer(effect.timer))
        self._timers[effect.timer] = self._loop.call_later(
            effect.delay_ms / 1000, self._on_timer, effect.timer
        )

    def _on_timer(self, timer: events.Timer) -> None:
        self._timers.pop(timer, None)
        self.tell(events.TimerFired(timer))

    def _cancel_timer(self, effect: effects.CancelTimer) -> None:
        handle = self._timers.pop(effect.timer, None)
        if handle is not None:
            handle.cancel()

    def _coordinate(self, effect: effects.Coordinate) -> None:
        assert self.coordination is not None
        self.coordination.execute(effect.request)

    def _note(self, effect: effects.Note) -> None:
        _log.info("%s", effect.text)

    # --- other brokers ---------------------------------------------------------------------------

    def _follower_address(self, leader: int) -> tuple[str, int] | None:
        """Where a follower finds its leader: from the controller's requests."""
        return self._replication_endpoint(self._broker.metadata.brokers.get(leader))

    def _controlled_address(self, broker_id: int) -> tuple[str, int] | None:
        """The controller knows the brokers from the coordination service."""
        brokers: Mapping[int, BrokerRegistration] = getattr(self._broker.controller, "brokers", {})
        found = self._replication_endpoint(brokers.get(broker_id))
        return found or self._follower_address(broker_id)

    def _replication_endpoint(
        self, registration: BrokerRegistration | None
    ) -> tuple[str, int] | None:
        for endpoint in registration.endpoints if registration else ():
            if endpoint.listener == self.config.inter_broker_listener:
                return endpoint.host, endpoint.port
        return None

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Of the replicas that a controller has named."""
        return {tp: one.high_watermark for tp, one in self._broker.partitions.items()}

    # --- tasks, and the end ----------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task whose failure is the broker's."""
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._see_end)
        return task

    async def _beside(self, work: Callable[[], T]) -> T:
        """What takes long, and changes nothing: by a thread, so that nobody else has to wait."""
        return await self._loop.run_in_executor(self._threads, work)

    def _spawn_answer(self, request: int, work: Coroutine[Any, Any, None]) -> None:
        """A task whose failure is that of the connection that waits for its answer."""

        async def guarded() -> None:
            waiting = self._waiting.get(request)
            try:
                await work
            except StorageError:
                raise
            except Exception as error:
                self._take(request)
                if waiting is not None:
                    _log.exception("no answer to %s could be made", waiting.header.api.name)
                    waiting.connection.refuse(error)

        self.spawn(guarded())

    def _see_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, StorageError):
            _log.error("a task of the broker failed", exc_info=error)
        self.end(error if isinstance(error, Exception) else RuntimeError(str(error)))

    def shut_down(self) -> None:
        """The clean end: high watermarks to disk, logs flushed, nothing left running."""
        self._has_ended = True
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
        for task in tuple(self._tasks):
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._peers.close()
        self._stepping = True
        self._carry_out(shut_down(self._broker))
        self.logs.shutdown()
