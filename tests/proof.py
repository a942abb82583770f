"""`make proof`: the tests marked `proof`, which go on where they were interrupted.

`python -m tests.proof [--numprocesses 2 …]` says first about how long it takes, then runs pytest.
Each test that passes is a line in `build/proof-TREE`, where TREE stands for all files of the
product and the tests: a second run of the same tree leaves those out, a changed tree begins anew.

Not here: which tests are marked so, and what `make test` runs.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests import pace

REPOSITORY: Final = Path(__file__).parent.parent
BUILD: Final = REPOSITORY / "build"
# What a test that has passed has been about.
PARTS: Final = (
    *("pyproject.toml", "checkers", "clusters", "harness", "nemesis", "results", "workloads"),
    "tests",
)
_PASSED: Final = pytest.StashKey[frozenset[str]]()


# --- what is marked so ----------------------------------------------------------------------------


def proof_but(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Parameters of tests: `make test` plays the kept ones, `make proof` the others."""
    found = list(values)
    unknown = [each for each in kept if each not in found]
    if unknown:
        raise pytest.UsageError(f"{unknown} cannot be kept: they are none of {found}")
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if value in kept else pytest.mark.proof,
        )
        for value in found
    ]


# --- the record ----------------------------------------------------------------------------------


def fingerprint(root: Path, parts: Iterable[str] = PARTS) -> str:
    """Of the names and the content of all files; compiled ones are none of them."""
    found = hashlib.sha256()
    for part in parts:
        top = root / part
        for path in sorted([top] if top.is_file() else top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path != pace.DURATIONS:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                found.update(f"{path.relative_to(root)} {content}\n".encode())
    return found.hexdigest()[:16]


def recorded(path: Path) -> list[tuple[str, float]]:
    """Tests that have passed, with their seconds. A last line that was cut short has not."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    whole = [line[:-1].partition(" ") for line in lines if line.endswith("\n")]
    return [(nodeid, float(seconds)) for seconds, _, nodeid in whole]


def remaining_s(kept: Mapping[str, float], passed: Iterable[tuple[str, float]]) -> float:
    left = dict(kept)
    for nodeid, seconds in passed:
        file = pace.file_of(nodeid)
        left[file] = left.get(file, 0.0) - seconds
    return sum(max(0.0, each) for each in left.values())


# --- in pytest -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--proof-record", help="a file: tests in it are left out, passed ones added")


def pytest_configure(config: pytest.Config) -> None:
    """A process of xdist is given what had passed at the start: all must collect the same."""
    path: str | None = config.getoption("--proof-record")
    if path is None:
        config.stash[_PASSED] = frozenset()
    elif hasattr(config, "workerinput"):
        config.stash[_PASSED] = frozenset(config.workerinput["passed"])
    else:
        config.stash[_PASSED] = frozenset(nodeid for nodeid, _ in recorded(Path(path)))
        config.pluginmanager.register(_Recording(Path(path)))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["passed"] = sorted(node.config.stash[_PASSED])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = config.stash[_PASSED]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


class _Recording:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = {}
        self._not_passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration
        if not report.passed:
            self._not_passed.add(name)
        if report.when == "teardown" and name not in self._not_passed:
            with self._path.open("a", encoding="utf-8") as record:
                record.write(f"{self._seconds[name]:.1f} {name}\n")


# --- the command ---------------------------------------------------------------------------------


def announced(record: Path, kept: Mapping[str, float]) -> str:
    passed = recorded(record)
    minutes = remaining_s(kept, passed) / 60
    return (
        f"proof: {len(passed)} tests have passed for this tree; the others take about "
        f"{minutes:.0f} minutes of one process. Ctrl-C stops; the next run goes on from there."
    )


def main(arguments: Sequence[str]) -> int:
    BUILD.mkdir(exist_ok=True)
    record = BUILD / f"proof-{fingerprint(REPOSITORY)}"
    print(announced(record, pace.kept("proof")), flush=True)
    ended = pytest.main(["-m", "proof", f"--proof-record={record}", *arguments])
    passed = recorded(record)
    if passed and ended == pytest.ExitCode.NO_TESTS_COLLECTED:
        ended = pytest.ExitCode.OK  # all have passed before
    if ended == pytest.ExitCode.OK:
        pace.keep("proof", passed, BUILD / "durations.json")
    return int(ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
