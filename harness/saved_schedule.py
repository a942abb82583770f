"""A random run's schedule as a file of its own: what it does, with which load, what it comes to.

The form in which `neaptide nightly` keeps what it found. `neaptide run --nemesis FILE` plays the
schedule alone, `neaptide replay FILE` plays the whole run again and compares. A scenario (a TOML
file) says more, and holds in the simulation; this is for what only a load of thousands of records
brings about.

    {
      "format": 1,
      "title": "lost on neaptide:0.10: 2 faults in 1 phase",
      "expect": {"lost": ["neaptide:0.10"], "held": ["neaptide:0.11+"]},
      "system": "neaptide:0.10",
      "run": ["append", "--rate", "500", …],      arguments of `neaptide run`, without the system
      "schedule": [{"at_s": 2.0, "faults": […]}],
      "found": {…}                                when and how, for people
    }
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.drawn.schedule import Schedule, read_schedule
from neaptide.nemesis.drawn.shrinking import length_s
from neaptide.nemesis.scenario import matches
from neaptide.results.outcomes import PREDICTED
from neaptide.results.run import Run
from neaptide.results.store import write_json

SUFFIX: Final = ".json"
FORMAT: Final = 1
_OWN: Final = ("--system", "--nemesis", "--time")  # what the file says elsewhere
_NEEDED: Final[Mapping[str, type[object]]] = {
    "title": str,
    "expect": dict,
    "system": str,
    "run": list,
    "schedule": list,
}


@dataclass(frozen=True, slots=True)
class SavedSchedule:
    """`run`: the arguments of `neaptide run`, the workload first. `expect`: outcome → systems."""

    title: str
    expect: Mapping[str, tuple[str, ...]]
    system: str
    run: tuple[str, ...]
    schedule: Schedule
    found: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "title": self.title,
            "expect": {outcome: list(systems) for outcome, systems in self.expect.items()},
            "system": self.system,
            "run": list(self.run),
            "schedule": [phase.to_json() for phase in self.schedule],
            "found": dict(self.found),
        }

    def expected(self, system: str) -> str | None:
        """What it comes to there; None: the file does not say."""
        for outcome, systems in self.expect.items():
            if any(matches(pattern, system) for pattern in systems):
                return outcome
        return None

    def command(self, file: Path, system: str | None = None) -> list[str]:
        """The arguments of `neaptide` that play it, for as long as the schedule takes."""
        load, time_s = [*self.run], f"{length_s(self.schedule):.0f}"
        named = ["--system", system or self.system]
        return ["run", *load, *named, "--nemesis", str(file), "--time", time_s]


def of_run(
    run: Run, schedule: Schedule, outcome: str, like: str, found: Mapping[str, Any]
) -> SavedSchedule:
    """Of a random run; `like`: by what name expectations speak of its system."""
    words = shlex.split(run.repeat)[2:]
    faults = sum(len(phase.faults) for phase in schedule)
    phases = f"{len(schedule)} phase{'' if len(schedule) == 1 else 's'}"
    return SavedSchedule(
        title=f"{outcome} on {run.system}: {faults} fault{'' if faults == 1 else 's'} in {phases}",
        expect={outcome: (like,)},
        system=words[words.index("--system") + 1],
        run=tuple(_without(words, _OWN)),
        schedule=schedule,
        found=found,
    )


def _without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Each option has one value."""
    dropped = {n + more for n, word in enumerate(words) if word in options for more in (0, 1)}
    return [word for n, word in enumerate(words) if n not in dropped]


def save(saved: SavedSchedule, file: Path) -> None:
    """Raises StoreError."""
    write_json(file, saved.to_json())


def load(file: Path) -> SavedSchedule:
    """Raises UsageError: one sentence."""
    schedule = read_schedule(file)
    raw = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise UsageError(
            f'{file}: is not a saved schedule of format {FORMAT} ("format" says which):'
            f" `neaptide run WORKLOAD --nemesis {file}` plays a schedule alone."
        )
    for name, kind in _NEEDED.items():
        if not isinstance(raw.get(name), kind):
            raise UsageError(f"{file}: {name!r} must be there, and {_KINDS[kind]}.")
    if not raw["run"] or not all(isinstance(word, str) for word in raw["run"]):
        raise UsageError(f"{file}: 'run' must be the arguments of neaptide run, a list of texts.")
    found = raw.get("found")
    return SavedSchedule(
        raw["title"],
        _expect(file, raw["expect"]),
        raw["system"],
        tuple(raw["run"]),
        schedule,
        found if isinstance(found, dict) else {},
    )


_KINDS: Final[Mapping[type[object], str]] = {str: "a text", dict: "an object", list: "a list"}


def _expect(file: Path, raw: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    for outcome, systems in raw.items():
        if outcome not in PREDICTED:
            known = ", ".join(PREDICTED)
            raise UsageError(f"{file}: there is no outcome {outcome!r}; it must be one of {known}.")
        if not isinstance(systems, list) or not all(isinstance(one, str) for one in systems):
            raise UsageError(f"{file}: expect.{outcome} must be a list of systems.")
    return {outcome: tuple(systems) for outcome, systems in raw.items()}
