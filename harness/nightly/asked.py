"""What a cell asks for, as a run or a search of the command, and whether that can be."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.errors import MissingPartError, UsageError
from neaptide.clusters.hosts.place import Place, parse_place
from neaptide.harness.nightly.cells import Axes, Cell, Space, Values, space_of
from neaptide.harness.nightly.plan import Plan
from neaptide.harness.play.random_asked import RandomRun, check, parse_nemesis, rate_for
from neaptide.harness.scenarios.systems import System, brokers_of, fetch, parse_system
from neaptide.nemesis.drawn.faults import ALL
from neaptide.workloads.catalog import find_workload
from neaptide.workloads.libraries.table import DEFAULT

SIMULATION: Final = "simulation"
SETTING: Final = "set "  # of the names of axes that are brokers' settings
# What a search knows of the faults that live runs have.
SEARCHED: Final = {
    "rounds": "hold",
    "kill": "kill",
    "pause": "pause",
    "restart": "stop",
    "cut": "cut",
    "partition": "cut",
    "power-off": "power_off",
}
_SEARCHES_BROKERS: Final = "3"
_RATE: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Means:
    """The systems and hosts of a plan, read once. `ids`: of brokers, of systems that have own."""

    systems: Mapping[str, System]
    places: Mapping[str, Place]
    ids: Mapping[str, tuple[int, ...]]


def means_of(plan: Plan, fetch_systems: Callable[[System], None] = fetch) -> Means:
    """Raises UsageError or MissingPartError: what is not there is said before the night."""
    systems = {text: parse_system(text) for text in plan.systems}
    if any(host != SIMULATION for host in plan.hosts):
        for system in systems.values():
            fetch_systems(system)
    places = {host: parse_place(host) for host in plan.hosts}
    ids = {text: brokers_of(system) for text, system in systems.items()}
    return Means(systems, places, ids)


def axes_of(plan: Plan) -> tuple[Axes, Axes]:
    """Those with rules about what goes together, and those without."""
    bound = {
        "system": tuple(plan.systems),
        "host": tuple(plan.hosts),
        "workload": tuple(plan.workloads),
        "client": tuple(plan.clients),
        "faults": tuple(plan.faults),
        "acks": tuple(plan.acks),
        "idempotence": tuple("yes" if one else "no" for one in plan.idempotence),
        "brokers": tuple(map(str, plan.brokers)),
    }
    free = {f"{SETTING}{name}": tuple(values) for name, values in plan.settings.items()}
    return bound, free


def space(plan: Plan, means: Means) -> Space:
    """Raises UsageError."""
    bound, free = axes_of(plan)
    return space_of(bound, free, functools.partial(refusal, plan, means))


def refusal(plan: Plan, means: Means, values: Values) -> str | None:
    """Why a combination of the bound axes cannot be; None: it can."""
    try:
        if values["host"] == SIMULATION:
            _check_search(values)
        else:
            check(run_of(plan, means, values, 0))
    except (UsageError, MissingPartError) as error:
        return str(error)
    return None


def settings_of(values: Values) -> dict[str, str]:
    return {a.removeprefix(SETTING): v for a, v in values.items() if a.startswith(SETTING)}


# --- live ----------------------------------------------------------------------------------------


def run_of(plan: Plan, means: Means, values: Values, seed: int) -> RandomRun:
    """Raises UsageError."""
    system, place = means.systems[values["system"]], means.places[values["host"]]
    workload = find_workload(values["workload"])
    faults, _ = parse_nemesis(values["faults"], system, place)
    ids = means.ids[values["system"]]
    return RandomRun(
        workload.name,
        system,
        faults,
        plan.time,
        rate_for(system, _RATE, plan.rate),
        seed,
        values["acks"],
        len(ids) or int(values["brokers"]),
        plan.partitions,
        settings_of(values),
        place,
        values["idempotence"] == "yes",
        client=values["client"],
        options=workload.parse_options({}),
        ids=ids,
    )


def run_words(plan: Plan, means: Means, cell: Cell) -> list[str]:
    """The arguments of `neaptide` that play a cell live."""
    return shlex.split(run_of(plan, means, cell.values, cell.seed).repeat())[1:]


# --- simulated -----------------------------------------------------------------------------------


def _check_search(values: Values) -> None:
    kind, _, name = values["system"].partition(":")
    if kind != "neaptide" or name not in GENERATIONS:
        raise UsageError(f"The simulation knows our own broker alone, not {values['system']}.")
    if values["workload"] != "append" or values["client"] != DEFAULT:
        raise UsageError(
            f"The simulation has a client of its own, and appends: not {values['workload']} by"
            f" {values['client']}."
        )
    if values["brokers"] != _SEARCHES_BROKERS:
        raise UsageError(f"A search is of {_SEARCHES_BROKERS} brokers, not {values['brokers']}.")
    if values["acks"] == "0":
        raise UsageError("A search is of acks 1 or all, not 0.")
    if values["idempotence"] == "yes" and values["acks"] != "all":
        raise UsageError("Idempotent producers need acks all.")
    if values["idempotence"] == "yes" and GENERATIONS[name].idempotence is None:
        raise UsageError(f"{values['system']} knows no idempotent producers.")
    lacking = [one for one in values["faults"].split(",") if one not in (*SEARCHED, ALL)]
    if lacking:
        raise UsageError(f"The simulation has no fault {lacking[0]}.")


def search_words(
    values: Values, seed: int, time_s: float, save: Path, outcome: str | None = None
) -> list[str]:
    """The arguments of `neaptide` that search the simulation on one core.

    `outcome`: end with the first find of it.
    """
    named = [SEARCHED[one] for one in values["faults"].split(",") if one in SEARCHED]
    faults = dict.fromkeys(named or ["kill", "hold", "cut", "pause"])
    words = ["explore", "--system", values["system"], "--acks", values["acks"]]
    words += ["--nemesis", ",".join([*faults, "wait"]), "--seed", str(seed)]
    words += ["--time", f"{time_s:g}", "--workers", "1", "--save", str(save), "--json"]
    words += ["--idempotence"] if values["idempotence"] == "yes" else []
    words += ["--outcome", outcome, "--first"] if outcome is not None else []
    for name, value in sorted(settings_of(values).items()):
        words += ["--set", f"{name}={value}"]
    return words
