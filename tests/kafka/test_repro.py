"""The first scenario on unchanged Apache Kafka, by the command: lost before KIP-101, held after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.harness.command import neaptide

pytestmark = [
    pytest.mark.live,
    pytest.mark.spark,
    pytest.mark.needs("maven"),
    pytest.mark.timeout(600),
]


def hw_truncation_loss(directory: Path, system: str) -> dict[str, Any]:
    done, document = neaptide(
        directory, "repro", "hw-truncation-loss", "--system", system, "--json"
    )
    assert document is not None, done.stderr
    assert done.returncode == 0
    [result] = document["results"]
    found: dict[str, Any] = result
    return found


@pytest.mark.proof
def test_e2_hw_truncation_loss_loses_on_0_10_2(tmp_path: Path) -> None:
    old = hw_truncation_loss(tmp_path, "kafka:0.10.2.2")
    assert (old["observed"], old["reasons"]) == ("lost", [])
    assert set(old["anomalies"]) >= {"lost-write", "committed-then-lost"}
    assert first_offset_after_failover(Path(old["run"])) == 1  # A truncated what was committed


def test_e2_hw_truncation_loss_holds_on_3_9(tmp_path: Path) -> None:
    new = hw_truncation_loss(tmp_path, "kafka:3.9.1")
    assert (new["observed"], new["reasons"]) == ("held", [])
    # A, elected last, begins with a high watermark of 1: whether anybody asks before it is 2 again
    # is a race.
    assert set(new["anomalies"]) <= {"high-watermark-regression-at-election"}
    assert first_offset_after_failover(Path(new["run"])) == 2


@pytest.mark.proof
def test_e7_in_kraft_a_partition_waits_for_its_eligible_leader_replica(tmp_path: Path) -> None:
    done, document = neaptide(
        tmp_path, "repro", "unclean-election-false", "--system", "kafka:4.1.0", "--json"
    )
    assert document is not None, done.stderr
    [result] = document["results"]
    assert (result["observed"], result["reasons"], result["anomalies"]) == ("held", [], {})


@pytest.mark.proof
def test_i1_i2_i3_on_0_10_2_a_follower_leaves_the_isr_when_it_is_slow_or_stops(
    tmp_path: Path,
) -> None:
    names = ("slow-follower-in-isr", "isr-lingers")
    done, document = neaptide(tmp_path, "repro", *names, "--system", "kafka:0.10.2.2", "--json")
    assert document is not None, done.stderr
    for result in document["results"]:
        assert (result["observed"], result["reasons"]) == ("held", []), result


@pytest.mark.proof
def test_i5_on_0_8_2_a_burst_makes_the_isr_flap(tmp_path: Path) -> None:
    done, document = neaptide(
        tmp_path, "repro", "lag-messages-flapping", "--system", "kafka:0.8.2.2", "--json"
    )
    assert document is not None, done.stderr
    [result] = document["results"]  # with the prediction that the ISR changed six times
    assert (result["observed"], result["reasons"]) == ("held", []), result


# Bugs of released Kafka: the releases that have them, and the first that have not.
BUGS = [
    ("stale-diverging-answer", ("2.8.2", "3.9.0-kraft", "3.9.1-kraft", "4.0.0", "4.0.1", "4.4.0")),
    ("late-marker", ("0.11.0.3", "3.9.1", "4.4.0")),
    ("late-end-txn", ("0.11.0.3", "3.9.1", "4.4.0")),
    ("marker-lost", ("2.8.2", "4.4.0")),
    ("segment-made-smaller", ("2.1.1", "4.4.0")),
    ("commit-of-an-owner-refused", ("4.1.2", "4.4.0")),
    ("timed-out-transaction-goes-on", ("0.11.0.0", "0.11.0.3")),
    ("flipped-bit", ("0.10.2.2", "4.4.0")),
    ("early-return-to-the-isr", ("1.1.1", "2.0.0", "2.0.1")),
    ("last-in-isr-loses-its-disk", ("0.10.2.2", "3.9.1", "4.4.0")),
]


@pytest.mark.proof
@pytest.mark.parametrize(("scenario", "versions"), BUGS, ids=[name for name, _ in BUGS])
def test_a_known_bug_loses_where_it_is_and_holds_where_it_is_fixed(
    tmp_path: Path, scenario: str, versions: tuple[str, ...]
) -> None:
    systems = [word for version in versions for word in ("--system", f"kafka:{version}")]
    done, document = neaptide(tmp_path, "repro", scenario, *systems, "--json")
    assert document is not None, done.stderr
    assert len(document["results"]) == len(versions)
    for result in document["results"]:
        assert (result["observed"], result["reasons"]) == (result["expected"], []), result


def first_offset_after_failover(run: Path) -> int:
    """What A asks B for once B leads: the fetch that the gate holds."""
    rounds = pq.read_table(run / "fetch_rounds").to_pylist()
    of_a = [r for r in rounds if (r["follower"], r["leader"], r["topic"]) == (0, 1, "t")]
    return int(min(of_a, key=lambda r: r["requested_ns"])["fetch_offset"])
