"""Where two runs part: the first round of a follower that is not the same, and nothing sooner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neaptide.results.compare import Step, aligned, first_difference, steps_of
from neaptide.results.report.page import moments_of
from neaptide.results.report.rows import Row, load
from neaptide.results.report.story import Arrow, Badge, Line, Moment
from tests.results.losing_run import write_held_twin, write_losing_run, write_verdict

NAMES = {0: "A", 1: "B", 2: "C"}


def row(follower: int, at: int, offset: int, mark: int | None = None, **rest: Any) -> Row:
    return {
        "follower": follower, "leader": 2, "topic": "t", "partition": 0, "leader_epoch": 0,
        "round": at, "requested_ns": at, "forwarded_ns": at, "responded_ns": at + 1,
        "delivered_ns": at + 1, "fetch_offset": offset, "high_watermark": mark,
        "log_start_offset": 0, "records_bytes": 0, "error": 0, "request_fate": "passed",
        "response_fate": "passed", "held_ns": 0,
    } | rest  # fmt: skip


def steps(*rows: Row) -> list[Step]:
    return steps_of(rows, NAMES)


def test_the_losing_run_and_its_twin_part_where_one_truncates(tmp_path: Path) -> None:
    lost, held = write_losing_run(tmp_path / "lost"), write_held_twin(tmp_path / "held")
    write_verdict(lost)
    data = [load(run) for run in (lost, held)]
    found = first_difference(*(steps_of(d.fetch_rounds.to_pylist(), d.names) for d in data))
    assert found is not None
    assert found.follower == "A"
    assert found.first is not None
    assert found.second is not None
    assert found.first.in_words() == (
        "A asks B from offset 1, although it had come to 2, in epoch 1; the request was discarded"
    )
    assert found.second.in_words() == "A asks B from offset 2 in epoch 1; the request was discarded"
    assert "round-0-1-0-e1-1-truncation" in found.anchors()[0]
    texts = [(pair.first, pair.second) for pair in aligned(*(moments_of(d) for d in data))]
    assert ("A: has truncated to its HW, 1", "A → B: fetch from 2: held, discarded") in texts


def test_rounds_that_moved_nothing_and_their_number_are_no_difference() -> None:
    first = steps(row(0, 1, 0), row(0, 2, 0, 1, records_bytes=9), row(0, 3, 1, 1), row(0, 4, 1, 1))
    second = steps(row(0, 7, 0, 1, records_bytes=9), row(0, 9, 1, 1))
    assert [step.fetch_offset for step in first] == [0]
    assert first_difference(first, second) is None


def test_followers_may_come_in_another_order() -> None:
    first = steps(row(0, 1, 0, 1, records_bytes=9), row(1, 2, 0, 1, records_bytes=9))
    second = steps(row(1, 1, 0, 1, records_bytes=9), row(0, 2, 0, 1, records_bytes=9))
    assert first_difference(first, second) is None


@pytest.mark.parametrize(
    "other",
    [
        {"leader": 1},
        {"leader_epoch": 1},
        {"fetch_offset": 3},
        {"records_bytes": 0},
        {"high_watermark": 2},
        {"request_fate": "held"},
        {"response_fate": "dropped"},
        {"error": 6},
    ],
)
def test_what_makes_a_round_another(other: dict[str, Any]) -> None:
    same = row(0, 1, 0, 1, records_bytes=9)
    found = first_difference(steps(same), steps({**same, **other}))
    assert found is not None
    assert found.follower == "A"


def test_an_epoch_that_is_not_known_is_no_difference() -> None:
    known = row(0, 1, 0, 1, records_bytes=9)
    assert first_difference(steps(known), steps({**known, "leader_epoch": None})) is None


def test_a_difference_in_what_both_did_comes_before_what_one_did_alone() -> None:
    first = steps(row(0, 1, 0, 1, records_bytes=9), row(1, 5, 0, 1, records_bytes=9))
    second = steps(row(1, 5, 0, 2, records_bytes=9))
    found = first_difference(first, second)
    assert found is not None
    assert (found.follower, found.first is None) == ("B", False)
    alone = first_difference(first[:1], [])
    assert alone is not None
    assert (alone.follower, alone.second) == ("A", None)
    assert alone.anchors()[1] == frozenset()


def test_the_earliest_of_several_is_the_first() -> None:
    first = steps(row(1, 3, 0, 1, records_bytes=9), row(0, 9, 0, 1, records_bytes=9))
    second = steps(row(1, 3, 0, 2, records_bytes=9), row(0, 9, 0, 2, records_bytes=9))
    found = first_difference(first, second)
    assert found is not None
    assert found.follower == "B"


def test_only_one_partition_of_one_topic_is_compared() -> None:
    mine = row(0, 1, 0, 1, records_bytes=9)
    others = [{**mine, "partition": 1}, {**mine, "topic": "u"}]
    assert steps_of([mine, *others], NAMES) == steps(mine)


def test_stories_are_aligned_without_rounds_and_times() -> None:
    first: list[Moment] = [
        Line(1, "epoch 0"),
        Arrow(2, "A", "C", "fetch from 0 (round 11): held 3.1 s, dropped"),
    ]
    second: list[Moment] = [
        Line(9, "epoch 0"),
        Arrow(9, "A", "C", "fetch from 0 (round 2): held 12 ms, dropped"),
    ]
    assert [pair.same for pair in aligned(first, second)] == [True, True]
    second[1:1] = [Badge(9, "B", "SIGKILL")]
    pairs = list(aligned(first, second))
    assert [(pair.first, pair.second, pair.same) for pair in pairs][1] == ("", "B: SIGKILL", False)
