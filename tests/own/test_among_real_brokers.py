"""A broker of ours among two of Apache Kafka 2.1.1, with their ZooKeeper, as each of A, B and C.

So it leads, it follows, and it is the controller; each is then killed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.command import neaptide
from tests.own.kafka import install, write_files_of_one_among_real

pytestmark = [
    pytest.mark.live,
    pytest.mark.spark,
    pytest.mark.proof,
    pytest.mark.needs("maven"),
    pytest.mark.timeout(600),
]
# A leads and B follows; the controller moves; a broker obeys what an earlier one has sent.
SCENARIOS = ("hw-truncation-loss", "controller-failover", "obeys-earlier-controller")


@pytest.fixture(params=[0, 1, 2], ids=["A is ours", "B is ours", "C is ours"])
def system(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    home = install(tmp_path, "2.1.1")
    return str(write_files_of_one_among_real(tmp_path, str(home), request.param))


def test_scenarios_end_as_those_of_apache_kafka_do(tmp_path: Path, system: str) -> None:
    done, found = neaptide(tmp_path, "repro", *SCENARIOS, "--system", system, "--json")
    assert found is not None, done.stderr
    assert found["agrees"], found
    assert [one["observed"] for one in found["results"]] == ["held", "held", "held", "lost"]


@pytest.mark.parametrize("workload", ["append", "txn"])
def test_random_faults_lose_nothing(tmp_path: Path, system: str, workload: str) -> None:
    done, verdict = neaptide(
        tmp_path, "run", workload, "--system", system, "--nemesis", "kill,pause,rounds",
        "--time", "30s", "--seed", "5", "--json",
    )  # fmt: skip
    assert verdict is not None, done.stderr
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
