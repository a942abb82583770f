"""The clients' node: what producers, consumers and groups know, wait for, and were answered.

All clients of a world are on one node. What they do is in producing, committing and idempotent.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from neaptide.clusters.broker.replication.model import ProducerSequence, TopicPartition
from neaptide.clusters.producer import ProducerOptions
from neaptide.clusters.simulation.broker_node import BrokerNode
from neaptide.clusters.simulation.clients import (
    GroupOperation,
    Load,
    Outcome,
    Poll,
    Read,
    Send,
    TransactionalProducer,
)
from neaptide.clusters.simulation.network_node import Network


@dataclass(slots=True)
class ClientNode:
    """`waiting` has not been sent (again) yet; `in_flight` by request number.

    `brokers`: whose metadata clients see, if they reach them.
    """

    network: Network
    brokers: Mapping[int, BrokerNode]
    options: ProducerOptions = field(default_factory=ProducerOptions)
    waiting: tuple[Send, ...] = ()
    # → the broker, and the sends of a request: one of a partition.
    in_flight: dict[int, tuple[int, tuple[Send, ...]]] = field(default_factory=dict)
    # As last answered, by partition and by the only broker that the client knows.
    leaders: dict[tuple[int, int | None], int] = field(default_factory=dict)
    sends: dict[str, tuple[Send, Outcome]] = field(default_factory=dict)
    acked: dict[str, int | None] = field(default_factory=dict)
    consumed: dict[str, int] = field(default_factory=dict)  # while faults were going on
    reading: Read | None = None
    found: tuple[tuple[int, str], ...] = ()  # (offset, value) of the read that goes on
    polls: tuple[Poll, ...] = ()  # of all reads, those that brought nothing left out
    reads_begun: int = 0
    reads_done: int = 0
    read_end: int = 0  # of the last read: where it stopped, the high watermark
    is_retrying: bool = False  # a look for a leader is due
    load: Load | None = None
    next_number: int = 1
    # The next sequence to a partition, of the client that knows all brokers or only this one.
    sequences: dict[tuple[int, int | None], ProducerSequence] = field(default_factory=dict)
    next_producer_id: int = 0
    asking: GroupOperation | None = None  # of a group: at most one thing at a time
    # As last answered, by partitions of internal topics.
    coordinators: dict[TopicPartition, int] = field(default_factory=dict)
    # What second clients of groups ask meanwhile, by request.
    asking_too: dict[int, GroupOperation] = field(default_factory=dict)
    # As last acknowledged, by group and partition.
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    group_operations: tuple[GroupOperation, ...] = ()  # that are done, in order
    transactional: dict[str, TransactionalProducer] = field(default_factory=dict)  # by their names
    transactions_begun: int = 0

    def copy(self, network: Network, brokers: Mapping[int, BrokerNode]) -> ClientNode:
        """Of the same node in another network, among its brokers."""
        return replace(
            self,
            network=network,
            brokers=brokers,
            in_flight=dict(self.in_flight),
            leaders=dict(self.leaders),
            sends=dict(self.sends),
            acked=dict(self.acked),
            consumed=dict(self.consumed),
            sequences=dict(self.sequences),
            coordinators=dict(self.coordinators),
            asking_too=dict(self.asking_too),
            committed=dict(self.committed),
            transactional=dict(self.transactional),
        )

    def settle(self, send: Send, outcome: Outcome) -> None:
        self.sends[send.value] = (send, outcome)
        if outcome.kind == "ok":
            self.acked[send.value] = outcome.offset

    def wait_again(self, send: Send) -> None:
        """Behind those that were sent before it, before those that come after it."""
        waiting = self.waiting
        if waiting and waiting[0].number < send.number:
            at = bisect(waiting, send.number, key=lambda other: other.number)
            self.waiting = (*waiting[:at], send, *waiting[at:])
        else:
            self.waiting = (send, *waiting)

    @property
    def unsettled(self) -> tuple[Send, ...]:
        """What was sent, or is to be sent, and has no outcome."""
        sent = (send for _, sends in self.in_flight.values() for send in sends)
        of_open = (send for one in self.transactional.values() for send in one.sent)
        return (*sent, *self.waiting, *of_open)

    def is_acked(self, value: str) -> bool:
        """Also where the transaction that it is in has not ended."""
        written = (one.written for one in self.transactional.values())
        return value in self.acked or any(value in one for one in written)
