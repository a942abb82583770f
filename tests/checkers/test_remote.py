"""Runs that are named by URI are read by Spark alone, and judged like those that lie here."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_materials, check_runs
from neaptide.checkers.pipeline.limits import settings
from neaptide.checkers.pipeline.remote import copy_history, is_remote_path, open_remote
from neaptide.results.errors import RunNotFoundError, RunUnreadableError
from tests.checkers.histories import Story, final, poll, send, txn
from tests.results.losing_run import write_losing_run

pytestmark = pytest.mark.spark


def test_the_verdict_is_that_of_the_run_itself(spark: SparkSession, tmp_path: Path) -> None:
    away, here = tmp_path / "away", tmp_path / "here"
    runs = [
        write_losing_run(away / "losing"),
        Story([txn(("send", 0, "a")), poll((0, "a")), final((0, "a"))]).write(away / "txn"),
        Story([send("a", 0)], run={"status": "interrupted"}).write(away / "cut"),
    ]
    opened = [open_remote(spark, f"file://{run}/", here) for run in runs]
    assert [material.transactions for material in opened] == [False, True, False]
    judged = check_materials(spark, opened)
    assert [judged[here / run.name] for run in runs] == check_runs(spark, runs)
    for run in runs:
        assert sorted(path.name for path in (here / run.name).iterdir()) == [
            "anomalies", "measures", "run.json", "verdict.json",
        ]  # fmt: skip
        assert (here / run.name / "run.json").read_bytes() == (run / "run.json").read_bytes()


def test_what_is_not_there_or_no_run_is_reported_in_a_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    run = Story([send("a", 0), final((0, "a"))]).write(tmp_path / "run")
    with pytest.raises(RunNotFoundError, match=r"There is no file:.*/nothing/run\.json"):
        open_remote(spark, f"file://{tmp_path}/nothing", here)
    with pytest.raises(RunUnreadableError, match=r"Spark cannot read nosuch://x/run/run\.json"):
        open_remote(spark, "nosuch://x/run", here)
    (run / "run.json").write_text("{")
    with pytest.raises(RunUnreadableError, match=r"run\.json cannot be understood"):
        open_remote(spark, f"file://{run}", here)
    assert not here.exists()


def test_a_table_with_other_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    run = write_losing_run(tmp_path / "run")
    for file in (run / "replicas").iterdir():
        (run / "operations" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(RunUnreadableError, match="lacks the column 'operation'"):
        open_remote(spark, f"file://{run}", tmp_path / "here")


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"a\r\nb\rc\n\n\xff\x00 d\n", b"".join(b"%090d\n" % n for n in range(400))]
)
def test_a_history_is_copied_to_the_byte_wherever_spark_cuts_it(
    spark: SparkSession, tmp_path: Path, text: bytes
) -> None:
    away, here = tmp_path / "away.edn", tmp_path / "here.edn"
    away.write_bytes(text)
    cut = {"spark.sql.files.maxPartitionBytes": "5000", "spark.sql.files.openCostInBytes": "0"}
    with settings(spark, {**cut, "spark.sql.execution.arrow.maxRecordsPerBatch": "7"}):
        copy_history(spark, f"file://{away}", here)
    assert here.read_bytes() == text + b"\n" * (not text.endswith(b"\n") and text != b"")


def test_a_history_that_is_not_there_is_reported_in_a_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(RunNotFoundError, match=r"There is no file:.*/no\.edn: name a history\."):
        copy_history(spark, f"file://{tmp_path}/no.edn", tmp_path / "here.edn")


@pytest.mark.parametrize(("text", "yes"), [("s3a://b/r", True), ("runs/x", False), ("x", False)])
def test_uris_are_distinguished_from_paths(text: str, yes: bool) -> None:
    assert is_remote_path(text) is yes
