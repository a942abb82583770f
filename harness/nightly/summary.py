"""What a night came to, for a terminal and for CI: a document, and the same as Markdown. Pure."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from neaptide.harness.nightly.state import State
from neaptide.harness.terminal.failing import fails, last_words
from neaptide.harness.terminal.output import shown
from neaptide.results.durations import duration

_LISTED: Final = 20
_REASONS: Final = 5
_CAMPAIGN: Final = ("known", "pairs", "swarm")
Row = Mapping[str, Any]


def summary_of(night: Path, state: State, fail_on: Sequence[str], stopped: str) -> dict[str, Any]:
    """`stopped`: why it ended before its time; empty: it did not."""
    rows = last_words(state.rows)
    verdicts = Counter(_verdict(row) for row in rows)
    reasons = Counter(
        main_reason(row["reasons"]) for row in rows if _verdict(row) == "unknown" and row["reasons"]
    )
    return {
        "night": str(night),
        "seed": state.night.get("seed"),
        "seconds": round(state.used_s, 1),
        "runs": len(rows),
        "plays_of_findings": sum(row["kind"] not in _CAMPAIGN for row in state.rows),
        "verdicts": {word: verdicts[word] for word in ("valid", "anomalous", "unknown")},
        "news": {
            name: sum(row["news"] == name for row in rows)
            for name in ("new", "known", "came back", "quiet")
        },
        "acknowledged": sum(row["acknowledged"] for row in rows),
        "schedules": sum(row["operations"] for row in rows if row["host"] == "simulation"),
        "aims": {
            "aimed": sum(row["aimed"] for row in rows),
            "hit": sum(row["aimed"] - row["missed"] for row in rows),
        },
        "fail_on": list(fail_on),
        "stopped": stopped,
        "findings": [dict(one) for one in state.findings.values()],
        "results": [_result(row, fail_on) for row in rows],
        "unknown_reasons": [{"why": why, "runs": runs} for why, runs in reasons.most_common()],
        "thinned": len(state.thinned),
    }


def _verdict(row: Row) -> str:
    return row["verdict"] if row["verdict"] in ("valid", "anomalous") else "unknown"


def _result(row: Row, fail_on: Sequence[str]) -> dict[str, Any]:
    named = ("play", "kind", "of", "system", "host", "workload", "client", "faults", "settings")
    said = ("run", "verdict", "outcome", "expected", "news", "key", "reasons", "repeat")
    return {
        **{name: row[name] for name in (*named, *said)},
        "anomalies": json.loads(row["anomalies"]),
        "acknowledged": row["acknowledged"],
        "seconds": row["seconds"],
        "fails": fails(row, fail_on),
    }


# --- Markdown ------------------------------------------------------------------------------------


def markdown(summary: Mapping[str, Any], page: Path) -> str:
    verdicts, news = summary["verdicts"], summary["news"]
    lines = [
        "### neaptide nightly",
        "",
        f"{summary['runs']} runs in {duration(summary['seconds'])}, seed {summary['seed']}:"
        f" {verdicts['valid']} valid, {verdicts['anomalous']} anomalous,"
        f" {verdicts['unknown']} unknown."
        f" {summary['acknowledged']:,} records were acknowledged,"
        f" {summary['aims']['hit']} of {summary['aims']['aimed']} aimed faults hit,"
        f" {summary['schedules']:,} schedules were simulated.",
        "",
        f"Anomalies: {news['new']} new, {news['came back']} came back, {news['known']} known;"
        f" {news['quiet']} known schedules lost nothing.",
    ]
    if not summary["runs"]:
        lines += ["", "**No evidence: nothing was played to its end.**"]
    if summary["stopped"]:
        lines += ["", f"It ended before its time: {summary['stopped']}."]
    bad = [one for one in summary["results"] if one["verdict"] == "anomalous"]
    bad.sort(key=lambda one: ["came back", "new", "known", ""].index(one["news"]))
    if bad:
        lines += ["", "| | play | system | faults | outcome | expected | run |", "|---" * 7 + "|"]
        lines += [_line(one) for one in bad[:_LISTED]]
        lines += [f"\nand {len(bad) - _LISTED} more" for _ in bad[_LISTED : _LISTED + 1]]
    for finding in summary["findings"]:
        lines += ["", *_finding(finding)]
    if summary["unknown_reasons"]:
        lines += ["", "Unknown, because:", ""]
        first = summary["unknown_reasons"][:_REASONS]
        lines += [f"- {one['runs']} × {_cell(one['why'])}" for one in first]
    return "\n".join([*lines, "", f"All nights: `{shown(page)}`", ""]) + "\n"


def _line(one: Mapping[str, Any]) -> str:
    sign = "❌" if one["fails"] else "☑️"
    cells = (
        f"{sign} {one['news']}",
        one["play"],
        one["system"],
        one["faults"],
        one["outcome"],
        one["expected"] or "",
        one["run"] or "",
    )
    return f"| {' | '.join(map(_cell, cells))} |"


def _finding(finding: Mapping[str, Any]) -> list[str]:
    return [f"**{_cell(finding['key'])}**: {'; '.join(became(finding))}", *_command(finding)]


def became(finding: Mapping[str, Any]) -> list[str]:
    """What became of a finding, in a few words each."""
    words = []
    (again, of), (confirmed, of_confirmed) = finding["again"], finding["confirm"]
    if of:
        words.append(f"played again, it came in {again} of {of} runs")
    if finding["faults"] is not None and finding["faults"][0] != finding["faults"][1]:
        before, after = finding["faults"]
        words.append(f"{before} faults became {after}")
    if of_confirmed:
        words.append(f"the smaller schedule loses in {confirmed} of {of_confirmed}")
    if finding["simulated"] is not None:
        words.append(f"in the simulation {finding['simulated']['steps']} steps come to the same")
    if finding["why"]:
        words.append(str(finding["why"]))
    return words or ["saved as it was"]


def _command(finding: Mapping[str, Any]) -> list[str]:
    return ["", f"    {replay(finding['file'])}"] if finding["file"] else []


def replay(file: str) -> str:
    """The one line that plays it again."""
    return shlex.join(["neaptide", "replay", shown(Path(file))])


def main_reason(reasons: Sequence[str]) -> str:
    """Of a run that did not finish the last reason says why; of any other, the first."""
    return reasons[-1] if reasons[0].startswith("The run did not finish") else reasons[0]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
