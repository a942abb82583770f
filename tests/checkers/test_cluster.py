"""The same verdicts where others do the work: on a standalone cluster, and behind Spark Connect."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkers.histories import Story, final, poll, send
from tests.harness.command import COMMAND, TIMEOUT_S, neaptide
from tests.results.losing_run import write_losing_run
from tests.standalone import Cluster, connect_server, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.live]

ANOMALY, UNKNOWN, USAGE, MISSING = 1, 2, 64, 69
HELD = Story([send("a", 0), send("b", 1), poll((0, "a")), final((0, "a"), (1, "b"))])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    return str(write_losing_run(tmp_path / "losing")), str(HELD.write(tmp_path / "held"))


def assert_judged(status: int, told: Any) -> None:
    losing, held = told["runs"]
    assert status == ANOMALY
    assert (losing["verdict"], losing["outcome"]) == ("anomalous", "lost")
    assert losing["anomalies"]["lost-write"] == losing["anomalies"]["committed-then-lost"] == 1
    assert (held["verdict"], held["anomalies"]) == ("valid", {})


def test_a_standalone_cluster_judges(
    cluster: Cluster, runs: tuple[str, str], tmp_path: Path
) -> None:
    done, told = neaptide(tmp_path, "check", *runs, "--master", cluster.url, "--plots", "--json")
    assert_judged(done.returncode, told)
    assert cluster.worker.said(r"(Asked to launch executor)")
    cluster.wait_for_executors(some=False)


def test_spark_connect_judges(connect: str, runs: tuple[str, str], tmp_path: Path) -> None:
    options = ("--plots", "--thorough", "--json")
    done, told = neaptide(tmp_path, "check", *runs, "--remote", connect, *options)
    assert_judged(done.returncode, told)


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
    assert process.returncode == UNKNOWN, said
    assert "Interrupted" in said
    cluster.wait_for_executors(some=False)


@pytest.mark.parametrize(("option", "scheme"), [("--master", "spark"), ("--remote", "sc")])
def test_who_does_not_answer_is_told_in_one_sentence(
    option: str, scheme: str, runs: tuple[str, str], tmp_path: Path
) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"{scheme}://127.0.0.1:{taken.getsockname()[1]}"
        done, told = neaptide(tmp_path, "check", *runs, option, address)
    assert done.returncode == MISSING
    assert told is None
    last = done.stderr.strip().splitlines()[-1]
    assert re.fullmatch(rf"neaptide: No Spark .* answers at {address} \(.*\): start it.*\.", last)


@pytest.mark.parametrize(
    "options",
    [
        ("--master", "nonsense"),
        ("--master", "sc://127.0.0.1"),
        ("--remote", "spark://127.0.0.1:7077"),
        ("--master", "local[1]", "--remote", "sc://127.0.0.1"),
    ],
)
def test_what_spark_cannot_be_told_is_wrong_usage(options: tuple[str, ...], tmp_path: Path) -> None:
    done, _ = neaptide(tmp_path, "check", "any", *options)
    assert done.returncode == USAGE
    assert "--" in done.stderr
