"""Campaigns of nights: `NAME/` in their folder, each with `summary.json`, and one page of all.

Whoever writes them says what is in a summary; here every plain value of it is shown, and what is
missing is said to be missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neaptide.results.serve.inside import is_plain, open_plain

PAGE_FILE: Final = "index.html"
SUMMARY_FILE: Final = "summary.json"
UNFINISHED: Final = "Going on, or cut off: then neaptide nightly --resume goes on with it."
FILES: Final = {SUMMARY_FILE: "application/json"}
_OTHER_FOLDERS: Final = ("found",)  # of findings
_SUMMARY_BYTES_MAX: Final = 4_000_000
_VALUES_MAX: Final = 10
_TEXT_MAX: Final = 120


@dataclass(frozen=True, slots=True)
class Night:
    """One campaign. `values`: plain values of its summary; `problem`: why there are none."""

    name: str
    values: tuple[tuple[str, str], ...]
    problem: str
    files: Mapping[str, Path]  # by the names in FILES


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
        return Night(directory.name, (), UNFINISHED, files)
    try:
        with open_plain(files[SUMMARY_FILE]) as opened:
            summary = json.loads(opened.read(_SUMMARY_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return Night(directory.name, (), f"{SUMMARY_FILE} cannot be read.", files)
    values = tuple(_plain_values(summary))[:_VALUES_MAX]
    return Night(directory.name, values, "" if values else f"{SUMMARY_FILE} says nothing.", files)


def _plain_values(summary: Any) -> list[tuple[str, str]]:
    """Texts and numbers as they are, of lists how long they are, of tables their plain values."""
    if not isinstance(summary, dict):
        return []
    shown = []
    for name, value in summary.items():
        words = str(name).replace("_", " ")
        if isinstance(value, list):
            shown.append((words, str(len(value))))
        elif isinstance(value, dict):
            pairs = [f"{k} {v}" for k, v in value.items() if isinstance(v, str | int | float)]
            if pairs:
                shown.append((words, _short(", ".join(pairs))))
        elif value is not None:
            shown.append((words, _short(str(value))))
    return shown


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
