"""What all nights together say: Spark over every row that was ever stored, not only the last night.

The rule: numbers are of the last attempt of each item; the runs that made a finding smaller are
counted apart. A share comes with its interval (Wilson, 95 %): one anomaly in two runs is little
knowledge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scipy.stats import binomtest

from neaptide.harness.nightly.rows import ROWS_FILE, SCHEMA
from neaptide.harness.nightly.state import nights_in, read_night

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Table = list[dict[str, Any]]
CONFIDENCE: Final = 0.95

# Each reads `rows`, or what stands before it.
_ITEMS: Final = """
    SELECT * FROM (
        SELECT *, row_number() OVER (
            PARTITION BY night, regexp_replace(play, ' #[0-9]+$', '')
            ORDER BY CAST(regexp_extract(play, '#([0-9]+)$', 1) AS INT) DESC
        ) AS newest
        FROM {rows} WHERE kind IN ('known', 'pairs', 'swarm') OR news = 'new'
    ) WHERE newest = 1
"""
_NIGHTS: Final = """
    SELECT night, count(*) AS runs,
           count_if(verdict = 'valid') AS valid,
           count_if(verdict = 'anomalous') AS anomalous,
           count_if(verdict NOT IN ('valid', 'anomalous')) AS unknown,
           count_if(news = 'new') AS new,
           count_if(news = 'known') AS known,
           count_if(news = 'came back') AS came_back,
           count_if(news = 'quiet') AS quiet,
           count_if(host = 'simulation') AS searches,
           sum(IF(host = 'simulation', operations, 0)) AS schedules,
           sum(acknowledged) AS acknowledged,
           sum(aimed) AS aimed,
           sum(aimed - missed) AS hit
    FROM {items} GROUP BY night ORDER BY night
"""
_CELLS: Final = """
    SELECT system, host, workload, client, faults, settings,
           count(*) AS runs,
           count_if(verdict = 'anomalous') AS anomalous,
           count_if(verdict NOT IN ('valid', 'anomalous')) AS unknown,
           avg(seconds) AS seconds
    FROM {items} GROUP BY system, host, workload, client, faults, settings
    ORDER BY anomalous DESC, unknown DESC, runs DESC,
             system, host, workload, client, faults, settings
"""
_UNKNOWNS: Final = """
    SELECT why, count(DISTINCT night, play) AS runs, count(DISTINCT night) AS nights,
           collect_set(system) AS systems
    FROM (SELECT night, play, system, explode(reasons) AS reason FROM {items}
          WHERE verdict NOT IN ('valid', 'anomalous'))
    LATERAL VIEW explode(array(regexp_replace(reason, '[0-9]+', 'N'))) AS why
    GROUP BY why ORDER BY runs DESC, why
"""
_FAULTS: Final = """
    SELECT system, rate.fault AS fault, sum(rate.seconds) AS seconds,
           sum(rate.acknowledged) / sum(rate.seconds) AS acknowledged_per_s,
           sum(rate.available_s) / sum(rate.seconds) AS available
    FROM (SELECT system, explode(rates) AS rate FROM {items})
    GROUP BY system, rate.fault ORDER BY system, fault
"""
_FINDINGS: Final = """
    SELECT key, min(night) AS first_night, max(night) AS last_night,
           count(DISTINCT night) AS nights, count(*) AS runs,
           max_by(run, (night, play)) AS run, max_by(outcome, night) AS outcome
    FROM {items} WHERE key <> '' GROUP BY key HAVING count_if(kind <> 'known') > 0
    ORDER BY first_night DESC, key
"""
_KNOWN: Final = """
    SELECT of, count(*) AS plays, count_if(verdict = 'anomalous') AS lost,
           count_if(verdict NOT IN ('valid', 'anomalous')) AS unknown,
           max(night) AS last_night, max_by(outcome, night) AS outcome,
           max_by(expected, night) AS expected, max_by(news, night) AS news,
           max_by(repeat, night) AS repeat
    FROM {items} WHERE kind = 'known' GROUP BY of ORDER BY of
"""


def wilson(count: int, of: int) -> tuple[float, float] | None:
    """The interval in which a share lies; None of nothing."""
    if not of:
        return None
    found = binomtest(count, of).proportion_ci(CONFIDENCE, method="wilson")
    return round(float(found.low), 4), round(float(found.high), 4)


def trends(spark: SparkSession, nights: Path) -> dict[str, Any]:
    """All tables of the page, as JSON has them. Nights without a row count, too."""
    from neaptide.checkers.pipeline.limits import sized_for
    from neaptide.checkers.pipeline.tables import spark_schema

    all_nights = nights_in(nights)
    files = [
        f"file://{night.absolute() / ROWS_FILE}"
        for night in all_nights
        if (night / ROWS_FILE).exists()
    ]
    if not files:
        return {**_NOTHING, "nights": _with_journals([], all_nights)}
    rows = spark.read.schema(spark_schema(SCHEMA)).parquet(*files)
    with sized_for(spark, []):  # a row a play: few, as rows of Spark go
        items = spark.sql(_ITEMS, rows=rows).persist()

        def asked(query: str) -> Table:
            return [row.asDict() for row in spark.sql(query, items=items).collect()]

        try:
            return {
                "nights": _with_journals(asked(_NIGHTS), all_nights),
                "findings": _with_files(asked(_FINDINGS), all_nights),
                "known": asked(_KNOWN),
                "cells": [_with_interval(cell) for cell in asked(_CELLS)],
                "unknowns": [
                    {**one, "systems": sorted(one["systems"])} for one in asked(_UNKNOWNS)
                ],
                "faults": asked(_FAULTS),
            }
        finally:
            items.unpersist()


def _with_interval(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Of the runs that concluded, how many are anomalous; and what share of all did not."""
    concluded = cell["runs"] - cell["unknown"]
    return {
        **cell,
        "anomalous_interval": wilson(cell["anomalous"], concluded),
        "unknown_interval": wilson(cell["unknown"], cell["runs"]),
        "is_flaky": 0 < cell["anomalous"] < concluded,
    }


_NOTHING: Final[Mapping[str, Table]] = {
    name: [] for name in ("nights", "findings", "known", "cells", "unknowns", "faults")
}
_COUNTS: Final = (
    *("runs", "valid", "anomalous", "unknown", "new", "known", "came_back", "quiet"),
    *("searches", "schedules", "acknowledged", "aimed", "hit"),
)
_NO_ROWS: Final = dict.fromkeys(_COUNTS, 0)


def _with_journals(rows: Sequence[Mapping[str, Any]], nights: Sequence[Path]) -> Table:
    """What the journal alone knows: how long the night was, and whether it came to its end."""
    by_night = {row["night"]: row for row in rows}
    found = []
    for night in nights:
        state = read_night(night)
        found.append(
            {
                **_NO_ROWS,
                **by_night.get(night.name, {}),
                "night": night.name,
                "utc": state.night.get("utc", ""),
                "seed": state.night.get("seed"),
                "seconds": round(state.used_s, 1),
                "is_over": state.is_over,
                "plays_of_findings": sum(
                    row["kind"] not in ("known", "pairs", "swarm") for row in state.rows
                ),
                "thinned": len(state.thinned),
            }
        )
    return found


def _with_files(rows: Sequence[Mapping[str, Any]], nights: Sequence[Path]) -> Table:
    """How often each finding came again, and the file that it is saved as."""
    said: dict[str, Mapping[str, Any]] = {}
    for night in nights:
        said |= read_night(night).findings
    kept = ("file", "again", "confirm", "faults", "phases", "complete", "simulated", "why")
    return [{**row, **{name: said.get(row["key"], {}).get(name) for name in kept}} for row in rows]
