"""All checks put together: all anomalies of all runs, and the few numbers that a verdict needs.

Each check is a function of DataFrames in a module of its own. They are run one after the other, so
that what was found so far is known if a later one fails or the time is over.

The rule: what is brought to the driver is one row per run and kind of anomaly, and one per run and
partition; never one per record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce

from pyspark.sql import DataFrame, Row, SparkSession

from checkers import (
    commits,
    cycles,
    fetch_rounds,
    measures,
    offsets,
    places,
    polls,
    replicas,
    sends,
    values,
)
from checkers.frames import FINAL_READS, RUNS, TABLES, Frames, literal, read_table
from checkers.limits import aggregating_once, is_scattered
from checkers.material import Material
from checkers.verdict import Counts, PartitionCounts
from checkers.witnesses import with_witnesses

Check = Callable[[], DataFrame]
Keep = Callable[[DataFrame], DataFrame]


@dataclass(slots=True)
class Counted:
    """What was counted so far, and the anomalies themselves for as long as Spark keeps them."""

    findings: list[Row] = field(default_factory=list)
    anomalies: list[DataFrame] = field(default_factory=list)
    frames: Frames | None = None  # where witnesses are
    _kept: ExitStack = field(default_factory=ExitStack)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Have Spark keep its rows, when it has made them, until all is let go."""
        frame = frame.persist()
        self._kept.callback(frame.unpersist)
        return frame

    def let_go(self) -> None:
        self._kept.close()

    def by_run(self) -> dict[str, Counts]:
        findings: dict[str, list[Row]] = defaultdict(list)
        for finding in self.findings:
            findings[finding["run"]].append(finding)
        return {run: _of_run(rows) for run, rows in findings.items()}

    def rows(self) -> DataFrame:
        """All anomalies that were found, with those who bear witness of them."""
        rows = reduce(DataFrame.unionAll, self.anomalies)
        frames = self.frames
        is_witnessed = frames is not None and frames.written & {"replicas", "fetch_rounds"}
        return with_witnesses(frames, rows) if frames is not None and is_witnessed else rows

    @property
    def total(self) -> int:
        return sum(finding["count"] for finding in self.findings)


def count(frames: Frames, counted: Counted, *, thorough: bool, at_once: bool) -> None:
    """Run the checks: one after the other, or all of them in one job, which is for few rows.

    `thorough` also takes measures, and looks for what is normal in Kafka: skips between sends,
    cycles over rw edges.
    """
    counted.frames = frames
    if frames.scattered:
        frames = replace(frames, operations=counted.keep(frames.operations))
    # One row a partition, which nearly every check looks at: found once.
    partitions = counted.keep(values.partitions(frames))
    spark = frames.operations.sparkSession

    def planned(check: Check) -> DataFrame:
        with aggregating_once(spark):
            return counted.keep(check())

    # Spark plans on one thread what it will do, and does on others what was planned before.
    with ThreadPoolExecutor(1, "planner") as planner:
        of_records = planner.submit(_of_records, frames, partitions, counted.keep, thorough)
        counted.findings += _of_partitions(partitions).collect()
        checks = [*of_records.result(), *_of_replication(frames, counted.keep)]
        if any(finding["commits"] for finding in counted.findings):
            checks.append(lambda: commits.commit_anomalies(commits.positions(frames), partitions))
        if at_once:
            checks = [partial(_all_of, checks)]
        following = planner.submit(planned, checks[0])
        for check in [*checks[1:], None]:
            anomalies = following.result()
            if check is not None:
                following = planner.submit(planned, check)
            counted.findings += _by_name(anomalies).collect()
            counted.anomalies.append(anomalies)


def _all_of(checks: Sequence[Check]) -> DataFrame:
    return reduce(DataFrame.unionAll, (check() for check in checks))


def read_frames(spark: SparkSession, materials: Sequence[Material]) -> Frames:
    """The tables of all runs, and what their `run.json` say of them."""
    tables = {
        name: read_table(spark, name, {m.name: m.files[name] for m in materials}) for name in TABLES
    }
    runs = [
        {"run": m.name, "whole": m.whole, "level": m.level, "transactions": m.transactions}
        for m in materials
    ]
    final_reads = [
        {
            "run": m.name,
            "topic": read.topic,
            "partition": read.partition,
            "complete": m.whole and read.reached,
            "start_offset": read.start_offset,
            "end_offset": read.end_offset,
        }
        for m in materials
        for read in m.final_reads.values()
    ]
    return Frames(
        operations=tables["operations"],
        fetch_rounds=tables["fetch_rounds"],
        replicas=tables["replicas"],
        runs=literal(spark, RUNS, runs),
        final_reads=literal(spark, FINAL_READS, final_reads),
        written=frozenset(n for n in TABLES if any(m.files[n] for m in materials)),
        single=len(materials) == 1,
        scattered=is_scattered(materials),
        transactions=any(m.transactions for m in materials),
    )


def _of_records(frames: Frames, partitions: DataFrame, keep: Keep, thorough: bool) -> list[Check]:
    """Checks of what was sent and read, to be made when their turn comes."""
    with aggregating_once(frames.operations.sparkSession):
        place = keep(places.places(frames))
    profile = values.profiles(place, partitions)
    known = offsets.known_records(place)
    broken = keep(offsets.breaks(known))
    if frames.transactions or thorough:
        profile = keep(profile)
    odd = keep(polls.odd_steps(polls.steps(frames)))
    checks: list[Check] = [
        lambda: values.value_anomalies(profile),
        lambda: polls.backward(odd),
        lambda: polls.skips(odd, broken, frames.final_reads),
        lambda: offsets.inconsistent_offsets(known, broken),
    ]
    if thorough:
        checks += [
            lambda: measures.availability(frames, partitions),
            lambda: measures.unseen_over_time(profile),
        ]
    if frames.transactions or thorough:
        steps = sends.steps(profile)
        checks.append(lambda: sends.skips(steps, broken, between_operations=thorough))
    if frames.transactions:
        checks += [
            lambda: sends.precommitted_reads(frames),
            lambda: cycles.cycle_anomalies(frames, known, rw=thorough),
        ]
    return checks


def _of_replication(frames: Frames, keep: Keep) -> list[Check]:
    """Checks of the replicas' logs and of the fetch rounds, where there are any."""
    checks: list[Check] = []
    if "replicas" in frames.written:
        checks.append(lambda: replicas.differences(frames))
    if "fetch_rounds" in frames.written:
        rounds = keep(fetch_rounds.told(frames))
        checks += [
            lambda: fetch_rounds.regressions(rounds),
            lambda: fetch_rounds.regressions_at_election(rounds),
        ]
    return checks


def _by_name(anomalies: DataFrame) -> DataFrame:
    return anomalies.groupBy("run", "anomaly").count()


def _of_partitions(partitions: DataFrame) -> DataFrame:
    """With a null name, what each partition saw."""
    return partitions.selectExpr(
        "run", "CAST(NULL AS STRING) AS anomaly", "0L AS count", "topic", "partition",
        "operations", "sends", "acked", "complete", "final_records", "backward_operation",
        "commits",
    )  # fmt: skip


def _of_run(findings: Sequence[Row]) -> Counts:
    partitions = [
        PartitionCounts(
            topic=row["topic"],
            partition=row["partition"],
            operations=row["operations"],
            sends=row["sends"],
            acked=row["acked"],
            complete=row["complete"],
            final_records=row["final_records"],
            backward_operation=row["backward_operation"],
        )
        for row in findings
        if row["anomaly"] is None
    ]
    anomalies: Counter[str] = Counter()
    for row in findings:
        if row["anomaly"] is not None:
            anomalies[row["anomaly"]] += row["count"]
    return Counts(anomalies, tuple(partitions))
