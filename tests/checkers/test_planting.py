"""What is planted in a history of 20,000 operations is found, and nothing besides."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from tests.checkers.reading import judged
from tests.planting import tables as planting_tables
from tests.planting.planting import GROUPS, HANGING, KEYED, PLANTS, UNSEEN, plant

OPERATIONS = 20_000
TRANSACTIONS = (
    "precommitted-read",
    "int-nonmonotonic-send",
    "int-send-skip",
    "G1c",
    "torn-transaction",
)


@pytest.mark.spark
def test_exactly_what_was_planted_is_found(spark: SparkSession, tmp_path: Path) -> None:
    plain = {name: 3 for name in (*PLANTS, UNSEEN) if name not in TRANSACTIONS}
    histories = {
        "valid": {},
        "plain": plain,
        "all": plain | dict.fromkeys(TRANSACTIONS, 2),
        "groups": dict.fromkeys(GROUPS, 3) | dict.fromkeys(HANGING, 1),
        "keyed": dict.fromkeys(KEYED, 5),
    }
    planted = {name: plant(tmp_path / name, OPERATIONS, of) for name, of in histories.items()}
    verdicts = check_runs(spark, [tmp_path / name for name in histories])
    for verdict in verdicts:
        rows = judged(verdict, tmp_path / verdict.run).rows
        found = Counter((r["anomaly"], r["partition"], r["offset"], r["value"]) for r in rows)
        expected = Counter(
            (p.anomaly, p.partition, p.offset, p.value) for p in planted[verdict.run]
        )
        assert found == expected, (verdict.run, found - expected, expected - found)
        assert verdict.operations > OPERATIONS
    assert [verdict.verdict for verdict in verdicts] == ["valid"] + 4 * ["anomalous"]


def test_the_same_seed_plants_the_same(tmp_path: Path) -> None:
    wanted = {"lost-write": 2, "G1a": 1}
    first = plant(tmp_path / "first", 500, wanted, seed=7)
    assert plant(tmp_path / "second", 500, wanted, seed=7) == first
    assert plant(tmp_path / "third", 500, wanted, seed=8) != first


@pytest.mark.parametrize(
    ("plants", "why"), [({"nonsense": 1}, "cannot be planted"), ({"G1a": 99}, "more anomalies")]
)
def test_what_cannot_be_planted_is_refused(
    tmp_path: Path, plants: dict[str, int], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        plant(tmp_path / "run", 100, plants)


def test_a_table_of_long_values_is_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planting_tables, "CHUNK_BYTES", 1_000)
    shape = planting_tables.Shape(partitions=2, batches=5, value_bytes=50)
    tables = list(planting_tables.final_batches(shape, ()))
    assert {table.num_rows for table in tables} == {2 * planting_tables.BATCH}
    assert sum(table.num_rows for table in tables) == shape.total * planting_tables.BATCH
