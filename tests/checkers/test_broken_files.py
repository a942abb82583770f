"""A run with a file that is broken in any way is unknown, and says so; the others are judged, and a
check ends. All are checked in one command, with a report of each that can have one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.verdict import RunVerdict
from neaptide.harness.checking.check import check_and_report, rows_of
from neaptide.results.run import RUN_FILE
from neaptide.results.verdicts import VERDICT_FILE
from tests.checkers.histories import Op, Story, answered, final, held, send

pytestmark = pytest.mark.spark

LED = Op(
    "leader", -2, "info", ({"topic": "t", "partition": 0, "value": '{"leader": 0, "isr": []}'},)
)
PLAIN = Story(
    (send("a", 0), final((0, "a")), LED),
    replicas=[held(0, (0, "a")), held(1, (0, "a"))],
    rounds=[answered(1, at=10)],
)
OPERATIONS, OTHER = "operations/part-0-00000.parquet", "part-1-00000.parquet"


def linked(name: str, to: str) -> Callable[[Path], None]:
    def link(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(to)

    return link


def in_place(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something else of that name."""

    def replace(run: Path) -> None:
        path = run / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        make(path)

    return replace


def cut(name: str, bytes_left: int) -> Callable[[Path], None]:
    return lambda run: os.truncate(run / name, bytes_left)


def damaged(run: Path) -> None:
    """Its footer is whole, its pages are not."""
    path = run / OPERATIONS
    content = bytearray(path.read_bytes())
    content[4:200] = b"\xff" * 196
    path.write_bytes(content)


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    def rewrite(run: Path) -> None:
        pq.write_table(change(pq.read_table(run / OPERATIONS)), run / OPERATIONS)

    return rewrite


def renamed(table: pa.Table) -> pa.Table:
    return table.rename_columns([{"value": "worth"}.get(n, n) for n in table.column_names])


def retyped(table: pa.Table) -> pa.Table:
    index = table.column_names.index("offset")
    return table.set_column(index, "offset", table["offset"].cast(pa.string()))


def told(**fields: Any) -> Callable[[Path], None]:
    """`run.json` says something else."""

    def tell(run: Path) -> None:
        document = json.loads((run / RUN_FILE).read_text())
        (run / RUN_FILE).write_text(json.dumps(document | fields))

    return tell


def deep(depth: int) -> Callable[[Path], None]:
    def nest(run: Path) -> None:
        document = json.loads((run / RUN_FILE).read_text())
        text = json.dumps(document | {"schedule": "@"})
        (run / RUN_FILE).write_text(text.replace('"@"', "[" * depth + "]" * depth))

    return nest


def final_read(**fields: Any) -> Callable[[Path], None]:
    read = {"topic": "t", "partition": 0, "end_offset": 1, "reached": True, "start_offset": 0}
    return told(final_reads=[read | fields])


# What was done to a run, and what its reasons have to say. None: it is valid all the same.
BROKEN: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "nothing": (lambda run: None, None),
    "a-looping-link": (linked(f"operations/{OTHER}", OTHER), "no file"),
    "a-dangling-link": (linked(f"replicas/{OTHER}", "nowhere"), "no file"),
    "a-table-is-a-loop": (in_place("replicas", lambda at: at.symlink_to("replicas")), "replicas"),
    "a-table-is-a-file": (in_place("fetch_rounds", lambda at: at.write_text("x")), "fetch_rounds"),
    "a-directory-in-place-of-a-file": (in_place(OPERATIONS, Path.mkdir), "no file"),
    "a-fifo-in-place-of-a-file": (in_place(OPERATIONS, os.mkfifo), "no file"),
    "a-fifo-beside-the-files": (in_place(f"replicas/{OTHER}", os.mkfifo), "no file"),
    "cut-in-the-middle": (cut(OPERATIONS, 300), "not a whole Parquet file"),
    "cut-to-nothing": (cut(OPERATIONS, 0), "not a whole Parquet file"),
    "damaged-pages": (damaged, "The check failed"),
    "a-renamed-column": (rewritten(renamed), "lacks the column 'value'"),
    "a-column-of-another-type": (rewritten(retyped), "has string in the column 'offset'"),
    "run-json-is-a-fifo": (in_place(RUN_FILE, os.mkfifo), "no regular file"),
    "run-json-is-a-directory": (in_place(RUN_FILE, Path.mkdir), "cannot be read"),
    "run-json-is-a-loop": (in_place(RUN_FILE, lambda at: at.symlink_to(RUN_FILE)), RUN_FILE),
    "run-json-is-binary": (lambda run: (run / RUN_FILE).write_bytes(b"\xff\0"), "cannot be read"),
    "run-json-is-nested-a-hundred-deep": (deep(150), "nested too deeply"),
    "run-json-is-nested-a-thousand-deep": (deep(1_000), "nested too deeply"),
    "run-json-is-nested-without-end": (deep(200_000), "nested too deeply"),
    "run-json-has-a-wrong-type": (told(final_reads={"t": 1}), "final_reads"),
    "run-json-has-a-huge-partition": (final_read(partition=2**70), "final_reads"),
    "run-json-has-a-negative-offset": (final_read(start_offset=-5), "final_reads"),
    "run-json-has-a-huge-offset": (final_read(end_offset=2**63), "final_reads"),
    "a-fifo-as-steps-json": (in_place("steps.json", os.mkfifo), None),
    "the-verdict-cannot-be-written": (in_place(VERDICT_FILE, Path.mkdir), "verdict cannot be writ"),
    "the-evidence-cannot-be-written": (
        in_place("anomalies", lambda at: at.symlink_to("anomalies")), "evidence cannot be wri"
    ),
    "the-report-cannot-be-written": (in_place("report.html", Path.mkdir), None),
}  # fmt: skip


# The tasks that judge fail with it: it is found by halving the runs that are judged together.
APART = "damaged-pages"


@pytest.fixture(scope="module")
def verdicts(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, RunVerdict]:
    folder = tmp_path_factory.mktemp("broken")
    runs = {name: PLAIN.write(folder / name) for name in BROKEN}
    for name, (damage, _) in BROKEN.items():
        damage(runs[name])
    assert rows_of([str(run) for run in runs.values()]) > 0
    together = [name for name in BROKEN if name != APART]
    found = check_and_report(spark, [runs[name] for name in together], plots=True)
    apart = check_and_report(spark, [runs[APART], PLAIN.write(folder / "beside-it")])
    assert apart[1].verdict == "valid"
    return dict(zip([*together, APART], [*found, apart[0]], strict=True))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_run_is_unknown_and_disturbs_no_other(
    verdicts: dict[str, RunVerdict], name: str
) -> None:
    verdict, reason = verdicts[name], BROKEN[name][1]
    assert verdict.verdict == ("valid" if reason is None else "unknown"), verdict.reasons
    assert reason is None or any(reason in one for one in verdict.reasons), verdict.reasons
