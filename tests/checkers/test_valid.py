"""No false alarm: nothing that counts is found in valid histories made by chance."""

from __future__ import annotations

import pytest

from neaptide.checkers.anomalies import ANOMALIES
from tests.checkers.conftest import Judge
from tests.checkers.valid import valid_story

pytestmark = pytest.mark.spark

HISTORIES = 200  # tests/benchmarks/generated_histories.py takes thousands


def test_valid_histories_are_valid(judge: Judge) -> None:
    for name, found in judge({f"s{n}": valid_story(n) for n in range(HISTORIES)}).items():
        counted = [row for row in found.rows if ANOMALIES[row["anomaly"]].counts]
        assert not counted, (name, counted)
        assert found.verdict.verdict in ("valid", "unknown"), (name, found.verdict.reasons)
