"""Puts a night together: its plan and seed into plays, its effects on this machine, its journal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from neaptide.clusters.errors import UsageError
from neaptide.harness.live.guard import FREE_TO_START, check_space
from neaptide.harness.nightly import found as findings
from neaptide.harness.nightly.asked import (
    SIMULATION,
    Means,
    means_of,
    refusal,
    run_words,
    search_words,
    space,
)
from neaptide.harness.nightly.cells import Cell, Space, cells
from neaptide.harness.nightly.doing import Doing
from neaptide.harness.nightly.judging import Judging
from neaptide.harness.nightly.known import files_in, key_in, plays_of
from neaptide.harness.nightly.night import (
    OVERHEAD_S,
    Investigate,
    Limits,
    Night,
    Row,
    Work,
    cell_name,
)
from neaptide.harness.nightly.plan import Plan, read_plan
from neaptide.harness.nightly.rows import Known, known_after, write_rows
from neaptide.harness.nightly.state import Ended, Journal, Play, nights_in, rows_of_earlier
from neaptide.harness.nightly.thin import Stored, to_remove
from neaptide.harness.terminal.version import VERSION
from neaptide.results.errors import StoreError
from neaptide.results.run import read_run
from neaptide.results.store import remove_run, runs_directory

if TYPE_CHECKING:
    from neaptide.checkers.verdict import Options

FOUND: Final = "found"  # where findings are saved, beside the nights
_GB: Final = 10**9
_OWN_BYTES, _KAFKA_BYTES = 1 * _GB, 4 * _GB  # that a live run takes at most, about
_SPARK_BYTES: Final = 3 * _GB
_CORES_PER_RUN: Final = 2


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for. None: what fits this machine, or without end."""

    budget_s: float
    jobs: int | None = None
    master: str | None = None
    cells: int | None = None
    min_acked: int | None = None
    retries: int = 0


# --- the beginning -------------------------------------------------------------------------------


def begin(nights: Path, plan: Plan, seed: int, asked: Asked) -> Path:
    """A directory for a new night, with the first line of its journal.

    Raises UsageError, MissingPartError, StoreError: before anything runs.
    """
    means = means_of(plan)
    space(plan, means)  # that something goes together
    files = known_files(nights, plan)
    for file in files:  # that all can be read
        list(plays_of(file, plan.systems, seed))
    shortest_s = plan.time + OVERHEAD_S if live_hosts(plan) else plan.search
    if asked.budget_s < shortest_s:
        raise UsageError(
            f"A budget of {asked.budget_s:g} s is too short: one run of this plan takes about"
            f" {shortest_s:.0f} s."
        )
    known = known_after(rows_of_earlier(nights_in(nights)), keys_in(files))
    stamp = datetime.now(UTC)
    directory = nights / f"{stamp.strftime('%Y-%m-%dT%H-%M-%SZ')}-{seed}"
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise StoreError(f"Cannot make {directory}: {error.strerror}.") from error
    journal = Journal(directory)
    journal.write(
        "night",
        0.0,
        neaptide=VERSION,
        seed=seed,
        utc=stamp.isoformat(timespec="seconds"),
        plan=plan.model_dump(),
        files=[str(file) for file in files],
        keys=sorted(known.keys),
        quiet=sorted(known.quiet),
        budget_s=asked.budget_s,
        cells=asked.cells,
        min_acked=asked.min_acked,
        retries=asked.retries,
    )
    journal.close()
    return directory


def known_files(nights: Path, plan: Plan) -> list[Path]:
    """Raises UsageError."""
    own = nights / FOUND
    return files_in([Path(one) for one in plan.known] + ([own] if own.is_dir() else []))


def keys_in(files: Sequence[Path]) -> set[str]:
    return {key for file in files if (key := key_in(file)) is not None}


def live_hosts(plan: Plan) -> list[str]:
    return [host for host in plan.hosts if host != SIMULATION]


# --- what is played ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Campaign:
    """A night as its journal says it."""

    directory: Path
    plan: Plan
    seed: int
    means: Means
    space: Space
    known: Known
    files: tuple[Path, ...]

    @classmethod
    def of(cls, directory: Path, night: Mapping[str, Any]) -> Campaign:
        """Raises UsageError, MissingPartError."""
        plan = read_plan(night["plan"], str(directory))
        means = means_of(plan)
        known = Known(frozenset(night["keys"]), frozenset(night["quiet"]))
        files = tuple(Path(file) for file in night["files"])
        return cls(directory, plan, night["seed"], means, space(plan, means), known, files)

    def work(self, master: str | None, say: Callable[[str], None]) -> Work:
        return Work(
            list(self._known(say)),
            self._plays(lambda host: host != SIMULATION, self._live),
            self._plays(lambda host: host == SIMULATION, partial(self._search, master=master)),
        )

    def _known(self, say: Callable[[str], None]) -> Iterator[Play]:
        if self.files and not live_hosts(self.plan):
            say("known schedules are not played: the plan has no host for live runs")
            return
        for file in self.files:
            if not file.is_file():
                say(f"{file} is gone: it is not played")
                continue
            plays = list(plays_of(file, self.plan.systems, self.seed))
            if not plays:
                say(f"{file} says nothing of the systems of the plan: it is not played")
            yield from plays

    def cells(self) -> Iterator[Cell]:
        return cells(self.space, self.seed, partial(refusal, self.plan, self.means))

    def _plays(
        self, is_mine: Callable[[str], bool], play_of: Callable[[Cell], Play]
    ) -> Iterator[Play]:
        at = list(self.space.bound).index("host")
        if any(is_mine(combo[at]) for combo in self.space.combos):
            yield from (play_of(cell) for cell in self.cells() if is_mine(cell.values["host"]))

    def _live(self, cell: Cell) -> Play:
        words = tuple(run_words(self.plan, self.means, cell))
        return _play(cell, words, cell.values, self.plan.time)

    def _search(self, cell: Cell, master: str | None) -> Play:
        save = self.directory / "searched" / findings.search_name(f"{cell_name(cell.number)} #1")
        words = search_words(cell.values, cell.seed, self.plan.search, save)
        if master is not None and not master.startswith("local"):
            at = words.index("--workers")
            words[at : at + 2] = ["--master", master]
        values = {**cell.values, "client": SIMULATION}
        return _play(cell, tuple(words), values, self.plan.search)


def _play(cell: Cell, words: tuple[str, ...], values: Mapping[str, str], lasts_s: float) -> Play:
    item = cell_name(cell.number)
    return Play(item, cell.by, 1, words, dict(values), cell.seed, lasts_s, cell.number)


def limits_of(plan: Plan, asked: Asked) -> Limits:
    """What fits this machine, where nobody says how much."""
    cores = os.cpu_count() or 1
    each = _KAFKA_BYTES if any("neaptide:" not in one for one in plan.systems) else _OWN_BYTES
    by_memory = (psutil.virtual_memory().available - _SPARK_BYTES) // each
    fitting = max(1, min(cores // _CORES_PER_RUN, by_memory))
    jobs = (asked.jobs or fitting) if live_hosts(plan) else 0
    elsewhere = asked.master is not None and not asked.master.startswith("local")
    searches = 1 if elsewhere else max(0, cores - jobs * _CORES_PER_RUN)
    if not jobs:
        searches = max(1, searches if asked.jobs is None else asked.jobs)
    return Limits(asked.budget_s, jobs, searches, asked.cells, asked.retries)


# --- what is done --------------------------------------------------------------------------------


class OnThisMachine:
    """The effects of a night (`night.Effects`)."""

    def __init__(self, campaign: Campaign, doing: Doing, judging: Judging, nights: Path) -> None:
        self._campaign = campaign
        self._doing = doing
        self._judging = judging
        self._stored = list(stored_in(rows_of_earlier(_others(nights, campaign.directory))))
        self._seen = {one.run for one in self._stored}

    async def play(self, play: Play) -> Ended:
        return await self._doing.play(play)

    async def check(self, ended: Sequence[Ended]) -> list[Row]:
        return [*await asyncio.to_thread(self._judging.rows, ended)]

    async def tidy(self, rows: Sequence[Row]) -> list[str]:
        return await asyncio.to_thread(self._tidy, rows)

    def _tidy(self, rows: Sequence[Row]) -> list[str]:
        write_rows(self._campaign.directory, rows)
        new = [one for one in stored_in(rows) if one.run not in self._seen]
        self._stored += new
        self._seen |= {one.run for one in new}
        gone = to_remove(self._stored, self._campaign.plan.keep_bytes)
        for name in gone:
            remove_run(runs_directory() / name)
        self._stored = [one for one in self._stored if one.run not in gone]
        return gone

    def room(self) -> str | None:
        try:
            check_space(self._campaign.directory, 2 * FREE_TO_START)
        except StoreError as error:
            return str(error).rstrip(".")
        taken = sum(one.size for one in self._stored)
        if taken > self._campaign.plan.keep_bytes:
            return (
                f"anomalous runs alone take {taken // 10**6} MB, more than keep ="
                f" {self._campaign.plan.keep}: raise it, or remove some"
            )
        return None


def _others(nights: Path, one: Path) -> list[Path]:
    return [night for night in nights_in(nights) if night != one]


def stored_in(rows: Iterator[Row] | Sequence[Row]) -> Iterator[Stored]:
    """Those that are on disk, in the order of the rows."""
    for row in rows:
        directory = runs_directory() / row["run"] if row["run"] is not None else None
        if directory is not None and directory.is_dir():
            kind = "pairs" if row["news"] == "new" else row["kind"]  # that is to stay
            yield Stored(row["run"], kind, row["verdict"], size_of(directory))


def size_of(directory: Path) -> int:
    size = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return size


def investigation(campaign: Campaign, journal: Journal, nights: Path) -> Investigate:
    plan, live = campaign.plan, bool(live_hosts(campaign.plan))

    async def investigate(row: Row, play: findings.PlayIt) -> dict[str, Any]:
        run = None if row["run"] is None else runs_directory() / row["run"]
        values = journal.state.plays[row["play"].rpartition(" #")[0]].values
        finding = findings.Finding(row, values, run, campaign.directory, nights / FOUND)
        if run is None:
            return await findings.investigate_search(finding, plan, play, live=live)
        return await findings.investigate(finding, read_run(run), plan, play)

    return investigate


# --- a session of a night ------------------------------------------------------------------------


async def go_on(
    campaign: Campaign,
    journal: Journal,
    asked: Asked,
    judging: Judging,
    nights: Path,
    say: Callable[[str], None],
) -> Night:
    """Until the budget is used up, or nothing is left."""
    doing = Doing(campaign.directory)
    try:
        night = Night(
            journal,
            limits_of(campaign.plan, asked),
            campaign.work(asked.master, say),
            OnThisMachine(campaign, doing, judging, nights),
            investigation(campaign, journal, nights),
            findings.is_worth,
            say,
        )
        await night.run()
    finally:
        doing.close()
    return night


def options_of(min_acked: int | None) -> Options:
    from neaptide.checkers.verdict import Options

    return Options(min_acked=min_acked)
