"""Many runs on one page, the worst first: self-contained HTML, each line leads to a run's report.

Not the matrix scenario × system, which compares with what was predicted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from neaptide.results.cases import Case, evidence, worst_first
from neaptide.results.errors import StoreError
from neaptide.results.report import REPORT_FILE, environment

# A page of bounded size: what is left out is counted, and is the best of all.
CASES_MAX: Final = 1_000
EXPLAINED_MAX: Final = 20
_SENTENCES: Final = 4
SIGNS: Final = {"anomalous": "✗", "unknown": "?", "valid": "✓"}


def write_runs_page(cases: Sequence[Case], path: Path) -> None:
    """Raises StoreError."""
    page = environment().get_template("runs.html").render(**_page(cases, path.absolute().parent))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror}.") from error


def _page(cases: Sequence[Case], folder: Path) -> dict[str, Any]:
    ordered = worst_first(cases)
    shown = ordered[:CASES_MAX]
    verdicts = Counter(_verdict(case) for case in cases)
    runs_with: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for case in cases:
        runs_with.update(case.anomalies.keys())
        found.update(case.anomalies)
    return {
        "total": len(cases),
        "verdicts": [(word, sign, verdicts[word]) for word, sign in SIGNS.items()],
        "signs": SIGNS,
        "kinds": [(name, count, found[name]) for name, count in runs_with.most_common()],
        "cases": shown,
        "left_out": len(ordered) - len(shown),
        "verdict": _verdict,
        "explained": {
            case.directory: _explained(case)
            for case in shown[:EXPLAINED_MAX]
            if _verdict(case) != "valid"
        },
        "link": lambda case: _link(case, folder),
    }


def _verdict(case: Case) -> str:
    return "anomalous" if case.anomalous else "unknown" if case.unknown else "valid"


def _explained(case: Case) -> list[str]:
    return [*case.reasons[:_SENTENCES], *evidence(case, _SENTENCES)]


def _link(case: Case, folder: Path) -> str | None:
    """Relative, so that page and runs can be moved together; None: it has no report."""
    report = case.directory / REPORT_FILE
    return os.path.relpath(report, folder) if report.is_file() else None
