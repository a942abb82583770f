"""What a CI system shows of runs: annotations and a summary on GitHub.

GitHub reads lines that begin with `::error` (on standard error, too, so that `--json` stays one
document), and the Markdown file that GITHUB_STEP_SUMMARY names; where it is not GitHub, nothing is
written. JUnit files, which all systems read, are `neaptide.results.junit`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neaptide.results.cases import Case, cases, evidence
from neaptide.results.errors import NeaptideError
from neaptide.results.report import mermaid_of
from neaptide.results.report.fate import fates
from neaptide.results.report.rows import load

_DIAGRAMS_MAX: Final = 5
_SENTENCES_MAX: Final = 5
_STEP: Final = re.compile(r"step \d+ \(line (\d+)\)")  # as a missed aim names it


@dataclass(frozen=True, slots=True)
class Finding:
    """One run: what CI is to say of it. `file`: the scenario file, as the command was given it."""

    case: Case
    good: bool
    expected: str | None = None
    file: Path | None = None

    @property
    def line(self) -> int:
        """Of the step that missed, or of what was expected; from 1."""
        for reason in self.case.reasons:
            if missed := _STEP.search(reason):
                return int(missed[1])
        try:
            lines = self.file.read_text(encoding="utf-8").splitlines() if self.file else []
        except (OSError, UnicodeDecodeError):
            return 1
        return line_of(lines, self.expected)


def line_of(lines: Sequence[str], outcome: str | None) -> int:
    """Where a scenario file says which systems come to an outcome, from 1; else its first line."""
    expects = [n for n, line in enumerate(lines, 1) if line.strip() == "[expect]"]
    after = expects[0] if expects else len(lines)
    for number, line in enumerate(lines[after:], after + 1):
        if outcome and re.match(rf"{re.escape(outcome)}\s*=", line):
            return number
    return next(iter(expects), 1)


def is_github(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get("GITHUB_ACTIONS") == "true"


def judged(
    runs: Sequence[tuple[Path, Mapping[str, Any]]],
    good: Sequence[bool],
    expected: Sequence[str | None] | None = None,
    files: Sequence[str] | None = None,
) -> list[Finding]:
    """Of run directories and their verdicts as JSON. `files`: what the command was given for each;
    what is no scenario file names none."""
    return [
        Finding(
            case,
            good[at],
            expected[at] if expected else None,
            Path(files[at]) if files and files[at].endswith(".toml") else None,
        )
        for at, case in enumerate(cases(runs))
    ]


def report(findings: Sequence[Finding], environ: Mapping[str, str] = os.environ) -> None:
    """On GitHub: an annotation for each run that is not good, and all of them in the summary."""
    if not is_github(environ):
        return
    for finding in findings:
        if not finding.good:
            print(annotation(*_annotated(finding)), file=sys.stderr, flush=True)
    summary = environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(markdown(findings))
        except OSError as error:  # the verdicts stand
            print(f"There is no summary: {summary}: {error.strerror}.", file=sys.stderr)


def annotation(file: str, line: int, title: str, text: str) -> str:
    """One line. `line` counts from 1; an empty `file` names none."""
    where = f"file={_value(file)},line={line}," if file else ""
    return f"::error {where}title={_value(title)}::{_escaped(text)}"


def _annotated(finding: Finding) -> tuple[str, int, str, str]:
    case = finding.case
    name = case.name if case.run is None else f"{case.run.name} on {case.run.system}"
    word = "no evidence" if case.unknown else case.outcome
    expected = f", expected {finding.expected}" if finding.expected else ""
    sentences = [*_how(case), *evidence(case, _SENTENCES_MAX), *case.reasons]
    repeat = [f"repeat: {case.run.repeat}"] if case.run is not None and case.run.repeat else []
    file = "" if finding.file is None else str(finding.file)
    title = f"{name}: {word}{expected}"
    return file, finding.line, title, "\n".join([*sentences, *repeat]) or title


def _how(case: Case) -> list[str]:
    try:
        return [str(fate) for fate in fates(load(case.directory), 1)]
    except NeaptideError:
        return []  # the reasons say so


def markdown(findings: Sequence[Finding]) -> str:
    """A table of all runs, and the rounds of those that are not good as Mermaid diagrams."""
    lines = [
        "### neaptide",
        "",
        "| | run | system | verdict | outcome | expected | anomalies |",
        "|---|---|---|---|---|---|---|",
    ]
    for finding in findings:
        case = finding.case
        name, system = (case.name, "") if case.run is None else (case.run.name, case.run.system)
        sign = "✅" if finding.good else "❔" if case.unknown else "❌"
        cells = (sign, name, system, case.verdict, case.outcome, finding.expected or "", case.found)
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    bad = [finding for finding in findings if not finding.good]
    for finding in bad[:_DIAGRAMS_MAX]:
        lines += ["", *_details(finding)]
    return "\n".join(lines) + "\n\n"


def _details(finding: Finding) -> list[str]:
    _, _, title, text = _annotated(finding)
    lines = [f"<details><summary>{_cell(title)}</summary>", "", "```text", text, "```"]
    try:
        lines += ["", "```mermaid", mermaid_of(finding.case.directory), "```"]
    except NeaptideError:
        lines += ["", "The run cannot be drawn: its files cannot be read."]
    return [*lines, "", "</details>"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _value(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
