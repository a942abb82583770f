"""How long tests take: what an unmarked one may take, in which order files come, what is kept.

A file of tests is the unit: it is played by one process. The long folders come first, since the
files of a folder share its clusters and its Spark, and in each the longest file, so that no process
waits at the end. `durations.json` beside this file has the seconds of each, as the last run has
measured them that `make durations` took over.

Not here: time limits of tests (pytest-timeout), and the slowest tests, which pytest prints itself.

PYTEST_DONT_REWRITE: tests.proof imports it before pytest can.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

LIMIT_S: Final = 3.0
_LONG_S: Final = 60.0  # of a folder
_SUM_S: Final = 0.05  # what `slowness` takes where nothing else runs
SLOW: Final = frozenset({"live", "spark", "slow", "proof"})
DURATIONS: Final = Path(__file__).parent / "durations.json"
_SPENT_S: Final = pytest.StashKey[float]()
_OF_THIS_THREAD: Final = Path("/proc/thread-self/schedstat")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-durations", help="a JSON file: seconds by file of tests, after a run")


# --- what an unmarked test may take --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clocks:
    """What has passed so far. A machine that is busy with other things makes no test slow."""

    wall_s: float
    waited_s: float  # for a core, this thread
    own_s: float  # of processor time
    children_s: float  # of processor time, of those that have ended

    def since(self, before: Clocks) -> float:
        """Without the time in which others had the core. How long processes that it has started
        waited for one nobody knows: of those only the work counts."""
        children_s = self.children_s - before.children_s
        if children_s > 0:
            return self.own_s - before.own_s + children_s
        return self.wall_s - before.wall_s - (self.waited_s - before.waited_s)


def clocks() -> Clocks:
    times = os.times()
    children_s = times.children_user + times.children_system
    return Clocks(time.monotonic(), waited_for_a_core_s(), time.process_time(), children_s)


def waited_for_a_core_s(counted: Path = _OF_THIS_THREAD) -> float:
    try:
        return int(counted.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def slowness() -> float:
    """How many times longer a fixed sum takes now than on a quiet machine; 1 at least."""
    begun = time.monotonic()
    sum(number * number for number in range(500_000))
    return max(1.0, (time.monotonic() - begun) / _SUM_S)


def too_slow(name: str, seconds: float, marks: Iterable[str]) -> str | None:
    """What to do about a test, or None where it may take as long."""
    if seconds <= LIMIT_S or not SLOW.isdisjoint(marks):
        return None
    return (
        f"{name} took {seconds:.1f} s, and a test without a mark may take {LIMIT_S:.0f} s: make it "
        "faster, or mark it `live` (it starts processes), `spark`, `slow` (it computes that long, "
        "and `make test` needs it) or `proof` (`make proof` runs it)."
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    before = clocks()
    yield
    item.stash[_SPENT_S] = clocks().since(before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" and report.passed:
        seconds, marks = item.stash[_SPENT_S], [mark.name for mark in item.iter_markers()]
        text = too_slow(item.nodeid, seconds, marks)
        if text is not None:
            text = too_slow(item.nodeid, seconds / slowness(), marks)
        if text is not None:
            report.outcome, report.longrepr = "failed", text
    return report


# --- in which order files come -------------------------------------------------------------------


def kept(kind: str, path: Path = DURATIONS) -> dict[str, float]:
    """Seconds by file of what `make test` (test) or `make proof` (proof) plays."""
    try:
        found: dict[str, dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found.get(kind, {})


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def longest_first(nodeids: Iterable[str], seconds: Mapping[str, float]) -> list[int]:
    """The numbers of the tests in order; the files of a folder stay together, and the tests of a
    file, in their own order."""
    files = [file_of(nodeid) for nodeid in nodeids]
    folders: dict[str, float] = defaultdict(float)
    for file, took_s in seconds.items():
        folders[folder_of(file)] += took_s

    def key(at: int) -> tuple[bool, str, float, str, int]:
        file, folder = files[at], folder_of(files[at])
        return folders[folder] < _LONG_S, folder, -seconds.get(file, 0.0), file, at

    return sorted(range(len(files)), key=key)


def folder_of(file: str) -> str:
    return file.rpartition("/")[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seconds = kept("proof" if config.getoption("--proof-record") else "test")
    items[:] = [items[at] for at in longest_first([item.nodeid for item in items], seconds)]


# --- what is kept --------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """With several processes, the one that gathers their reports measures."""
    path: str | None = config.getoption("--keep-durations")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Measuring(Path(path)))


class _Measuring:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: list[tuple[str, float]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds.append((report.nodeid, report.duration))

    def pytest_sessionfinish(self, exitstatus: int | pytest.ExitCode) -> None:
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            keep("test", self._seconds, self._path)


def keep(kind: str, seconds: Iterable[tuple[str, float]], path: Path) -> None:
    """Of a whole run, in place of the kept ones of this kind."""
    by_file: dict[str, float] = {}
    for nodeid, took_s in seconds:
        by_file[file_of(nodeid)] = by_file.get(file_of(nodeid), 0.0) + took_s
    rounded = {file: round(took_s, 1) for file, took_s in sorted(by_file.items())}
    known = path if path.exists() else DURATIONS
    together = {each: kept(each, known) for each in ("proof", "test")} | {kind: rounded}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(together, indent=1) + "\n", encoding="utf-8")
