"""Many runs together: the page with the worst first, and JUnit XML. An unknown run never passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from junitparser import Error, Failure, JUnitXml, TestCase

from neaptide.results.cases import Case, cases, evidence, worst_first
from neaptide.results.errors import StoreError
from neaptide.results.junit import write_junit
from neaptide.results.report import write_report
from neaptide.results.report.runs_page import CASES_MAX, write_runs_page
from neaptide.results.store import write_run
from tests.results.losing_run import RUN, write_losing_run, write_verdict
from tests.results.page import Page

VALID = {"verdict": "valid", "outcome": "held", "anomalies": {}, "operations": 7, "reasons": []}
UNKNOWN = VALID | {"verdict": "unknown", "outcome": "unknown", "reasons": ["It was cut short."]}
LOST = VALID | {
    "verdict": "anomalous",
    "outcome": "lost",
    "anomalies": {"committed-then-lost": 1, "lost-write": 1},
}
DIVERGED = LOST | {"outcome": "diverged", "anomalies": {"replica-divergence": 1}}


def case(directory: Path, name: str, verdict: Mapping[str, Any]) -> Case:
    run = directory / name
    run.mkdir()
    write_run(run, replace(RUN, title=f"About {name}"))
    return cases([(run, verdict)])[0]


def losing(directory: Path) -> Case:
    run = write_losing_run(directory / "losing")
    write_verdict(run)
    return cases([(run, LOST)])[0]


def by_name(path: Path) -> dict[str, TestCase]:
    return {test.name: test for suite in JUnitXml.fromfile(str(path)) for test in suite}


def test_the_worst_comes_first_and_unknown_before_valid(tmp_path: Path) -> None:
    verdicts = {"good": VALID, "cut": UNKNOWN, "lost": LOST, "diverged": DIVERGED}
    found = worst_first([case(tmp_path, *pair) for pair in verdicts.items()])
    assert [one.name for one in found] == ["diverged", "lost", "cut", "good"]


def test_evidence_is_reported_in_sentences(tmp_path: Path) -> None:
    assert evidence(losing(tmp_path), 1) == [
        "lost-write: 'm2' in t-0 at offset 1, operation 2"
        " (acks all, acknowledged 4.812 s, first read 4.853 s)"
    ]


def test_junit_has_a_failure_an_error_and_a_pass(tmp_path: Path) -> None:
    path = tmp_path / "out" / "junit.xml"
    all_of_them = [losing(tmp_path), case(tmp_path, "c", UNKNOWN), case(tmp_path, "g", VALID)]
    write_junit(all_of_them, path)
    suite = JUnitXml.fromfile(str(path))
    assert (suite.tests, suite.failures, suite.errors) == (3, 1, 1)
    tests = by_name(path)
    [failure] = tests["losing"].result
    assert isinstance(failure, Failure)
    assert failure.message == "lost: committed-then-lost 1, lost-write 1"
    assert "lost-write: 'm2' in t-0 at offset 1" in (failure.text or "")
    [error] = tests["c"].result
    assert isinstance(error, Error)
    assert error.message == "unknown: It was cut short."
    assert tests["g"].result == []
    assert all("not proved" not in (test.system_out or "") for test in tests.values())
    assert tests["g"].classname == "hw-truncation-loss.neaptide:0.10"


def test_what_else_an_anomalous_run_could_not_prove_is_in_its_output(tmp_path: Path) -> None:
    lost = LOST | {"reasons": ["The replicas were never level."]}
    write_junit([case(tmp_path, "lost", lost)], tmp_path / "junit.xml")
    test = by_name(tmp_path / "junit.xml")["lost"]
    assert isinstance(test.result[0], Failure)
    assert (test.system_out or "").endswith("\nnot proved: The replicas were never level.")


def test_a_verdict_with_an_unheard_of_word_does_not_pass(tmp_path: Path) -> None:
    write_junit([case(tmp_path, "odd", VALID | {"verdict": "fine?"})], tmp_path / "junit.xml")
    assert isinstance(by_name(tmp_path / "junit.xml")["odd"].result[0], Error)


def test_what_xml_cannot_write_is_replaced(tmp_path: Path) -> None:
    odd = UNKNOWN | {"reasons": ["a \x00 and a \ud800"]}
    write_junit([case(tmp_path, "odd", odd)], tmp_path / "junit.xml")
    [error] = by_name(tmp_path / "junit.xml")["odd"].result
    assert error.text == "a \ufffd and a \ufffd"


def test_the_page_shows_the_worst_first_and_leads_to_its_report(tmp_path: Path) -> None:
    lost = losing(tmp_path)
    write_report(lost.directory)
    write_runs_page([case(tmp_path, "good", VALID), lost], tmp_path / "pages" / "runs.html")
    page = Page((tmp_path / "pages" / "runs.html").read_text(encoding="utf-8"))
    assert page.loads == ["../losing/report.html"]
    assert page.texts.index("losing") < page.texts.index("good")
    assert any(text.startswith("lost-write: 'm2' in t-0 at offset 1") for text in page.texts)
    assert "script" not in page.tags


def test_a_page_of_very_many_runs_leaves_out_the_best_and_says_so(tmp_path: Path) -> None:
    good = case(tmp_path, "good", VALID)
    write_runs_page([*[good] * (CASES_MAX + 4), losing(tmp_path)], tmp_path / "runs.html")
    page = Page((tmp_path / "runs.html").read_text(encoding="utf-8"))
    assert "And 5 more, none of them worse than the last." in page.texts
    assert "losing" in page.texts


@pytest.mark.parametrize("write", [write_junit, write_runs_page])
def test_a_file_that_cannot_be_written_is_reported_in_a_sentence(
    tmp_path: Path, write: Any
) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreError, match="Cannot write"):
        write([], tmp_path / "taken" / "file")
