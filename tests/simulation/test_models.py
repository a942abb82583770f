"""Rows of docs/simulation.md: what the TLA+ models of Kafka's replication say, seen here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nemesis.search.deliveries import Counts
from tests.simulation.test_exhaustive import searched, target

# Model, the generation that it is, what breaks first with all invariants asked.
ROWS = [
    ("KafkaTruncateToHighWatermark", "0.10", "broken: strong-isr"),
    ("Kip320", "2.1", ""),
]


@pytest.mark.parametrize(("model", "generation", "outcome"), ROWS)
def test_a_model_and_its_generation_break_the_same(
    model: str, generation: str, outcome: str
) -> None:
    found = searched(replace(target(generation), strict=True), Counts(produces=1, kills=1))
    assert found.outcome == outcome
    assert found.exhausted is not bool(outcome)
