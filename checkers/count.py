"""The one Spark job: all anomalies of all runs, and the few numbers that a verdict needs.

Here the checks are put together; each is a function of DataFrames in a module of its own.

The rule: what is brought to the driver is one row per run and kind of anomaly, and one per run and
partition; never one per record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Row, SparkSession

from checkers import (
    commits,
    cycles,
    fetch_rounds,
    measures,
    offsets,
    polls,
    replicas,
    sends,
    values,
)
from checkers.frames import FINAL_READS, RUNS, TABLES, Frames, literal, read_table
from checkers.material import Material
from checkers.verdict import Counts, PartitionCounts


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted, and the anomalies themselves for as long as they are kept."""

    counts: Mapping[str, Counts]
    anomalies: DataFrame

    def of(self, run: str) -> Counts:
        return self.counts.get(run, Counts())

    @property
    def total(self) -> int:
        return sum(sum(c.anomalies.values()) for c in self.counts.values())


@contextmanager
def count(
    spark: SparkSession, materials: Sequence[Material], *, thorough: bool = False
) -> Iterator[Counted]:
    """Run the job; the anomalies stay at hand inside the `with`.

    `thorough` also takes measures, and looks for what is normal in Kafka: skips between sends,
    cycles over rw edges.
    """
    frames = read_frames(spark, materials)
    # One row a partition, which nearly every check looks at: found once.
    partitions = values.partitions(frames).persist()
    anomalies = all_anomalies(frames, partitions, thorough=thorough)
    if frames.transactions:
        known = offsets.known_records(frames)
        found = cycles.cycle_anomalies(spark, frames, known, rw=thorough)
        anomalies = anomalies.unionAll(found)
    anomalies = anomalies.persist()
    try:
        findings = _findings(anomalies, partitions).collect()
        yield Counted(_counts(findings), anomalies)
    finally:
        anomalies.unpersist()
        partitions.unpersist()


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
        single=len(materials) == 1,
        transactions=any(m.transactions for m in materials),
    )


def all_anomalies(frames: Frames, partitions: DataFrame, *, thorough: bool = False) -> DataFrame:
    """Every anomaly of every run but the cycles, with its evidence, and perhaps the measures."""
    known = offsets.known_records(frames)
    next_known = offsets.next_known(known)
    profile = values.profiles(frames, partitions)
    rounds = fetch_rounds.told(frames)
    found = [
        values.value_anomalies(profile),
        offsets.inconsistent_offsets(known),
        polls.poll_anomalies(polls.steps(frames), next_known, frames.final_reads),
        commits.commit_anomalies(commits.positions(frames), partitions),
        replicas.differences(frames),
        fetch_rounds.regressions(rounds),
        fetch_rounds.regressions_at_election(rounds),
    ]
    if thorough:
        found += [measures.availability(frames, partitions), measures.unseen_over_time(profile)]
    if frames.transactions:
        found.append(sends.precommitted_reads(frames))
    if frames.transactions or thorough:
        steps = sends.steps(profile)
        found.append(sends.skips(steps, next_known, between_operations=thorough))
    return reduce(DataFrame.unionAll, found)


def _findings(anomalies: DataFrame, partitions: DataFrame) -> DataFrame:
    """Anomalies by run and name; then, with a null name, what each partition saw."""
    by_name = anomalies.groupBy("run", "anomaly").count()
    return by_name.selectExpr(
        "run", "anomaly", "count", "NULL AS topic", "NULL AS partition", "0L AS operations",
        "0L AS sends", "0L AS acked", "false AS complete", "0L AS final_records",
    ).unionAll(
        partitions.selectExpr(
            "run", "NULL AS anomaly", "0L AS count", "topic", "partition", "operations",
            "sends", "acked", "complete", "final_records",
        )
    )  # fmt: skip


def _counts(findings: Sequence[Row]) -> dict[str, Counts]:
    by_run: dict[str, list[Row]] = defaultdict(list)
    for finding in findings:
        by_run[finding["run"]].append(finding)
    return {run: _of_run(rows) for run, rows in by_run.items()}


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
        )
        for row in findings
        if row["anomaly"] is None
    ]
    return Counts(
        anomalies={row["anomaly"]: row["count"] for row in findings if row["anomaly"] is not None},
        partitions=tuple(partitions),
    )
