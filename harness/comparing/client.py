"""The scenarios that depend on a client, with a client of somebody's own.

Here: which scenarios these are, and what a client must be able to do for each. Playing and judging
is `repro`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from neaptide.clusters.errors import UsageError
from neaptide.harness.comparing.repro import Cell
from neaptide.harness.scenarios.catalog import documented
from neaptide.harness.scenarios.systems import fetch, parse_systems
from neaptide.nemesis import steps
from neaptide.nemesis.scenario import Scenario, expected_outcome, lacks, load_scenario
from neaptide.workloads.program import Program


@dataclass(frozen=True, slots=True)
class Plan:
    """`not_played`: by scenario, why it is not."""

    cells: Sequence[Cell]
    not_played: Mapping[str, str]


def depends_on_client(scenario: Scenario) -> bool:
    """Whether a client of the user's can be put in the place of the one that ships."""
    opened = [s.step for s in scenario.steps if isinstance(s.step, steps.OpenClient)]
    if any(step.kind == "raw_producer" for step in opened):
        return False  # it is about what such a producer does
    return bool(opened) or "clients" in scenario.document


def needs(scenario: Scenario) -> frozenset[str]:
    """What a client must be able to do, of `program.ABILITIES`."""
    return frozenset(_needs(scenario))


def _needs(scenario: Scenario) -> Iterator[str]:
    if scenario.producer.idempotence:
        yield "idempotence"
    for step in (scheduled.step for scheduled in scenario.steps):
        if isinstance(step, steps.OpenClient):
            if step.group is not None:
                yield "groups"
            if step.transactional_id is not None:
                yield "transactions"


def plan(program: Program, systems: Sequence[str], names: Sequence[str], repeat: int) -> Plan:
    """Raises UsageError."""
    wanted = parse_systems(list(systems))
    for system in wanted:
        fetch(system)
    cells: list[Cell] = []
    not_played: dict[str, str] = {}
    for scenario, where in _chosen(names):
        lacking = sorted(needs(scenario) - program.can)
        if lacking:
            not_played[scenario.name] = f"{program} has no {', '.join(lacking)}"
            continue
        for system in wanted:
            why = lacks(scenario, system.like)
            if why is not None:
                not_played[scenario.name] = f"{system} does not serve it: {why}"
            elif names or expected_outcome(scenario, system.like) is not None:
                cells += [Cell(scenario, where, system, program)] * repeat
    return Plan(cells, not_played)


def _chosen(names: Sequence[str]) -> list[tuple[Scenario, str]]:
    """Scenarios by name or file; all that depend on a client where none is named."""
    found: list[tuple[Scenario, str]] = []
    for name in names:
        if name.endswith(".toml"):
            found.append((load_scenario(Path(name)), name))
        else:
            found += [(scenario, scenario.name) for _, scenario in documented([name])]
    for scenario, where in found:
        if not depends_on_client(scenario):
            raise UsageError(f"{where} does not depend on a client: `neaptide run` plays it.")
    return found or [
        (scenario, scenario.name) for _, scenario in documented([]) if depends_on_client(scenario)
    ]
