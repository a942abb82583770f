"""Steps of clients that a scenario drives one by one, each by its name and in its own process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import Field

from neaptide.nemesis.steps.language import (
    Client,
    ClientKind,
    Consumer,
    Count,
    Flag,
    Names,
    OfRecords,
    Partition,
    Producer,
    Step,
    Whole,
    as_text,
    step,
)

FAMILY: Final = "Driven clients"
_CONSUMER: Final = '{ client = "x" }'
_PRODUCER: Final = '{ client = "p" }'
_Waits = Annotated[
    Flag, Field(description="Whether the step waits until the operation has completed.")
]


class ToClient(Step):
    """A step that a client process carries out: workloads.driven does its verb."""

    __slots__ = ()


@step(
    FAMILY,
    "open",
    '{ name = "y", kind = "consumer", group = "g", settings = { } }',
    '{ name = "q", kind = "producer", transactional_id = "t" }',
)
@dataclass(frozen=True, slots=True)
class OpenClient(Step):
    """Starts a client in a process of its own. A transactional producer asks for its producer id
    and epoch. A `raw_producer` is a transactional producer from before KIP-360: it does not protect
    itself from its own late requests."""

    name: str
    """The name of the client, for later steps."""
    kind: ClientKind
    """What it is."""
    group: str | None = None
    """The group of a consumer."""
    transactional_id: str | None = None
    """Of a producer."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings by librdkafka's names."""

    def check(self, names: Names) -> None:
        taken = self.name in names.clients or self.name in names.brokers
        if taken or not self.name.isidentifier():
            raise ValueError(f"name = {self.name!r} must be a word that names nobody else")
        is_consumer = self.kind == "consumer"
        if (self.group is not None and not is_consumer) or (self.transactional_id and is_consumer):
            raise ValueError("a group goes with a consumer, a transactional_id with a producer")
        if self.kind == "raw_producer" and self.transactional_id is None:
            raise ValueError("a raw_producer needs a transactional_id")
        if self.group is not None:
            if not self.group.isidentifier():
                raise ValueError(f"group = {self.group!r} must be a word")
            names.groups.add(self.group)
        names.clients[self.name] = self.kind

    @property
    def texts(self) -> dict[str, str]:
        """The settings as a client takes them."""
        return {key: as_text(value) for key, value in self.settings.items()}

    def words(self) -> str:
        of = f" of the group {self.group}" if self.group else ""
        of += f" with the transactional id {self.transactional_id}" if self.transactional_id else ""
        settings = ", ".join(f"{name}={value}" for name, value in self.texts.items())
        return f"starts {self.name}, a {self.kind}{of}{f' ({settings})' if settings else ''}"


@step(FAMILY, "subscribe", _CONSUMER, words="{0.client} joins its group, and waits for a partition")
@dataclass(frozen=True, slots=True)
class Subscribe(ToClient):
    """The consumer joins its group, and waits until it is assigned a partition. It then takes no
    records, but stays in the group."""

    client: Consumer


@step(FAMILY, "assign", _CONSUMER, words="{0.client} assigns itself partition {0.partition}")
@dataclass(frozen=True, slots=True)
class Assign(ToClient):
    """The consumer assigns itself a partition, from its start or from the group's position."""

    client: Consumer
    partition: Partition = 0


@step(
    FAMILY,
    "poll",
    '{ client = "x", records = 2 }',
    words="{0.client} takes {0.records} records, or receives an error",
)
@dataclass(frozen=True, slots=True)
class Poll(ToClient):
    """The consumer takes a number of records, or receives an error."""

    client: Consumer
    records: Count
    """How many."""


@step(FAMILY, "handle", _CONSUMER, words="{0.client} handles what it has taken")
@dataclass(frozen=True, slots=True)
class Handle(ToClient):
    """The consumer processes what it has taken. Only this counts as read: a record that was taken
    and never handled was passed over."""

    client: Consumer


@step(FAMILY, "commit", _CONSUMER, '{ client = "x", offset = 1, waits = false }')
@dataclass(frozen=True, slots=True)
class CommitOffsets(ToClient):
    """The consumer commits the position behind what it has taken."""

    client: Consumer
    waits: _Waits = True
    offset: Whole | None = None
    """Another position."""

    def words(self) -> str:
        what = "its position" if self.offset is None else self.offset
        return f"{self.client} commits {what}{'' if self.waits else ', and does not wait'}"


@step(FAMILY, "stall", _CONSUMER, words="{0.client} polls no more; its heartbeats go on")
@dataclass(frozen=True, slots=True)
class Stall(ToClient):
    """The consumer does not poll any more; its heartbeats go on, until `max.poll.interval.ms` is
    over."""

    client: Consumer


@step(FAMILY, "wake", _CONSUMER, words="{0.client} polls again")
@dataclass(frozen=True, slots=True)
class Wake(ToClient):
    """A stalled consumer polls again."""

    client: Consumer


@step(FAMILY, "begin_transaction", _PRODUCER, words="{0.client} begins a transaction")
@dataclass(frozen=True, slots=True)
class Begin(ToClient):
    """The producer begins a transaction."""

    client: Producer


@step(
    FAMILY,
    "send",
    '{ client = "p", record = "m1" }',
    '{ client = "p", records = ["m2"] }',
)
@dataclass(frozen=True, slots=True)
class Send(ToClient, OfRecords):
    """The producer sends records."""

    client: Producer
    records: tuple[str, ...]
    """Several records, in order."""
    partition: Partition = 0
    key: str | None = None
    """The key of each record, as a compacted topic needs it. Not set: none."""
    waits: _Waits = True

    def words(self) -> str:
        key = "" if self.key is None else f", of the key {self.key!r}"
        return f"{self.client} sends {', '.join(self.records)}{key}"


@step(FAMILY, "commit_transaction", _PRODUCER, words="{0.client} commits its transaction")
@dataclass(frozen=True, slots=True)
class CommitTransaction(ToClient):
    """The producer commits its transaction."""

    client: Producer


@step(FAMILY, "abort_transaction", _PRODUCER, words="{0.client} aborts its transaction")
@dataclass(frozen=True, slots=True)
class AbortTransaction(ToClient):
    """The producer aborts its transaction."""

    client: Producer


@step(FAMILY, "die", _CONSUMER, words="kills the client {0.client} (SIGKILL)")
@dataclass(frozen=True, slots=True)
class Die(ToClient):
    """SIGKILL for the client."""

    client: Client


@step(FAMILY, "leave", _CONSUMER, words="{0.client} closes")
@dataclass(frozen=True, slots=True)
class Leave(ToClient):
    """The client closes. A consumer leaves its group, and commits if it commits by itself."""

    client: Client
