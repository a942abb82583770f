"""The archive of what Spark's Java loads: written once, used afterwards, never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.shared_archive import RECORDING
from neaptide.harness.spark_java import SparkJava
from tests.harness.command import neaptide
from tests.planting.planting import plant


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


@pytest.mark.live
def test_a_first_check_writes_it_and_one_that_is_broken_changes_nothing(tmp_path: Path) -> None:
    plant(tmp_path / "run", 100, {"lost-write": 1}, partitions=1, seed=1)
    cache = tmp_path / "a cache"
    first, told = neaptide(tmp_path, "check", "run", "--json", XDG_CACHE_HOME=str(cache))
    assert "writing down what Java has loaded" in first.stderr
    [archive] = (cache / "neaptide" / "shared").iterdir()
    archive.chmod(0o600)
    archive.write_bytes(b"not one")
    second, again = neaptide(tmp_path, "check", "run", "--json", XDG_CACHE_HOME=str(cache))
    assert "writing down" not in second.stderr
    assert told["runs"] == again["runs"]
    assert told["runs"][0]["anomalies"]["lost-write"] == 1
