"""Fetch sessions of a leader (KIP-227): what an incremental Fetch leaves unsaid, and who has one.

A session keeps the partitions that somebody fetches, as they were last asked for, and what was last
answered. A request in it names only what changes, a response only what has news; the core sees all
partitions of the session either way. As Kafka's FetchSessionCache and FetchContext.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.effects import FetchedResult
from neaptide.clusters.broker.replication.interface.events import FetchedPartition
from neaptide.clusters.broker.replication.model import UNKNOWN_OFFSET, TopicPartition
from neaptide.clusters.broker.wire.topic_ids import is_unknown_topic

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0  # a full request, which may begin a session
FINAL_EPOCH: Final = -1  # a full request, which ends the session that it names
EVICTION_MS: Final = 120_000  # Kafka's min.incremental.fetch.session.eviction.ms, which is fixed
_EPOCHS: Final = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """After the greatest one comes 1: 0 would begin a session."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _EPOCHS else epoch + 1


@dataclass(slots=True)
class CachedPartition:
    asked: FetchedPartition
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET


class FetchSession:
    """`partitions` is in the order in which they are served: who got records goes to the end."""

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "last_used_ms",
        "partitions",
        "privileged",
        "size",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        privileged: bool,
        partitions: dict[TopicPartition, CachedPartition],
        now_ms: int,
        *,
        uses_topic_ids: bool = False,
    ) -> None:
        self.id = session_id
        self.uses_topic_ids = uses_topic_ids  # its requests name topics by them
        self.privileged = privileged
        self.partitions = partitions
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.size = len(partitions)

    def update(
        self, asked: Iterable[FetchedPartition], forgotten: Iterable[TopicPartition]
    ) -> None:
        for one in asked:
            cached = self.partitions.get(one.partition)
            if cached is None:
                self.partitions[one.partition] = CachedPartition(one)
            else:
                cached.asked = one
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def name_topics(self, name_of: Callable[[UUID], str]) -> None:
        """Partitions of topics of which only the id was known when they were named (from v13 on):
        the session keeps them, and nobody names them again."""
        for partition in [one for one in self.partitions if is_unknown_topic(one.topic)]:
            named = TopicPartition(name_of(UUID(partition.topic)), partition.partition)
            cached = self.partitions.pop(partition)
            cached.asked = replace(cached.asked, partition=named)
            self.partitions[named] = cached

    def takes(self, result: FetchedResult, records: bytes) -> bool:
        """Whether a response must name this partition; notes what the fetcher knows then.

        An error, and where it diverges, are said each time. After an error it is named once more.
        """
        cached = self.partitions.get(result.partition)
        if cached is None:
            return True
        has_news = (
            bool(records)
            or result.high_watermark != cached.high_watermark
            or result.log_start_offset != cached.log_start_offset
            or result.error is not Error.NONE
            or result.diverging_epoch is not None
            or result.preferred_read_replica >= 0
        )
        failed = result.error is not Error.NONE
        cached.high_watermark = UNKNOWN_OFFSET if failed else result.high_watermark
        cached.log_start_offset = result.log_start_offset
        if has_news:
            self.partitions[result.partition] = self.partitions.pop(result.partition)
        return has_news


@dataclass(frozen=True, slots=True)
class Sessionless:
    """A full request that begins no session."""

    asked: tuple[FetchedPartition, ...]


@dataclass(frozen=True, slots=True)
class Full:
    """A full request; with its response a session begins, if there is room for it."""

    asked: tuple[FetchedPartition, ...]
    is_follower: bool
    uses_topic_ids: bool = False


@dataclass(frozen=True, slots=True)
class Incremental:
    """A request of a session; `epoch` is what the session expects next if nothing else comes."""

    session: FetchSession
    epoch: int

    @property
    def asked(self) -> tuple[FetchedPartition, ...]:
        return tuple(cached.asked for cached in self.session.partitions.values())


@dataclass(frozen=True, slots=True)
class SessionError:
    """The session is not here, or not at this epoch: which partitions are meant is not known."""

    error: Error
    asked: tuple[FetchedPartition, ...] = ()


FetchContext = Sessionless | Full | Incremental | SessionError


class FetchSessionCache:
    """At most so many sessions (max.incremental.fetch.session.cache.slots).

    `age_while_used`: a session is as old as its first request, whoever uses it (KAFKA-9137).
    """

    def __init__(
        self, slots: int, now_ms: Callable[[], int], *, age_while_used: bool = False
    ) -> None:
        self._slots = slots
        self._now_ms = now_ms
        self._age_while_used = age_while_used
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        asked: tuple[FetchedPartition, ...],
        forgotten: tuple[TopicPartition, ...],
        *,
        is_follower: bool,
        uses_topic_ids: bool = False,
        name_of: Callable[[UUID], str] = str,
    ) -> FetchContext:
        """What a request means. One without a session has the id 0 and the epoch 0 or -1.

        `name_of`: the name of a topic by its id, or the id as text.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH:
                return Sessionless(asked)
            return Full(asked, is_follower, uses_topic_ids)
        session = self._sessions.get(session_id)
        if session is None:
            return SessionError(Error.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return SessionError(Error.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return SessionError(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        session.name_topics(name_of)
        session.update(asked, forgotten)
        if not session.partitions:
            del self._sessions[session_id]
            return Sessionless(asked)
        if not self._age_while_used:
            session.last_used_ms = self._now_ms()
        session.size = len(session.partitions)
        session.epoch = next_epoch(epoch)
        return Incremental(session, session.epoch)

    def create(self, context: Full, results: Iterable[FetchedResult]) -> int:
        """The id of a new session, whose full response this is; NO_SESSION: there is no room."""
        now_ms = self._now_ms()
        asked = {one.partition: one for one in context.asked}
        if len(self._sessions) >= self._slots and not self._evict(
            context.is_follower, len(asked), now_ms
        ):
            return NO_SESSION
        partitions = {
            result.partition: CachedPartition(
                asked[result.partition], result.high_watermark, result.log_start_offset
            )
            for result in results
        }
        session = FetchSession(
            self._new_id(),
            context.is_follower,
            partitions,
            now_ms,
            uses_topic_ids=context.uses_topic_ids,
        )
        self._sessions[session.id] = session
        return session.id

    def _new_id(self) -> int:
        """One that no earlier process of this broker is likely to have given."""
        while True:
            session_id = secrets.randbelow(_EPOCHS - 1) + 1
            if session_id not in self._sessions:
                return session_id

    def _evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        """Makes room for a new session: that of a follower is privileged (KIP-227).

        One that was not used for so long goes first. Then the least of those that may go, if it is
        not above the new one: those of consumers before those of followers, the small before the
        large. What is younger goes for nobody, but that of a consumer for a follower's.
        """
        if not self._sessions:
            return False
        oldest = min(self._sessions.values(), key=lambda one: (one.last_used_ms, one.id))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            del self._sessions[oldest.id]
            return True
        evictable = [
            one
            for one in self._sessions.values()
            if one.last_used_ms - one.created_ms > EVICTION_MS
            or (privileged and not one.privileged)
        ]
        least = min(evictable, key=_value, default=None)
        if least is None or (privileged, size, 0) < _value(least):
            return False
        del self._sessions[least.id]
        return True


def _value(session: FetchSession) -> tuple[bool, int, int]:
    return session.privileged, session.size, session.id
