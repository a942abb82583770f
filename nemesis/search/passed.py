"""What passed between brokers, as rules name messages: what is held, and what explains a find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast, get_args

from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.model import LeaderAndIsr, TopicPartition
from neaptide.clusters.simulation.clients import GroupOperation, Read
from neaptide.clusters.simulation.network import (
    ALTER,
    CONTROL,
    CONTROL_APIS,
    FETCH,
    OF_TRANSACTIONS,
    Entry,
    Link,
    facts_of,
)
from neaptide.nemesis import steps
from neaptide.nemesis.gate.model import MessageKind

_OF_REPLICAS: Final[Mapping[type, tuple[MessageKind, steps.Api]]] = {
    events.FetchRequested: ("request", "fetch"),
    events.FetchResponded: ("response", "fetch"),
    events.OffsetForLeaderEpochRequested: ("request", "offset_for_leader_epoch"),
    events.OffsetForLeaderEpochResponded: ("response", "offset_for_leader_epoch"),
}
_CONTROL: Final[Mapping[type, tuple[MessageKind, steps.Api]]] = {
    **{kind: ("request", cast(steps.Api, api)) for kind, api in CONTROL_APIS.items()},
    events.AlterPartitionRequested: ("request", steps.ALTER_PARTITION),
}
_OF_BROKERS: Final[Mapping[type, tuple[MessageKind, steps.Api]]] = {
    kind: cast(tuple[MessageKind, steps.Api], named)
    for kind, named in OF_TRANSACTIONS.items()
    if named[1] in get_args(steps.Api)
}
_KINDS: Final = {**_OF_REPLICAS, **_CONTROL, **_OF_BROKERS}


@dataclass(frozen=True, slots=True)
class Passed:
    """A message between brokers, as a rule can name it."""

    link: Link
    message: MessageKind
    api: steps.Api
    numbers: Mapping[str, int | None]
    topic: str | None = None  # whose the numbers are; None: the world's own


class Trace:
    """A recorder that keeps what passed between brokers, on some of the channels."""

    def __init__(
        self,
        partition: TopicPartition,
        topic: str | None = None,
        channels: tuple[str, ...] = (FETCH,),
    ) -> None:
        """`topic`: as a rule names it, where it is not the world's own."""
        self.passed: list[Passed] = []
        # What leaders ask of a controller is held with what it sends.
        self._channels = (*channels, ALTER) if CONTROL in channels else channels
        self._partition = partition
        self._topic = topic

    def event(self, entry: Entry) -> None:
        link = entry.link
        if link is None or link.channel not in self._channels or link.source == link.target:
            return
        kind = _KINDS.get(type(entry.body))
        if kind is not None:
            facts = facts_of(entry.body, self._partition)
            numbers = {name: one for name, one in facts.items() if not isinstance(one, str)}
            self.passed.append(Passed(link, kind[0], kind[1], numbers, self._topic))

    def asked(self, entry: Entry) -> None: ...
    def answered(self, entry: Entry) -> None: ...
    def blocked(self, entry: Entry) -> None: ...
    def dropped(self, entry: Entry) -> None: ...
    def state(self, partition: TopicPartition, state: LeaderAndIsr) -> None: ...
    def polled(self, reading: Read, values: list[tuple[int, int, object]]) -> None: ...
    def of_group(self, done: GroupOperation) -> None: ...


def ends_of(passed: Passed, numbers: Mapping[str, int]) -> tuple[str, str]:
    """From whom to whom a rule holds such messages."""
    names = {number: name for name, number in numbers.items()}
    is_asked = passed.link.channel == ALTER
    return names[passed.link.source], "controller" if is_asked else names[passed.link.target]


def conditions_of(chosen: Passed) -> list[str]:
    """Of a hold: of all such messages from now on, or only from this one's numbers on."""
    conditions = [""]
    high_watermark = chosen.numbers.get("high_watermark")
    if high_watermark is not None and high_watermark > 0:
        conditions.append(f"high_watermark >= {high_watermark}")
    if chosen.numbers.get("records_bytes"):
        conditions.append("records_bytes > 0")
    fetch_offset = chosen.numbers.get("fetch_offset")
    if chosen.message == "request" and fetch_offset:
        conditions.append(f"fetch_offset >= {fetch_offset}")
    if chosen.link.channel in (CONTROL, ALTER) and chosen.numbers.get("leader_epoch") is not None:
        conditions.append(f"leader_epoch >= {chosen.numbers['leader_epoch']}")
    return conditions
