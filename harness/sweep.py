"""The searches of `explore` that write no scenario files: mutants, exhaustive, by priorities.

What is asked for goes in, the document of `--json` comes out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.simulation.network import CLIENTS, CONTROL, COORDINATION
from neaptide.harness.explore import Asked, save, search_of
from neaptide.nemesis.search.as_steps import as_schedule
from neaptide.nemesis.search.command import SETTINGS
from neaptide.nemesis.search.deliveries import Counts, evidence_of, first_state, shortened, words
from neaptide.nemesis.search.deliveries import Path as Moves
from neaptide.nemesis.search.episode import loss_of
from neaptide.nemesis.search.exhaustive import Exhaustive, Limits, Searched
from neaptide.nemesis.search.explore import BROKEN, Found
from neaptide.nemesis.search.hunt import Effort, Hunted, hunt_all
from neaptide.nemesis.search.invariants import SENTENCES
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.mutants import BY_NAME, MUTANTS
from neaptide.nemesis.search.priorities import Run
from neaptide.nemesis.search.priorities import run as run_once
from neaptide.nemesis.search.targets import Target
from neaptide.nemesis.search.worlds import ready_world

STATES_MAX: Final = 1_000_000
CHANGES: Final = 3
MUTANT_TIME_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What a search message by message may do, and how far it goes."""

    bounds: Counts
    states_max: int = STATES_MAX
    fetches_only: bool = False


def mutants(asked: Asked, report: Callable[[int, Hunted], None]) -> dict[str, Any]:
    """Hunts every mutant. `unexplained`: neither found, nor shown by a test, nor hidden."""
    time_s = asked.time_s if asked.time_s or asked.seeds else MUTANT_TIME_S
    effort = Effort(asked.seed, asked.seeds, time_s, tuple({**SETTINGS, **asked.settings}.items()))
    started = time.monotonic()
    hunted = hunt_all(effort, asked.workers or os.cpu_count() or 1, report)
    return {
        "seconds": round(time.monotonic() - started, 1),
        "mutants": [_row(one) for one in hunted],
        "found": sum(bool(one.outcome) for one in hunted),
        "of": len(MUTANTS),
        "hidden": [one.name for one in hunted if not one.outcome and BY_NAME[one.name].hidden],
        "shown": [one.name for one in hunted if not one.outcome and BY_NAME[one.name].shown],
        "unexplained": [
            one.name
            for one in hunted
            if not (one.outcome or BY_NAME[one.name].hidden or BY_NAME[one.name].shown)
        ],
    }


def _row(one: Hunted) -> dict[str, Any]:
    mutant = BY_NAME[one.name]
    return {
        "name": one.name,
        "breaks": mutant.rules.name,
        "sentence": mutant.sentence,
        "outcome": one.outcome or None,
        "seed": one.seed,
        "schedules": one.schedules,
        "seconds": one.seconds,
        "steps": one.steps,
        "shrunk_steps": one.shrunk_steps,
        "schedule": one.schedule,
        "hidden": mutant.hidden or None,
        "shown": mutant.shown or None,
    }


def _target(asked: Asked, wanted: Deliveries) -> Target:
    search = replace(search_of(asked), watched=True)
    at_once = {CLIENTS, CONTROL, COORDINATION} if wanted.fetches_only else {CLIENTS}
    return replace(search.target(), at_once=frozenset(at_once))


def exhaustive(
    asked: Asked, wanted: Deliveries, report: Callable[[Searched], None]
) -> dict[str, Any]:
    target = _target(asked, wanted)
    limits = Limits(wanted.bounds, wanted.states_max, asked.time_s)
    found = Exhaustive(target, limits, report).run()
    return {
        "system": asked.system,
        "bounds": wanted.bounds._asdict(),
        "fetches_only": wanted.fetches_only,
        "states": found.states,
        "transitions": found.transitions,
        "deepest": found.depth,
        "seconds": round(found.seconds, 3),
        "states_per_second": round(found.states / max(found.seconds, 0.001)),
        "exhausted": found.exhausted,
        "ended_by": found.ended_by or None,
        **_find(found.outcome, found.path, words(found.shortest, target), found.evidence),
    }


def priorities(asked: Asked, wanted: Deliveries, report: Callable[[int], None]) -> dict[str, Any]:
    """Runs drawn by priorities (PCT), one seed each, until something is found."""
    target = _target(asked, wanted)
    started = time.monotonic()
    first = first_state(target)
    runs = 0
    found: Run | None = None
    schedule: Path | None = None
    while found is None and not _is_over(asked, runs, started):
        if isinstance(first, Judged):
            found = Run((), first)
            break
        run = run_once(first, target, asked.seed + runs, wanted.bounds, CHANGES)
        runs += 1
        report(runs)
        found = run if run.judged is not None else None
    outcome = found.judged.outcome if found and found.judged else ""
    path = found.path if found else ()
    evidence = found.judged.evidence if found and found.judged else ""
    if outcome and not isinstance(first, Judged):
        path = shortened(first, path, target, outcome)
        evidence = evidence_of(first, path, target)
        schedule = _as_file(asked, wanted, path, outcome, asked.seed + runs - 1)
    return {
        "system": asked.system,
        "bounds": wanted.bounds._asdict(),
        "schedule": None if schedule is None else str(schedule),
        "runs": runs,
        "seconds": round(time.monotonic() - started, 3),
        "seed": asked.seed + runs - 1 if found else None,
        **_find(outcome, found.path if found else (), words(path, target), evidence),
    }


def _as_file(asked: Asked, wanted: Deliveries, path: Moves, outcome: str, seed: int) -> Path | None:
    """A scenario file that comes to the same, where one was found; a broken invariant has none."""
    search = replace(search_of(asked), watched=False)
    target = search.target()
    ready = ready_world(target.spec)
    schedule = None if outcome.startswith(BROKEN) else as_schedule(path, target, ready, outcome)
    if schedule is None:
        return None
    found = Found(seed, schedule, Judged(outcome, ()), 0)
    bounds = "".join(f" --{name} {count}" for name, count in wanted.bounds._asdict().items())
    by = " --priorities" + (" --fetches-only" if wanted.fetches_only else "") + bounds
    loss = loss_of(search, ready, found, by=by)
    return save(loss, asked) if loss.portable else None


def _is_over(asked: Asked, runs: int, started: float) -> bool:
    if asked.seeds is not None:
        return runs >= asked.seeds
    return asked.time_s is not None and time.monotonic() - started >= asked.time_s


def _find(outcome: str, path: tuple[Any, ...], lines: list[str], evidence: str) -> dict[str, Any]:
    invariant = outcome.partition(": ")[2]
    return {
        "outcome": outcome or None,
        "sentence": SENTENCES.get(invariant),
        "evidence": evidence or None,
        "moves": len(path),
        "shrunk_moves": len(lines),
        "path": lines,
    }
