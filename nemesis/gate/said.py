"""What goes over a link, as far as rules and records are concerned: fetch rounds, and messages.

Values that change as they come on. How they are read out of bytes is in exchange and conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from neaptide.nemesis.gate import messages as m
from neaptide.nemesis.gate.model import Endpoint, MessageKind
from neaptide.nemesis.gate.rules import MessageFacts, PartitionFacts

Fate = Literal["passed", "held", "discarded", "dropped"]


@dataclass(slots=True)
class Round:
    """A fetch round of one partition, as far as it has come: a row of results.schema."""

    follower: int
    leader: int
    topic: str
    partition: int
    leader_epoch: int | None
    round: int
    requested_ns: int
    fetch_offset: int
    forwarded_ns: int | None = None
    responded_ns: int | None = None
    delivered_ns: int | None = None
    high_watermark: int | None = None
    log_start_offset: int | None = None
    records_bytes: int | None = None
    error: int | None = None
    request_fate: Fate = "discarded"  # until it has left
    response_fate: Fate | None = None
    held_ns: int = 0
    recorded: bool = False

    def answered(self, answer: m.FetchedPartition | None, error: int, now_ns: int) -> None:
        """The response has come; without an answer for this partition if it says `error`."""
        self.responded_ns = now_ns
        self.response_fate = "discarded"  # until it has left
        self.error = error
        if answer is not None:
            self.error = answer.error
            self.high_watermark = answer.high_watermark
            self.log_start_offset = answer.log_start_offset
            self.records_bytes = answer.records_bytes

    def facts(self) -> PartitionFacts:
        return PartitionFacts(
            self.topic,
            self.partition,
            {
                "round": self.round,
                "fetch_offset": self.fetch_offset,
                "high_watermark": self.high_watermark,
                "leader_epoch": self.leader_epoch,
                "records_bytes": self.records_bytes,
                "log_start_offset": self.log_start_offset,
                "error": self.error,
            },
        )


@dataclass(frozen=True, slots=True)
class Wire:
    """What a request is on the wire: its answer has the same."""

    api_key: int
    version: int
    correlation_id: int


@dataclass(frozen=True, slots=True)
class EpochNews:
    """What a LeaderAndIsr request says: it counts from the moment that it leaves for its broker."""

    broker: int
    states: Mapping[m.TopicPartition, m.LeaderEpoch]


@dataclass(slots=True)
class Message:
    """A request or response that rules may take, and the rounds that it belongs to."""

    api: str
    message: MessageKind
    source: Endpoint | None
    destination: Endpoint | None
    rounds: tuple[Round, ...] = ()
    epochs: tuple[PartitionFacts, ...] = ()  # of an OffsetForLeaderEpoch, which is no round
    parts: tuple[PartitionFacts, ...] = ()  # of all that is neither
    news: EpochNews | None = None
    wire: Wire | None = None  # of what is neither: what it takes to answer it, or change its answer
    received_ns: int = 0
    forwarded_ns: int | None = None
    fate: Fate = "discarded"  # until it has left
    held_ns: int = 0
    recorded: bool = False

    def facts(self) -> MessageFacts:
        """The message as rules see it."""
        partitions = self.parts or self.epochs or tuple(entry.facts() for entry in self.rounds)
        return MessageFacts(self.api, self.message, self.source, self.destination, partitions)

    def rows(self) -> Iterator[tuple[object, ...]]:
        """What is recorded of it: rows of results.schema.MESSAGES, once. None of a round."""
        if self.wire is None or self.recorded:
            return
        self.recorded = True
        ends = (_text(self.source), _text(self.destination))
        for part in self.parts:
            said = {name: value for name, value in part.numbers.items() if value is not None}
            yield (
                self.api,
                self.wire.version,
                self.message,
                self.wire.correlation_id,
                *ends,
                part.topic or None,
                part.partition if part.partition >= 0 else None,
                self.received_ns,
                self.forwarded_ns,
                self.fate,
                json.dumps(said),
            )

    def left(self, now_ns: int) -> None:
        """It is on its way to its destination."""
        fate: Fate = "held" if self.held_ns else "passed"
        self.forwarded_ns, self.fate = now_ns, fate
        for entry in self.rounds:
            entry.held_ns += self.held_ns
            if self.message == "request":
                entry.forwarded_ns, entry.request_fate = now_ns, fate
            else:
                entry.delivered_ns, entry.response_fate = now_ns, fate

    def lost(self, fate: Fate) -> None:
        """It never will be."""
        self.fate = fate
        for entry in self.rounds:
            entry.held_ns += self.held_ns
            if self.message == "request":
                entry.request_fate = fate
            else:
                entry.response_fate = fate


def _text(end: Endpoint | None) -> str | None:
    return None if end is None else str(end)
