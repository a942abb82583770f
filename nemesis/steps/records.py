"""Steps of unnamed clients: what is written and read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from neaptide.nemesis.steps.language import (
    BrokerName,
    Names,
    Number,
    OfRecords,
    Partition,
    Step,
    Whole,
    WithAcks,
    step,
)

FAMILY: Final = "Records"
_FILLING: Final = " "  # between a record's name, which has none, and what makes its value long


def filled(record: str, size_bytes: int | None) -> str:
    """The value of a record: its name, made as long as is asked for."""
    if size_bytes is None:
        return record
    return (record + _FILLING).ljust(size_bytes, ".")


def record_of(value: str) -> str:
    """The name of the record that has this value."""
    return value.partition(_FILLING)[0]


@step(
    FAMILY,
    "produce",
    '{ record = "m1", acks = "all" }',
    '{ records = ["m2", "m3"], acks = "1", to = "C", bytes = 20000 }',
)
@dataclass(frozen=True, slots=True)
class Produce(OfRecords):
    """Sends records, and does not wait for their acknowledgement."""

    records: tuple[str, ...]
    """Several records, in order."""
    acks: WithAcks = "all"
    partition: Partition = 0
    to: BrokerName | None = None
    """A client of its own sends the records. It knows only this broker, and believes the broker's
    metadata."""
    size_bytes: Annotated[Whole | None, Field(alias="bytes")] = None
    """The length of each value in bytes. Not set: the record's name alone."""
    key: str | None = None
    """The key of each record, as a compacted topic needs it. Not set: none."""

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(filled(record, self.size_bytes) for record in self.records)

    def check(self, names: Names) -> None:
        longest = max(self.records, key=len)
        if self.size_bytes is not None and self.size_bytes <= len(longest):
            raise ValueError(f"bytes = {self.size_bytes} is too short for {longest!r}")

    def words(self) -> str:
        size = f", {self.size_bytes} bytes each" if self.size_bytes else ""
        to = f", by a client that knows {self.to} only" if self.to else ""
        key = "" if self.key is None else f", of the key {self.key!r}"
        return f"sends {', '.join(self.records)} with acks={self.acks}{key}{size}{to}"

    def brief(self) -> str:
        to = f" to {self.to}" if self.to else ""
        where = f" in {self.partition}" if self.partition else ""
        return f"produce {' '.join(self.records)} acks={self.acks}{where}{to}"


@step(
    FAMILY,
    "load",
    '{ rate = 100, acks = "1" }',
    words="sends {0.rate:g} records a second with acks={0.acks}, and reads",
)
@dataclass(frozen=True, slots=True)
class Load(Step):
    """Sends unnamed records to all partitions, in bursts of fifty, and consumes them. The load
    ends with `stop_load`, or with the last step."""

    rate: Annotated[Number, Field(gt=0)]
    """Records per second."""
    acks: WithAcks = "all"


@step(FAMILY, "stop_load", "{}", words="ends the load")
@dataclass(frozen=True, slots=True)
class StopLoad(Step):
    """Ends the load, and waits until every send has completed."""


@step(FAMILY, "consume", "{}", '{ group = "g" }')
@dataclass(frozen=True, slots=True)
class Consume(Step):
    """Reads the partition once, from its beginning to the high watermark. With a group: asks for
    the group's committed position, reads from there to the high watermark, and commits the new
    position if there was anything to read. It repeats a request that fails, for 20 s in all. The
    consumer is no member of the group."""

    partition: Partition = 0
    group: str | None = None
    """The group whose positions are read and committed."""

    def check(self, names: Names) -> None:
        if self.group is None:
            return
        if not names.has_groups:
            raise ValueError(
                "a group needs a topic for its positions: topics.__consumer_offsets = {"
                " assignment = … }"
            )
        taken = self.group in names.brokers or self.group in names.records
        if taken or not self.group.isidentifier():
            raise ValueError(
                f"group = {self.group!r} must be a word that names neither a broker nor a record"
            )
        names.groups.add(self.group)

    def words(self) -> str:
        if self.group is None:
            return "reads from the beginning to the high watermark"
        return f"reads from the position of the group {self.group}, and commits the new position"

    def brief(self) -> str:
        if self.group is not None:
            return f"read on as {self.group}, commit"
        return f"read {self.partition} to the end" if self.partition else "read to the end"
