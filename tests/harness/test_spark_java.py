"""The archive of what Spark's Java loads: written once, used afterwards, never in the way."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from neaptide.clusters.hosts.ledger import TOKEN_VARIABLE
from neaptide.clusters.shared_archive import RECORDING
from neaptide.harness.checking.spark_java import SparkHome, SparkJava
from tests.harness.command import COMMAND, neaptide
from tests.planting.planting import plant


@pytest.fixture(autouse=True)
def no_warm_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of these tests starts its own."""
    (tmp_path / "runtime").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
def java(tmp_path: Path) -> SparkJava:
    return SparkJava(tmp_path / "java", tmp_path / "x.jsa")


def test_without_an_archive_and_a_recorder_java_starts_as_always(java: SparkJava) -> None:
    assert java.options == ()
    assert not java.records


def test_without_an_archive_java_can_write_one(java: SparkJava) -> None:
    java.java.with_name("jcmd").touch()
    assert java.options == RECORDING
    assert java.records


def test_an_archive_is_used_also_where_none_could_be_written(java: SparkJava) -> None:
    java.archive.touch()
    assert java.options == (f"-XX:SharedArchiveFile={java.archive}",)
    assert not java.records


@pytest.mark.proof
@pytest.mark.live
def test_a_first_check_writes_it_and_one_that_is_broken_changes_nothing(tmp_path: Path) -> None:
    plant(tmp_path / "run", 100, {"lost-write": 1}, partitions=1, seed=1)
    cache = tmp_path / "a cache"
    first, reported = neaptide(tmp_path, "check", "run", "--json", XDG_CACHE_HOME=str(cache))
    assert "writing down what Java has loaded" in first.stderr
    [archive] = (cache / "neaptide" / "shared").iterdir()
    archive.chmod(0o600)
    archive.write_bytes(b"not one")
    second, again = neaptide(tmp_path, "check", "run", "--json", XDG_CACHE_HOME=str(cache))
    assert "writing down" not in second.stderr
    assert reported["runs"] == again["runs"]
    assert reported["runs"][0]["anomalies"]["lost-write"] == 1


def carrying_a_token(directory: Path) -> list[tuple[psutil.Process, str]]:
    """Processes, with names, that a command of this test has started, or that these have."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environ = process.environ()
            ours = environ.get("NEAPTIDE_TEST") == str(directory)
            alive = process.status() != psutil.STATUS_ZOMBIE
            if ours and TOKEN_VARIABLE in environ and alive:
                found.append((process, process.name()))
    return found


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.spark
def test_a_java_that_outlives_a_killed_command_is_ended_by_the_next(tmp_path: Path) -> None:
    plant(tmp_path / "run", 100, {}, partitions=1, seed=1)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    stores = {"NEAPTIDE_STATE": str(tmp_path / "state"), "TMPDIR": str(scratch)}
    environ = {**os.environ, **stores, "NEAPTIDE_TEST": str(tmp_path)}
    command = subprocess.Popen(
        [*COMMAND, "check", "run"], cwd=tmp_path, env=environ, stdout=subprocess.DEVNULL
    )
    try:
        while not (left := [p for p, name in carrying_a_token(tmp_path) if name == "java"]):
            assert command.poll() is None
        for process in left:
            process.suspend()  # or it might end by itself, some time after
    finally:
        command.kill()
        command.wait()
    listed, _ = neaptide(tmp_path, "list", "--json", **stores)
    assert "ended what an earlier run left behind: Spark's Java" in listed.stderr
    assert carrying_a_token(tmp_path) == []
    assert list(scratch.iterdir()) == []


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.spark
def test_a_command_that_ends_well_leaves_no_directory_and_no_ledger(tmp_path: Path) -> None:
    plant(tmp_path / "run", 100, {}, partitions=1, seed=1)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done, _ = neaptide(tmp_path, "check", "run", "--json", TMPDIR=str(scratch))
    assert done.returncode == 0, done.stderr
    assert list(scratch.iterdir()) == []
    assert list((tmp_path / "state" / "ledger").glob("*.jsonl")) == []


def test_where_no_ledger_can_be_written_spark_starts_as_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "file"))
    before = dict(os.environ)
    home = SparkHome()
    with home.starting():
        assert dict(os.environ) == before
    assert home.java_options == ()
    home.close()


ENDS_WHILE_IT_STARTS = """
import sys, time
import psutil
from neaptide.harness.checking.check import SparkStart
SparkStart()
def is_starting():
    for process in psutil.Process().children(recursive=True):
        try:
            # A word of its own: until a child is another program, this script is its command, too.
            if "org.apache.spark.deploy.SparkSubmit" in process.cmdline():
                return True
        except psutil.Error:
            pass
    return False
while not is_starting():
    time.sleep(0.01)
sys.exit(3)
"""


@pytest.mark.live
def test_a_process_that_ends_while_spark_starts_leaves_no_java(tmp_path: Path) -> None:
    """Its output ends, too: Java has inherited it."""
    state, mark = tmp_path / "state", str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", ENDS_WHILE_IT_STARTS],
        env={**os.environ, "NEAPTIDE_STATE": str(state), "NEAPTIDE_TEST": mark},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert not [p for p in psutil.process_iter() if environment_of(p).get("NEAPTIDE_TEST") == mark]
    assert list((state / "ledger").iterdir()) == []


def environment_of(process: psutil.Process) -> dict[str, str]:
    with contextlib.suppress(psutil.Error):
        if process.status() != psutil.STATUS_ZOMBIE:
            return dict(process.environ())
    return {}
