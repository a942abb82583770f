"""A night whose plays are made up: which come to what is said by their names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from neaptide.harness.nightly.found import is_worth
from neaptide.harness.nightly.night import Limits, Night, Row, Work
from neaptide.harness.nightly.rows import Known, row_of
from neaptide.harness.nightly.state import Ended, Journal, Kind, Play

VALUES = {
    "system": "neaptide:0.10", "host": "local", "workload": "append", "client": "confluent-kafka",
    "faults": "kill", "acks": "all", "idempotence": "no", "brokers": "3",
}  # fmt: skip
HELD, LOST, UNKNOWN = ("valid", "held"), ("anomalous", "lost"), ("unknown", "unknown")
Words = tuple[str, str]


def verdict(words: Words) -> dict[str, Any]:
    word, outcome = words
    return {
        "verdict": word,
        "outcome": outcome,
        "anomalies": {"lost-write": 2} if word == "anomalous" else {},
        "operations": 10,
        "acknowledged": 7,
        "reasons": ["Nobody knows 12."] if word == "unknown" else [],
    }


def play(
    item: str, kind: Kind = "pairs", cell: int | None = None, lasts_s: float = 10.0, **changed: Any
) -> Play:
    """`search` in its item: a search."""
    words = ("explore",) if "search" in item else ("run", "append")
    values: Mapping[str, str] = {**VALUES, **changed.pop("values", {})}
    return Play(item, kind, 1, words, values, 5, lasts_s, cell, **changed)


def live_cells(count: int = 1000) -> Iterator[Play]:
    for n in range(1, count + 1, 2):
        yield play(f"cell {n}", cell=n, values={"acks": str(n)})


def search_cells(count: int = 1000) -> Iterator[Play]:
    for n in range(2, count + 1, 2):
        one = play(f"cell {n}", cell=n, values={"host": "simulation"})
        yield Play(**{**one.to_json(), "words": ("explore",)})


class Fakes:
    """Effects that only remember. `comes_to`: by the name of a play."""

    def __init__(
        self,
        comes_to: Callable[[Play], Words] = lambda _: HELD,
        known: Known = Known(),  # noqa: B008 (frozen)
        room: Callable[[], str | None] = lambda: None,
        takes_s: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self.comes_to = comes_to
        self.known = known
        self.played: list[str] = []
        self.at_once = self.most_at_once = 0
        self.batches: list[list[str]] = []
        self.room_for = room
        self.takes_s = takes_s
        self.clock = clock or Clock()

    async def play(self, play: Play) -> Ended:
        self.played.append(play.name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.clock.now += play.lasts_s
        self.at_once -= 1
        return Ended(play, f"/runs/{play.name}", play.lasts_s + self.takes_s)

    async def check(self, ended: Sequence[Ended]) -> list[Row]:
        self.batches.append([one.play.name for one in ended])
        await asyncio.sleep(0)
        return [row_of("n", e, verdict(self.comes_to(e.play)), self.known) for e in ended]

    async def tidy(self, rows: Sequence[Row]) -> list[str]:
        return []

    def room(self) -> str | None:
        return self.room_for()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def twice_again(row: Row, played: Any) -> dict[str, Any]:
    """An investigation: two plays more, one after the other."""
    lost = of = 0
    why = ""
    name = row["play"].rpartition(" #")[0]
    values = {"acks": row["settings"].split()[0].removeprefix("acks=")}
    for number in (1, 2):
        asked = play(f"again {number} of {name}", "again", of=row["key"], values=values)
        again = await played(asked)
        if again is None:
            why = "the night was over"
            break
        lost, of = lost + (again["verdict"] == "anomalous"), of + 1
    return {"key": row["key"], "file": "x.json", "again": [lost, of], "why": why}


def night(
    directory: Path,
    fakes: Fakes,
    *,
    known: Sequence[Play] = (),
    live: Iterator[Play] | None = None,
    simulated: Iterator[Play] | None = None,
    **limits: Any,
) -> Night:
    """Played to its end. `limits`: those of `Limits`."""
    directory.mkdir(exist_ok=True)
    journal = Journal(directory)
    given = {"budget_s": 1e9, "jobs": 2, "searches": 1, **limits}
    one = Night(
        journal,
        Limits(**given),
        Work(
            known,
            live_cells() if live is None else live,
            search_cells() if simulated is None else simulated,
        ),
        fakes,
        twice_again,
        is_worth,
        lambda _: None,
        fakes.clock,
    )
    try:
        asyncio.run(one.run())
    finally:
        journal.close()
    return one
