"""`spark.read.format("neaptide")`, and histories as runs: files by their names, read in parts."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from neaptide.checkers.histories import reader, splits
from neaptide.checkers.histories.reader import import_history
from neaptide.checkers.histories.source import COLUMNS, HistorySource
from neaptide.results.errors import RunUnreadableError
from neaptide.results.run import FinalRead, Written, read_run
from neaptide.results.schema import OPERATIONS_READ
from neaptide.results.tables import table_files
from tests.planting.jepsen import STORIES, write_edn, write_parquet

pytestmark = pytest.mark.spark

UTC_THEN = datetime(2026, 1, 1, tzinfo=UTC)
OPERATIONS = 300
NAMES = (
    "_history.edn", ".hidden.edn", "a*.edn", "ab.edn", "history[1].edn", "a:b.edn", "a b.edn",
    "a%20b.edn", "{a,b}.edn",
)  # fmt: skip


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path / "runs"))


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(HistorySource)
    return spark


def imported(spark: SparkSession, path: Path) -> Path:
    return import_history(spark, path, version="0.1.0", utc=UTC_THEN)


def table(run: Path) -> pa.Table:
    order = [("operation", "ascending"), ("row", "ascending")]
    return pq.read_table(run / "operations", schema=OPERATIONS_READ).cast(COLUMNS).sort_by(order)


def loaded(spark: SparkSession, *paths: str, split_bytes: int = 5_000) -> pa.Table:
    frame = spark.read.format("neaptide").option("splitBytes", split_bytes)
    rows = frame.load(paths[0] if len(paths) == 1 else list(paths)).orderBy("operation", "row")
    return rows.toArrow().cast(COLUMNS)


def test_the_source_the_run_and_parquet_are_the_same(
    source: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.edn"
    write_edn(path, OPERATIONS, dict.fromkeys(STORIES, 1))
    write_parquet(tmp_path / "planted", path)
    whole = table(tmp_path / "planted")
    assert whole.num_rows > OPERATIONS
    assert loaded(source, str(path)).equals(whole)
    assert loaded(source, path.as_uri()).equals(whole)
    monkeypatch.setattr(splits, "SPLIT_BYTES", 20_000)
    monkeypatch.setattr(reader, "splits", lambda path: splits.splits(path, split_bytes=20_000))
    run = imported(source, path)
    assert table(run).equals(whole)
    assert len(read_run(run).written["operations"]) > 1  # type: ignore[index]
    assert read_run(run).final_reads == read_run(tmp_path / "planted").final_reads


def test_several_files_are_one_table(source: SparkSession, tmp_path: Path) -> None:
    names = [str(tmp_path / f"{n}.edn") for n in range(2)]
    for n, name in enumerate(names):
        write_edn(Path(name), OPERATIONS, {}, seed=n)
    each = [loaded(source, name).num_rows for name in names]
    assert loaded(source, *names).num_rows == sum(each)


def test_names_are_literal(source: SparkSession, tmp_path: Path) -> None:
    for process, name in enumerate(NAMES):
        text = f"{{:type :ok, :f :send, :process {process}, :value [[:send 0 [0 1]]]}}\n"
        (tmp_path / name).write_text(text, encoding="utf-8")
    for process, name in enumerate(NAMES):
        path = tmp_path / name
        assert loaded(source, str(path))["process"].to_pylist() == [process]
        assert table(imported(source, path))["process"].to_pylist() == [process]


def test_columns_are_those_of_the_schema(source: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    write_edn(path, 10, {})
    frame = source.read.format("neaptide").load(str(path))
    assert frame.columns == OPERATIONS_READ.names
    with pytest.raises(PySparkException, match="columns of its own"):
        source.read.format("neaptide").schema("a int").load(str(path)).collect()


@pytest.mark.parametrize(
    ("lines", "processes"),
    [
        ((), []),
        (("[", "", "]"), []),
        (("{:type :info, :process :nemesis, :f :kill, :value nil}",), [-1]),
    ],
)
def test_a_history_without_clients_is_a_run(
    source: SparkSession, tmp_path: Path, lines: Sequence[str], processes: list[int]
) -> None:
    path = tmp_path / "history.edn"
    path.write_text("\n".join(lines), encoding="utf-8")
    run = imported(source, path)
    assert table(run)["process"].to_pylist() == processes
    assert len(table_files(run / "operations")) == 1
    assert read_run(run).final_reads == ()
    assert loaded(source, str(path))["process"].to_pylist() == processes


def test_a_run_says_what_was_written(source: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    path.write_text(
        "{:type :ok, :f :subscribe, :process 0, :value [3]}\n"
        '{:type :ok, :f :send, :process 0, :value [[:send 3 [0 1]] [:send "a" [0 1]]]}\n',
        encoding="utf-8",
    )
    run = read_run(imported(source, path))
    assert run.written == {"operations": {"edn.000": Written(1, 3)}}
    assert run.final_reads == (FinalRead("a", 0, None, True), FinalRead("jepsen", 3, None, True))
    assert (run.subscribes, run.assigned, run.incidents, run.converged) == (True, (), (), None)


GOOD = "{:type :ok, :f :send, :process 0, :value [[:send 0 [0 1]]]}"


@pytest.mark.parametrize("split_bytes", [70, 10_000])
def test_the_first_line_that_cannot_be_read_is_named(
    source: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split_bytes: int
) -> None:
    path = tmp_path / "history.edn"
    bad = ["{:type :ok, :f :poll, :process nil}", "{:type :ok"]
    lines = [GOOD] * 9 + bad[:1] + [GOOD] * 9 + bad[1:]
    path.write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(reader, "splits", lambda path: splits.splits(path, split_bytes=split_bytes))
    with pytest.raises(
        RunUnreadableError, match=r"history\.edn line 10 cannot be read: its :process is nil"
    ):
        imported(source, path)
    assert not list((tmp_path / "runs").glob("2*"))
    with pytest.raises(PySparkException, match=r"history\.edn line (10|20) cannot be read"):
        loaded(source, str(path), split_bytes=split_bytes)


def test_what_is_no_text_is_refused(source: SparkSession, tmp_path: Path) -> None:
    packed = tmp_path / "packed.edn"
    packed.write_bytes(gzip.compress(GOOD.encode()))
    with pytest.raises(RunUnreadableError, match="compressed by gzip"):
        imported(source, packed)
    with pytest.raises(RunUnreadableError, match="No such file"):
        imported(source, tmp_path / "missing.edn")
    with pytest.raises(RunUnreadableError, match="Is a directory"):
        imported(source, tmp_path)
    with pytest.raises(PySparkException, match="a history is a file of this machine"):
        loaded(source, "hdfs://there/history.edn")
