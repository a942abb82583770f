"""What earlier nights have found, and what a user keeps: played first, to see whether it came back.

Files in directories: schedules of random runs (`saved_schedule`), and scenarios, as the search of
the simulation saves them. Each is played on the systems of the plan of which it says something.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.errors import UsageError
from neaptide.harness import saved_schedule
from neaptide.harness.nightly.state import Play
from neaptide.harness.systems import like_of
from neaptide.nemesis.drawn.schedule import faults_of
from neaptide.nemesis.drawn.shrinking import length_s
from neaptide.nemesis.scenario import ScenarioError, expected_outcome, lacks, load_scenario
from neaptide.workloads.libraries.table import DEFAULT

KEY_LINE: Final = "# found by neaptide nightly: "
SCENARIO_S: Final = 20.0  # about what one takes
SCENARIO: Final = "scenario"
_WORD: Final = re.compile(r"--(client|acks|brokers) (\S+)")


def files_in(directories: Iterable[Path]) -> list[Path]:
    """Of several of one name the first: who copies a finding changes what it expects.

    Raises UsageError where a directory is not there.
    """
    found: dict[str, Path] = {}
    for directory in directories:
        if not directory.is_dir():
            raise UsageError(f"There is no directory {directory} of known schedules.")
        files = (*directory.glob(f"*{saved_schedule.SUFFIX}"), *directory.glob("*.toml"))
        for file in sorted(files):
            found.setdefault(file.name, file)
    return list(found.values())


def key_in(file: Path) -> str | None:
    """Of the anomaly that a file was saved for; None: it does not say. Raises UsageError."""
    if file.suffix == saved_schedule.SUFFIX:
        key = saved_schedule.load(file).found.get("key")
        return key if isinstance(key, str) else None
    first = next(iter(file.read_text(encoding="utf-8").splitlines()), "")
    return first.removeprefix(KEY_LINE) if first.startswith(KEY_LINE) else None


def plays_of(file: Path, systems: Sequence[str], seed: int) -> Iterator[Play]:
    """One on each system that the plan and the file have. Raises UsageError."""
    if file.suffix == saved_schedule.SUFFIX:
        yield from _of_schedule(file, systems, seed)
    else:
        yield from _of_scenario(file, systems, seed)


def _of_schedule(file: Path, systems: Sequence[str], seed: int) -> Iterator[Play]:
    saved = saved_schedule.load(file)
    for system in systems:
        expected = saved.expected(like_of(system))
        if expected is None:
            continue
        values = {**_values(saved.run, saved.found), "system": system}
        values["faults"] = ",".join(faults_of(saved.schedule)) or "none"
        item = f"{file.name}@{system}"
        yield Play(
            item=f"known {item}",
            kind="known",
            attempt=1,
            words=tuple(saved.command(file, system)),
            values=values,
            seed=_seed(saved.run, seed),
            lasts_s=length_s(saved.schedule),
            of=item,
            finding=key_in(file) or "",
            expected=expected,
        )


def _values(run: Sequence[str], found: Mapping[str, Any]) -> dict[str, str]:
    """As the cell had them that it was found in; else as the arguments say."""
    cell = found.get("values")
    if isinstance(cell, dict):
        return {str(name): str(value) for name, value in cell.items()}
    options = dict(_WORD.findall(" ".join(run)))
    return {
        "system": "",
        "host": run[run.index("--host") + 1] if "--host" in run[:-1] else "local",
        "workload": run[0],
        "client": options.get("client", DEFAULT),
        "faults": "",
        "acks": options.get("acks", "all"),
        "idempotence": "yes" if "--idempotence" in run else "no",
        "brokers": options.get("brokers", "3"),
    }


def _seed(run: Sequence[str], seed: int) -> int:
    return int(run[run.index("--seed") + 1]) if "--seed" in run[:-1] else seed


def _of_scenario(file: Path, systems: Sequence[str], seed: int) -> Iterator[Play]:
    try:
        scenario = load_scenario(file)
    except ScenarioError as error:
        raise UsageError(str(error)) from None
    for system in systems:
        like = like_of(system)
        expected = expected_outcome(scenario, like)
        if expected is None or lacks(scenario, like) is not None:
            continue
        item = f"{file.name}@{system}"
        yield Play(
            item=f"known {item}",
            kind="known",
            attempt=1,
            words=("run", str(file), "--system", system, "--seed", str(seed)),
            values=scenario_values(system, file.stem),
            seed=seed,
            lasts_s=SCENARIO_S,
            of=item,
            finding=key_in(file) or "",
            expected=expected,
        )


def scenario_values(system: str, name: str) -> dict[str, str]:
    return {
        "system": system,
        "host": "local",
        "workload": name,
        "client": DEFAULT,
        "faults": SCENARIO,
    }
