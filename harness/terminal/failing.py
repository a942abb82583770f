"""Which verdicts make the exit status 1: the words of `--fail-on`. Pure.

    anomaly     any anomaly                      new        one that no earlier night has
    regression  a known schedule that came back  known      one that earlier nights have
    unknown     what proved nothing              lost, …    an outcome, or a kind of anomaly

What is new, known or come back, a campaign alone can say (`nightly`).

The rule: whatever is not failed on is still not fine: with an unknown that nobody fails on the
status is 2, and so it is where nothing was checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from neaptide.checkers.anomalies import ANOMALIES
from neaptide.clusters.errors import UsageError
from neaptide.harness.terminal.exits import Exit
from neaptide.results.outcomes import ANOMALOUS, WORST_FIRST

if TYPE_CHECKING:
    from neaptide.checkers.verdict import RunVerdict

NEWS: Final = {"new": "new", "regression": "came back", "known": "known"}
WORDS: Final = ("anomaly", *NEWS, "unknown")
DEFAULT: Final = ("anomaly",)
Row = Mapping[str, Any]


def parse_fail_on(text: str, *, of_a_night: bool = False) -> tuple[str, ...]:
    """`anomaly`, `new,regression`, `lost,diverged`. Raises UsageError."""
    known = WORDS if of_a_night else tuple(word for word in WORDS if word not in NEWS)
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    outcomes = (*WORST_FIRST[:-1], ANOMALOUS)
    for word in words:
        if word not in (*known, *outcomes, *ANOMALIES):
            raise UsageError(
                f"--fail-on {word!r} must be one of {', '.join((*known, *outcomes))},"
                " or a kind of anomaly, as lost-write."
            )
    if not words:
        raise UsageError(f"--fail-on needs a word: one of {', '.join(known)}.")
    return words


def fails(row: Row, words: Sequence[str]) -> bool:
    """Whether a row is one that makes the exit status 1."""
    if row["verdict"] == "anomalous":
        said = {"anomaly", row["outcome"], *json.loads(row["anomalies"])}
        said |= {word for word, news in NEWS.items() if row["news"] == news}
    elif row["verdict"] == "valid":
        return False
    else:
        said = {"unknown"}
        if row["outcome"] != "unknown":
            said.add(row["outcome"])  # unavailable
    return not said.isdisjoint(words)


def status_of(rows: Sequence[Row], words: Sequence[str]) -> Exit:
    """Of the last word on each item of a night."""
    if any(fails(row, words) for row in rows):
        return Exit.ANOMALY
    concluded = [row for row in rows if row["verdict"] in ("valid", "anomalous")]
    return Exit.AGREES if concluded and len(concluded) == len(rows) else Exit.UNKNOWN


def verdict_status(
    verdicts: Iterable[RunVerdict], words: Sequence[str] = DEFAULT, expected: str | None = None
) -> Exit:
    """Of many runs: an anomaly counts more than what is not known.

    `expected`: the outcome that a scenario expects of its system, which decides alone, as in
    `replay` and in pytest.
    """
    verdicts = list(verdicts)
    if expected is not None:
        outcomes = {one.outcome for one in verdicts}
        if outcomes == {expected}:
            return Exit.AGREES
        return Exit.UNKNOWN if "unknown" in outcomes else Exit.ANOMALY
    rows = [
        {
            "verdict": one.verdict,
            "outcome": one.outcome,
            "anomalies": json.dumps({**one.anomalies, **one.allowed}),
            "news": "",
        }
        for one in verdicts
    ]
    return status_of(rows, words)


def last_words(rows: Sequence[Row]) -> list[Row]:
    """The last attempt of each item, without the runs that made a finding smaller; but those that
    found something else."""
    last: dict[str, Row] = {}
    for row in rows:
        if row["kind"] in ("known", "pairs", "swarm") or row["news"] == "new":
            last[row["play"].rpartition(" #")[0]] = row
    return list(last.values())
