"""What GitHub is shown: a line for each run that is not good, and a summary with the rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neaptide.harness.terminal import ci
from neaptide.harness.testing.findings import Judged, failure_text
from neaptide.results.report import mermaid_of
from neaptide.results.report.mermaid import MOMENTS_MAX, sequence_diagram
from neaptide.results.report.story import Arrow, Badge, Line, Moment
from tests.results.losing_run import write_losing_run, write_verdict

LOST: dict[str, Any] = {
    "verdict": "anomalous",
    "outcome": "lost",
    "anomalies": {"committed-then-lost": 1, "lost-write": 1},
    "operations": 4,
    "reasons": [],
}
UNKNOWN = LOST | {
    "verdict": "unknown",
    "outcome": "unknown",
    "anomalies": {},
    "reasons": ["The aim was missed: step 2 (line 21): after 20 s it is still not so."],
}
FILE = 'title = "x"\n\n[expect]\nlost = ["neaptide:0.10"]\nheld = ["neaptide:0.11+"]\n'


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = write_losing_run(tmp_path / "run")
    write_verdict(directory)
    return directory


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "hw.toml"
    path.write_text(FILE)
    return path


def github(summary: Path) -> dict[str, str]:
    return {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}


def test_a_bad_run_is_an_annotation_at_the_line_that_expects_otherwise(
    run: Path, scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = ci.judged([(run, LOST)], [False], ["held"], [str(scenario)])
    ci.report(findings, github(tmp_path / "summary.md"))
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith(f"::error file={scenario},line=5,title=hw-truncation-loss on neaptide")
    assert "expected held::m2 (offset 1, acknowledged at 4.812 s by C, acks=all) was lost" in line
    assert "%0Alost-write: 'm2' in t-0 at offset 1" in line
    assert "%0Arepeat: neaptide run hw-truncation-loss" in line


def test_a_missed_step_is_named_by_its_line(run: Path, scenario: Path) -> None:
    [finding] = ci.judged([(run, UNKNOWN)], [False], ["held"], [str(scenario)])
    assert finding.line == 21


def test_a_good_run_is_no_annotation_but_in_the_summary(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    ci.report(ci.judged([(run, LOST)], [True], ["lost"]), github(summary))
    assert capsys.readouterr() == ("", "")
    assert "| ✅ | hw-truncation-loss | neaptide:0.10 | anomalous | lost | lost |" in (
        summary.read_text()
    )
    assert "mermaid" not in summary.read_text()


def test_elsewhere_nothing_is_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    ci.report(ci.judged([(run, LOST)], [False]), {"GITHUB_STEP_SUMMARY": str(summary)})
    assert capsys.readouterr() == ("", "")
    assert not summary.exists()


def test_a_summary_that_cannot_be_written_takes_nothing_away(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ci.report(ci.judged([(run, LOST)], [True]), github(tmp_path / "nowhere" / "summary.md"))
    assert "There is no summary: " in capsys.readouterr().err


def test_the_summary_draws_the_rounds_of_what_is_bad(run: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    ci.report(ci.judged([(run, LOST)], [False]), github(summary))
    text = summary.read_text()
    assert text.startswith("before\n### neaptide")
    assert "| ❌ |" in text
    assert "```mermaid\nsequenceDiagram\n    participant producer\n    participant C" in text


def test_an_unknown_run_has_a_sign_of_its_own(run: Path) -> None:
    assert "| ❔ |" in ci.markdown(ci.judged([(run, UNKNOWN)], [False]))


def test_a_diagram_has_what_the_report_has(run: Path) -> None:
    lines = mermaid_of(run).splitlines()
    drawn = "\n".join(lines)
    assert "C->>producer: 4.812 s ack m2 at offset 1 (acks=all)" in drawn
    assert "Note over C: 5.900 s SIGKILL" in drawn
    assert "C--xA: " in drawn
    assert "Note over A: 9.300 s leader, epoch 2" in drawn
    assert "on no replica: m2" in lines[-1]


def test_what_mermaid_would_read_is_no_part_of_a_text() -> None:
    moments: list[Moment] = [
        Line(0, "ISR {A, B};#1 <b>"),
        Badge(1, "Z", "gone"),
        Arrow(2, "A", "B", "x\ny"),
    ]
    lines = sequence_diagram(moments, ["A", "B"]).splitlines()
    assert [line.strip() for line in lines[5:]] == [
        "Note over A,B: 0.000 s ISR (A, B)  1  b",
        "Note over A,B: 0.000 s Z: gone",
        "A->>B: 0.000 s x y",
    ]


def test_a_long_diagram_says_how_much_is_left_out() -> None:
    moments = [Line(n, str(n)) for n in range(MOMENTS_MAX + 7)]
    assert sequence_diagram(moments, ["A", "B"]).endswith("Note over A,B: 7 more in the report")
    assert "more in" not in sequence_diagram(moments[:MOMENTS_MAX], ["A", "B"])


def test_a_failed_test_says_verdict_record_rounds_and_what_repeats_it(run: Path) -> None:
    judged = Judged(run, "anomalous", "lost", LOST["anomalies"], ())
    lines = failure_text(judged, "held").splitlines()
    assert lines[:2] == [
        "expected held, was lost",
        "neaptide: hw-truncation-loss on neaptide:0.10, seed 7: anomalous (lost)",
    ]
    text = "\n".join(lines)
    assert "  lost-write: 'm2' in t-0 at offset 1" in text
    assert "  fetch rounds around 'm2':" in text
    assert "5.900 s  C: SIGKILL" in text
    assert "  repeat: neaptide run hw-truncation-loss" in text
    assert lines[-1] == f"  report: {run}/report.html"


def test_one_that_proved_nothing_says_so_and_why(run: Path) -> None:
    judged = Judged(run, "unknown", "unknown", {}, ("Nothing was acknowledged.",))
    lines = failure_text(judged).splitlines()
    assert lines[0].endswith("seed 7: no evidence")
    assert "  not proved: Nothing was acknowledged." in lines
    assert judged.unknown
    assert not judged.valid


def test_an_own_check_makes_a_valid_run_fail(run: Path) -> None:
    assert Judged(run, "valid", "held", {}, ()).valid
    judged = Judged(run, "valid", "held", {}, (), ("Order 7 was shipped twice.",))
    assert not judged.valid
    assert not judged.unknown
