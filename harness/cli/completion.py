"""What a shell completes: names of systems, scenarios, workloads, faults and hosts.

`neaptide --install-completion` installs it. What the names stand for is imported when a shell asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def systems(incomplete: str) -> Iterator[str]:
    from neaptide.harness.scenarios.systems import KNOWN

    yield from _beginning(incomplete, (*KNOWN, "kafka:"))


def scenarios(incomplete: str) -> Iterator[tuple[str, str]]:
    from neaptide.harness.scenarios.catalog import scenario_files
    from neaptide.nemesis.scenario import load_scenario

    for name, file in scenario_files().items():
        if name.startswith(incomplete):
            yield name, load_scenario(file).title


def played(incomplete: str) -> Iterator[str]:
    """What `run` plays: workloads and scenarios."""
    from neaptide.harness.scenarios.catalog import scenario_files
    from neaptide.workloads.catalog import WORKLOADS

    yield from _beginning(incomplete, (*WORKLOADS, *scenario_files()))


def faults(incomplete: str) -> Iterator[str]:
    """The last of several, behind a comma."""
    from neaptide.nemesis.drawn.faults import FAULTS

    before, comma, last = incomplete.rpartition(",")
    for name in _beginning(last, ("all", "none", *FAULTS)):
        yield before + comma + name


def hosts(incomplete: str) -> Iterator[str]:
    from neaptide.clusters.hosts.place import PLACES

    yield from _beginning(incomplete, PLACES)


def clients(incomplete: str) -> Iterator[str]:
    from neaptide.workloads.libraries.table import LIBRARIES

    yield from _beginning(incomplete, LIBRARIES)


def _beginning(incomplete: str, names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if name.startswith(incomplete))
