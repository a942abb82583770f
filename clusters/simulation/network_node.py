"""The network: what is on its way between nodes, what keeps it up, and when what is due.

All nodes send through it (`send`), put something off with it (`later`), and have its time. Requests
that wait for their answers are here too: they are the connections that both ends see break. What
may pass is in blocking; which event is the next one, in world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappush
from typing import Final, NamedTuple

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation.network import (
    COORDINATION,
    SERVICE,
    Cut,
    Entry,
    Hold,
    Link,
)
from neaptide.clusters.simulation.parts import Asked, Call, FetchPosition, Recorder, WorldSpec

START_US: Final = 1_000_000_000


class CallKey(NamedTuple):
    """A broker's request to another. `which`: of several on a channel."""

    channel: str
    asker: int
    which: int


class Shown:
    """What the wire has shown of brokers, as a gate on it sees it."""

    __slots__ = (
        "fenced",
        "marks_answered",
        "marks_gone_back",
        "obeyed",
        "positions",
        "refused",
        "rounds",
    )

    def __init__(self) -> None:
        self.positions: dict[int, FetchPosition] = {}
        self.rounds: dict[tuple[int, int, int], int] = {}
        # The high watermark that a leader last answered a follower in an epoch; how often it was
        # less than before. By (epoch, leader, follower).
        self.marks_answered: dict[tuple[int, int, int], int] = {}
        self.marks_gone_back = 0
        self.fenced: frozenset[int] = frozenset()  # followers whose last answer said so
        self.refused: frozenset[int] = frozenset()  # controllers that were refused for a later one
        self.obeyed: frozenset[int] = frozenset()  # controllers that were not

    def copy(self) -> Shown:
        other = Shown.__new__(Shown)
        other.positions = self.positions.copy()
        other.rounds = self.rounds.copy()
        other.marks_answered = self.marks_answered.copy()
        other.marks_gone_back = self.marks_gone_back
        other.fenced = self.fenced
        other.refused = self.refused
        other.obeyed = self.obeyed
        return other


class Network:
    __slots__ = (
        "abandoned",
        "asked",
        "blocked_links",
        "calls",
        "cuts",
        "ever_held",
        "held_by",
        "hold_counts",
        "holds",
        "listening",
        "messages",
        "now_us",
        "own",
        "partition",
        "paused",
        "recorder",
        "sequence",
        "shown",
        "slowed",
        "spec",
        "unanswered",
        "waiting",
    )

    def __init__(self, spec: WorldSpec) -> None:
        self.spec = spec
        self.partition = TopicPartition(spec.topic, 0)  # of which rules speak, and what is shown
        self.now_us = START_US
        self.sequence = 0
        self.messages: list[Entry] = []  # a heap: on their links
        self.own: list[Entry] = []  # a heap: what nodes have put off
        self.waiting: list[Entry] = []
        self.blocked_links: set[Link] = set()
        self.listening: tuple[int, ...] = ()  # the brokers that run, in the order of their starts
        self.paused: frozenset[int] = frozenset()
        self.cuts: frozenset[Cut] = frozenset()
        self.slowed: dict[Cut, int] = {}  # links that take so much longer, in µs
        self.holds: dict[str, Hold] = {}
        self.hold_counts: dict[str, int] = {}
        self.held_by: dict[int, str] = {}  # messages, by rules that take so many only
        self.ever_held: frozenset[str] = frozenset()
        self.asked: dict[int, Asked] = {}
        self.calls: dict[CallKey, Call] = {}  # replaced, never changed
        # Requests that a rule holds and whose senders have given them up: they may still arrive.
        self.abandoned: tuple[Entry, ...] = ()
        self.unanswered: dict[Link, Entry] = {}  # controllers' requests, where a rule is about it
        self.shown = Shown()
        self.recorder: Recorder | None = None

    def copy(self) -> Network:
        other = Network.__new__(Network)
        other.spec = self.spec
        other.partition = self.partition
        other.now_us = self.now_us
        other.sequence = self.sequence
        other.messages = self.messages.copy()
        other.own = self.own.copy()
        other.waiting = self.waiting.copy()
        other.blocked_links = self.blocked_links.copy()
        other.listening = self.listening
        other.paused = self.paused
        other.cuts = self.cuts
        other.slowed = self.slowed.copy()
        other.holds = self.holds.copy()
        other.hold_counts = self.hold_counts.copy()
        other.held_by = self.held_by
        other.ever_held = self.ever_held
        other.asked = self.asked.copy()
        other.calls = self.calls
        other.abandoned = self.abandoned
        other.unanswered = self.unanswered
        other.shown = self.shown.copy()
        other.recorder = self.recorder
        return other

    def reach(self, until_us: int) -> None:
        """Time goes on to then; never back."""
        self.now_us = max(self.now_us, until_us)

    def number(self) -> int:
        """A new one, for a request."""
        self.sequence += 1
        return self.sequence

    def send(self, source: int, target: int, channel: str, body: object) -> Entry:
        self.sequence += 1
        link = Link(source, target, channel)
        due_us = self.now_us + self.spec.latency_us
        if self.slowed:
            due_us += sum(us for where, us in self.slowed.items() if where.covers(link))
        noise = self.spec.noise
        if noise is not None and noise.jitter_us:
            due_us += noise.draw(self.sequence) % noise.jitter_us
        if self.slowed or noise is not None:
            due_us = max([due_us, *(e.due_us for e in self.messages if e.link == link)])
        entry = Entry(due_us, self.sequence, link, body)
        heappush(self.messages, entry)
        return entry

    def notify(self, news: Iterable[tuple[int, object]]) -> None:
        """What the coordination service says to brokers."""
        for target, event in news:
            self.send(SERVICE, target, COORDINATION, event)

    def later(self, delay_us: int, body: object) -> int:
        """Something of a node's own, after a while; returns its number."""
        self.sequence += 1
        heappush(self.own, Entry(self.now_us + delay_us, self.sequence, None, body))
        return self.sequence

    def keep_up(self, entry: Entry, link: Link) -> None:
        """A message waits, and so does what is behind it on its link."""
        self.waiting.append(entry)
        self.blocked_links.add(link)

    def unblock(self) -> None:
        """Looks again at all that waits: something was healed, released, resumed or started."""
        waiting, self.waiting = self.waiting, []
        self.blocked_links = set()
        for entry in waiting:
            again = entry._replace(due_us=max(self.now_us, entry.due_us))
            heappush(self.own if entry.link is None else self.messages, again)

    def abandon(self, entries: Iterable[Entry]) -> None:
        """Requests that are held, and no longer in the network: only `deliver` has them arrive."""
        self.abandoned = (*self.abandoned, *(e for e in entries if hasattr(e.body, "request")))

    def remove(self, meant: Callable[[Entry], bool]) -> list[Entry]:
        """Takes messages out of the network; a link whose blocked message goes may be free."""
        gone = [entry for entry in (*self.messages, *self.waiting) if meant(entry)]
        if gone:
            self.messages = sorted(entry for entry in self.messages if not meant(entry))
            self.waiting = [entry for entry in self.waiting if not meant(entry)]
            self.blocked_links = {entry.link for entry in self.waiting if entry.link is not None}
        return gone
