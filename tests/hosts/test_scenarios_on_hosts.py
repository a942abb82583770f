"""Documented losses on every host: the same files, the same verdicts, and cuts by packet filters.

All runs are played first and judged by one command, in one Spark job.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from neaptide.clusters.hosts.place import Place, parse_place
from neaptide.harness.play.scenario import play
from neaptide.harness.scenarios.catalog import scenario_files
from neaptide.harness.scenarios.systems import parse_systems
from neaptide.nemesis.scenario import load_scenario
from tests.harness.command import neaptide
from tests.hosts.machines import Machines

pytestmark = [
    pytest.mark.live,
    pytest.mark.spark,
    pytest.mark.usefixtures("node_image"),
    pytest.mark.timeout(900),
]

CUT = Path(__file__).parent / "scenarios" / "isr-of-one.toml"
Key = tuple[str, str, str]
# `make test` plays the first, `make proof` the others.
CUTS: dict[Key, str] = {("netns", "isr-of-one", "neaptide:0.11"): "lost"}
OTHERS: dict[Key, str] = {
    ("docker", "isr-of-one", "neaptide:0.11"): "lost",
    ("ssh", "isr-of-one", "neaptide:0.11"): "lost",
    ("netns", "hw-truncation-loss", "neaptide:0.10"): "lost",
    ("netns", "hw-truncation-loss", "kafka:3.9.1"): "held",
    ("docker", "hw-truncation-loss", "kafka:image"): "lost",
    ("ssh", "same-offset-divergence", "neaptide:0.10"): "diverged",
    ("ssh", "hw-truncation-loss", "kafka:0.10.2.2"): "lost",
}


@dataclass(frozen=True, slots=True)
class Judged:
    run: Path
    disagreements: tuple[str, ...]
    verdict: dict[str, Any]

    def nemesis(self) -> list[dict[str, Any]]:
        """What was done, in order: one verb and its fields each."""
        rows = pq.read_table(self.run / "operations").to_pylist()
        done = [row for row in rows if row["f"] == "nemesis"]
        return [json.loads(row["value"]) for row in sorted(done, key=lambda r: r["invoked_ns"])]


def place_on(host: str, system: str, image: str | None, machines: Machines) -> Place:
    return parse_place(
        host,
        image if system == "kafka:image" else None,
        machines.nodes if host == "ssh" else None,
    )


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory, three_machines: Machines) -> dict[Key, Judged]:
    return judged(CUTS, tmp_path_factory.mktemp("cuts"), three_machines, None)


@pytest.fixture(scope="module")
def others(
    tmp_path_factory: pytest.TempPathFactory, three_machines: Machines, kafka_image: str
) -> dict[Key, Judged]:
    return judged(OTHERS, tmp_path_factory.mktemp("others"), three_machines, kafka_image)


def judged(
    keys: Iterable[Key], directory: Path, machines: Machines, image: str | None
) -> dict[Key, Judged]:
    files = {**scenario_files(), "isr-of-one": CUT}
    played = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_RUNS", str(directory / "runs"))
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        for host, scenario, name in keys:
            file, place = files[scenario], place_on(host, name, image, machines)
            [system] = parse_systems([name], image=place.image)
            work = play(load_scenario(file), system, 1, str(file), lambda _: None, place)
            played[host, scenario, name] = asyncio.run(work)
    runs = [str(one.run) for one in played.values()]
    _, document = neaptide(directory, "check", *runs, "--json")
    return {
        key: Judged(one.run, one.disagreements, verdict)
        for (key, one), verdict in zip(played.items(), document["runs"], strict=True)
    }


@pytest.mark.parametrize("key", CUTS, ids=" ".join)
def test_a_cut_comes_out_as_documented(key: Key, cuts: dict[Key, Judged]) -> None:
    assert_as_documented(key, cuts[key], CUTS[key])


@pytest.mark.proof
@pytest.mark.parametrize("key", OTHERS, ids=" ".join)
def test_a_scenario_comes_out_as_documented(key: Key, others: dict[Key, Judged]) -> None:
    assert_as_documented(key, others[key], OTHERS[key])


def assert_as_documented(key: Key, found: Judged, outcome: str) -> None:
    assert (found.verdict["reasons"], found.disagreements) == ([], ())
    assert found.verdict["outcome"] == outcome
    assert json.loads((found.run / "run.json").read_text())["host"] == key[0]


def test_a_cut_is_in_force_where_the_packets_are(cuts: dict[Key, Judged]) -> None:
    assert_in_force(cuts["netns", "isr-of-one", "neaptide:0.11"])


@pytest.mark.proof
@pytest.mark.parametrize("host", ["docker", "ssh"])
def test_a_cut_is_in_force_on_other_hosts_too(host: str, others: dict[Key, Judged]) -> None:
    assert_in_force(others[host, "isr-of-one", "neaptide:0.11"])


def assert_in_force(played: Judged) -> None:
    """One rule a direction at either end; both followers' packets were dropped; then none is."""
    done = played.nemesis()
    first, second = (step["cut"] for step in done if "cut" in step)
    assert first["filter_rules"] == {"A": 2, "C": 2}
    assert second["filter_rules"] == {"B": 2, "C": 4}
    heal = next(step["heal"] for step in done if "heal" in step)
    assert heal["filter_rules"] == {"A": 0, "B": 0, "C": 0}
    assert heal["packets_dropped"]["A"] > 0
    assert heal["packets_dropped"]["B"] > 0


@pytest.mark.proof
def test_a_scenario_without_cuts_has_no_filters(others: dict[Key, Judged]) -> None:
    done = others["netns", "hw-truncation-loss", "neaptide:0.10"].nemesis()
    assert all("filter_rules" not in step.get("cut", {}) for step in done)
    assert [step["heal"]["packets_dropped"] for step in done if "heal" in step] == [{}]
