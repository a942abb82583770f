"""What benchmarks make of what they measured."""

from __future__ import annotations

from neaptide.harness.scenarios.systems import parse_system
from tests.benchmarks.broker_on_kafka import Turn, compared, is_steady, percentile, summary


def test_a_rate_is_steady_once_two_loads_rose_no_more() -> None:
    assert not is_steady([])
    assert not is_steady([100, 100])  # nothing before them
    assert is_steady([100, 100, 102])
    assert not is_steady([100, 100, 104])
    assert not is_steady([100, 110, 109])
    assert is_steady([100, 110, 109, 90])


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([3], 99) == 3
    assert percentile(range(1, 101), 50) == 50
    assert percentile(range(100, 0, -1), 99) == 99
    assert percentile([1, 2], 50) == 1


def test_medians_are_compared_with_the_best_kafka() -> None:
    turns = {
        "neaptide:4.0": [Turn({"start_s": 2.0, "records_100_bytes_per_s": n}) for n in (5, 9, 7)],
        "kafka:3.9.1": [Turn({"start_s": 8.0, "records_100_bytes_per_s": 14.0})],
        "kafka:4.1.0": [Turn({"start_s": 6.0}), Turn({"start_s": 4.0, "memory_mib": 1.0})],
    }
    measured = {name: summary(of_one) for name, of_one in turns.items()}
    assert measured["neaptide:4.0"]["records_100_bytes_per_s"] == {
        "unit": "records a second", "median": 7, "best": 9, "turns": [5, 9, 7],
    }  # fmt: skip
    assert measured["kafka:4.1.0"]["start_s"]["best"] == 4.0
    own = [name for name in turns if parse_system(name).kind != "kafka"]
    assert compared(measured, own) == {
        "neaptide:4.0": {
            "start_s": {"best_kafka": "kafka:4.1.0", "ratio": 2.5, "ahead": True},
            "records_100_bytes_per_s": {"best_kafka": "kafka:3.9.1", "ratio": 0.5, "ahead": False},
        }
    }
