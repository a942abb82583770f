"""The documented scenarios, played for real: processes, sockets, ZooKeeper, librdkafka, Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.catalog import documented
from harness.systems import KNOWN
from nemesis.scenario import expected_outcome
from tests.harness.command import neaptide

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.timeout(300)]

# What the evidence must name, beyond the outcome.
WITNESSES = {
    ("hw-truncation-loss", "neaptide:0.10"): {"lost-write", "committed-then-lost"},
    ("same-offset-divergence", "neaptide:0.10"): {"replica-divergence"},
    ("acks-1-loss", "neaptide:0.11"): {"unseen"},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """All scenarios on all systems, by one command."""
    directory = tmp_path_factory.mktemp("repro")
    done, document = neaptide(directory, "repro", "--json", "--seed", "5")
    assert document is not None, done.stderr
    assert document["agrees"] is True, [r for r in document["results"] if not r["agrees"]]
    assert done.returncode == 0
    return {(r["scenario"], r["system"]): r for r in document["results"]}


@pytest.mark.parametrize("system", KNOWN)
@pytest.mark.parametrize("name", [scenario.name for _, scenario in documented([])])
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
    assert len(results) == len(documented([])) * len(KNOWN)
