"""The engine of Spark alone: the same texts as temporary views, planned by Spark SQL.

Nothing but Spark: what `explain()` of the output shows is all there is. Rules about values are
spread by value, rules about order by process, rules about the log by offset, as the planner sees
fit, so that one hot partition uses all cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from neaptide.checkers.pipeline.kept import kept
from neaptide.checkers.pipeline.output import ANOMALY, OUTPUT, Asked, counted
from neaptide.checkers.pipeline.tables import RECORDED, operations_view
from neaptide.checkers.rules.conditions import Relation, text_of
from neaptide.checkers.rules.dialects import SparkSql


@contextmanager
def judged(
    spark: SparkSession,
    tables: Mapping[str, DataFrame],
    asked: Asked,
    anomalies_max: int | None,
    *,
    keeps_all: bool,
) -> Iterator[DataFrame]:
    """Rows of OUTPUT. `keeps_all`: of few rows, of which to plan a step takes longer than to store
    it."""
    with related(spark, tables, asked.plan.relations, keeps_all=keeps_all) as view:
        found = [
            spark.sql(SparkSql().found(relation.name, rules))
            for relation in asked.plan.relations
            if (rules := asked.plan.over(relation.name))
        ]
        view("found", reduce(DataFrame.unionAll, found), is_kept=True)
        view("anomalies", spark.sql(counted("found")))
        view("witnessed", spark.sql(text_of("witnessed")), is_kept=True)
        yield _output(spark, asked, anomalies_max)


class View(Protocol):
    def __call__(self, name: str, rows: DataFrame, *, is_kept: bool = False) -> None: ...


@contextmanager
def related(
    spark: SparkSession,
    tables: Mapping[str, DataFrame],
    relations: Sequence[Relation],
    *,
    keeps_all: bool,
) -> Iterator[View]:
    """Tables and relations as temporary views, all of which are given up after the `with`. What it
    gives makes more of them."""
    views: list[str] = []

    def view(name: str, rows: DataFrame, *, is_kept: bool = False) -> None:
        (kept(rows) if is_kept else rows).createOrReplaceTempView(name)
        views.append(name)

    try:
        for name, rows in tables.items():
            view(name, rows)
        view("operations", spark.sql(operations_view(tables[RECORDED].columns)))
        for relation in relations:
            view(relation.name, spark.sql(relation.sql), is_kept=relation.kept or keeps_all)
        yield view
    finally:
        for name in views:
            spark.catalog.dropTempView(name)


def _output(spark: SparkSession, asked: Asked, anomalies_max: int | None) -> DataFrame:
    parts = []
    for what, sql in asked.output(SparkSql(), is_whole=True):
        rows = spark.sql(sql).select(*(F.col(name) for name in OUTPUT.names))
        parts.append(rows.limit(anomalies_max) if what == ANOMALY and anomalies_max else rows)
    return reduce(DataFrame.unionAll, parts)
