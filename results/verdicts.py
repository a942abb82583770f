"""Reads the verdict of a run, as the check has saved it, and says whether it is to be believed.

Not how one is made: that is `neaptide.checkers.verdict`.

The rule: a verdict that other rules have made is none. Whoever finds one says so, or has the run
judged again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from neaptide.results.errors import RunUnreadableError
from neaptide.results.outcomes import ANOMALOUS, RULES_VERSION
from neaptide.results.reading import read_json

VERDICT_FILE: Final = "verdict.json"


def read_verdict(directory: Path) -> dict[str, Any] | None:
    """None: the run was not checked yet. Raises RunUnreadableError."""
    path = directory / VERDICT_FILE
    try:
        verdict = read_json(path)
    except FileNotFoundError:
        return None
    if not isinstance(verdict, dict):
        raise RunUnreadableError(f"{path} must be one JSON object")
    if (verdict.get("verdict"), verdict.get("outcome")) == (ANOMALOUS, "unknown"):
        verdict["outcome"] = ANOMALOUS  # as earlier versions said it
    return verdict


def allowed_in(verdict: Mapping[str, Any]) -> dict[str, int]:
    """What was found in a run and does not count there, by name; whoever has made the file."""
    allowed = verdict.get("allowed")
    named = allowed.items() if isinstance(allowed, dict) else ()
    return {str(name): number for name, number in named if type(number) is int}


def why_not_believed(directory: Path, verdict: Mapping[str, Any] | None) -> str | None:
    """None: it is believed."""
    if verdict is None:
        return "it was not checked"
    made_by = verdict.get("made_by")
    rules = made_by.get("rules") if isinstance(made_by, dict) else None
    if type(rules) is int and rules == RULES_VERSION:
        return None
    version = "an unknown version" if rules is None else f"version {rules}"
    return (
        f"its verdict was made by {version} of the rules, and these are version {RULES_VERSION}:"
        f" judge it again (neaptide check {directory})"
    )
