"""Clusters of a test: they end with it, several at once, and when they end by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import LOCAL, Place
from neaptide.harness.testing.findings import NeaptideFailure
from neaptide.harness.testing.lab import Judge, Lab
from neaptide.results.run import read_run

pytestmark = pytest.mark.live


class NoSpark(Judge):
    """Nothing is judged here."""

    def start(self) -> None:
        pass


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path))
    made = Lab(NoSpark(lambda run: []), "test", "neaptide:2.1", 7, LOCAL)
    yield made
    made.close(failed=True)


def started(directory: Path) -> list[psutil.Process]:
    """Processes whose command names a run in there."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(directory) in word for word in process.info["cmdline"] or [])
    ]


def test_two_clusters_end_with_their_test_whoever_is_ended_first(lab: Lab, tmp_path: Path) -> None:
    one, other = lab.cluster(), lab.cluster(brokers=1)
    assert one.bootstrap != other.bootstrap
    assert one.leader() == "A"
    assert set(one.isr()) == {"A", "B", "C"}
    assert other.isr() == ("A",)
    assert started(tmp_path)
    lab.close(failed=True)
    assert started(tmp_path) == []
    runs = [read_run(path.parent) for path in tmp_path.glob("*/run.json")]
    assert {run.status for run in runs} == {"interrupted"}


def test_a_fault_is_done_when_its_method_returns(lab: Lab) -> None:
    cluster = lab.cluster()
    cluster.kill("A")
    cluster.wait_until(lambda: cluster.leader() in ("B", "C"))
    cluster.restart("A")
    cluster.wait_until(lambda: set(cluster.isr()) == {"A", "B", "C"})
    with pytest.raises(TimeoutError, match="never so"):
        cluster.wait_until(lambda: False, 0.1, "it is never so")
    with pytest.raises(UsageError, match="'Z'; it must be one of A, B, C"):
        cluster.pause("Z")


def test_a_cluster_that_ends_by_itself_says_so(lab: Lab, tmp_path: Path) -> None:
    cluster = lab.cluster(brokers=1)
    for process in started(tmp_path):
        if "neaptide.nemesis.gate" in process.info["cmdline"]:
            process.kill()
    with pytest.raises(NeaptideFailure, match="has ended: ") as failure:
        cluster.wait_until(lambda: False, 30, "something that never is")
    assert failure.value.unknown


def test_what_cannot_be_is_refused_before_anything_starts(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="topics must be"):
        lab.cluster(topics={"orders": 0})
    with pytest.raises(UsageError, match="brokers=12 must be 1 to 9"):
        lab.cluster(brokers=12)
    simulated = Lab(NoSpark(lambda run: []), "test", "neaptide:2.1", 7, Place("simulation"))
    with pytest.raises(UsageError, match="real processes"):
        simulated.cluster()
    assert list(tmp_path.iterdir()) == []
