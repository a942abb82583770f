"""How the load of a run went while each fault lasted: records acknowledged, seconds available.

Spark counts acknowledgements by second, for many runs in one job; what is brought here is bounded
by the seconds of the runs. A second belongs to each fault that lasted in it; those without any
are of "none".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CALM: Final = "none"
Span = tuple[float, float, str]  # from, to, in seconds since the run began; the fault
Rate = dict[str, Any]  # a row of rows.RATE

_BY_SECOND: Final = """
    SELECT run, coalesce(completed_ns, invoked_ns) DIV 1000000000 AS second,
           count_if(type = 'ok') AS acknowledged
    FROM {sends} GROUP BY ALL
"""


def rates_of(spark: SparkSession, runs: Sequence[Path]) -> dict[Path, list[Rate]]:
    """Of runs that can be read; the others have none."""
    from neaptide.checkers.material import open_run
    from neaptide.checkers.pipeline.limits import sized_for
    from neaptide.checkers.pipeline.tables import read
    from neaptide.results.report.plots import fault_spans

    materials = [one for one in map(open_run, runs) if one.files["operations"]]
    if not materials:
        return {}
    counted: dict[int, dict[int, int]] = defaultdict(dict)
    steps: dict[int, list[dict[str, Any]]] = defaultdict(list)
    with sized_for(spark, materials):
        operations = read(spark, "operations", materials)
        sends = operations.where("f = 'send'")
        for row in spark.sql(_BY_SECOND, sends=sends).collect():
            counted[row["run"]][row["second"]] = row["acknowledged"]
        faults = operations.where("f = 'nemesis'").select("run", "invoked_ns", "row", "value")
        for row in faults.collect():
            steps[row["run"]].append(row.asDict())
    return {
        material.directory: rates(counted[number], _named(fault_spans(_in_order(steps[number]))))
        for number, material in enumerate(materials)
    }


def _in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["invoked_ns"], row["row"]))


def _named(spans: Iterable[Span]) -> list[Span]:
    """By the kind of fault alone: `kill`, not `kill 2`."""
    return [(begun_s, ended_s, name.partition(" ")[0]) for begun_s, ended_s, name in spans]


def rates(acknowledged: Mapping[int, int], spans: Sequence[Span]) -> list[Rate]:
    """`acknowledged`: by second, for each in which a send ended; the load lasts from the first of
    them to the last."""
    found: dict[str, Rate] = {}
    for second in range(min(acknowledged, default=0), max(acknowledged, default=-1) + 1):
        names = {
            name for begun_s, ended_s, name in spans if begun_s < second + 1 and ended_s > second
        }
        for name in names or {CALM}:
            rate = found.setdefault(
                name, {"fault": name, "seconds": 0, "acknowledged": 0, "available_s": 0}
            )
            count = acknowledged.get(second, 0)
            rate["seconds"] += 1
            rate["acknowledged"] += count
            rate["available_s"] += count > 0
    return [found[name] for name in sorted(found)]
