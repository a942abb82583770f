"""What earlier nights have found, and what a user keeps: played first, to see whether it came back.

Scenario files in directories: schedules of random runs, and what the search of the simulation
saves. Each is played on the systems of the plan of which it says something.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.errors import UsageError
from neaptide.harness.nightly.state import Play
from neaptide.harness.scenarios import saved_schedule
from neaptide.harness.scenarios.systems import like_of
from neaptide.nemesis.acts import length_s
from neaptide.nemesis.drawn.faults import faults_of
from neaptide.nemesis.scenario import Scenario, expected_outcome, lacks, load_scenario
from neaptide.workloads.libraries.table import DEFAULT

KEY_LINE: Final = "# found by neaptide nightly: "
SCENARIO_S: Final = 20.0  # about what one takes
SCENARIO: Final = "scenario"
_WORD: Final = re.compile(r"--(client|acks) (\S+)")


def files_in(directories: Iterable[Path]) -> list[Path]:
    """Of several of one name the first: who copies a finding changes what it expects.

    Raises UsageError where a directory is not there.
    """
    found: dict[str, Path] = {}
    for directory in directories:
        if not directory.is_dir():
            raise UsageError(f"There is no directory {directory} of known schedules.")
        old = next(iter(sorted(directory.glob("*.json"))), None)
        if old is not None:
            saved_schedule.load(old)  # which says why it cannot be opened
        for file in sorted(directory.glob("*.toml")):
            found.setdefault(file.name, file)
    return list(found.values())


def key_in(file: Path) -> str | None:
    """Of the anomaly that a file was saved for; None: it does not say. Raises UsageError."""
    first = next(iter(file.read_text(encoding="utf-8").splitlines()), "")
    return first.removeprefix(KEY_LINE) if first.startswith(KEY_LINE) else None


def plays_of(file: Path, systems: Sequence[str], seed: int) -> Iterator[Play]:
    """One on each system that the plan and the file have. Raises UsageError."""
    scenario = load_scenario(file)
    for system in systems:
        like = like_of(system)
        expected = expected_outcome(scenario, like)
        if expected is None or lacks(scenario, like) is not None:
            continue
        words, number, lasts_s = ["run", str(file), "--system", system], seed, SCENARIO_S
        values = scenario_values(system, file.stem)
        if scenario.run is not None:
            schedule = saved_schedule.schedule_of(scenario)
            words, number = (
                saved_schedule.command(file, system),
                _seed(scenario.run, seed),
            )
            lasts_s = length_s(schedule)
            faults = ",".join(faults_of(schedule)) or "none"
            found = scenario.document.get("found", {})
            values = {**_values(scenario, found), "system": system, "faults": faults}
        else:
            words += ["--seed", str(seed)]
        item = f"{file.name}@{system}"
        yield Play(
            item=f"known {item}",
            kind="known",
            attempt=1,
            words=tuple(words),
            values=values,
            seed=number,
            lasts_s=lasts_s,
            of=item,
            finding=key_in(file) or "",
            expected=expected,
        )


def _values(scenario: Scenario, found: Mapping[str, Any]) -> dict[str, str]:
    """As the cell had them that it was found in; else as the arguments say."""
    cell = found.get("values")
    if isinstance(cell, dict):
        return {str(name): str(value) for name, value in cell.items()}
    run = scenario.run or ()
    options = dict(_WORD.findall(" ".join(run)))
    return {
        "system": "",
        "host": run[run.index("--host") + 1] if "--host" in run[:-1] else "local",
        "workload": run[0],
        "client": options.get("client", DEFAULT),
        "faults": "",
        "acks": options.get("acks", "all"),
        "idempotence": "yes" if "--idempotence" in run else "no",
        "brokers": str(len(scenario.brokers)),
    }


def _seed(run: Sequence[str], seed: int) -> int:
    return int(run[run.index("--seed") + 1]) if "--seed" in run[:-1] else seed


def scenario_values(system: str, name: str) -> dict[str, str]:
    return {
        "system": system,
        "host": "local",
        "workload": name,
        "client": DEFAULT,
        "faults": SCENARIO,
    }
