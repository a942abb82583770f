"""Watches what a cluster says of itself: live brokers, the controller, leaders, ISRs.

Not the wire: what is asked is the coordination service, be it ZooKeeper or the controllers of
KRaft. Not through the links either, so that a cut between the brokers and the coordination service
does not blind the harness. Changes come on the event loop, one call of `on_change` for each; a
change that is not of a partition has no view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from neaptide.clusters.cluster import PartitionView, TopicSpec

OnChange = Callable[[PartitionView | None], None]


class Observer(Protocol):
    """What was last seen. None: it is not known, or there is none."""

    @property
    def views(self) -> Mapping[int, PartitionView]:
        """By partition of the first topic that was created here to be watched."""
        ...

    @property
    def topics(self) -> Mapping[str, Mapping[int, PartitionView]]:
        """The same of every topic that is watched."""
        ...

    @property
    def registered(self) -> frozenset[int]:
        """Brokers that live, as far as the coordination service knows."""
        ...

    @property
    def controller(self) -> int | None:
        """The active controller: a broker, or in KRaft a node that is nothing else."""
        ...

    @property
    def is_settled(self) -> bool:
        """There is an active controller, and every other controller has named it, in its epoch."""
        ...

    @property
    def controller_epoch(self) -> int | None:
        """Grows with each new active controller; by how much is the system's affair."""
        ...

    @property
    def voters(self) -> frozenset[int]:
        """The voters of a quorum of KRaft, where the metadata log says who they are (KIP-853);
        else empty."""
        ...

    def replicas(self, topic: str) -> Mapping[int, tuple[int, ...]]:
        """The same as `assignment`, as it was last seen of a topic that is watched."""
        ...

    async def start(self) -> None: ...

    async def create_topic(
        self, topic: TopicSpec, topic_id: str | None = None, *, watched: bool = True
    ) -> str | None:
        """Creates a topic with the assignment wanted; returns its id.

        `topic_id`: where the creator may choose it. None is returned where topics have no ids.
        `watched`: its partitions are among `topics`; a change of the first one has a view.
        """
        ...

    async def assignment(self, topic: str) -> Mapping[int, tuple[int, ...]]:
        """The brokers that hold each partition of a topic, as the cluster has it now."""
        ...

    @property
    def left(self) -> tuple[str, ...]:
        """After `close`: topics of the run that stay on a cluster which goes on."""
        ...

    async def close(self) -> None: ...
