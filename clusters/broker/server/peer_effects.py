"""Effects of the core on other brokers: a fetcher's requests, the controller's to each broker.

Each fetcher and each controlled broker has one connection of its own, with one request under way.
What an answer means is the core's to say: here it only becomes an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import FetchSessions
from neaptide.clusters.broker.replication.interface import administration, effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.server.apis.control import control_responded
from neaptide.clusters.broker.server.apis.fetch import encode_fetch_request, session_of_response
from neaptide.clusters.broker.server.apis.table import SENT
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.server.fetch_session_handler import FetchSessionHandler
from neaptide.clusters.broker.server.peer import ControlChannel, PeerConnection, PeerError
from neaptide.clusters.broker.server.replication_quota import ReplicationQuota

_log = logging.getLogger("broker")
Address = tuple[str, int]
_ROOM_FOR_HEADERS: Final = 1 << 20
_ANSWER_MAX_BYTES: Final = 100 << 20  # to AlterPartition, which may be about all partitions
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class PeerEffects:
    """`follower_address` and `controlled_address` look a broker's address up when it is needed."""

    def __init__(
        self,
        config: ServerConfig,
        submit: Callable[[object], None],
        spawn: Spawn,
        follower_address: Callable[[int], Address | None],
        controlled_address: Callable[[int], Address | None],
        quota: ReplicationQuota,
    ) -> None:
        self._config = config
        self._quota = quota
        self._high_watermarks: dict[TopicPartition, int] = {}  # of leaders, as last answered
        self._submit = submit
        self._spawn = spawn
        self._address_of = follower_address
        self._controlled_address = controlled_address
        self._fetchers: dict[events.FetcherId, tuple[PeerConnection, asyncio.Task[None]]] = {}
        self._has_sessions = config.generation.fetch_sessions is not FetchSessions.NONE
        self._sessions: dict[events.FetcherId, FetchSessionHandler] = {}
        self._control: dict[int, ControlChannel] = {}
        self._to_controller = PeerConnection(
            str(config.broker_id), config.replica_socket_timeout_ms / 1000, _ANSWER_MAX_BYTES
        )
        self._at_the_end = PeerConnection(
            str(config.broker_id), config.replica_socket_timeout_ms / 1000, _ANSWER_MAX_BYTES
        )
        self._markers: dict[int, PeerConnection] = {}  # of a transaction coordinator, by leader
        self._verifiers: dict[int, list[PeerConnection]] = {}  # idle ones, by coordinator
        # No batch is larger than the request that brought it, and one may come whatever was asked.
        self._response_max_bytes = (
            max(
                config.socket_request_max_bytes,
                config.replication.replica_fetch_response_max_bytes,
            )
            + _ROOM_FOR_HEADERS
        )

    @property
    def performers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            effects.SendFetch: self._send_fetch,
            effects.SendOffsetForLeaderEpoch: self._send,
            effects.SendListOffsets: self._send,
            effects.CloseFetcher: self._close_fetcher,
            effects.SendAlterPartition: self._send_alter_partition,
            effects.SendWriteTxnMarkers: self._send_markers,
            effects.SendAddPartitionsToTxn: self._verify,
            effects.SendControlledShutdown: self._send_controlled_shutdown,
            effects.SendControl: self._send_control,
            effects.StopSendingControl: self._stop_sending_control,
        }

    def close(self) -> None:
        self._stop_sending_control(effects.StopSendingControl(None))
        for connection, _ in self._fetchers.values():
            connection.close()
        self._to_controller.close()
        self._at_the_end.close()
        for connection in (*self._markers.values(), *chain(*self._verifiers.values())):
            connection.close()

    # --- of a follower ---------------------------------------------------------------------------

    def _connection(self, fetcher: events.FetcherId) -> PeerConnection:
        entry = self._fetchers.get(fetcher)
        if entry is not None:
            return entry[0]
        name = f"broker-{self._config.broker_id}-fetcher-{fetcher.number}"
        timeout_s = self._config.replica_socket_timeout_ms / 1000
        return PeerConnection(name, timeout_s, self._response_max_bytes)

    def _send_fetch(self, effect: effects.SendFetch) -> None:
        may_be_asked = tuple(filter(self._may_be_asked, effect.partitions))
        if may_be_asked or not effect.partitions:
            self._send(replace(effect, partitions=may_be_asked))
        else:
            self._wait(effect)

    def _send(
        self, effect: effects.SendFetch | effects.SendOffsetForLeaderEpoch | effects.SendListOffsets
    ) -> None:
        sent = SENT[type(effect)]
        decode = sent.decode
        assert decode is not None
        fetcher = effect.fetcher
        session: FetchSessionHandler | None = None
        if isinstance(effect, effects.SendFetch) and self._has_sessions:
            session = self._sessions.setdefault(fetcher, FetchSessionHandler())
            asked = session.request(effect.partitions)
            entity = encode_fetch_request(effect, self._config, asked)
        else:
            entity = sent.encode(effect, self._config)
        connection = self._connection(fetcher)

        async def exchange() -> None:
            try:
                address = self._address_of(fetcher.leader)
                if address is None:
                    raise PeerError(f"the address of broker {fetcher.leader} is not known")
                response = await connection.request(address, entity)
            except PeerError as error:
                _log.info("fetcher of %s: %s", fetcher.leader, error)
                if session is not None:
                    session.failed()
                self._submit(events.FetcherRequestFailed(fetcher, effect.sequence))
                return
            try:
                event = decode(effect, response)
                if session is not None:
                    assert isinstance(effect, effects.SendFetch)
                    if not session.responded(*session_of_response(effect, response)):
                        # Nothing was fetched; the next request is a full one.
                        event = events.FetchResponded(fetcher, effect.sequence, ())
                if isinstance(event, events.FetchResponded):
                    self._count(event)
            except Exception as error:
                _log.warning("fetcher of %s: not understood: %s", fetcher.leader, error)
                if session is not None:
                    session.failed()
                event = events.FetcherRequestFailed(fetcher, effect.sequence)
            self._submit(event)

        self._fetchers[fetcher] = (connection, self._spawn(exchange()))

    def _may_be_asked(self, one: events.FetchedPartition) -> bool:
        """Not of a throttled partition while too much comes, unless this replica is in sync."""
        if not (self._quota.is_throttled(one.partition) and self._quota.is_exceeded):
            return True
        high_watermark = self._high_watermarks.get(one.partition)
        return high_watermark is not None and high_watermark <= one.fetch_offset

    def _wait(self, effect: effects.SendFetch) -> None:
        """All is throttled: nothing is fetched, and then looked at again."""

        async def wait() -> None:
            await asyncio.sleep(self._config.replication.replica_fetch_backoff_ms / 1000)
            self._submit(events.FetchResponded(effect.fetcher, effect.sequence, ()))

        self._fetchers[effect.fetcher] = (self._connection(effect.fetcher), self._spawn(wait()))

    def _count(self, event: events.FetchResponded) -> None:
        for result in event.results:
            if result.error is Error.NONE:
                self._high_watermarks[result.partition] = result.high_watermark
            if result.batches and self._quota.is_throttled(result.partition):
                self._quota.record(sum(batch.size for batch in result.batches))

    def _close_fetcher(self, effect: effects.CloseFetcher) -> None:
        entry = self._fetchers.pop(effect.fetcher, None)
        self._sessions.pop(effect.fetcher, None)
        if entry is not None:
            connection, task = entry
            if task is not asyncio.current_task():
                task.cancel()
            connection.close()

    # --- of a leader, or of a broker that stops, to the controller; of a coordinator -------------

    def _send_alter_partition(self, effect: effects.SendAlterPartition) -> None:
        failed = events.AlterPartitionFailed(effect.sequence)
        self._ask(self._to_controller, effect.controller, effect, failed)

    def _send_controlled_shutdown(self, effect: effects.SendControlledShutdown) -> None:
        """By a connection of its own: ISR changes may be under way."""
        failed = administration.ControlledShutdownFailed(effect.sequence)
        self._ask(self._at_the_end, effect.controller, effect, failed)

    def _send_markers(self, effect: effects.SendWriteTxnMarkers) -> None:
        connection = self._markers.get(effect.leader)
        if connection is None:
            connection = self._markers[effect.leader] = self._connection_for("txn-marker-sender")
        failed = events.WriteTxnMarkersFailed(effect.leader, effect.sequence)
        self._ask(connection, effect.leader, effect, failed)

    def _connection_for(self, purpose: str) -> PeerConnection:
        timeout_s = self._config.replication.request_timeout_ms / 1000
        name = f"broker-{self._config.broker_id}-{purpose}"
        return PeerConnection(name, timeout_s, _ANSWER_MAX_BYTES)

    def _verify(self, effect: effects.SendAddPartitionsToTxn) -> None:
        """Several may be under way: each has a connection, which the next one takes over."""
        idle = self._verifiers.setdefault(effect.coordinator, [])
        connection = idle.pop() if idle else self._connection_for("txn-verifier")
        failed = events.AddPartitionsToTxnFailed(effect.sequence)
        self._ask(connection, effect.coordinator, effect, failed, lambda: idle.append(connection))

    def _ask(
        self,
        connection: PeerConnection,
        broker: int,
        effect: (
            effects.SendAlterPartition
            | effects.SendControlledShutdown
            | effects.SendWriteTxnMarkers
            | effects.SendAddPartitionsToTxn
        ),
        failed: object,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """The other may be this broker: it is asked as any other, by its listener."""
        sent = SENT[type(effect)]
        entity = sent.encode(effect, self._config)
        decode = sent.decode
        assert decode is not None

        async def exchange() -> None:
            try:
                address = self._address_of(broker)
                if address is None:
                    raise PeerError(f"the address of broker {broker} is not known")
                event = decode(effect, await connection.request(address, entity))
            except PeerError as error:
                _log.info("broker %s does not answer, trying again: %s", broker, error)
                event = failed
            except Exception as error:
                _log.warning("broker %s: not understood: %s", broker, error)
                event = failed
            done()
            self._submit(event)

        self._spawn(exchange())

    # --- of the controller -----------------------------------------------------------------------

    def _send_control(self, effect: effects.SendControl) -> None:
        broker = effect.broker
        channel = self._control.get(broker)
        if channel is None:
            channel = ControlChannel(
                str(self._config.broker_id),
                self._config.replica_socket_timeout_ms / 1000,
                self._response_max_bytes,
                lambda: self._controlled_address(broker),
                lambda message, response: self._submit(
                    control_responded(broker, message, response)
                ),
                self._spawn,
            )
            self._control[broker] = channel
        entity = SENT[type(effect.message)].encode(effect.message, self._config)
        channel.send(entity, effect.message)

    def _stop_sending_control(self, effect: effects.StopSendingControl) -> None:
        brokers = tuple(self._control) if effect.brokers is None else effect.brokers
        for broker in brokers:
            channel = self._control.pop(broker, None)
            if channel is not None:
                channel.close()
