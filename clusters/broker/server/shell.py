"""The real world around the core: sockets, disk, timers and ZooKeeper for one broker process.

Events go into `step` one at a time; effects are carried out in their order before the next event.
The rules of replication are not here: whoever looks for an `if` about ISR or HW is in the wrong
file.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from clusters.broker.coordination.zookeeper import ZooKeeperCoordination
from clusters.broker.replication import effects as do
from clusters.broker.replication import messages as told
from clusters.broker.replication.broker import StoredReplica, start
from clusters.broker.replication.errors import Error
from clusters.broker.replication.log import Log as ReplicaLog
from clusters.broker.replication.model import BrokerRegistration, TopicPartition
from clusters.broker.replication.step import begin, shut_down, step
from clusters.broker.server import outgoing, requests, responses
from clusters.broker.server.config import ServerConfig
from clusters.broker.server.listener import Connection
from clusters.broker.server.peer import ControlChannel, PeerConnection, PeerError
from clusters.broker.storage.errors import OffsetOutOfRangeError, StorageError
from clusters.broker.storage.log_directory import LogDirectory
from clusters.broker.storage.record_batch import assign, parse_header
from clusters.broker.wire.apis import CLIENT_APIS, REPLICATION_APIS, Api, Versions
from clusters.broker.wire.codec import (
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
    def __init__(
        self,
        config: ServerConfig,
        logs: LogDirectory,
        fail: Callable[[Exception], None],
    ) -> None:
        self.config = config
        self.logs = logs
        self.cluster_id: str | None = None
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._broker = start(config.broker_id, config.generation, config.replication, _stored(logs))
        self._events: deque[object] = deque()
        self._stepping = False
        self._next_request = 1
        self._waiting: dict[int, Waiting] = {}
        self._requests_of: dict[Connection, set[int]] = {}
        self._timers: dict[told.Timer, asyncio.TimerHandle] = {}
        self._fetchers: dict[told.FetcherId, tuple[PeerConnection, asyncio.Task[None] | None]] = {}
        self._control: dict[int, ControlChannel] = {}
        self._being_created: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._topic_settings: dict[str, Mapping[str, str]] = {}
        self.coordination: ZooKeeperCoordination | None = None

    def begin(self, coordination: ZooKeeperCoordination) -> None:
        self.coordination = coordination
        self._carry_out(begin(self._broker))

    # --- events and effects ----------------------------------------------------------------------

    def tell(self, event: object) -> None:
        """Feeds the core, now or as soon as it is done with what it is at."""
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                now_ms = int(self._loop.time() * 1000)
                self._carry_out(step(self._broker, self._events.popleft(), now_ms))
        except StorageError as error:
            # One log directory is all there is: without it this broker is no broker (Kafka halts).
            self._fail(error)
        except Exception as error:
            _log.exception("the broker cannot go on")
            self._fail(error)
        finally:
            self._stepping = False

    def _carry_out(self, effects: tuple[do.Effect, ...]) -> None:
        for effect in effects:
            _EFFECTS[type(effect)](self, effect)

    # --- requests --------------------------------------------------------------------------------

    def on_opened(self, connection: Connection) -> None:
        self._requests_of[connection] = set()

    def on_closed(self, connection: Connection) -> None:
        for request in sorted(self._requests_of.pop(connection, set())):
            if self._waiting.pop(request, None) is not None:
                self.tell(told.RequestAbandoned(request))

    def apis_of(self, connection: Connection) -> dict[Api, Versions]:
        between_brokers = connection.listener == self.config.inter_broker_listener
        return dict(REPLICATION_APIS if between_brokers else CLIENT_APIS)

    def handle(self, connection: Connection, frame: bytes) -> None:
        """One request frame. Raises MalformedMessageError for the connection to deal with."""
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
        match header.api:
            case Api.PRODUCE:
                self.tell(requests.produce(request, entity))
            case Api.FETCH:
                self.tell(requests.fetch(request, entity, self._bytes_available))
            case Api.LIST_OFFSETS:
                self.tell(requests.list_offsets(request, entity))
            case Api.OFFSET_FOR_LEADER_EPOCH:
                self.tell(requests.offset_for_leader_epoch(request, entity))
            case Api.CREATE_TOPICS:
                self.tell(requests.create_topics(request, entity))
            case Api.UPDATE_METADATA:
                self.tell(requests.update_metadata(request, entity))
                self._being_created -= set(self._broker.metadata.topics)
            case Api.STOP_REPLICA:
                self.tell(requests.stop_replica(request, entity))
            case _:
                self._spawn(self._leader_and_isr(request, entity))

    async def _leader_and_isr(self, request: int, entity: Any) -> None:
        """A topic's settings are in the coordination service, not in the request."""
        assert self.coordination is not None
        for topic in entity.topic_states:
            name = str(topic.topic)
            if name not in self._topic_settings:
                self._topic_settings[name] = await self.coordination.topic_settings(name)
        event = requests.leader_and_isr(
            request, entity, self._topic_settings.__getitem__, self.config.inter_broker_listener
        )
        self.tell(event)

    def _answer_metadata(self, connection: Connection, header: Header, entity: Any) -> None:
        known = self._broker.metadata
        asked = entity.topics
        every = asked is None or (header.version == 0 and not asked)
        topics = None if every else tuple(str(topic.name) for topic in asked)
        if topics is not None and getattr(entity, "allow_auto_topic_creation", True):
            for topic in topics:
                if topic not in known.topics and self.config.replication.auto_create_topics_enable:
                    self._being_created.add(topic)
                    self.tell(told.TopicWanted(topic))
        answer = responses.metadata(
            header.version,
            known,
            topics,
            listener=connection.listener,
            cluster_id=self.cluster_id,
            being_created=frozenset(self._being_created),
        )
        connection.respond(encode_response(answer, header.correlation_id))

    def _bytes_available(self, topic_partition: TopicPartition, offset: int) -> int:
        log = self.logs.logs.get(topic_partition)
        if log is None or not log.log_start_offset <= offset <= log.log_end_offset:
            return 0
        return log.bytes_from(offset)

    # --- answers ---------------------------------------------------------------------------------

    def _take(self, request: int) -> Waiting | None:
        waiting = self._waiting.pop(request, None)
        if waiting is not None:
            self._requests_of[waiting.connection].discard(request)
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

    def _respond_control(self, effect: do.RespondControl) -> None:
        self._respond(effect.request, lambda header: responses.control_response(header.api, effect))

    def _respond_create_topics(self, effect: do.RespondCreateTopics) -> None:
        self._respond(
            effect.request, lambda header: responses.create_topics(header.version, effect)
        )

    # --- the log ---------------------------------------------------------------------------------

    def _create_log(self, effect: do.CreateLog) -> None:
        self.logs.create_log(effect.partition, effect.settings)

    def _delete_log(self, effect: do.DeleteLog) -> None:
        self.logs.delete_log(effect.partition)

    def _append(self, effect: do.AppendToLog) -> None:
        log = self.logs.logs[effect.partition]
        data: bytes | bytearray
        if len(effect.batches) == 1 and isinstance(effect.batches[0].identity, bytes):
            data = effect.batches[0].identity
        else:
            data = b"".join(_bytes_of(batch.identity) for batch in effect.batches)
        if effect.assign:
            data = bytearray(data)
            first = effect.batches[0]
            headers = assign(data, first.base_offset, first.leader_epoch)
        else:
            headers, position = [], 0
            for _ in effect.batches:
                headers.append(parse_header(data, position))
                position += headers[-1].size
        log.append(data, headers)

    def _truncate(self, effect: do.TruncateLog) -> None:
        end_offset = self.logs.logs[effect.partition].truncate_to(effect.offset)
        if end_offset != effect.offset:
            self._events.append(told.LogTruncated(effect.partition, end_offset))

    def _truncate_fully(self, effect: do.TruncateFullyAndStartAt) -> None:
        self.logs.logs[effect.partition].truncate_fully_and_start_at(effect.offset)

    def _advance_log_start(self, effect: do.AdvanceLogStartOffset) -> None:
        self.logs.logs[effect.partition].delete_records_before(effect.offset)
        self.logs.checkpoint_log_start_offsets()

    def _write_epochs(self, effect: do.WriteLeaderEpochCheckpoint) -> None:
        self.logs.logs[effect.partition].epochs.replace(effect.epochs)

    def _write_high_watermarks(self, effect: do.WriteHighWatermarkCheckpoint) -> None:
        self.logs.write_high_watermarks(dict(effect.high_watermarks))

    # --- other brokers ---------------------------------------------------------------------------

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        registration = self._broker.metadata.brokers.get(broker_id)
        for endpoint in registration.endpoints if registration else ():
            if endpoint.listener == self.config.inter_broker_listener:
                return endpoint.host, endpoint.port
        return None

    def _send_fetch(self, effect: do.SendFetch) -> None:
        entity = outgoing.fetch(self.config.broker_id, self.config.generation.fetch_version, effect)
        self._ask(effect, entity, lambda answer: outgoing.fetch_responded(effect, answer))

    def _send_epochs(self, effect: do.SendOffsetForLeaderEpoch) -> None:
        entity = outgoing.offset_for_leader_epoch(effect)
        self._ask(effect, entity, lambda answer: outgoing.epochs_responded(effect, answer))

    def _send_list_offsets(self, effect: do.SendListOffsets) -> None:
        entity = outgoing.list_offsets(self.config.broker_id, effect)
        self._ask(effect, entity, lambda answer: outgoing.offsets_responded(effect, answer))

    def _ask(
        self,
        effect: do.SendFetch | do.SendOffsetForLeaderEpoch | do.SendListOffsets,
        entity: Any,
        event: Callable[[Any], object],
    ) -> None:
        fetcher = effect.fetcher
        entry = self._fetchers.get(fetcher)
        connection = (
            entry[0]
            if entry
            else PeerConnection(
                f"broker-{self.config.broker_id}-fetcher-{fetcher.number}",
                self.config.replica_socket_timeout_ms / 1000,
            )
        )

        async def exchange() -> None:
            try:
                address = self._address_of(fetcher.leader)
                if address is None:
                    raise PeerError(f"the address of broker {fetcher.leader} is not known")
                response = await connection.request(address, entity)
            except PeerError as error:
                _log.info("fetcher of %s: %s", fetcher.leader, error)
                self.tell(told.FetcherRequestFailed(fetcher, effect.sequence))
                return
            self.tell(event(response))

        self._fetchers[fetcher] = (connection, self._spawn(exchange()))

    def _close_fetcher(self, effect: do.CloseFetcher) -> None:
        entry = self._fetchers.pop(effect.fetcher, None)
        if entry is not None:
            connection, task = entry
            if task is not None and task is not asyncio.current_task():
                task.cancel()
            connection.close()

    def _send_control(self, effect: do.SendControl) -> None:
        broker = effect.broker
        channel = self._control.get(broker)
        if channel is None:
            channel = ControlChannel(
                str(self.config.broker_id),
                self.config.replica_socket_timeout_ms / 1000,
                lambda: self._controlled_address(broker),
                lambda epoch, response: self.tell(
                    outgoing.control_responded(broker, epoch, response)
                ),
            )
            self._control[broker] = channel
        entity = outgoing.control_request(effect.message, self.config.inter_broker_listener)
        channel.send(entity, effect.message.controller_epoch)

    def _controlled_address(self, broker_id: int) -> tuple[str, int] | None:
        """The controller knows the brokers from the coordination service."""
        for endpoint in self._controller_registration(broker_id):
            if endpoint.listener == self.config.inter_broker_listener:
                return endpoint.host, endpoint.port
        return self._address_of(broker_id)

    def _controller_registration(self, broker_id: int) -> tuple[Any, ...]:
        brokers: Mapping[int, BrokerRegistration] = getattr(self._broker.controller, "brokers", {})
        registration = brokers.get(broker_id)
        return registration.endpoints if registration else ()

    def _stop_sending_control(self, effect: do.StopSendingControl) -> None:
        brokers = tuple(self._control) if effect.brokers is None else effect.brokers
        for broker in brokers:
            channel = self._control.pop(broker, None)
            if channel is not None:
                channel.close()

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

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._see_failure)
        return task

    def _see_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task of the broker failed", exc_info=error)
            self._fail(RuntimeError(str(error)))

    def shut_down(self) -> None:
        """The clean end: high watermarks to disk, logs flushed, nothing left running."""
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
        for task in tuple(self._tasks):
            task.cancel()
        self._stop_sending_control(do.StopSendingControl(None))
        for connection, _ in self._fetchers.values():
            connection.close()
        self._carry_out(shut_down(self._broker))
        self.logs.shutdown()


_EFFECTS: dict[type, Callable[[BrokerShell, Any], None]] = {
    do.CreateLog: BrokerShell._create_log,
    do.DeleteLog: BrokerShell._delete_log,
    do.AppendToLog: BrokerShell._append,
    do.TruncateLog: BrokerShell._truncate,
    do.TruncateFullyAndStartAt: BrokerShell._truncate_fully,
    do.AdvanceLogStartOffset: BrokerShell._advance_log_start,
    do.WriteLeaderEpochCheckpoint: BrokerShell._write_epochs,
    do.WriteHighWatermarkCheckpoint: BrokerShell._write_high_watermarks,
    do.RespondProduce: BrokerShell._respond_produce,
    do.RespondFetch: BrokerShell._respond_fetch,
    do.RespondOffsetForLeaderEpoch: BrokerShell._respond_epochs,
    do.RespondListOffsets: BrokerShell._respond_list_offsets,
    do.RespondControl: BrokerShell._respond_control,
    do.RespondCreateTopics: BrokerShell._respond_create_topics,
    do.SendFetch: BrokerShell._send_fetch,
    do.SendOffsetForLeaderEpoch: BrokerShell._send_epochs,
    do.SendListOffsets: BrokerShell._send_list_offsets,
    do.CloseFetcher: BrokerShell._close_fetcher,
    do.SendControl: BrokerShell._send_control,
    do.StopSendingControl: BrokerShell._stop_sending_control,
    do.SetTimer: BrokerShell._set_timer,
    do.CancelTimer: BrokerShell._cancel_timer,
    do.Coordinate: BrokerShell._coordinate,
    do.Note: BrokerShell._note,
}


def _bytes_of(identity: object) -> bytes:
    assert isinstance(identity, bytes)
    return identity


def _stored(logs: LogDirectory) -> dict[TopicPartition, StoredReplica]:
    """What was on disk: the core begins with that."""
    high_watermarks = logs.read_high_watermarks()
    return {
        topic_partition: StoredReplica(
            ReplicaLog(log.log_start_offset, log.log_end_offset, tuple(log.epochs.entries)),
            high_watermarks.get(topic_partition, 0),
        )
        for topic_partition, log in logs.logs.items()
    }
