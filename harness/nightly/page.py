"""The page of all nights, the last one first: self-contained HTML, and JSON beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from neaptide.harness.nightly.summary import became, main_reason, replay
from neaptide.results.durations import duration
from neaptide.results.report import REPORT_FILE, environment
from neaptide.results.store import runs_directory, write_json, write_text

PAGE: Final = "index.html"
JSON: Final = "trends.json"
CELLS_MAX: Final = 60
NIGHTS_MAX: Final = 60
RESULTS_MAX: Final = 200
SIGNS: Final = {"anomalous": "✗", "unknown": "?", "valid": "✓"}
_NEWS: Final = ("came back", "new", "known", "", "quiet")


def write_page(nights: Path, trends: Mapping[str, Any], summary: Mapping[str, Any]) -> Path:
    """`summary`: of the last night. Raises StoreError."""
    page = nights / PAGE
    write_json(nights / JSON, {**trends, "last": summary})
    context = _context(trends, summary, nights.absolute())
    write_text(page, environment().get_template("nights.html").render(**context))
    return page


def _context(trends: Mapping[str, Any], summary: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    cells: Sequence[Mapping[str, Any]] = trends["cells"]
    shown = [cell for cell in cells if cell["anomalous"] or cell["unknown"]]
    results = sorted(summary["results"], key=_rank)
    worth_saying = [one for one in results if one["verdict"] != "valid" or one["news"]]
    nights = [*reversed(trends["nights"])][:NIGHTS_MAX]
    return {
        "last": summary,
        "signs": SIGNS,
        "word": _word,
        "results": worth_saying[:RESULTS_MAX],
        "more_results": len(worth_saying) - len(worth_saying[:RESULTS_MAX]),
        "quiet_results": len(results) - len(worth_saying),
        "nights": nights,
        "most_runs": max((night["runs"] for night in nights), default=0),
        "findings": trends["findings"],
        "became": became,
        "replay": replay,
        "main_reason": main_reason,
        "known": trends["known"],
        "cells": shown[:CELLS_MAX],
        "more_cells": len(shown) - len(shown[:CELLS_MAX]),
        "good_cells": len(cells) - len(shown),
        "unknowns": trends["unknowns"],
        "faults": trends["faults"],
        "calm": {one["system"]: one for one in trends["faults"] if one["fault"] == "none"},
        "duration": duration,
        "percent": _percent,
        "link": lambda run: _link(run, folder),
    }


def _rank(result: Mapping[str, Any]) -> tuple[int, int, str]:
    proved = ["anomalous", "unknown", "valid"].index(_word(result))
    return proved, _NEWS.index(result["news"]), result["play"]


def _word(result: Mapping[str, Any]) -> str:
    return result["verdict"] if result["verdict"] in SIGNS else "unknown"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _link(run: str | None, folder: Path) -> str | None:
    """Relative, so that nights and runs can be moved together; None: the run was thinned out."""
    report = runs_directory() / run / REPORT_FILE if run else None
    return os.path.relpath(report, folder) if report is not None and report.is_file() else None
