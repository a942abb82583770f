"""The observer of clusters that keep their state in KRaft: it reads the metadata log itself.

As a consumer would: a Fetch of `__cluster_metadata` waits at the active controller until there is
more, so that no change is missed and none is seen late. Whoever is not the active controller
answers at once who is, in which epoch; each controller is asked again and again. Only what is
committed counts.
Source: KIP-595 (Fetch of the metadata log), KIP-631 (its records), KIP-853 (voters).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import time
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest
from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.types import BrokerId, TopicName
from kio.schema.voters_record.v0 import VotersRecord
from kio.static.primitive import i16, i32, i32Timedelta, i64

from neaptide.clusters.broker.storage.record_batch import Record, parse_batches, records
from neaptide.clusters.broker.wire.codec import MalformedMessageError
from neaptide.clusters.broker.wire.reading import read_entity
from neaptide.clusters.cluster import PartitionView, TopicSpec
from neaptide.clusters.errors import RefusedError
from neaptide.clusters.kafka.controller_client import ControllerConnection
from neaptide.clusters.kafka.metadata_log import NO_LEADER, Image, PartitionState
from neaptide.clusters.observer import OnChange

T = TypeVar("T")
_METADATA_TOPIC: Final = UUID(int=1)
_WAIT_MS: Final = 500
_MAX_BYTES: Final = 8 * 1024 * 1024
_ASK_AGAIN_S: Final = 0.05  # nobody reports who becomes the active controller
_CREATE_WITHIN_S: Final = 30.0
_NOBODY: Final = -1
_CHANGE_WITHIN_S: Final = 30.0
_ANSWER_S: Final = 6.0
_VOTERS_TYPE: Final = (6).to_bytes(2, "big")  # of a control record, behind the key's version
# The leader changed, has another change to do first, or the new voter is not yet caught up.
_ASKED_AGAIN: Final = (ErrorCode.not_leader_or_follower, ErrorCode.request_timed_out)


class KraftObserver:
    """Implements neaptide.clusters.observer.Observer. `addresses`: of the controllers, by node."""

    def __init__(self, addresses: Mapping[int, tuple[str, int]], on_change: OnChange) -> None:
        self.views: dict[int, PartitionView] = {}
        self.topics: dict[str, dict[int, PartitionView]] = {}
        self.controller: int | None = None
        self.controller_epoch: int | None = None
        self.left: tuple[str, ...] = ()  # the cluster goes with the run
        self.image = Image()
        self.voters: frozenset[int] = frozenset()  # as the log says; empty where it does not
        self._addresses = addresses
        self._named: dict[int, tuple[int, int]] = {}  # by controller: the active one, its epoch
        self._on_change = on_change
        self._offset = 0  # of the next record that is not yet applied
        self._last_epoch = 0  # of the record before it
        self._watched: dict[UUID, dict[int, PartitionView]] = {}
        self._doomed: dict[int, int] = {}  # brokers to be fenced → the epoch that is meant
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def registered(self) -> frozenset[int]:
        return frozenset(b for b, known in self.image.brokers.items() if not known.fenced)

    @property
    def is_settled(self) -> bool:
        active = (self.controller, self.controller_epoch)
        return set(self._named) == set(self._addresses) and set(self._named.values()) == {active}

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._watch(node)) for node in self._addresses]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def create_topic(
        self, topic: TopicSpec, topic_id: str | None = None, *, watched: bool = True
    ) -> str | None:
        """The controllers choose the id."""
        async with asyncio.timeout(_CREATE_WITHIN_S):
            answer = await self._ask_active(lambda c: c.ask(_create_request(topic)))
        [created] = answer.topics
        if created.error_code is not ErrorCode.none:
            raise RefusedError(
                f"Kafka does not create the topic {topic.name!r}: {created.error_message}"
            )
        if watched:
            self.topics[topic.name] = {} if self.topics else self.views
            self._watched[created.topic_id] = self.topics[topic.name]
        self._show(Image())
        return urlsafe_b64encode(created.topic_id.bytes).decode().rstrip("=")

    async def assignment(self, topic: str) -> Mapping[int, tuple[int, ...]]:
        """Returns when the topic is in the metadata log as it was read so far."""
        async with asyncio.timeout(_CREATE_WITHIN_S):
            while not (found := _assignment(self.image, topic)):
                await asyncio.sleep(_ASK_AGAIN_S)
        return found

    def replicas(self, topic: str) -> Mapping[int, tuple[int, ...]]:
        return _assignment(self.image, topic)

    async def change_voters(self, request: Any, done: ErrorCode) -> None:
        """Asks the active controller for it until it is done. Raises RefusedError.

        `done`: the error that says so, where an earlier request got no answer.
        """
        last = "no controller is active"
        tried = False
        deadline = time.monotonic() + _CHANGE_WITHIN_S
        while time.monotonic() < deadline:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    answer = await self._ask_active(lambda c: c.ask(request))
            except TimeoutError:
                tried = True
                continue
            error = answer.error_code
            if error is ErrorCode.none or (tried and error is done):
                return
            last = f"{error.name}: {answer.error_message or 'without a reason'}"
            if error not in _ASKED_AGAIN:
                break
            tried = True
            await asyncio.sleep(_ASK_AGAIN_S)
        raise RefusedError(f"the quorum does not change its voters: {last}")

    async def fence(self, broker: int) -> None:
        """Has a dead broker's session end now, or as soon as there is an active controller."""
        known = self.image.brokers.get(broker)
        if known is None or known.fenced:
            return
        self._doomed[broker] = known.epoch
        if self.controller is not None:
            await self._fence_doomed(self.controller)

    # --- one task for each controller ------------------------------------------------------------

    async def _watch(self, node: int) -> None:
        while True:
            with contextlib.suppress(OSError, EOFError, MalformedMessageError):
                async with ControllerConnection(*self._addresses[node]) as connection:
                    while True:
                        await self._look(node, connection)
            self._named.pop(node, None)
            if self.controller == node:
                self._take_controller(_NOBODY, self.controller_epoch or 0)
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _look(self, node: int, connection: ControllerConnection) -> None:
        asked_from = self._offset
        epoch = self.controller_epoch or 0
        answer = await connection.ask(_fetch_request(asked_from, self._last_epoch, epoch))
        if answer.error_code is not ErrorCode.none:
            await asyncio.sleep(_ASK_AGAIN_S)
            return
        partition = answer.responses[0].partitions[0]
        if partition.error_code is not ErrorCode.none:
            leader = partition.current_leader
            self._note(node, int(leader.leader_id), int(leader.leader_epoch))
            is_news = self._take_controller(int(leader.leader_id), int(leader.leader_epoch))
            if not is_news or leader.leader_id != node:
                await asyncio.sleep(_ASK_AGAIN_S)
            return
        self._note(node, node, epoch)
        self._take_controller(node, epoch)
        await self._fence_doomed(node)
        moved = asked_from == self._offset and self._take(partition)
        if not moved and partition.records:  # not committed yet
            await asyncio.sleep(_ASK_AGAIN_S)

    def _note(self, node: int, leader: int, epoch: int) -> None:
        """Whom a controller named as the active one."""
        if self._named.get(node) != (leader, epoch):
            self._named[node] = (leader, epoch)
            self._on_change(None)

    def _take_controller(self, node: int, epoch: int) -> bool:
        """Who the active controller is; False: that is old, or known."""
        controller = None if node == _NOBODY else node
        if epoch < (self.controller_epoch or 0):
            return False
        if (controller, epoch) == (self.controller, self.controller_epoch):
            return False
        self.controller, self.controller_epoch = controller, epoch
        self._on_change(None)
        return True

    def _take(self, partition: Any) -> bool:
        """Applies what is committed of an answer; whether anything was."""
        data, begun = partition.records or b"", self._offset
        position = 0
        for header in parse_batches(data):
            if header.last_offset >= partition.high_watermark:
                break
            batch = records(data, position, header)
            if header.is_control:
                self._take_voters(batch)
            else:
                self._apply([r.value or b"" for r in batch])
            position += header.size
            self._offset, self._last_epoch = header.next_offset, header.leader_epoch
        return self._offset > begun

    def _take_voters(self, batch: Iterable[Record]) -> None:
        for record in batch:
            if (record.key or b"")[2:4] == _VOTERS_TYPE:
                said, _, _ = read_entity(VotersRecord, record.value or b"")
                self.voters = frozenset(int(voter.voter_id) for voter in said.voters)
                self._on_change(None)

    def _apply(self, batch: list[bytes]) -> None:
        """A batch is atomic: what it changes is shown once."""
        before = self.image
        for record in batch:
            self.image = self.image.apply(record)
        self._show(before)
        if before.brokers != self.image.brokers:
            self._on_change(None)

    def _show(self, before: Image) -> None:
        for (topic, partition), state in self.image.partitions.items():
            is_news = before.partitions.get((topic, partition)) != state
            views = self._watched.get(topic)
            if views is not None and is_news:
                views[partition] = view = _view(partition, state)
                self._on_change(view if views is self.views else None)

    # --- what is asked of the active controller --------------------------------------------------

    async def _ask_active(self, ask: Callable[[ControllerConnection], Awaitable[T]]) -> T:
        while True:
            if self.controller is not None:
                with contextlib.suppress(OSError, EOFError, MalformedMessageError):
                    async with ControllerConnection(
                        *self._addresses[self.controller]
                    ) as connection:
                        return await ask(connection)
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _fence_doomed(self, node: int) -> None:
        """A heartbeat in the name of a broker that is dead, which says that it wants to be fenced.

        What a broker that shuts down says itself. One that has registered anew has another epoch.
        """
        for broker, epoch in tuple(self._doomed.items()):
            known = self.image.brokers.get(broker)
            if known is None or known.fenced or known.epoch != epoch:
                self._doomed.pop(broker, None)
                continue
            with contextlib.suppress(OSError, EOFError, MalformedMessageError):
                async with ControllerConnection(*self._addresses[node]) as connection:
                    await connection.ask(
                        BrokerHeartbeatRequest(
                            broker_id=BrokerId(broker),
                            broker_epoch=i64(epoch),
                            current_metadata_offset=i64(self._offset),
                            want_fence=True,
                            want_shut_down=False,
                        )
                    )


def _assignment(image: Image, topic: str) -> Mapping[int, tuple[int, ...]]:
    return {
        partition: state.replicas
        for (of, partition), state in image.partitions.items()
        if image.topics.get(of) == topic
    }


def _view(partition: int, state: PartitionState) -> PartitionView:
    leader = None if state.leader == NO_LEADER else state.leader
    return PartitionView(
        partition, leader, state.leader_epoch, state.isr, state.elr, state.replicas
    )


def _milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=count))


def _fetch_request(offset: int, last_epoch: int, epoch: int) -> FetchRequest:
    partition = FetchPartition(
        partition=i32(0),
        current_leader_epoch=i32(epoch),
        fetch_offset=i64(offset),
        last_fetched_epoch=i32(last_epoch),
        partition_max_bytes=i32(_MAX_BYTES),
    )
    return FetchRequest(
        max_wait=_milliseconds(_WAIT_MS),
        min_bytes=i32(1),
        max_bytes=i32(_MAX_BYTES),
        topics=(FetchTopic(topic_id=_METADATA_TOPIC, partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def _create_request(topic: TopicSpec) -> CreateTopicsRequest:
    assignments = tuple(
        CreatableReplicaAssignment(
            partition_index=i32(partition), broker_ids=tuple(BrokerId(b) for b in replicas)
        )
        for partition, replicas in sorted(topic.assignment.items())
    )
    configs = tuple(
        CreatableTopicConfig(name=name, value=value)
        for name, value in sorted(topic.settings.items())
    )
    return CreateTopicsRequest(
        topics=(
            CreatableTopic(
                name=TopicName(topic.name),
                num_partitions=i32(-1),
                replication_factor=i16(-1),
                assignments=assignments,
                configs=configs,
            ),
        )
    )
