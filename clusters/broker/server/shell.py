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
from dataclasses import dataclass
from typing import Any

from neaptide.clusters.broker.coordination.zookeeper import ZooKeeperCoordination
from neaptide.clusters.broker.replication import effects as do
from neaptide.clusters.broker.replication import messages as told
from neaptide.clusters.broker.replication.broker import start
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.model import BrokerRegistration, TopicPartition
from neaptide.clusters.broker.replication.settings import InvalidSettingError
from neaptide.clusters.broker.replication.step import begin, shut_down, step
from neaptide.clusters.broker.server import requests, responses
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.server.listener import Connection
from neaptide.clusters.broker.server.log_effects import LogEffects, stored_replicas
from neaptide.clusters.broker.server.peer_effects import PeerEffects
from neaptide.clusters.broker.server.responses import is_topic_name
from neaptide.clusters.broker.storage.config import SettingError, log_config
from neaptide.clusters.broker.storage.errors import OffsetOutOfRangeError, StorageError
from neaptide.clusters.broker.storage.log import wall_clock_ms
from neaptide.clusters.broker.storage.log_directory import LogDirectory
from neaptide.clusters.broker.wire.apis import Api, Versions, client_apis, replication_apis
from neaptide.clusters.broker.wire.codec import (
    Header,
    UnsupportedVersionError,
    decode_request,
    encode_response,
)

_log = logging.getLogger("broker")
NOTHING_FOUND = (-1, -1)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that has not been answered."""

    connection: Connection
    header: Header
    max_bytes: int = 0  # of a whole Fetch response


class BrokerShell:
    """`fail` is called once, with what this broker cannot go on after."""

    def __init__(
        self,
        config: ServerConfig,
        logs: LogDirectory,
        fail: Callable[[Exception], None],
    ) -> None:
        self.config = config
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
        self._timers: dict[told.Timer, asyncio.TimerHandle] = {}
        self._being_created: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._topic_settings: dict[str, Mapping[str, str]] = {}
        self._leader_and_isr_order = asyncio.Lock()
        self._peers = PeerEffects(
            config, self.tell, self.spawn, self._follower_address, self._controlled_address
        )
        self._handlers: dict[type, Callable[[Any], None]] = {
            **LogEffects(logs, self._tell_next).handlers,
            **self._peers.handlers,
            do.RespondProduce: self._respond_produce,
            do.RespondInitProducerId: self._respond_init_producer_id,
            do.RespondFindCoordinator: self._respond_find_coordinator,
            do.RespondOffsetCommit: self._respond_offset_commit,
            do.RespondOffsetFetch: self._respond_offset_fetch,
            do.RespondFetch: self._respond_fetch,
            do.RespondOffsetForLeaderEpoch: self._respond_epochs,
            do.RespondListOffsets: self._respond_list_offsets,
            do.RespondControl: self._respond_control,
            do.RespondCreateTopics: self._respond_create_topics,
            do.SetTimer: self._set_timer,
            do.CancelTimer: self._cancel_timer,
            do.Coordinate: self._coordinate,
            do.Note: self._note,
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

    def _work(self, effects: tuple[do.Effect, ...]) -> None:
        """Carries out effects, then the events that wait."""
        self._stepping = True
        try:
            self._carry_out(effects)
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

    def _carry_out(self, effects: tuple[do.Effect, ...]) -> None:
        for effect in effects:
            self._handlers[type(effect)](effect)

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
                self.tell(told.RequestAbandoned(request))

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
        plain = requests.PLAIN.get(header.api)
        if plain is not None:
            self.tell(plain(request, entity))
            return
        match header.api:
            case Api.FETCH:
                self.tell(requests.fetch(request, entity, self._bytes_available))
            case Api.OFFSET_COMMIT:
                with_epoch = self.config.generation.fences_leader_epochs
                now_ms = wall_clock_ms()
                self.tell(requests.offset_commit(request, entity, now_ms, with_epoch=with_epoch))
            case Api.CREATE_TOPICS:
                self._create_topics(requests.create_topics(request, entity))
            case Api.UPDATE_METADATA:
                self.tell(requests.update_metadata(request, entity))
                self._being_created -= set(self._broker.metadata.topics)
            case Api.STOP_REPLICA:
                self._stop_replica(requests.stop_replica(request, entity))
            case _:
                self.spawn(self._leader_and_isr(request, entity))

    def _create_topics(self, event: told.CreateTopicsRequested) -> None:
        """A setting that the log could not be opened with would end every broker of the topic."""
        results = []
        for new in event.topics:
            try:
                log_config(self.config.settings, new.settings)
            except SettingError as error:
                results.append(do.TopicResult(new.topic, Error.INVALID_REQUEST, str(error)))
        if results:
            self._respond_create_topics(do.RespondCreateTopics(event.request, tuple(results)))
        else:
            self.tell(event)

    def _stop_replica(self, event: told.StopReplicaRequested) -> None:
        if event.delete_partitions:
            for partition in event.partitions:
                self._topic_settings.pop(partition.topic, None)
        self.tell(event)

    async def _leader_and_isr(self, request: int, entity: Any) -> None:
        """A topic's settings are in the coordination service, not in the request.

        They are read once, when the first of the topic's replicas comes here: as Kafka does. The
        lock keeps the order in which the requests came, whichever has to wait for its settings.
        """
        assert self.coordination is not None
        async with self._leader_and_isr_order:
            settings = {}
            for topic in entity.topic_states:
                name = str(topic.topic)
                if name not in self._topic_settings:
                    self._topic_settings[name] = await self.coordination.topic_settings(name)
                settings[name] = self._topic_settings[name]
            event = requests.leader_and_isr(
                request, entity, settings.__getitem__, self.config.inter_broker_listener
            )
            self.tell(event)

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
            being_created=frozenset(self._being_created),
        )
        connection.respond(encode_response(answer, header.correlation_id))

    def _want(self, topic: str) -> None:
        """Auto-creation, where the broker may do it."""
        may_create = self.config.replication.auto_create_topics_enable
        if may_create and topic not in self._broker.metadata.topics and is_topic_name(topic):
            self._being_created.add(topic)
            self.tell(told.TopicWanted(topic))

    def _bytes_available(self, topic_partition: TopicPartition, offset: int) -> int:
        log = self.logs.logs.get(topic_partition)
        if log is None or not log.log_start_offset <= offset <= log.log_end_offset:
            return 0
        return log.bytes_from(offset)

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

    def _respond_produce(self, effect: do.RespondProduce) -> None:
        if effect.acks != 0:
            self._respond(effect.request, lambda header: responses.produce(header.version, effect))
            return
        waiting = self._take(effect.request)
        if waiting is None:
            return
        failed = [result for result in effect.results if result.error is not Error.NONE]
        if failed:
            # With acks=0 a broken connection is the only way to say that something went wrong.
            _log.info("acks=0: %s for %s", failed[0].error.name, failed[0].partition)
            waiting.connection.close()
        else:
            waiting.connection.respond(None)

    def _respond_fetch(self, effect: do.RespondFetch) -> None:
        waiting = self._take(effect.request)
        if waiting is None:
            return
        budget = waiting.max_bytes
        nothing_yet = True

        def read(topic_partition: TopicPartition, wanted: do.LogSlice) -> bytes:
            """The first partition with records may exceed its limit by one batch, no other may."""
            nonlocal budget, nothing_yet
            limit = min(wanted.max_bytes, budget)
            if limit <= 0 and not nothing_yet:
                return b""
            try:
                records = self.logs.logs[topic_partition].read(
                    wanted.offset, wanted.end, max(0, limit), nothing_yet
                )
            except OffsetOutOfRangeError:
                return b""
            budget -= len(records)
            nothing_yet = nothing_yet and not records
            return records

        answer = responses.fetch(waiting.header.version, effect, read)
        waiting.connection.respond(encode_response(answer, waiting.header.correlation_id))

    def _respond_list_offsets(self, effect: do.RespondListOffsets) -> None:
        def look_up(topic_partition: TopicPartition, timestamp: int, end: int) -> tuple[int, int]:
            found = self.logs.logs[topic_partition].offset_for_timestamp(timestamp)
            return found if found is not None and found[1] < end else NOTHING_FOUND

        self._respond(
            effect.request,
            lambda header: responses.list_offsets(header.version, effect, look_up),
        )

    def _respond_epochs(self, effect: do.RespondOffsetForLeaderEpoch) -> None:
        self._respond(
            effect.request,
            lambda header: responses.offset_for_leader_epoch(header.version, effect),
        )

    def _respond_init_producer_id(self, effect: do.RespondInitProducerId) -> None:
        self._respond(
            effect.request, lambda header: responses.init_producer_id(header.version, effect)
        )

    def _respond_find_coordinator(self, effect: do.RespondFindCoordinator) -> None:
        waiting = self._waiting.get(effect.request)
        listener = waiting.connection.listener if waiting else ""
        self._respond(
            effect.request,
            lambda header: responses.find_coordinator(
                header.version, effect, self._broker.metadata, listener=listener
            ),
        )

    def _respond_offset_commit(self, effect: do.RespondOffsetCommit) -> None:
        self._respond(
            effect.request, lambda header: responses.offset_commit(header.version, effect)
        )

    def _respond_offset_fetch(self, effect: do.RespondOffsetFetch) -> None:
        self._respond(effect.request, lambda header: responses.offset_fetch(header.version, effect))

    def _respond_control(self, effect: do.RespondControl) -> None:
        self._respond(effect.request, lambda header: responses.control_response(header.api, effect))

    def _respond_create_topics(self, effect: do.RespondCreateTopics) -> None:
        self._respond(
            effect.request, lambda header: responses.create_topics(header.version, effect)
        )

    # --- time, coordination, log lines -----------------------------------------------------------

    def _set_timer(self, effect: do.SetTimer) -> None:
        self._cancel_timer(do.CancelTimer(effect.timer))
        self._timers[effect.timer] = self._loop.call_later(
            effect.delay_ms / 1000, self._on_timer, effect.timer
        )

    def _on_timer(self, timer: told.Timer) -> None:
        self._timers.pop(timer, None)
        self.tell(told.TimerFired(timer))

    def _cancel_timer(self, effect: do.CancelTimer) -> None:
        handle = self._timers.pop(effect.timer, None)
        if handle is not None:
            handle.cancel()

    def _coordinate(self, effect: do.Coordinate) -> None:
        assert self.coordination is not None
        self.coordination.execute(effect.request)

    def _note(self, effect: do.Note) -> None:
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
        self._peers.close()
        self._stepping = True
        self._carry_out(shut_down(self._broker))
        self.logs.shutdown()
