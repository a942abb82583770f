"""Runs with a verdict, as a matrix reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from neaptide.results.outcomes import RULES_VERSION
from neaptide.results.run import Run
from neaptide.results.store import write_json, write_run

MADE_BY = {"rules": RULES_VERSION, "thorough": False, "min_acked": None}
RUN = Run(
    neaptide="0",
    name="acks-1-loss",
    system="neaptide:0.10",
    host="local",
    seed=1,
    started_utc="2026-01-01T00:00:00.000Z",
    status="finished",
    kind="scenario",
    brokers={"A": 0},
    title="A title <with> signs",
    expected="lost",
    schedule={"kind": {"lost": "by design"}},
)


def save(
    runs: Path,
    directory: str,
    outcome: str | None,
    *,
    system: str = "neaptide:0.10",
    expected: str | None = "lost",
    reasons: tuple[str, ...] = (),
    disagreements: tuple[str, ...] = (),
    made_by: object = MADE_BY,
) -> Path:
    path = runs / directory
    path.mkdir(parents=True)
    write_run(path, replace(RUN, system=system, expected=expected, disagreements=disagreements))
    if outcome is not None:
        verdict = {"outcome": outcome, "reasons": list(reasons), "made_by": made_by}
        write_json(path / "verdict.json", verdict)
    return path
