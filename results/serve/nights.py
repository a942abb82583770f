"""Campaigns of nights: `NAME/` in their folder, each with `summary.json`, and one page of all.

`neaptide nightly` writes them (`harness/nightly/summary.py`); what is missing there, or is no such
thing, is left out here, or said to be missing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from neaptide.results.serve.inside import is_plain, open_plain

PAGE_FILE: Final = "index.html"
SUMMARY_FILE: Final = "summary.json"
UNFINISHED: Final = "Going on, or cut off: then neaptide nightly --resume goes on with it."
FILES: Final = {SUMMARY_FILE: "application/json"}
VERDICTS: Final = ("anomalous", "unknown", "valid")
_OTHER_FOLDERS: Final = ("found",)  # of findings
_SUMMARY_BYTES_MAX: Final = 4_000_000
_SHOWN_MAX: Final = 100
_CELLS: Final = ("pairs", "swarm")  # kinds of plays, beside `known`
_NAME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-\d\dZ(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Played:
    """One play of a night. `run`: the name of its directory; empty: a search has none."""

    what: str
    run: str
    verdict: str
    outcome: str
    news: str
    system: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What a night came to. `finds`: the key of each, and the name of its run."""

    seed: str
    seconds: int
    runs: int
    cells: int
    known: int
    verdicts: Mapping[str, int]  # by VERDICTS
    new: int
    came_back: int
    acknowledged: int
    stopped: str
    finds: tuple[tuple[str, str], ...]
    plays: tuple[Played, ...]  # the worst first
    more_plays: int


@dataclass(frozen=True, slots=True)
class Night:
    """One campaign. `problem`: why there is no summary."""

    name: str
    summary: Summary | None = None
    problem: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)  # by the names in FILES

    @property
    def begun(self) -> str:
        """As `2026-11-23 10:27`, UTC; its name where that says no time."""
        said = _NAME.fullmatch(self.name)
        return self.name if said is None else f"{said[1]} {said[2]}:{said[3]}"

    @property
    def seed(self) -> str:
        """Empty: nobody has said it."""
        if self.summary is not None and self.summary.seed:
            return self.summary.seed
        said = _NAME.fullmatch(self.name)
        return "" if said is None else said[4] or ""


def page_of_all(folder: Path) -> Path | None:
    """What `neaptide nightly` writes about all nights together; None: nothing yet."""
    page = folder / PAGE_FILE
    return page if not folder.is_symlink() and is_plain(page) else None


def nights(folder: Path) -> list[Night]:
    """The newest first, by name; none where there is no such folder."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    found = [
        path
        for path in folder.iterdir()
        if path.is_dir()
        and not path.is_symlink()
        and not path.name.startswith(".")
        and path.name not in _OTHER_FOLDERS
    ]
    return [_night(path) for path in sorted(found, reverse=True)]


def _night(directory: Path) -> Night:
    files = {name: directory / name for name in FILES if is_plain(directory / name)}
    if SUMMARY_FILE not in files:
        return Night(directory.name, problem=UNFINISHED)
    try:
        with open_plain(files[SUMMARY_FILE]) as opened:
            raw = json.loads(opened.read(_SUMMARY_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return Night(directory.name, problem=f"{SUMMARY_FILE} cannot be read.", files=files)
    if not isinstance(raw, dict) or not isinstance(raw.get("verdicts"), dict):
        return Night(directory.name, problem=f"{SUMMARY_FILE} has no verdicts.", files=files)
    return Night(directory.name, summary_of(raw), files=files)


def summary_of(raw: Mapping[str, Any]) -> Summary:
    """Out of a document that anybody may have written: what is not of its kind counts as none."""
    verdicts, news = _table(raw.get("verdicts")), _table(raw.get("news"))
    results = _rows(raw.get("results"))
    kinds = Counter(_text(row.get("kind")) for row in results)
    plays = sorted((_played(row) for row in results), key=lambda one: VERDICTS.index(one.verdict))
    return Summary(
        seed=_text(raw.get("seed")),
        seconds=_number(raw.get("seconds")),
        runs=_number(raw.get("runs")),
        cells=sum(kinds[kind] for kind in _CELLS),
        known=kinds["known"],
        verdicts={word: _number(verdicts.get(word)) for word in VERDICTS},
        new=_number(news.get("new")),
        came_back=_number(news.get("came back")),
        acknowledged=_number(raw.get("acknowledged")),
        stopped=_text(raw.get("stopped")),
        finds=tuple(
            (_text(row.get("key")), _text(row.get("run")))
            for row in _rows(raw.get("findings"))[:_SHOWN_MAX]
        ),
        plays=tuple(plays[:_SHOWN_MAX]),
        more_plays=len(plays[_SHOWN_MAX:]),
    )


def _played(row: Mapping[str, Any]) -> Played:
    verdict = _text(row.get("verdict"))
    return Played(
        what=_text(row.get("of")) or _text(row.get("play")),
        run=_text(row.get("run")),
        verdict=verdict if verdict in VERDICTS else "unknown",
        outcome=_text(row.get("outcome")),
        news=_text(row.get("news")),
        system=_text(row.get("system")),
    )


def _rows(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> int:
    """A JSON number may be NaN or infinite, too."""
    try:
        return int(value) if isinstance(value, int | float) else 0
    except (ValueError, OverflowError):
        return 0


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ""
