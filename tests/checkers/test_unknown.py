"""What is missing or broken makes a run unknown, in a sentence, and disturbs no other run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from neaptide.checkers.check import TRIES, check_materials, check_runs, without_namesakes
from neaptide.checkers.count import Check, Counted
from neaptide.checkers.material import open_run
from neaptide.checkers.rules import conditions
from neaptide.checkers.verdict import RunVerdict
from neaptide.results.run import Aim, Converged
from neaptide.results.schema import ANOMALIES
from tests.checkers.histories import MISSED, Story, answered, final, held, poll, reached, send

pytestmark = pytest.mark.spark

GOOD = Story(
    [send("a", 0), send("b", 1), poll((0, "a")), final((0, "a"), (1, "b"))],
    replicas=[held(0, (0, "a"), (1, "b")), held(1, (0, "a"), (1, "b"))],
    rounds=[answered(1, at=3)],
)
LOSS = Story([send("a", 0), send("b", 1), poll((0, "a"), (1, "b")), final((0, "a"))])


def changed(**run: object) -> Story:
    return Story(LOSS.ops, run=run)


def damage(table: str, content: bytes) -> Callable[[Path], None]:
    def break_it(run: Path) -> None:
        (run / table).mkdir(exist_ok=True)
        (run / table / "part-9-00000.parquet").write_bytes(content)

    return break_it


def cut_in_the_middle(run: Path) -> None:
    path = run / "operations" / "part-0-00000.parquet"
    path.write_bytes(path.read_bytes()[:-100])


def garbage_inside(run: Path) -> None:
    """The footer is whole, the pages are not: only who reads them notices."""
    path = run / "operations" / "part-0-00000.parquet"
    data = bytearray(path.read_bytes())
    data[4:400] = bytes([0xA5]) * 396
    path.write_bytes(bytes(data))


def garbage_in_a_second_file(run: Path) -> None:
    first = run / "operations" / "part-0-00000.parquet"
    data = first.read_bytes()
    garbage_inside(run)
    first.rename(first.with_name("part-1-00000.parquet"))
    first.write_bytes(data)


def left_unfinished(run: Path) -> None:
    (run / "operations" / ".part-1-00000.parquet.tmp").write_bytes(b"PAR1")


def other_columns(run: Path) -> None:
    pq.write_table(pa.table({"operation": [1]}), run / "operations" / "part-9-00000.parquet")


def no_run_json(run: Path) -> None:
    (run / "run.json").unlink()


def no_operations(run: Path) -> None:
    for path in (run / "operations").iterdir():
        path.unlink()


def no_replicas(run: Path) -> None:
    for path in (run / "replicas").iterdir():
        path.unlink()


def nothing(run: Path) -> None:
    """Leave the run as it was written."""


CASES: dict[str, tuple[Story, Callable[[Path], None], str]] = {
    "still-running": (changed(status="running"), nothing, "its status is running"),
    "interrupted": (changed(status="interrupted"), nothing, "its status is interrupted"),
    "missed-aim": (changed(aim=MISSED), nothing, "missed its aim: nothing was held."),
    "missed-aim-by-an-error": (
        changed(aim=Aim(False, "Broker 1 runs 20 s after it was paused.")),
        nothing,
        "missed its aim: Broker 1 runs 20 s after it was paused.",
    ),
    "no-final-reads": (changed(final_reads=()), nothing, "there were no final reads of it"),
    "final-reads-fell-short": (
        changed(final_reads=(reached(5, yes=False),)), nothing, "did not reach the log end",
    ),
    "final-reads-not-recorded": (
        Story(LOSS.ops[:3], run={"final_reads": (reached(2),)}), nothing, "none was recorded",
    ),
    "no-run-json": (GOOD, no_run_json, "run.json is missing"),
    "no-operations": (GOOD, no_operations, "operations has no Parquet file"),
    "no-replicas": (GOOD, no_replicas, "replicas has no Parquet file"),
    "cut": (GOOD, cut_in_the_middle, "part-0-00000.parquet is not a whole Parquet file"),
    "empty-file": (GOOD, damage("fetch_rounds", b""), "part-9-00000.parquet is not a whole"),
    "garbage": (GOOD, damage("replicas", b"PAR1 not PAR1"), "part-9-00000.parquet is not a whole"),
    "garbage-inside": (GOOD, garbage_inside, "The check failed"),
    "half-garbage": (GOOD, garbage_in_a_second_file, "The check failed"),
    "unfinished": (GOOD, left_unfinished, ".part-1-00000.parquet.tmp was never finished"),
    "other-columns": (GOOD, other_columns, "lacks the column 'row'"),
    "no partition": (GOOD, nothing, "rename it"),
    "unplaced-send": (
        Story([send("a", type="fail", partition=None)]), nothing, "1 sends do not name",
    ),
    "never-level": (
        Story(
            GOOD.ops,
            replicas=[held(0, (0, "a")), held(1, (0, "x"), hw=0)],
            run={"converged": Converged(False, "broker 1 was down")},
        ),
        nothing,
        "were never level (broker 1 was down)",
    ),
}  # fmt: skip


_NONE = (GOOD, nothing, "")


@pytest.fixture(scope="module")
def verdicts(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, RunVerdict]:
    """All broken runs checked in one go, with a good one and a loss among them; those with which
    the check itself fails in another, since it halves its runs then until it knows which."""
    runs = tmp_path_factory.mktemp("broken")
    directories = {"good": GOOD.write(runs / "good"), "loss": LOSS.write(runs / "loss")}
    for name, (story, break_it, _) in CASES.items():
        directories[name] = story.write(runs / name)
        break_it(directories[name])
    directories["absent"] = runs / "absent"
    failing = [name for name in directories if "The check failed" in CASES.get(name, _NONE)[2]]
    together = [name for name in directories if name not in failing]
    found = check_runs(spark, [directories[name] for name in together])
    found += check_runs(spark, [directories[name] for name in failing])
    return dict(zip([*together, *failing], found, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_it_is_unknown_and_says_why(verdicts: dict[str, RunVerdict], name: str) -> None:
    verdict = verdicts[name]
    assert (verdict.verdict, verdict.outcome) == ("unknown", "unknown")
    assert any(CASES[name][2] in reason for reason in verdict.reasons), verdict.reasons
    assert not any(reason.endswith("..") for reason in verdict.reasons), verdict.reasons


def test_what_was_not_read_is_not_called_unrecorded(verdicts: dict[str, RunVerdict]) -> None:
    """Of a run whose file failed its final reads prove nothing, but that is not their fault."""
    assert len(verdicts["half-garbage"].reasons) == 1
    assert len(verdicts["final-reads-not-recorded"].reasons) == 1


def test_the_others_are_judged_all_the_same(verdicts: dict[str, RunVerdict]) -> None:
    assert (verdicts["good"].verdict, verdicts["good"].outcome) == ("valid", "held")
    assert (verdicts["loss"].verdict, verdicts["loss"].outcome) == ("anomalous", "lost")


def test_a_run_that_is_not_there_is_unknown_too(verdicts: dict[str, RunVerdict]) -> None:
    assert verdicts["absent"].reasons[0].endswith("absent is not a directory.")


@pytest.mark.parametrize(
    "name", ["still-running", "interrupted", "no-final-reads", "final-reads-fell-short"]
)
def test_no_loss_is_claimed_without_complete_final_reads(
    verdicts: dict[str, RunVerdict], name: str
) -> None:
    assert dict(verdicts[name].anomalies) == {}


def test_what_was_proved_is_listed_as_found_so_far(verdicts: dict[str, RunVerdict]) -> None:
    assert dict(verdicts["missed-aim"].anomalies) == {"committed-then-lost": 1, "lost-write": 1}
    assert verdicts["missed-aim"].to_json()["found_so_far"] is True
    assert verdicts["loss"].to_json()["found_so_far"] is False


def test_a_cut_history_invents_no_phantoms(spark: SparkSession, tmp_path: Path) -> None:
    run = Story([final((0, "a"))], run={"status": "interrupted"}).write(tmp_path / "cut")
    (verdict,) = check_runs(spark, [run])
    assert dict(verdict.anomalies) == {}


def test_a_check_that_runs_out_of_time_is_unknown(spark: SparkSession, tmp_path: Path) -> None:
    (verdict,) = check_runs(spark, [GOOD.write(tmp_path / "slow")], time_limit_s=0.0)
    assert verdict.reasons == ("The check ran out of its 0 s.",)


def test_a_file_that_is_gone_meanwhile_fails_its_run_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    opened = [open_run(story.write(tmp_path / name)) for name, story in (("x", GOOD), ("y", LOSS))]
    no_operations(tmp_path / "x")
    gone, loss = check_materials(spark, opened).values()
    [reason] = gone.reasons
    assert reason.startswith("The check failed: AnalysisException: [PATH_NOT_FOUND]")
    assert (loss.verdict, loss.outcome) == ("anomalous", "lost")


def test_runs_of_one_name_in_two_places_are_distinguished(tmp_path: Path) -> None:
    first = open_run(GOOD.write(tmp_path / "x" / "same"))
    second = open_run(LOSS.write(tmp_path / "y" / "same"))
    other = open_run(LOSS.write(tmp_path / "y" / "other"))
    assert without_namesakes([first, second, other]) == [[first, other], [second]]


def test_many_anomalies_are_written_by_spark_itself(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neaptide.checkers.pipeline.limits.FEW", 1)
    monkeypatch.setattr("neaptide.checkers.pipeline.limits.FEW_PER_TASK", 1)
    loss, good = LOSS.write(tmp_path / "loss"), GOOD.write(tmp_path / "good")
    check_runs(spark, [loss, good])
    names = pq.read_table(loss / "anomalies", schema=ANOMALIES).column("anomaly").to_pylist()
    assert sorted(names) == ["committed-then-lost", "lost-write"]
    assert pq.read_table(good / "anomalies").num_rows == 0
    assert {path.name for path in tmp_path.iterdir()} == {"loss", "good"}


def test_evidence_that_is_lost_on_its_way_makes_the_run_unknown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where executors wrote it on disks of their own."""
    monkeypatch.setattr("neaptide.checkers.pipeline.limits.FEW", 1)
    monkeypatch.setattr("neaptide.checkers.pipeline.limits.FEW_PER_TASK", 1)
    monkeypatch.setattr("neaptide.checkers.evidence.parquet_files", lambda *_: iter(()))
    lost, good = check_runs(spark, [LOSS.write(tmp_path / "loss"), GOOD.write(tmp_path / "good")])
    assert (lost.verdict, lost.outcome, good.verdict) == ("unknown", "unknown", "valid")
    [reason] = lost.reasons
    assert reason.startswith("2 anomalies were counted, and 0 rows of evidence were written")


def test_a_check_is_repeated_when_executors_have_left_with_what_was_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most so often; and nothing that fails otherwise is repeated."""
    tried = []
    whole = Check.count

    def leaving(times: int, why: str) -> None:
        def count(check: Check, counted: Counted) -> None:
            tried.append(1)
            if len(tried) <= times:
                raise RuntimeError(why)
            whole(check, counted)

        tried.clear()
        monkeypatch.setattr(Check, "count", count)

    run = GOOD.write(tmp_path / "good")
    leaving(TRIES - 1, "Checkpoint block rdd_4_0 not found! Either the executor …")
    assert ([one.verdict for one in check_runs(spark, [run])], len(tried)) == (["valid"], TRIES)
    leaving(TRIES, "Checkpoint block rdd_4_0 not found! Either the executor …")
    assert ([one.verdict for one in check_runs(spark, [run])], len(tried)) == (["unknown"], TRIES)
    leaving(1, "something else")
    assert ([one.verdict for one in check_runs(spark, [run])], len(tried)) == (["unknown"], 1)


# Stand in place of the positions of groups, which come after what finds losses.
ENDLESS = (
    "SELECT count(*), false AS lost_write FROM range(1000000000) a, range(1000000000) b"
    " WHERE a.range < -b.range"
)
LARGER_THAN_MEMORY = (
    "SELECT list(repeat(CAST(a.range AS VARCHAR), 9)) AS large, false AS lost_write"
    " FROM range(100000000) a"
)


def put_in_place_of_positions(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    relations = tuple(
        replace(one, kept=True, text=text) if one.name == "positions" else one
        for one in conditions.RELATIONS
    )
    rules = tuple(rule for rule in conditions.RULES if rule.over != "positions")
    rules += (replace(conditions.RULES[0], over="positions", at="0", evidence=()),)
    monkeypatch.setattr(conditions, "RELATIONS", relations)
    monkeypatch.setattr(conditions, "RULES", rules)


def test_a_check_that_takes_too_long_ends_with_what_it_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place_of_positions(monkeypatch, ENDLESS)
    run = LOSS.write(tmp_path / "slow")
    (verdict,) = check_runs(spark, [run], time_limit_s=10.0)
    assert verdict.reasons == ("The check ran out of its 10 s.",)
    assert dict(verdict.anomalies) == {"committed-then-lost": 1, "lost-write": 1}
    assert pq.read_table(run / "anomalies").num_rows == 2


def test_a_job_that_does_not_end_by_itself_is_interrupted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(*_: object, **__: object) -> DataFrame:
        many = spark.range(1_000_000_000)
        return many.crossJoin(many.withColumnRenamed("id", "other")).where("id + other < 0")

    monkeypatch.setattr("neaptide.checkers.count.exchanged", endless)
    monkeypatch.setattr("neaptide.checkers.pipeline.limits.GRACE_S", 0.1)
    (verdict,) = check_runs(spark, [GOOD.write(tmp_path / "slow")], time_limit_s=1.0)
    assert verdict.reasons == ("The check ran out of its 1 s.",)


def test_half_a_history_proves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time was over before all was read."""
    monkeypatch.setattr("neaptide.checkers.pipeline.limits.GRACE_S", 60.0)
    monkeypatch.setattr("neaptide.checkers.pipeline.limits.time.time", lambda: -100.0)
    run = LOSS.write(tmp_path / "slow")
    (verdict,) = check_runs(spark, [run], time_limit_s=50.0)
    assert verdict.reasons == ("The check ran out of its 50 s.",)
    assert dict(verdict.anomalies) == {}


@pytest.mark.parametrize(
    ("query", "reported"),
    [
        ("SELECT * FROM nowhere", "CatalogException: Catalog Error: Table with name nowhere"),
        (LARGER_THAN_MEMORY, "OutOfMemoryException: Out of Memory Error"),
    ],
)
def test_what_earlier_checks_found_stays_when_a_later_one_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, reported: str
) -> None:
    put_in_place_of_positions(monkeypatch, query)
    monkeypatch.setattr("neaptide.checkers.pipeline.limits.TASK_MEMORY_DEFAULT", "100MB")
    monkeypatch.setattr(
        "neaptide.checkers.pipeline.limits.TASK_MEMORY", "spark.neaptide.test.of.memory"
    )
    run = Story(LOSS.ops, replicas=[held(0, (0, "a"))]).write(tmp_path / "large")
    (verdict,) = check_runs(spark, [run])
    [reason] = verdict.reasons
    assert reason.startswith(f"The check failed: {reported}")
    assert dict(verdict.anomalies) == {"committed-then-lost": 1, "lost-write": 1}
    assert pq.read_table(run / "anomalies").num_rows == 2


@pytest.mark.parametrize("small_rows", [50_000, 0])
def test_a_task_that_cannot_take_its_rows_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_rows: int
) -> None:
    """By itself, and among others that could."""
    monkeypatch.setattr("neaptide.checkers.pipeline.limits.SMALL_ROWS", small_rows)
    monkeypatch.setattr("neaptide.checkers.pipeline.limits.TASK_MEMORY_DEFAULT", "1MB")
    monkeypatch.setattr(
        "neaptide.checkers.pipeline.limits.TASK_MEMORY", "spark.neaptide.test.of.memory"
    )
    (verdict,) = check_runs(spark, [LOSS.write(tmp_path / "large")])
    [reason] = verdict.reasons
    assert reason.startswith("The check failed: OutOfMemoryException: Out of Memory Error")
    assert dict(verdict.anomalies) == {}


OF_JAVA = """An error occurred while calling o283.collectToPython.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Somewhere"""


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (MemoryError("Java heap space"), "MemoryError: Java heap space"),
        (RuntimeError(OF_JAVA), "RuntimeError: org.apache.spark.SparkException: Job aborted"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_what_spark_fails_with_is_reported(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    reported: str,
) -> None:
    def fails(*_: object, **__: object) -> DataFrame:
        raise error

    monkeypatch.setattr("neaptide.checkers.count.exchanged", fails)
    (verdict,) = check_runs(spark, [LOSS.write(tmp_path / "large")])
    assert verdict.reasons == (f"The check failed: {reported}.",)


def test_a_second_check_replaces_the_first(spark: SparkSession, tmp_path: Path) -> None:
    run = LOSS.write(tmp_path / "again")
    first = check_runs(spark, [run])
    assert check_runs(spark, [run]) == first
    assert pq.read_table(run / "anomalies").num_rows == 2
