"""The observer of a cluster that is just used: its metadata, as any client sees it, twice a second.

So a change may be seen late, and two that follow each other quickly as one. Metadata has no leader
epochs: they are -1 here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from neaptide.clusters.cluster import PartitionView, TopicSpec
from neaptide.clusters.errors import HostError
from neaptide.clusters.observer import OnChange
from neaptide.clusters.own.asking import AskedCluster, Seen
from neaptide.clusters.own.model import Used

_LOOK_S: Final = 0.5  # nothing reports that metadata has changed
_NO_EPOCH: Final = -1


class MetadataObserver:
    """Implements neaptide.clusters.observer.Observer. It deletes the topics that it has created."""

    def __init__(self, used: Used, on_change: OnChange) -> None:
        self.views: dict[int, PartitionView] = {}
        self.topics: dict[str, dict[int, PartitionView]] = {}
        self.registered: frozenset[int] = frozenset()
        self.controller: int | None = None
        self.controller_epoch: int | None = None
        self.voters: frozenset[int] = frozenset()  # there is no such quorum
        self.left: tuple[str, ...] = ()  # topics that stay on the cluster
        self._used = used
        self._on_change = on_change
        self._cluster = AskedCluster(used.bootstrap, used.client, f"{used.file}, [client]")
        self._created: list[str] = []
        self._seen: Seen | None = None
        self._looking: asyncio.Task[None] | None = None

    @property
    def is_settled(self) -> bool:
        return self.controller is not None

    async def start(self) -> None:
        """Raises HostError where nobody answers."""
        if not await self._look():
            raise HostError(f"Nobody answers at {self._used.bootstrap}.")
        self._looking = asyncio.create_task(self._keep_looking())

    async def create_topic(
        self, topic: TopicSpec, topic_id: str | None = None, *, watched: bool = True
    ) -> str | None:
        """Raises RefusedError; also where there is one of that name: it is somebody else's."""
        await asyncio.to_thread(self._cluster.create, topic)
        self._created.append(topic.name)
        if watched:
            self.topics[topic.name] = {} if self.topics else self.views
        await self._look()
        return None

    async def assignment(self, topic: str) -> Mapping[int, tuple[int, ...]]:
        return self.replicas(topic)

    def replicas(self, topic: str) -> Mapping[int, tuple[int, ...]]:
        partitions = {} if self._seen is None else self._seen.topics.get(topic, {})
        return {number: tuple(one.replicas) for number, one in partitions.items()}

    async def close(self) -> None:
        """All clients have left: the topics of the run go, or are in `left`."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        if self._used.keep_topics:
            self.left = tuple(self._created)
        else:
            self.left = await asyncio.to_thread(self._cluster.delete, self._created)
        self._created.clear()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._look()

    async def _look(self) -> bool:
        seen = await asyncio.to_thread(self._cluster.look)
        if seen is None:
            return False
        self._seen = seen
        self.controller = seen.controller
        is_news = self.registered != frozenset(seen.brokers)
        self.registered = frozenset(seen.brokers)
        for topic, views in self.topics.items():
            for number, one in seen.topics.get(topic, {}).items():
                leader = one.leader if one.leader >= 0 else None
                view = PartitionView(number, leader, _NO_EPOCH, tuple(one.isrs))
                if views.get(number) != view:
                    views[number] = view
                    self._on_change(view if views is self.views else None)
        if is_news:
            self._on_change(None)
        return True
