"""What becomes of a new anomaly: it is played again, made smaller, and saved to be played for ever.

Every play is a play of the night like others, with a name that says which one of a finding it is:
a night that goes on after it was cut off takes the answers that it has, and plays the rest.

The rule: a finding is saved as soon as it is known, and again whenever there is less of it. What
never lost again is saved as it was, and says so.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from neaptide.harness.nightly.asked import search_words
from neaptide.harness.nightly.known import KEY_LINE, SCENARIO_S
from neaptide.harness.nightly.plan import Plan
from neaptide.harness.nightly.state import Kind, Play
from neaptide.harness.scenarios import saved_schedule
from neaptide.harness.scenarios.systems import like_of
from neaptide.nemesis.acts import Schedule, acts_of, length_s, smaller
from neaptide.nemesis.drawn.faults import faults_of
from neaptide.nemesis.minimise import Minimised, minimise
from neaptide.results.outcomes import WORST_FIRST
from neaptide.results.run import Run

ATTEMPTS: Final = 2  # of each smaller schedule
_OWN: Final = "neaptide:"
Row = Mapping[str, Any]
# Plays, and returns the row; None: there is no time left for it.
PlayIt = Callable[[Play], Awaitable[Row | None]]


class OutOfTimeError(Exception):
    """The night is over before the finding is as small as it could be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A new anomaly: its row, the cell that it was found in, and where the night and files are."""

    row: Row
    values: Mapping[str, str]
    run: Path | None  # None: a search of the simulation found it
    night: Path
    save_to: Path

    @property
    def key(self) -> str:
        return str(self.row["key"])

    @property
    def name(self) -> str:
        """Of its file: what it is, and a digest of the key."""
        system = self.row["system"].replace(":", "-").replace("/", "-")
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:8]
        return f"{self.row['outcome']}-{system}-{self.row['workload']}-{digest}"


def is_worth(row: Row) -> bool:
    """Rows of which something is to be saved: also what a smaller schedule did beside its own."""
    return bool(row["news"] == "new")


# --- live ----------------------------------------------------------------------------------------


async def investigate(finding: Finding, run: Run, plan: Plan, play: PlayIt) -> dict[str, Any]:
    """Of a live run. Returns what the journal says of it."""
    assert finding.run is not None
    schedule = acts_of(saved_schedule.load(finding.run).document["step"])
    report = _Report(finding, run, schedule)
    report.save(schedule)
    if not schedule:
        return report.to_json(schedule, why="there were no faults to leave out")
    tried = _Tried(finding, run, play)
    smallest = schedule
    try:
        for _ in range(plan.repeat):
            report.count("again", await tried.loses(schedule, "again"))
        if plan.shrink and (report.lost("again") or not plan.repeat):
            smallest = await _smaller(schedule, plan, tried, report)
        if smallest != schedule:
            for _ in range(plan.repeat):
                report.count("confirm", await tried.loses(smallest, "confirm"))
        report.save(smallest)
        report.simulated = await _in_the_simulation(finding, plan, play)
    except OutOfTimeError:
        return report.to_json(report.saved, why="the night was over")
    return report.to_json(smallest)


async def _smaller(schedule: Schedule, plan: Plan, tried: _Tried, report: _Report) -> Schedule:
    loop = asyncio.get_running_loop()

    def loses(candidate: Schedule) -> bool:
        """On a thread: the search for a smaller schedule waits for each answer."""
        asked = tried.loses(candidate, "shrink")
        return asyncio.run_coroutine_threadsafe(asked, loop).result()

    def shrink() -> Minimised[Schedule]:
        most = {"plays_max": plan.shrink, "attempts": ATTEMPTS}
        return minimise(schedule, smaller, loses, **most, keep=report.save)

    shrunk = await asyncio.to_thread(shrink)
    report.complete = shrunk.complete
    return shrunk.smallest


class _Tried:
    """The plays of one finding, numbered, so that the same night asks the same again."""

    def __init__(self, finding: Finding, run: Run, play: PlayIt) -> None:
        self._finding = finding
        self._run = run
        self._play = play
        self._count: dict[Kind, int] = {}

    async def loses(self, schedule: Schedule, kind: Kind) -> bool:
        """Raises OutOfTimeError."""
        finding = self._finding
        number = self._count[kind] = self._count.get(kind, 0) + 1
        folder = finding.night / "tried"
        folder.mkdir(exist_ok=True)
        file = folder / f"{finding.name}-{kind}-{number}.toml"
        saved_schedule.save(saved_schedule.changed(self._run.schedule, schedule), file)
        row = await self._play(
            Play(
                item=f"{kind} {number} of {finding.name}",
                kind=kind,
                attempt=1,
                words=tuple(saved_schedule.command(file)),
                values=finding.values,
                seed=self._run.seed,
                lasts_s=length_s(schedule),
                of=finding.key,
            )
        )
        if row is None:
            raise OutOfTimeError
        return bool(row["key"] == finding.key)


class _Report:
    """What is known of a finding so far, and its file."""

    def __init__(self, finding: Finding, run: Run, schedule: Schedule) -> None:
        self._finding = finding
        self._run = run
        self._before = schedule
        self._counts: dict[str, list[int]] = {"again": [0, 0], "confirm": [0, 0]}
        self.complete = False
        self.saved = schedule
        self.simulated: dict[str, Any] | None = None
        self._utc = datetime.now(UTC).isoformat(timespec="seconds")

    @property
    def file(self) -> Path:
        return self._finding.save_to / f"{self._finding.name}-live.toml"

    def lost(self, of: str) -> int:
        return self._counts[of][0]

    def count(self, of: str, lost: bool) -> None:
        self._counts[of][0] += lost
        self._counts[of][1] += 1

    def save(self, schedule: Schedule) -> None:
        finding = self._finding
        self.saved = schedule
        found = {
            "values": dict(finding.values),
            "night": finding.night.name,
            "utc": self._utc,
            "run": self._run_name,
            "neaptide": self._run.neaptide,
            "faults_before": faults_in(self._before),
            **{name: {"lost": lost, "of": of} for name, (lost, of) in self._counts.items() if of},
        }
        outcome, like = finding.row["outcome"], like_of(finding.values["system"])
        finding.save_to.mkdir(parents=True, exist_ok=True)
        title = f"{outcome} on {self._run.system}: {', '.join(faults_of(schedule)) or 'no faults'}"
        saved = saved_schedule.changed(
            self._run.schedule, schedule, title=title, expect={outcome: [like]}, found=found
        )
        saved_schedule.save(saved, self.file, f"{KEY_LINE}{finding.key}\n")

    @property
    def _run_name(self) -> str:
        return "" if self._finding.run is None else self._finding.run.name

    def to_json(self, schedule: Schedule, why: str = "") -> dict[str, Any]:
        return {
            "key": self._finding.key,
            "file": str(self.file),
            "run": self._run_name,
            "again": self._counts["again"],
            "confirm": self._counts["confirm"],
            "faults": [faults_in(self._before), faults_in(schedule)],
            "phases": [len(self._before), len(schedule)],
            "complete": self.complete,
            "simulated": self.simulated,
            "why": why,
        }


def faults_in(schedule: Schedule) -> int:
    return sum(len(act.steps) for act in schedule)


# --- in the simulation ---------------------------------------------------------------------------


def is_searchable(values: Mapping[str, str], outcome: str) -> bool:
    """Whether the simulation knows the system, the load, and the word for it."""
    return (
        values["system"].startswith(_OWN)
        and values["workload"] == "append"
        and values["acks"] != "0"
        and outcome in WORST_FIRST[:-2]
    )


async def _in_the_simulation(finding: Finding, plan: Plan, play: PlayIt) -> dict[str, Any] | None:
    """The shortest schedule of the same outcome, on the same system with the same settings. Whether
    it is the same in every way nobody can say: it is a scenario of its own, which holds still."""
    outcome = str(finding.row["outcome"])
    if not is_searchable(finding.values, outcome):
        return None
    values = {**finding.values, "host": "simulation"}
    save = finding.night / "searched" / finding.name
    words = search_words(values, finding.row["seed"], plan.search, save, outcome)
    row = await play(
        Play(
            item=f"simulated {finding.name}",
            kind="simulated",
            attempt=1,
            words=tuple(words),
            values={**values, "client": "simulation"},
            seed=finding.row["seed"],
            lasts_s=plan.search,
            of=finding.key,
        )
    )
    if row is None:
        raise OutOfTimeError
    return save_shortest(finding, shortest_in(save, outcome))


def shortest_in(directory: Path, outcome: str) -> Path | None:
    files = sorted(directory.glob(f"{outcome}-*.toml"))
    return min(files, key=lambda file: file.read_text("utf-8").count("[[step]]"), default=None)


def save_shortest(finding: Finding, file: Path | None) -> dict[str, Any] | None:
    """With the key in its first line."""
    if file is None:
        return None
    text = file.read_text(encoding="utf-8")
    finding.save_to.mkdir(parents=True, exist_ok=True)
    kept = finding.save_to / f"{finding.name}.toml"
    kept.write_text(f"{KEY_LINE}{finding.key}\n{text}", encoding="utf-8")
    return {"file": str(kept), "steps": text.count("[[step]]")}


async def investigate_search(
    finding: Finding, plan: Plan, play: PlayIt, *, live: bool
) -> dict[str, Any]:
    """Of what the simulation found: it is small already; here it is played by real processes."""
    outcome = str(finding.row["outcome"])
    searched = finding.night / "searched" / search_name(finding.row["play"])
    saved = save_shortest(finding, shortest_in(searched, outcome))
    lost = of = 0
    why = "" if saved is not None else "no scenario can say it: it is by its timing alone"
    for number in range(1, plan.repeat + 1 if live and saved is not None else 1):
        assert saved is not None
        system = finding.values["system"]
        row = await play(
            Play(
                item=f"again {number} of {finding.name}",
                kind="again",
                attempt=1,
                words=("run", saved["file"], "--system", system, "--seed", str(number)),
                values={**finding.values, "host": "local"},
                seed=number,
                lasts_s=SCENARIO_S,
                of=finding.key,
            )
        )
        if row is None:
            why = "the night was over"
            break
        lost, of = lost + (row["outcome"] == outcome), of + 1
    return {
        "key": finding.key,
        "file": None if saved is None else saved["file"],
        "run": "",
        "again": [lost, of],
        "confirm": [0, 0],
        "faults": None,
        "phases": None,
        "complete": True,
        "simulated": saved,
        "why": why,
    }


def search_name(play: str) -> str:
    """Of the folder into which a search saves what it finds."""
    return play.rpartition(" #")[0].replace(" ", "-")
