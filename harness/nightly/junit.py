"""The rows of a night as JUnit XML: anomalous is a failure, unknown an error, and so is no row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from neaptide.results.errors import StoreError
from neaptide.results.junit import writable

SUITE: Final = "neaptide nightly"
NO_EVIDENCE: Final = "no evidence"
Row = Mapping[str, Any]


def write_junit(rows: Sequence[Row], path: Path) -> None:
    """`rows`: the last of each item. Raises StoreError."""
    suite = TestSuite(SUITE)
    for row in rows:
        suite.add_testcase(_test_case(row))
    if not rows:
        nothing = TestCase("night", classname=SUITE)
        nothing.result = [Error("nothing was played to its end", NO_EVIDENCE)]
        suite.add_testcase(nothing)
    xml = JUnitXml()
    xml.add_testsuite(suite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        xml.write(str(path), pretty=True)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror}.") from error


def _test_case(row: Row) -> TestCase:
    name = " ".join(row[part] for part in ("play", "faults", "settings") if row[part])
    about = f"{row['workload']}.{row['system']}"
    test = TestCase(writable(name), classname=writable(about), time=row["seconds"])
    if row["verdict"] == "anomalous":
        what = ", ".join(part for part in (row["outcome"], row["news"]) if part)
        test.result = [Failure(writable(f"{what}: {row['anomalies']}"), row["outcome"])]
    elif row["verdict"] != "valid":
        test.result = [Error(writable(" ".join(row["reasons"])), NO_EVIDENCE)]
    test.system_out = writable(f"run {row['run'] or 'none'}; to repeat: {row['repeat']}")
    return test
