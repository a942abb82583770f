"""Verdicts as JUnit XML, for whoever collects the results of tests.

A run is a test case: anomalous is a failure, with its evidence, and what else could not be proved
beside it; unknown is an error, with its reasons, and never a pass. Not a report for people: that is
`neaptide.results.report`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from neaptide.results.cases import Case, evidence
from neaptide.results.errors import StoreError

SUITE: Final = "neaptide check"
EVIDENCE_MAX: Final = 20
# What XML 1.0 has no way to write.
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(cases: Sequence[Case], path: Path) -> None:
    """Raises StoreError."""
    suite = TestSuite(SUITE)
    for case in cases:
        suite.add_testcase(_test_case(case))
    xml = JUnitXml()
    xml.add_testsuite(suite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        xml.write(str(path), pretty=True)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror}.") from error


def _test_case(case: Case) -> TestCase:
    run = case.run
    about = "unreadable" if run is None else f"{run.name}.{run.system}"
    test = TestCase(writable(case.name), classname=writable(about))
    if case.anomalous:
        test.result = [_result(Failure, case, case.outcome, evidence(case, EVIDENCE_MAX))]
    elif case.unknown:
        sentences = [*case.reasons, *(f"found so far: {one}" for one in _found_so_far(case))]
        test.result = [_result(Error, case, "unknown", sentences)]
    repeat = f"; to repeat: {run.repeat}" if run is not None and run.repeat else ""
    unproved = [] if case.unknown else [f"not proved: {reason}" for reason in case.reasons]
    said = [f"{case.operations} operations in {case.directory}{repeat}", *unproved]
    test.system_out = writable("\n".join(said))
    return test


def _result(
    kind: type[Failure] | type[Error], case: Case, word: str, sentences: Sequence[str]
) -> Failure | Error:
    first = case.found if kind is Failure else " ".join(case.reasons)
    result = kind(writable(f"{word}: {first}"), word)
    result.text = writable("\n".join(sentences))
    return result


def _found_so_far(case: Case) -> list[str]:
    return evidence(case, EVIDENCE_MAX) if case.anomalies else []


def writable(text: str) -> str:
    """Without what XML has no way to write."""
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)
