"""The searches of `explore` that write no scenario files: mutants, exhaustive, by priorities.

What is asked for goes in, the document of `--json` comes out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from neaptide.clusters.errors import UsageError
from neaptide.harness.search.explore import Asked, save, search_of
from neaptide.nemesis.search.campaign import Campaign, Until, run_campaign
from neaptide.nemesis.search.command import SETTINGS
from neaptide.nemesis.search.deliveries import Counts, words
from neaptide.nemesis.search.exhaustive import Limits, Searched, run
from neaptide.nemesis.search.exhaustive_in_processes import run_in_processes
from neaptide.nemesis.search.hunt import Effort, Hunted, hunt_all
from neaptide.nemesis.search.invariants import SENTENCES
from neaptide.nemesis.search.mutants import BY_NAME, MUTANTS, Mutant
from neaptide.nemesis.search.priorities import ByMessages, fetches_only
from neaptide.nemesis.search.targets import OF_OPERATORS, TRANSACT, Target

STATES_MAX: Final = 1_000_000
BOUNDS: Final = Counts(produces=1, kills=1)
MUTANT_TIME_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What a search message by message may do, and how far it goes."""

    bounds: Counts | None  # None, by priorities: each seed draws its own
    states_max: int = STATES_MAX
    fetches_only: bool = False


def mutants_of(system: str) -> tuple[Mutant, ...]:
    """Those of one of our systems; empty: all. Raises UsageError."""
    if not system:
        return MUTANTS
    chosen = tuple(one for one in MUTANTS if f"neaptide:{one.rules.name}" == system)
    if not chosen:
        known = ", ".join(dict.fromkeys(f"neaptide:{one.rules.name}" for one in MUTANTS))
        raise UsageError(f"There are no mutants of {system!r}; there are some of {known}.")
    return chosen


def mutants(asked: Asked, report: Callable[[int, Hunted], None]) -> dict[str, Any]:
    """Hunts every mutant. `unexplained`: neither found, nor shown by a test, nor hidden."""
    time_s = asked.time_s if asked.time_s or asked.seeds else MUTANT_TIME_S
    effort = Effort(asked.seed, asked.seeds, time_s, tuple({**SETTINGS, **asked.settings}.items()))
    started = time.monotonic()
    chosen = mutants_of(asked.system)
    hunted = hunt_all(effort, chosen, asked.workers or os.cpu_count() or 1, report)
    return {
        "seconds": round(time.monotonic() - started, 1),
        "mutants": [_row(one) for one in hunted],
        "found": sum(bool(one.outcome) for one in hunted),
        "of": len(chosen),
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
    target = replace(search_of(asked), watched=True).target()
    return fetches_only(target) if wanted.fetches_only else target


def _check_bounds(bounds: Counts, faults: tuple[str, ...]) -> None:
    """Raises UsageError for what no fault lets anybody do: nothing would be searched of it."""
    for option, count, of in (
        ("--operations", bounds.operations, OF_OPERATORS),
        ("--transactions", bounds.transactions, (TRANSACT,)),
    ):
        if count and not set(of) & set(faults):
            raise UsageError(f"{option} goes with --nemesis {', '.join(of)}.")


def exhaustive(
    asked: Asked, wanted: Deliveries, report: Callable[[Searched], None]
) -> dict[str, Any]:
    target = _target(asked, wanted)
    bounds = wanted.bounds or BOUNDS
    _check_bounds(bounds, asked.faults)
    limits = Limits(bounds, wanted.states_max, asked.time_s)
    workers = asked.workers or os.cpu_count() or 1
    if workers > 1:
        found = run_in_processes(target, limits, workers, report)
    else:
        found = run(target, limits, report)
    return {
        "system": asked.system,
        "bounds": bounds._asdict(),
        "fetches_only": wanted.fetches_only,
        "states": found.states,
        "transitions": found.transitions,
        "deepest": found.depth,
        "seconds": round(found.seconds, 3),
        "states_per_second": round(found.states / max(found.seconds, 0.001)),
        "exhausted": found.exhausted,
        "ended_by": found.ended_by or None,
        **_find(found.outcome, len(found.path), words(found.shortest, target), found.evidence),
    }


def priorities(
    asked: Asked, wanted: Deliveries, report: Callable[[Campaign, float], None]
) -> dict[str, Any]:
    """Runs drawn by priorities (PCT), one seed each, until something is found."""
    _check_bounds(wanted.bounds or Counts(), asked.faults)
    messages = ByMessages(1, wanted.bounds, wanted.fetches_only)
    search = replace(search_of(asked), watched=True, schedules_max=0, messages=messages)
    until = Until(asked.seeds, asked.time_s, first=True, any_find=True)
    workers = asked.workers or os.cpu_count() or 1
    campaign, seconds = run_campaign(search, asked.seed, until, workers=workers, report=report)
    found = campaign.lowest
    is_file = found is not None and found.portable
    return {
        "system": asked.system,
        "bounds": None if wanted.bounds is None else wanted.bounds._asdict(),
        "schedule": str(save(found, asked)) if found is not None and is_file else None,
        "runs": campaign.schedules,
        "seconds": round(seconds, 3),
        "seed": found.seed if found else None,
        "command": found.command if found else None,
        **_find(
            found.outcome if found else "",
            found.moves if found else 0,
            list(found.path) if found else [],
            found.evidence if found else "",
        ),
    }


def _find(outcome: str, moves: int, lines: list[str], evidence: str) -> dict[str, Any]:
    invariant = outcome.partition(": ")[2]
    return {
        "outcome": outcome or None,
        "sentence": SENTENCES.get(invariant),
        "evidence": evidence or None,
        "moves": moves,
        "shrunk_moves": len(lines),
        "path": lines,
    }
