"""The same verdicts where others do the work: on a standalone cluster, and behind Spark Connect."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neaptide.checkers.pipeline.cluster_session import first_that_listens, master_session
from neaptide.clusters.errors import UsageError
from neaptide.harness.checking.check import check_spark
from neaptide.harness.terminal.exits import Exit, status_of
from neaptide.results.errors import SparkUnreachableError
from neaptide.results.verdicts import VERDICT_FILE
from tests.checkers.histories import Story, final, poll, send
from tests.harness.command import COMMAND, TIMEOUT_S, neaptide
from tests.results.losing_run import write_losing_run
from tests.standalone import Cluster, another_worker, connect_server, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.live]

HELD = Story([send("a", 0), send("b", 1), poll((0, "a")), final((0, "a"), (1, "b"))])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture(autouse=True)
def python_of_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are on this machine, and have what this Python has."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    return str(write_losing_run(tmp_path / "losing")), str(HELD.write(tmp_path / "held"))


def assert_judged(status: int, reported: Any) -> None:
    losing, held = reported["runs"]
    assert status == Exit.ANOMALY
    assert (losing["verdict"], losing["outcome"]) == ("anomalous", "lost")
    assert losing["anomalies"]["lost-write"] == losing["anomalies"]["committed-then-lost"] == 1
    assert (held["verdict"], held["anomalies"]) == ("valid", {})


@pytest.mark.proof
def test_a_standalone_cluster_judges(
    cluster: Cluster, runs: tuple[str, str], tmp_path: Path
) -> None:
    done, reported = neaptide(tmp_path, "check", *runs, "--master", cluster.url, "--json")
    assert_judged(done.returncode, reported)
    assert cluster.worker.said(r"(Asked to launch executor)")
    cluster.wait_for_executors(some=False)


@pytest.mark.proof
def test_spark_connect_judges(connect: str, runs: tuple[str, str], tmp_path: Path) -> None:
    options = ("--plots", "--thorough", "--json")
    done, reported = neaptide(tmp_path, "check", *runs, "--remote", connect, *options)
    assert_judged(done.returncode, reported)


@pytest.mark.proof
@pytest.mark.timeout(900)  # four sessions of Spark
def test_all_ways_say_the_same_to_the_byte(
    cluster: Cluster, connect: str, runs: tuple[str, str], tmp_path: Path
) -> None:
    """Here, on two workers by both engines, and behind Spark Connect by URI.

    `test_engines` compares the engines here.
    """
    ways = {
        "here": ("--master", "local[2]"),
        "two-workers": ("--master", cluster.url),
        "two-workers-by-spark": ("--master", cluster.url, "--engine", "spark"),
        "connect-by-uri": ("--remote", connect),
    }
    said: dict[str, list[bytes]] = {}
    with another_worker(cluster, tmp_path / "worker"):
        for way, options in ways.items():
            named = [f"file://{run}" for run in runs] if way == "connect-by-uri" else list(runs)
            done, _ = neaptide(tmp_path, "check", *named, *options, "--json")
            assert done.returncode == Exit.ANOMALY, done.stderr
            where = [
                tmp_path / "runs" / Path(run).name if way == "connect-by-uri" else Path(run)
                for run in runs
            ]
            said[way] = [(run / VERDICT_FILE).read_bytes() for run in where]
            for run in where:
                (run / VERDICT_FILE).unlink()
    assert all(verdicts == said["here"] for verdicts in said.values()), said


WHERE_THE_CODE_IS = """
import sys
import pyarrow as pa
from neaptide.checkers.pipeline.cluster_session import connect_session, master_session

def where(rows):
    from neaptide import checkers
    for _ in rows:
        yield pa.RecordBatch.from_pydict({"file": [checkers.__path__[0]]})

spark = (connect_session if sys.argv[1].startswith("sc:") else master_session)(sys.argv[1])
print(spark.range(1, numPartitions=1).mapInArrow(where, "file STRING").first()[0])
spark.stop()
"""


@pytest.mark.proof
@pytest.mark.parametrize("where", ["cluster", "connect"])
def test_executors_have_the_code_of_who_asks(request: pytest.FixtureRequest, where: str) -> None:
    """Not the one that the Python there may have installed."""
    found: Cluster | str = request.getfixturevalue(where)
    address = found if isinstance(found, str) else found.url
    done = subprocess.run(
        [sys.executable, "-c", WHERE_THE_CODE_IS, address],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    archive = r"neaptide-checkers-results-[0-9a-f]+\.zip/neaptide/checkers"
    assert re.search(f"{archive}$", done.stdout.strip()), done.stdout


@pytest.mark.proof
def test_ctrl_c_leaves_no_executor(cluster: Cluster, runs: tuple[str, str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "check", *runs, "--master", cluster.url],
        env={**os.environ, "NEAPTIDE_STATE": str(tmp_path / "state")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    cluster.wait_for_executors(some=True)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == Exit.UNKNOWN, said
    assert "Interrupted" in said
    cluster.wait_for_executors(some=False)


def closed() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def test_who_does_not_answer_is_reported_in_one_sentence(
    runs: tuple[str, str], tmp_path: Path
) -> None:
    address = f"sc://{closed()}"
    done, reported = neaptide(tmp_path, "check", *runs, "--remote", address)
    assert (done.returncode, reported) == (Exit.MISSING, None)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"neaptide: No Spark Connect server answers at {address} (")
    assert last.endswith("): start it, or name another.")


def test_one_master_of_several_is_enough_and_none_is_not(tmp_path: Path) -> None:
    with pytest.raises(
        SparkUnreachableError, match="No Spark master answers at spark://"
    ) as reported:
        master_session(f"spark://{closed()},{closed()}")
    assert status_of(reported.value) == Exit.MISSING
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = ("127.0.0.1", listening.getsockname()[1])
        assert first_that_listens("Spark master", "both", [("127.0.0.1", 1), address]) == address


@pytest.mark.parametrize(
    ("master", "remote"),
    [
        ("nonsense", None),
        ("sc://127.0.0.1", None),
        ("spark://127.0.0.1", None),
        (None, "spark://127.0.0.1:7077"),
        ("local[1]", "sc://127.0.0.1"),
    ],
)
def test_what_spark_cannot_be_given_is_wrong_usage(master: str | None, remote: str | None) -> None:
    with pytest.raises(UsageError, match="--"):
        check_spark(master, remote)


@pytest.mark.parametrize(
    ("master", "remote"),
    [
        (None, None),
        ("local[*]", None),
        ("spark://one:7077,two:7077", None),
        ("yarn", None),
        (None, "sc://server"),
        (None, "sc://server:15002/;token=x"),
    ],
)
def test_what_spark_can_be_given(master: str | None, remote: str | None) -> None:
    check_spark(master, remote)
