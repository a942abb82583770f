"""Clusters of a test: they end with it, several at once, and when they end by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds
import pytest

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import LOCAL, Place
from neaptide.harness.testing.findings import NeaptideFailure, WaitFailure
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
    with pytest.raises(UsageError, match=r"settings: no release .* did you mean 'min.insync.rep"):
        lab.cluster(settings={"min.insync.replica": 2})
    with pytest.raises(UsageError, match=r"topic_settings: no release of Kafka .* mean 'retention"):
        lab.cluster(topic_settings={"retention.mss": 2})
    with pytest.raises(UsageError, match="brokers=12 must be 1 to 9"):
        lab.cluster(brokers=12)
    simulated = Lab(NoSpark(lambda run: []), "test", "neaptide:2.1", 7, Place("simulation"))
    with pytest.raises(UsageError, match="real processes"):
        simulated.cluster()
    assert list(tmp_path.iterdir()) == []


def sends(run: Path) -> list[dict[str, Any]]:
    rows = ds.dataset(run / "operations").to_table().to_pylist()
    return [row for row in rows if row["f"] == "send"]


def test_what_an_application_says_in_its_clients_words_is_understood(lab: Lab) -> None:
    """acks as a number, errors as exceptions, and no partition where there is one only."""
    cluster = lab.cluster(brokers=1, topics={"orders": 1, "many": 2})
    cluster.send("orders", "ok", acks=1).ok(0, 0)
    cluster.send("orders", "unknown", acks=-1).unknown(TimeoutError("too late"))
    cluster.send("orders", "failed").failed(ValueError())
    cluster.send("orders", "open")
    cluster.send("many", "somewhere").unknown("timed out")
    for wrong in ({"partition": "0"}, {"partition": 0, "offset": 1.5}):
        with pytest.raises(TypeError, match="must be a whole number"):
            cluster.send("orders", "wrong").ok(**wrong)
    with pytest.raises(UsageError, match="acks=2 must be 0, 1, -1 or 'all'"):
        cluster.send("orders", "never", acks=2)
    run = cluster.finish()
    said = {row["value"]: (row["type"], row["acks"], row["error"]) for row in sends(run)}
    assert said["ok"] == ("ok", "1", None)
    assert said["unknown"] == ("info", "all", "TimeoutError: too late")
    assert said["failed"] == ("fail", "all", "ValueError")
    assert said["open"] == ("info", "all", "never ended")
    assert "never" not in said
    places = {row["value"]: row["partition"] for row in sends(run)}
    assert {places[value] for value in ("ok", "unknown", "failed", "open")} == {0}
    assert places["somewhere"] is None


def test_a_wait_in_vain_says_what_is_so_instead(lab: Lab) -> None:
    cluster = lab.cluster(topics={"orders": 1})
    cluster.hold("A", "B")
    cluster.wait_until(lambda: cluster.is_held("A", "B"))
    cluster.kill("C")
    with pytest.raises(WaitFailure) as failure:
        cluster.wait_until(lambda: cluster.leader("orders") == "B", 0.1)
    said = str(failure.value)
    for part in (
        'this is still not true: cluster.wait_until(lambda: cluster.leader("orders") == "B", 0.1)',
        "orders-0: leader A, ISR ",
        "log ends by the last fetches: B ",
        "held: messages from A to B",
        "down or paused: C",
        "replica.lag.time.max.ms=5000",
    ):
        assert part in said, said
    lab.close(failed=True)
    assert (failure.value.run / "report.html").exists()
