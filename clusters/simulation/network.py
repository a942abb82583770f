"""What travels between the nodes of the simulation, and what stops it. Values only.

A link is (from, to, channel); messages on one link never overtake each other. A channel has the
purpose by which schedules name it: fetches and the controller's requests are both "replication",
what a leader asks its controller is "coordination". Rules name what replicas ask each other, what a
controller sends to brokers, and what leaders ask it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, assert_never

from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.model import TopicPartition

SERVICE: Final = -1  # the coordination service
CLIENT: Final = -2  # producer and consumer
CONTROLLER: Final = -3  # in rules: whoever is asked as the controller

FETCH: Final = "fetch"
CONTROL: Final = "control"
CONTROL_ANSWERS: Final = "control answers"  # where a rule is about them; others arrive at once
ALTER: Final = "alter partition"  # of leaders to their controller, and back
SHUTDOWN: Final = "controlled shutdown"  # of brokers that stop to their controller, and back
MARKERS: Final = "markers"  # of transaction coordinators to leaders, and back
VERIFICATION: Final = "verification"  # of leaders to transaction coordinators, and back
COORDINATION: Final = "coordination"
CLIENTS: Final = "client"
PURPOSES: Final = {
    FETCH: "replication",
    CONTROL: "replication",
    CONTROL_ANSWERS: "replication",
    ALTER: "coordination",
    SHUTDOWN: "coordination",
    MARKERS: "replication",
    VERIFICATION: "replication",
    COORDINATION: "coordination",
    CLIENTS: "client",
}
REPLICATION: Final = (FETCH, CONTROL, CONTROL_ANSWERS, ALTER, MARKERS, VERIFICATION)

Facts = Mapping[str, int | str | None]


class Link(NamedTuple):
    source: int
    target: int
    channel: str


class Entry(NamedTuple):
    """Something that is due: a message on its link, or (link None) something of a node's own."""

    due_us: int
    sequence: int
    link: Link | None
    body: object


@dataclass(frozen=True, slots=True)
class Cut:
    """No message passes from source to target. None: any end, any purpose."""

    source: int | None
    target: int | None
    purpose: str | None = None

    def covers(self, link: Link) -> bool:
        return (
            self.source in (None, link.source)
            and self.target in (None, link.target)
            and self.purpose in (None, PURPOSES[link.channel])
        )


@dataclass(frozen=True, slots=True)
class Hold:
    """Lets no such message pass; what is behind it on its link waits too.

    `api`: one of `APIS`, or "any": of what replicas ask each other, never of or to a controller.
    """

    name: str
    message: Literal["request", "response"]
    api: str
    source: int
    target: int
    where: Callable[[Facts], bool] | None = None
    times: int | None = None
    drops: bool = False  # thrown away, and its connection broken, in place of held
    topic: str | None = None  # of whose partition 0 `where` speaks; None: the world's own

    def matches(self, link: Link, body: object) -> bool:
        """Whether it is such a message; `where` is asked by whoever knows its numbers."""
        if link.channel == ALTER:
            kind = ALTERATIONS.get(type(body))
            return kind == (self.message, self.api) and all(
                named in (CONTROLLER, end)
                for named, end in ((self.source, link.source), (self.target, link.target))
            )
        if link.source != self.source or link.target != self.target:
            return False
        if link.channel == FETCH:
            kind = _KINDS.get(type(body))
            return kind is not None and kind[0] == self.message and self.api in (kind[1], "any")
        if link.channel in (MARKERS, VERIFICATION, CLIENTS):
            return (self.message, self.api) == OF_TRANSACTIONS.get(type(body))
        return (self.message, self.api) == kind_of_control(body)


@dataclass(frozen=True, slots=True)
class ControlAnswered:
    """A broker's answer to its controller. Until it arrives, no other request is sent there."""

    api: str
    request: Entry
    answer: events.ControlResponded


_KINDS: Final[Mapping[type, tuple[str, str]]] = {
    events.FetchRequested: ("request", "fetch"),
    events.FetchResponded: ("response", "fetch"),
    events.OffsetForLeaderEpochRequested: ("request", "offset_for_leader_epoch"),
    events.OffsetForLeaderEpochResponded: ("response", "offset_for_leader_epoch"),
    events.ListOffsetsRequested: ("request", "list_offsets"),
    events.ListOffsetsResponded: ("response", "list_offsets"),
}
CONTROL_APIS: Final[Mapping[type, str]] = {
    events.LeaderAndIsrRequested: "leader_and_isr",
    events.StopReplicaRequested: "stop_replica",
    events.UpdateMetadataRequested: "update_metadata",
}
ALTERATIONS: Final[Mapping[type, tuple[str, str]]] = {
    events.AlterPartitionRequested: ("request", "alter_partition"),
    events.AlterPartitionResponded: ("response", "alter_partition"),
}
# Between clients and brokers, and brokers that speak for them.
OF_TRANSACTIONS: Final[Mapping[type, tuple[str, str]]] = {
    events.ProduceRequested: ("request", "produce"),
    events.InitProducerIdRequested: ("request", "init_producer_id"),
    events.AddPartitionsToTxnRequested: ("request", "add_partitions_to_txn"),
    events.EndTxnRequested: ("request", "end_txn"),
    events.WriteTxnMarkersRequested: ("request", "write_txn_markers"),
    events.AddPartitionsToTxnResponded: ("response", "add_partitions_to_txn"),
    events.WriteTxnMarkersResponded: ("response", "write_txn_markers"),
}


def kind_of_control(body: object) -> tuple[str, str] | None:
    """Whether it is a controller's request or the answer to one, and of which API."""
    if isinstance(body, ControlAnswered):
        return "response", body.api
    api = CONTROL_APIS.get(type(body))
    return None if api is None else ("request", api)


def facts_of(body: object, partition: TopicPartition) -> dict[str, int | str | None]:
    """The numbers of a message about one partition, by the names that conditions use."""
    if type(body) in OF_TRANSACTIONS:
        return _facts_of_transaction(body)
    return next((_facts(one) for one in _parts(body) if one.partition == partition), {})


def _facts_of_transaction(body: object) -> dict[str, int | str | None]:
    match body:
        case events.ProduceRequested():
            return {"transactional_id": body.transactional_id, "acks": body.acks}
        case events.InitProducerIdRequested() | events.AddPartitionsToTxnRequested():
            return {"transactional_id": body.transactional_id}
        case events.EndTxnRequested():
            committed = int(body.is_commit)
            return {"transactional_id": body.transactional_id, "committed": committed}
        case events.WriteTxnMarkersRequested(markers=((marker, _), *_)):
            return {"committed": int(marker.is_commit), "producer_epoch": marker.producer_epoch}
    return {}


_Part = (
    events.FetchedPartition
    | events.FetchResult
    | events.EpochAsked
    | events.EpochEndOffset
    | events.PartitionState
    | events.AlteredPartition
    | events.AlteredResult
)


def _parts(body: object) -> Sequence[_Part]:
    match body:
        case (
            events.FetchRequested(partitions=parts)
            | events.OffsetForLeaderEpochRequested(partitions=parts)
            | events.LeaderAndIsrRequested(partitions=parts)
            | events.AlterPartitionRequested(partitions=parts)
            | events.FetchResponded(results=parts)
            | events.OffsetForLeaderEpochResponded(results=parts)
            | events.AlterPartitionResponded(results=parts)
        ):
            return parts
    return ()


def _facts(part: _Part) -> dict[str, int | str | None]:
    match part:
        case events.FetchedPartition():
            return {"fetch_offset": part.fetch_offset}
        case events.FetchResult():
            facts: dict[str, int | str | None] = {
                "high_watermark": part.high_watermark,
                "log_start_offset": part.log_start_offset,
                "records_bytes": sum(batch.size for batch in part.batches),
                "error": part.error.value,
            }
            end = part.diverging_epoch
            if end is not None:
                facts |= {"diverging_epoch": end.epoch, "diverging_end_offset": end.end_offset}
            return facts
        case events.EpochEndOffset():
            ends = {"answered_epoch": part.leader_epoch, "end_offset": part.end_offset}
            return {**ends, "error": part.error.value}
        case events.PartitionState():
            return {"leader_epoch": part.state.leader_epoch}
        case events.EpochAsked() | events.AlteredPartition():
            return {"leader_epoch": part.leader_epoch}
        case events.AlteredResult():
            return {"error": part.error.value}
    assert_never(part)


@dataclass(frozen=True, slots=True)
class Noise:
    """Chance on the network, from a seed alone: delays, and connections that break.

    `loss_per_million` messages between brokers are lost, which on TCP is a broken connection.
    """

    seed: int
    jitter_us: int = 0
    loss_per_million: int = 0

    def draw(self, sequence: int) -> int:
        """64 bits for a message, by its number (splitmix64)."""
        value = (self.seed * 0x9E3779B97F4A7C15 + sequence * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        return value ^ (value >> 31)


_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Clock:
    """A broker's clock: how far it is off, and how much faster than time it runs."""

    offset_ms: int = 0
    drift_per_million: int = 0

    def now_ms(self, now_us: int) -> int:
        return now_us * (1_000_000 + self.drift_per_million) // 1_000_000_000 + self.offset_ms

    def duration_us(self, delay_ms: int) -> int:
        """How long a timer of the broker takes in the time of the world."""
        return delay_ms * 1_000_000_000 // (1_000_000 + self.drift_per_million)
