"""The documented scenarios that ship with the package, by name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from neaptide.clusters.errors import UsageError
from neaptide.clusters.nearest import did_you_mean
from neaptide.nemesis.scenario import Scenario, load_scenario


def scenario_files() -> dict[str, Path]:
    folder = Path(str(files("neaptide.harness.scenarios")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def documented(names: list[str]) -> list[tuple[Path, Scenario]]:
    """Scenarios by name; a name also stands for its variants (`unclean-election`). Empty: all."""
    available = scenario_files()
    chosen: dict[str, Path] = {}
    for name in names or list(available):
        found = [known for known in available if known == name or known.startswith(f"{name}-")]
        if not found:
            near = did_you_mean(name, available)
            otherwise = "; `neaptide list` has all of them."
            raise UsageError(f"There is no scenario {name!r}{near or otherwise}")
        for known in found:
            chosen[known] = available[known]
    return [(path, load_scenario(path)) for path in chosen.values()]
