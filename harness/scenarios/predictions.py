"""What a scenario predicts beyond its outcome, compared with what was seen, one sentence each.

Fetch rounds are compared after the run, from its record; conditions when the last step is done.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from neaptide.nemesis.conditions import Condition, Observed
from neaptide.nemesis.scenario import ExpectedSight, Scenario, matches

_OWN_ERROR: Final = re.compile(r"\b_[A-Z]")


def unseen_sights(scenario: Scenario, system: str, observed: Observed) -> tuple[str, ...]:
    """The conditions that should hold on this system now, and do not."""
    return tuple(
        f"predicted {condition.text}, seen {condition.subject(observed)!r}"
        for condition in _predicted(scenario, system)
        if not condition.holds(observed)
    )


def confirmed_sights(scenario: Scenario, system: str, observed: Observed) -> tuple[str, ...]:
    """Those that should, and do."""
    predicted = _predicted(scenario, system)
    return tuple(condition.text for condition in predicted if condition.holds(observed))


def _predicted(scenario: Scenario, system: str) -> list[Condition]:
    return [
        expected.condition
        for expected in scenario.expect_seen
        if any(matches(pattern, system) for pattern in expected.systems)
    ]


def of_any_client(sights: tuple[ExpectedSight, ...]) -> tuple[ExpectedSight, ...]:
    """Those that do not name an error of librdkafka's own."""
    return tuple(one for one in sights if not _OWN_ERROR.search(one.condition.text))


def round_disagreements(scenario: Scenario, run: Path) -> tuple[str, ...]:
    """Compares the rounds that moved something with the table that the scenario expects."""
    if not scenario.expected_rounds:
        return ()
    table = pq.read_table(run / "fetch_rounds")
    rows = sorted(table.to_pylist(), key=lambda row: row["requested_ns"])
    names = {number: name for name, number in scenario.brokers.items()}
    seen: list[tuple[str, int, bool, int]] = []
    marks: dict[str, int] = {}
    for row in rows:
        follower = names[row["follower"]]
        mark = row["high_watermark"]
        records = bool(row["records_bytes"])
        if mark is not None and row["delivered_ns"] is not None:
            if records or mark != marks.get(follower, 0):
                seen.append((follower, row["fetch_offset"], records, mark))
            marks[follower] = mark
    wanted = [
        (e.follower, e.fetch_offset, e.records, e.high_watermark) for e in scenario.expected_rounds
    ]
    if seen[: len(wanted)] == wanted:
        return ()
    return (f"fetch rounds (follower, offset, records, HW): expected {wanted}, seen {seen}",)
