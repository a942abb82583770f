"""The documented scenarios, played for real: processes, sockets, ZooKeeper, librdkafka, Spark."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from neaptide.harness.scenarios.catalog import documented
from neaptide.harness.scenarios.systems import KNOWN
from neaptide.nemesis.scenario import expected_outcome
from neaptide.nemesis.search.play import is_simulated
from tests.harness.command import neaptide

# `make test` plays these live, and the simulation plays all that it can with every generation.
ALWAYS = {
    "neaptide:0.10": ("hw-truncation-loss",),
    "neaptide:2.1": ("consumer-truncation", "retry-reorder-plain"),
    "neaptide:4.0": ("last-replica-standing",),
}
# What each generation is the one to show: where a scenario loses, and where a later rule holds it.
# `make proof` plays these. The whole matrix is played by `neaptide repro`.
PLAYED = {
    "neaptide:0.8": ("hw-truncation-loss", "lag-messages-flapping"),
    "neaptide:0.10": (
        "hw-truncation-loss",
        "same-offset-divergence",
        "commit-truncation-loss",
        "out-of-range-a",
        "slow-follower-in-isr",
        "zombie-leader-acks-1",
    ),
    "neaptide:0.11": (
        "acks-1-loss",
        "early-return-to-the-isr",
        "fast-failover-divergence",
        "isr-lingers",
        "timed-out-transaction-goes-on",
        "unclean-election-true",
        "zombie-leader-acks-all",
    ),
    "neaptide:2.0": (
        "fast-failover-divergence",
        "controller-failover",
        "controller-failover-quorum",
    ),
    "neaptide:2.1": (
        "same-offset-divergence",
        "commit-truncation-loss",
        "last-replica-standing",
        "reassignment-held",
        "retry-reorder-plain",
        "consumer-truncation",
        "obeys-earlier-controller",
        "hanging-transaction",
        "late-end-txn",
        "late-marker",
    ),
    "neaptide:2.8": (
        "hw-truncation-loss",
        "not-enough-after-append",
        "stale-diverging-answer",
        "compaction-loss",
        "marker-compacted-away",
        "abort-compacted-away",
    ),
    "neaptide:4.0": (
        "compaction-loss",
        "marker-compacted-away",
        "isr-of-one-loss-1",
        "isr-of-one-loss-2",
        "last-in-isr-loses-its-disk",
        "last-replica-standing",
        "flipped-bit",
        "segment-made-smaller",
        "commit-of-an-owner-refused",
        "late-end-txn",
        "marker-lost",
        "fenced-commit",
        "reader-of-committed",
        "unclean-election-false",
        "out-of-range-a",
        "obeys-earlier-controller",
        "hw-two-rounds",
        "aborted-read",
        "hanging-transaction",
        "auto-commit-loss-after",
        "auto-commit-loss-before",
        "commit-async-regress-lost",
        "commit-async-regress-retried",
        "rebalance-duplicate",
    ),
}

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.timeout(2400)]

# What the evidence must name, beyond the outcome.
WITNESSES = {
    ("hw-truncation-loss", "neaptide:0.10"): {"lost-write", "committed-then-lost"},
    ("same-offset-divergence", "neaptide:0.10"): {"replica-divergence"},
    ("acks-1-loss", "neaptide:0.11"): {"unseen"},
    ("commit-truncation-loss", "neaptide:0.10"): {"commit-regression"},
    ("fast-failover-divergence", "neaptide:0.11"): {"replica-divergence"},
    ("last-replica-standing", "neaptide:2.1"): {"unseen"},
    ("isr-of-one-loss-1", "neaptide:4.0"): {"unseen"},
    ("compaction-loss", "neaptide:2.8"): {"newest-lost", "lost-write", "replica-hole"},
}


Results = dict[tuple[str, str], dict[str, Any]]


def cells(played: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(name, system) for system, names in played.items() for name in names]


@pytest.fixture(scope="module")
def always(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results_of(ALWAYS, tmp_path_factory.mktemp("repro"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results_of(PLAYED, tmp_path_factory.mktemp("repro"))


def results_of(played: Mapping[str, tuple[str, ...]], directory: Path) -> Results:
    """All cells, by one command a system; two at once, for they wait more than they work."""

    def play(system: str) -> Results:
        done, document = neaptide(
            directory, "repro", *played[system], "--system", system, "--json", "--seed", "5"
        )
        assert document is not None, done.stderr
        agree = all(result["agrees"] for result in document["results"])
        assert document["agrees"] is agree
        assert (done.returncode == 0) is agree, done.stderr
        return {(r["scenario"], r["system"]): r for r in document["results"]}

    with ThreadPoolExecutor(max_workers=2) as two:
        found: Results = {}
        for of_a_system in two.map(play, played):
            found |= of_a_system
        return found


@pytest.mark.parametrize(("name", "system"), cells(ALWAYS))
def test_some_scenarios_end_as_the_documents_say(always: Results, name: str, system: str) -> None:
    assert_as_documented(always[name, system], name, system)


@pytest.mark.proof
@pytest.mark.parametrize(("name", "system"), cells(PLAYED))
def test_a_scenario_ends_as_the_documents_say(results: Results, name: str, system: str) -> None:
    assert_as_documented(results[name, system], name, system)


def assert_as_documented(result: dict[str, Any], name: str, system: str) -> None:
    scenario = documented([name])[0][1]
    assert result["expected"] == expected_outcome(scenario, system)
    assert [result["observed"], *result["reasons"]] == [result["expected"]]
    assert result["agrees"], result
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


# The behaviours of our broker (docs/behaviours.md) that a scenario shows, on each system above.


def _agree(results: Results, *names: str) -> None:
    """As predicted: the outcome, the fetch rounds, and what should be seen on the way."""
    for name in names:
        of_name = [result for (scenario, _), result in results.items() if scenario == name]
        assert of_name
        for result in of_name:
            assert (result["agrees"], result["reasons"]) == (True, []), result


@pytest.mark.proof
def test_r4_f1_a_follower_learns_the_high_watermark_a_round_later(results: Results) -> None:
    _agree(results, "hw-two-rounds")


@pytest.mark.proof
def test_r10_the_cleaner_ends_at_the_high_watermark_from_4_0_on(results: Results) -> None:
    _agree(results, "compaction-loss")


@pytest.mark.proof
def test_i1_i2_a_follower_that_never_catches_up_leaves_the_isr(results: Results) -> None:
    _agree(results, "slow-follower-in-isr")


@pytest.mark.proof
def test_i2_i3_a_follower_that_stops_leaves_the_isr_after_1_to_1_5_times_the_lag(
    results: Results,
) -> None:
    _agree(results, "isr-lingers")


@pytest.mark.proof
def test_i5_a_burst_makes_the_isr_flap_where_lag_is_counted_in_messages(results: Results) -> None:
    _agree(results, "lag-messages-flapping")


@pytest.mark.proof
def test_i9_an_isr_that_shrinks_after_the_append_leaves_the_record(results: Results) -> None:
    _agree(results, "not-enough-after-append")


@pytest.mark.proof
def test_f9_a_follower_that_returns_too_late_starts_where_the_leader_does(
    results: Results,
) -> None:
    _agree(results, "out-of-range-a")


@pytest.mark.proof
def test_e2_truncation_to_the_high_watermark_loses_and_to_the_epochs_end_keeps(
    results: Results,
) -> None:
    _agree(results, "hw-truncation-loss", "same-offset-divergence")


@pytest.mark.proof
def test_e5_a_fast_failover_diverges_on_0_11_and_not_from_2_0_on(results: Results) -> None:
    _agree(results, "fast-failover-divergence")


def test_e6_a_consumer_learns_that_its_position_was_truncated(always: Results) -> None:
    _agree(always, "consumer-truncation")


@pytest.mark.proof
def test_e7_the_last_replica_standing_loses_its_tail_unless_others_stay_eligible(
    results: Results,
) -> None:
    _agree(results, "last-replica-standing")


@pytest.mark.proof
def test_c1_requests_of_an_earlier_controller_are_refused(results: Results) -> None:
    _agree(results, "controller-failover")


@pytest.mark.proof
def test_c3_an_unclean_election_loses_and_a_clean_one_waits(results: Results) -> None:
    _agree(results, "unclean-election-false", "unclean-election-true")


@pytest.mark.proof
def test_every_cell_was_played(results: Results) -> None:
    assert set(results) == set(cells(PLAYED))


# Played by the command alone: a twin of theirs is played here.
BY_COMMAND = {
    "retry-duplicate-plain",
    "retry-duplicate-idempotent",
    "retry-reorder-one-in-flight",
    "retry-reorder-idempotent",
}


def test_every_generation_is_played_and_every_scenario_is_somewhere() -> None:
    """What the simulation plays with every generation need not be played here too."""
    assert set(PLAYED) == set(KNOWN)
    assert set(cells(ALWAYS)) <= set(cells(PLAYED))
    played = {name for names in PLAYED.values() for name in names}
    served = [
        scenario
        for _, scenario in documented([])
        if any(expected_outcome(scenario, system) for system in KNOWN)
    ]
    assert played <= {scenario.name for scenario in served}
    left = {scenario.name for scenario in served if not is_simulated(scenario)} - played
    assert left == BY_COMMAND
