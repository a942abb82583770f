"""The fetch session of a fetcher with its leader (KIP-227): what its next Fetch must say.

A full request begins a session. From then on a request names the partitions whose fetch has
changed and those to be forgotten. Whatever goes wrong ends the session, and the next request is
full again. As Kafka's FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.events import FetchedPartition
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.server.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    next_epoch,
)


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What a Fetch says of its session, and of which partitions.

    `forgotten_ids`: by topic, the ids of those that are forgotten.
    """

    session_id: int
    epoch: int
    partitions: tuple[FetchedPartition, ...]
    forgotten: tuple[TopicPartition, ...] = ()
    forgotten_ids: Mapping[str, str | None] = field(default_factory=dict)


def without_session(partitions: tuple[FetchedPartition, ...]) -> SessionRequest:
    return SessionRequest(NO_SESSION, FINAL_EPOCH, partitions)


def _is_of_another_topic(before: FetchedPartition | None, now: FetchedPartition) -> bool:
    """Made again under the same name, or with an id that it did not have."""
    return before is not None and before.topic_id != now.topic_id


class FetchSessionHandler:
    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._partitions: dict[TopicPartition, FetchedPartition] = {}

    @property
    def _is_full(self) -> bool:
        return self._epoch == INITIAL_EPOCH

    def request(self, partitions: tuple[FetchedPartition, ...]) -> SessionRequest:
        """The next request, about these partitions."""
        before, self._partitions = self._partitions, {one.partition: one for one in partitions}
        if any(_is_of_another_topic(before.get(one.partition), one) for one in partitions):
            self.failed()
        if self._is_full:
            return SessionRequest(self._session_id, self._epoch, partitions)
        changed = tuple(one for one in partitions if before.get(one.partition) != one)
        forgotten = tuple(partition for partition in before if partition not in self._partitions)
        ids = {partition.topic: before[partition].topic_id for partition in forgotten}
        return SessionRequest(self._session_id, self._epoch, changed, forgotten, ids)

    def responded(
        self, error: Error, session_id: int, answered: AbstractSet[TopicPartition]
    ) -> bool:
        """Takes a response into account; False: nothing in it is to be believed."""
        if error is not Error.NONE:
            if error is Error.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION
            self.failed()
            return False
        known = self._partitions.keys()
        if not (answered == known if self._is_full else answered <= known):
            if self._is_full:
                self._session_id = NO_SESSION
            self.failed()
            return False
        if session_id == NO_SESSION:
            self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        elif self._is_full:
            self._session_id, self._epoch = session_id, next_epoch(INITIAL_EPOCH)
        else:
            self._epoch = next_epoch(self._epoch)
        return True

    def failed(self) -> None:
        """No answer, or none that can be used: the next request is full, and ends the session."""
        self._epoch = INITIAL_EPOCH
