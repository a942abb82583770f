"""The documented scenarios, played for real: processes, sockets, ZooKeeper, librdkafka, Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.catalog import documented
from harness.systems import KNOWN
from nemesis.scenario import expected_outcome
from tests.harness.command import neaptide

# Every scenario is played on the two generations that differ most; the others play these.
EVERYWHERE = ("hw-truncation-loss", "same-offset-divergence")
IN_FULL = ("neaptide:0.10", "neaptide:0.11")

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.timeout(1200)]

# What the evidence must name, beyond the outcome.
WITNESSES = {
    ("hw-truncation-loss", "neaptide:0.10"): {"lost-write", "committed-then-lost"},
    ("same-offset-divergence", "neaptide:0.10"): {"replica-divergence"},
    ("acks-1-loss", "neaptide:0.11"): {"unseen"},
}


def cells() -> list[tuple[str, str]]:
    return [
        (scenario.name, system)
        for system in KNOWN
        for _, scenario in documented([] if system in IN_FULL else list(EVERYWHERE))
    ]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """All cells, by two commands."""
    directory = tmp_path_factory.mktemp("repro")
    found = {}
    others = [system for system in KNOWN if system not in IN_FULL]
    for names, systems in (((), IN_FULL), (EVERYWHERE, others)):
        if not systems:
            continue
        options = [option for system in systems for option in ("--system", system)]
        done, document = neaptide(directory, "repro", *names, *options, "--json", "--seed", "5")
        assert document is not None, done.stderr
        assert document["agrees"] is True, [r for r in document["results"] if not r["agrees"]]
        assert done.returncode == 0
        found |= {(r["scenario"], r["system"]): r for r in document["results"]}
    return found


@pytest.mark.parametrize(("name", "system"), cells())
def test_a_scenario_ends_as_the_documents_say(
    results: dict[tuple[str, str], dict[str, Any]], name: str, system: str
) -> None:
    result = results[name, system]
    scenario = documented([name])[0][1]
    assert result["expected"] == expected_outcome(scenario, system)
    assert result["observed"] == result["expected"]
    assert result["reasons"] == []
    assert set(result["anomalies"]) >= WITNESSES.get((name, system), set())
    run = Path(result["run"])
    for part in (
        "run.json",
        "verdict.json",
        "report.html",
        "operations",
        "fetch_rounds",
        "replicas",
    ):
        assert (run / part).exists(), part
    assert "<svg" in (run / "report.html").read_text(encoding="utf-8")


def test_every_cell_was_played(results: dict[tuple[str, str], dict[str, Any]]) -> None:
    assert set(results) == set(cells())
