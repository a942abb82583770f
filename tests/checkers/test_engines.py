"""Both engines, DuckDB in Spark's tasks and Spark SQL alone, say the same of the same runs.

Each is the other's oracle: the verdicts are compared byte by byte, the evidence row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from neaptide.checkers.rules import conditions
from neaptide.checkers.verdict import EngineName, Options
from neaptide.results.schema import ANOMALIES
from neaptide.results.verdicts import VERDICT_FILE
from tests.checkers import test_anomalies, test_transactions, test_workload_anomalies
from tests.checkers.histories import Story
from tests.differential import runs
from tests.proof import proof_but

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # Spark SQL plans for minutes

GENERATED = 12
# So many stories that show several anomalies, and a silent one, by some rules in `make test`;
# `make proof` takes all, by all rules.
FEW = 5
SOME = frozenset({"places", "gone"})  # what these rules are over
ENGINES: tuple[EngineName, ...] = ("duckdb", "spark")


def stories() -> dict[str, Any]:
    tiny: dict[str, Story] = {
        f"{kind}-{name}": reported[0]
        for kind, stories in (
            ("anomalies", test_anomalies.STORIES),
            ("transactions", test_transactions.STORIES),
            ("workloads", test_workload_anomalies.STORIES),
        )
        for name, reported in stories.items()
    }
    generated = {f"generated-{n}": runs.generated(n) for n in range(GENERATED)}
    return {**tiny, **generated}


def few() -> dict[str, Any]:
    known = test_anomalies.STORIES
    asked = {rule.name for rule in conditions.RULES if rule.over in SOME}
    shown = [
        name
        for name, (_, _, expected) in known.items()
        if sum(anomaly in asked for anomaly, *_ in expected) > 1
    ]
    silent = next(name for name, (_, _, expected) in known.items() if not expected)
    return {name: known[name][0] for name in (silent, *shown[:FEW])}


@pytest.fixture(scope="module", params=proof_but(("few", "all"), "few"))
def by_engine(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Mapping[str, Mapping[str, tuple[bytes, Counter[tuple[Any, ...]]]]]:
    """What each engine wrote into each run."""
    written: dict[str, Mapping[str, tuple[bytes, Counter[tuple[Any, ...]]]]] = {}
    thorough = request.param == "all"
    taken = stories() if thorough else few()
    with pytest.MonkeyPatch.context() as patched:
        if not thorough:
            rules = tuple(rule for rule in conditions.RULES if rule.over in SOME)
            patched.setattr(conditions, "RULES", rules)
        for engine in ENGINES:
            folder = tmp_path_factory.mktemp(engine)
            directories = {name: story.write(folder / name) for name, story in taken.items()}
            options = Options(engine=engine, thorough=thorough)
            check_runs(spark, directories.values(), options=options)
            written[engine] = {name: read(directory) for name, directory in directories.items()}
    return written


def read(run: Path) -> tuple[bytes, Counter[tuple[Any, ...]]]:
    tables = [
        pq.read_table(run / name, schema=ANOMALIES).to_pylist()
        for name in ("anomalies", "measures")
    ]
    rows = Counter(tuple(row.values()) for table in tables for row in table)
    return (run / VERDICT_FILE).read_bytes(), rows


def test_all_verdicts_are_the_same_to_the_byte(by_engine: Mapping[str, Any]) -> None:
    duckdb, spark = (by_engine[engine] for engine in ENGINES)
    differ = [name for name in duckdb if duckdb[name][0] != spark[name][0]]
    assert not differ, (duckdb[differ[0]][0], spark[differ[0]][0])


def test_all_evidence_is_the_same(by_engine: Mapping[str, Any]) -> None:
    duckdb, spark = (by_engine[engine] for engine in ENGINES)
    for name in duckdb:
        assert duckdb[name][1] == spark[name][1], name
    assert sum(sum(rows.values()) for _, rows in duckdb.values()) > len(duckdb)
