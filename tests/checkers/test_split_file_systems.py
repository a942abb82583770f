"""A cluster whose workers see another file system than the command: verdicts with all evidence.

The workers have an empty directory where this machine has the runs, the state and the temporary
files of the command. Histories are where both can read: on an object store, or in a directory.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from neaptide.checkers.histories.splits import splits
from neaptide.checkers.pipeline.limits import NOT_SEEN
from neaptide.checkers.pipeline.tables import TRAVELLING_ROWS
from neaptide.harness.terminal.exits import Exit
from neaptide.results.schema import ANOMALIES
from tests.checkers.histories import Story, final, poll, send
from tests.harness.command import neaptide
from tests.object_store import BUCKET, ObjectStore, object_store
from tests.planting.jepsen import write_edn
from tests.planting.planting import plant
from tests.results.losing_run import write_losing_run
from tests.standalone import Cluster, standalone_cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.live,
    pytest.mark.needs("mounts", "hadoop-aws"),
    pytest.mark.timeout(900),
]

LOST = 2_000  # with what else that is, more than one task may bring
FOUND = {"lost-write": LOST, "int-poll-skip": 2 * LOST}
OF_TWO_PARTS = 90_000  # operations of a history
HELD = Story([send("a", 0), send("b", 1), poll((0, "a")), final((0, "a"), (1, "b"))])


@dataclass(frozen=True)
class Apart:
    """A cluster, an object store, and a directory that the workers do not see."""

    cluster: Cluster
    store: ObjectStore
    directory: Path

    def check(self, *arguments: str, **settings: str) -> tuple[int, Any]:
        """By a command that learns of the cluster from Spark's own settings."""
        environment = self.store.configure(
            self.directory / "conf", **{"spark.master": self.cluster.url, **settings}
        )
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        environment |= {"TMPDIR": str(temporary), "PYSPARK_PYTHON": sys.executable}
        done, reported = neaptide(self.directory, "check", *arguments, "--json", **environment)
        assert reported is not None, done.stderr
        return done.returncode, reported

    def evidence(self, run: str) -> Counter[str]:
        names = pq.read_table(self.directory / "runs" / run / "anomalies", schema=ANOMALIES)
        return Counter(names["anomaly"].to_pylist())


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    base = tmp_path_factory.mktemp("apart")
    hidden = base / "hidden"
    hidden.mkdir()
    with object_store() as store, standalone_cluster(base / "cluster", hidden=hidden) as cluster:
        yield Apart(cluster, store, hidden)


@pytest.fixture(scope="module")
def losing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("there") / "losing"
    plant(run, 11 * LOST, {"lost-write": LOST}, partitions=1, seed=1)
    return run


@pytest.mark.proof
def test_runs_on_an_object_store_get_all_their_evidence(
    apart: Apart, losing: Path, tmp_path: Path
) -> None:
    held = HELD.write(tmp_path / "held")
    (tmp_path / "histories").mkdir()
    write_edn(tmp_path / "histories" / "jepsen.edn", 200, {})
    history = f"{apart.store.put(tmp_path / 'histories')}/jepsen.edn"
    status, reported = apart.check(apart.store.put(losing), apart.store.put(held), history)
    first, second, third = reported["runs"]
    assert (third["verdict"], third["reasons"]) == ("valid", [])
    assert third["rows"]["operations"] >= 200
    assert status == Exit.ANOMALY
    assert (first["verdict"], first["anomalies"]) == ("anomalous", FOUND)
    assert (second["verdict"], second["anomalies"]) == ("valid", {})
    assert apart.evidence("losing") == FOUND
    assert apart.evidence("held") == {}
    assert apart.cluster.worker.said(r"(Asked to launch executor)")
    apart.cluster.wait_for_executors(some=False)


@pytest.mark.proof
def test_what_only_the_command_sees_goes_with_the_check(apart: Apart) -> None:
    """A run of its own disk, and a history that is made into one, of which the parts are apart."""
    runs = apart.directory / "runs"
    run = write_losing_run(runs / "lost-here")
    history = apart.directory / "history.edn"
    write_edn(history, OF_TWO_PARTS, {})
    assert len(splits(history)) > 1
    status, reported = apart.check(str(run), str(history))
    first, second = reported["runs"]
    assert status == Exit.ANOMALY
    assert first["anomalies"] | first["allowed"] == apart.evidence("lost-here")
    assert first["anomalies"]["lost-write"] == 1
    assert (second["verdict"], second["anomalies"]) == ("valid", {})
    assert second["rows"]["operations"] >= OF_TWO_PARTS


@pytest.mark.proof
def test_spark_sql_alone_keeps_what_it_needs_where_all_can_read_it(
    apart: Apart, losing: Path
) -> None:
    there = {"spark.checkpoint.dir": f"s3a://{BUCKET}/checkpoints"}
    uri = apart.store.put(losing)
    _, reported = apart.check(uri, "--engine", "spark", **there)
    assert reported["runs"][0]["anomalies"] == FOUND
    assert apart.evidence("losing") == FOUND
    assert apart.store.keys("checkpoints/")


@pytest.mark.proof
def test_more_rows_than_go_with_the_check_have_to_be_seen(apart: Apart) -> None:
    plant(apart.directory / "runs" / "many", TRAVELLING_ROWS // 2, {}, partitions=1, seed=1)
    _, reported = apart.check("many")
    (judged,) = reported["runs"]
    assert judged["rows"]["operations"] > TRAVELLING_ROWS
    assert (judged["verdict"], judged["reasons"][-1]) == ("unknown", NOT_SEEN)
