"""Histories of the shape that Jepsen's Kafka workload makes, as EDN, with anomalies planted.

Most operations are transactions of up to four micro-operations, half of them sends, on `KEYS` keys
by `CLIENTS` clients at once. Some fail, some are indeterminate: then the client goes on as another
process, as Jepsen has it. A transaction takes effect at once, somewhere between its invocation and
its completion, so that the history is valid; what is planted happens on keys and by processes of
its own, at a random place among the others.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from neaptide.checkers.histories.reader import fill_run, write_parts
from neaptide.checkers.histories.splits import splits

KEYS: Final = 20
CLIENTS: Final = 10
_ASSIGNED: Final = 3  # keys that a client polls
_MOPS_MAX: Final = 4
_POLLED_MAX: Final = 3  # records of a key in one poll
_FINAL_POLLED_MAX: Final = 200
_FAILED, _INDETERMINATE, _ASSIGNS = 0.02, 0.02, 0.01
_STRANGERS: Final = 1_000_000  # processes of what is planted, from this number on
_STRANGERS_EACH: Final = 10
_UTC: Final = datetime(2026, 1, 1, tzinfo=UTC)

Mop = tuple[str, int, int] | tuple[str]  # ("send", key, value) or ("poll",)


@dataclass(slots=True)
class _Clock:
    """Numbers and times of lines."""

    random: random.Random
    index: int = -1
    at_ns: int = 0

    def line(self, kind: str, process: int, f: str, value: str, more: str = "") -> str:
        self.index += 1
        self.at_ns += self.random.randrange(1_000, 500_000)
        return (
            f"{{:index {self.index}, :time {self.at_ns}, :type :{kind}, :process {process}, "
            f":f :{f}, :value [{value}]{more}}}"
        )


@dataclass(slots=True)
class _Client:
    """One client: a process until it crashes, then another."""

    process: int
    keys: list[int]
    assigned: list[int] = field(default_factory=list)
    position: dict[int, int] = field(default_factory=dict)
    pending: tuple[str, str, list[Mop]] | None = None  # f, value as invoked, micro-operations


class _World:
    """Logs of keys, and clients that send to them and poll them."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock
        self._random = clock.random
        self.logs: list[list[int]] = [[] for _ in range(KEYS)]
        self._values = [0] * KEYS
        self.clients = [
            _Client(n, [(2 * n + step) % KEYS for step in range(_ASSIGNED)]) for n in range(CLIENTS)
        ]

    def step(self) -> tuple[str, bool]:
        """One line more, and whether it is an invocation."""
        client = self._random.choice(self.clients)
        if client.pending is None:
            return self._invoke(client), True
        return self._complete(client), False

    def end(self) -> Iterator[str]:
        """What is pending is completed, and all is polled."""
        for client in self.clients:
            if client.pending is not None:
                yield self._complete(client)
        for client in self.clients:
            yield self._assign(client, client.keys)
            yield self._complete(client)
            while any(client.position.get(key, 0) < len(self.logs[key]) for key in client.keys):
                yield self._clock.line("invoke", client.process, "poll", "[:poll]")
                polled = self._poll(client, _FINAL_POLLED_MAX)
                yield self._clock.line("ok", client.process, "poll", polled)

    def _invoke(self, client: _Client) -> str:
        chance = self._random.random()
        if not client.assigned or chance < _ASSIGNS:
            return self._assign(
                client, self._random.sample(client.keys, _ASSIGNED - (chance < 0.5))
            )
        mops = [self._mop() for _ in range(self._random.randint(1, _MOPS_MAX))]
        f = mops[0][0] if len(mops) == 1 else "txn"
        value = " ".join("[:poll]" if len(m) == 1 else f"[:send {m[1]} {m[2]}]" for m in mops)
        client.pending = (f, value, mops)
        return self._clock.line("invoke", client.process, f, value)

    def _assign(self, client: _Client, keys: Sequence[int]) -> str:
        client.assigned = list(keys)
        value = " ".join(map(str, keys))
        client.pending = ("assign", value, [])
        return self._clock.line("invoke", client.process, "assign", value)

    def _mop(self) -> Mop:
        if self._random.random() < 0.5:
            return ("poll",)
        key = self._random.randrange(KEYS)
        self._values[key] += 1
        return ("send", key, self._values[key])

    def _complete(self, client: _Client) -> str:
        assert client.pending is not None
        (f, value, mops), client.pending = client.pending, None
        chance = self._random.random()
        if f == "assign" or chance > _FAILED + _INDETERMINATE:
            done = self._take_effect(client, mops) if mops else value
            return self._clock.line("ok", client.process, f, done)
        if chance < _FAILED:
            return self._clock.line("fail", client.process, f, value, ", :error :not-leader")
        if self._random.random() < 0.5:
            self._send_all(mops)
        process = client.process
        client.process += CLIENTS
        client.assigned = []
        error = ', :error [:timeout "The answer, if there was one, came too late"]'
        return self._clock.line("info", process, f, value, error)

    def _send_all(self, mops: Sequence[Mop]) -> None:
        for mop in mops:
            if len(mop) == 3:
                self.logs[mop[1]].append(mop[2])

    def _take_effect(self, client: _Client, mops: Sequence[Mop]) -> str:
        """All at once: it polls what was there before."""
        polled = [self._poll(client, _POLLED_MAX) for mop in mops if len(mop) == 1]
        done = []
        for mop in mops:
            if len(mop) == 1:
                done.append(polled.pop(0))
            else:
                done.append(f"[:send {mop[1]} [{len(self.logs[mop[1]])} {mop[2]}]]")
                self._send_all([mop])
        return " ".join(done)

    def _poll(self, client: _Client, most: int) -> str:
        parts = []
        for key in client.assigned:
            begin = client.position.get(key, 0)
            found = self.logs[key][begin : begin + most]
            if found:
                client.position[key] = begin + len(found)
                parts.append(f"{key} [{_pairs(enumerate(found, begin))}]")
        return f"[:poll {{{', '.join(parts)}}}]"


def _pairs(records: Iterator[tuple[int, int]] | Sequence[tuple[int, int]]) -> str:
    return " ".join(f"[{offset} {value}]" for offset, value in records)


@dataclass(slots=True)
class _Story:
    """What happens on two keys that nobody else uses."""

    clock: _Clock
    key: int
    process: int
    lines: list[str] = field(default_factory=list)

    def op(self, by: int, kind: str, f: str, invoked: str, completed: str) -> None:
        process = self.process + by
        self.lines.append(self.clock.line("invoke", process, f, invoked))
        self.lines.append(self.clock.line(kind, process, f, completed))

    def send(self, offset: int, value: int, by: int = 0, kind: str = "ok") -> None:
        acked = f"[{offset} {value}]" if kind == "ok" else str(value)
        self.op(by, kind, "send", f"[:send {self.key} {value}]", f"[:send {self.key} {acked}]")

    def send_all(self, *values: int) -> None:
        for offset, value in enumerate(values):
            self.send(offset, value)

    def poll(self, *records: tuple[int, int], by: int = 1) -> None:
        self.op(by, "ok", "poll", "[:poll]", f"[:poll {{{self.key} [{_pairs(records)}]}}]")


def _lost_write(s: _Story) -> None:
    s.send_all(1, 2, 3)
    s.poll((0, 1), (2, 3))


def _duplicate(s: _Story) -> None:
    s.send_all(1, 2)
    s.poll((0, 1), (1, 2), (2, 1))


def _inconsistent_offsets(s: _Story) -> None:
    s.send(0, 1)
    s.send(0, 2, by=3, kind="info")
    s.poll((0, 1))
    s.poll((0, 2), by=2)


def _g1a(s: _Story) -> None:
    s.send(0, 1)
    s.send(1, 2, kind="fail")
    s.poll((0, 1), (1, 2))


def _int_nonmonotonic_poll(s: _Story) -> None:
    s.send_all(1, 2, 3)
    s.poll((0, 1), (1, 2), (1, 2), (2, 3))


def _nonmonotonic_poll(s: _Story) -> None:
    s.send_all(1, 2, 3)
    s.poll((0, 1), (1, 2))
    s.poll((1, 2), (2, 3))


def _poll_skip(s: _Story) -> None:
    s.send_all(1, 2, 3)
    s.poll((0, 1), (1, 2), (2, 3))
    s.poll((0, 1), by=2)
    s.poll((2, 3), by=2)


def _int_poll_skip(s: _Story) -> None:
    s.send_all(1, 2, 3)
    s.poll((0, 1), (1, 2), (2, 3))
    s.poll((0, 1), (2, 3), by=2)


def _unseen(s: _Story) -> None:
    s.send_all(1, 2)
    s.poll((0, 1))


def _nonmonotonic_send(s: _Story) -> None:
    s.send(1, 1)
    s.send(0, 2)
    s.poll((0, 2), (1, 1))


def _int_nonmonotonic_send(s: _Story) -> None:
    k = s.key
    s.op(0, "ok", "txn", f"[:send {k} 1] [:send {k} 2]", f"[:send {k} [1 1]] [:send {k} [0 2]]")
    s.poll((0, 2), (1, 1))


def _precommitted_read(s: _Story) -> None:
    k = s.key
    s.op(0, "ok", "txn", f"[:send {k} 1] [:poll]", f"[:send {k} [0 1]] [:poll {{{k} [[0 1]]}}]")


def _g1c(s: _Story) -> None:
    """Each of two transactions reads what the other sent."""
    keys = (s.key, s.key + 1)
    for by, key in enumerate(keys):
        value = f"[:send {key} 1] [:poll]"
        s.lines.append(s.clock.line("invoke", s.process + by, "txn", value))
    for by, (key, other) in enumerate((keys, keys[::-1])):
        value = f"[:send {key} [0 1]] [:poll {{{other} [[0 1]]}}]"
        s.lines.append(s.clock.line("ok", s.process + by, "txn", value))


# name of what Jepsen's checker finds -> makes it happen
STORIES: Final[Mapping[str, Callable[[_Story], None]]] = {
    "lost-write": _lost_write,
    "duplicate": _duplicate,
    "inconsistent-offsets": _inconsistent_offsets,
    "G1a": _g1a,
    "int-nonmonotonic-poll": _int_nonmonotonic_poll,
    "nonmonotonic-poll": _nonmonotonic_poll,
    "poll-skip": _poll_skip,
    "int-poll-skip": _int_poll_skip,
    "unseen": _unseen,
    "nonmonotonic-send": _nonmonotonic_send,
    "int-nonmonotonic-send": _int_nonmonotonic_send,
    "precommitted-read": _precommitted_read,
    "G1c": _g1c,
}


# What else our check finds in a story.
_ALSO: Final[Mapping[str, Sequence[str]]] = {
    "lost-write": ("int-poll-skip",),
    "duplicate": ("G0",),
    "nonmonotonic-send": ("reordered", "G0-realtime"),
    "int-nonmonotonic-send": ("reordered",),
}


def expected(plants: Mapping[str, int]) -> dict[str, int]:
    """How often our check finds each anomaly, no more and no less."""
    found = Counter[str]()
    for name, count in plants.items():
        for one in (name, *_ALSO.get(name, ())):
            found[one] += count
    return dict(sorted(found.items()))


def lines(operations: int, plants: Mapping[str, int], *, seed: int = 0) -> Iterator[str]:
    """A history of about so many operations, line by line."""
    unknown = sorted(set(plants) - set(STORIES))
    if unknown:
        raise ValueError(f"{unknown[0]} cannot be planted: choose among {', '.join(STORIES)}.")
    clock = _Clock(random.Random(seed))
    wanted = [name for name, count in plants.items() for _ in range(count)]
    places = sorted(clock.random.sample(range(operations), len(wanted)), reverse=True)
    clock.random.shuffle(wanted)
    world = _World(clock)
    invoked = 0
    while invoked < operations:
        while places and places[-1] <= invoked:
            places.pop()
            n = len(places)
            story = _Story(clock, KEYS + 2 * n, _STRANGERS + _STRANGERS_EACH * n)
            STORIES[wanted[n]](story)
            yield from story.lines
        line, is_invocation = world.step()
        invoked += is_invocation
        yield line
    yield from world.end()


def write_edn(path: Path, operations: int, plants: Mapping[str, int], *, seed: int = 0) -> None:
    """The history as Jepsen writes it."""
    with path.open("w", encoding="utf-8") as file:
        for line in lines(operations, plants, seed=seed):
            file.write(line)
            file.write("\n")


def write_parquet(run: Path, edn: Path) -> None:
    """The same as a run of ours."""
    fill_run(run, edn, splits(edn), write_parts, version="planted", utc=_UTC)
