"""The story of a partition: what is not known is not shown as if it were."""

from __future__ import annotations

from typing import Any

import pytest

from neaptide.results.report.story import Arrow, Badge, Cells, Moment, Story


def leads(epoch: int, **fields: Any) -> dict[str, Any]:
    value = '{"leader": 0, "isr": [0, 1]}'
    row = {"f": "leader", "partition": 0, "invoked_ns": 5, "value": value, "leader_epoch": epoch}
    return {**row, **fields}


def answered(number: int, fetch_offset: int, records_bytes: int) -> dict[str, Any]:
    return {
        "follower": 1,
        "leader": 0,
        "round": number,
        "leader_epoch": 4,
        "topic": "t",
        "partition": 0,
        "requested_ns": 10 * number,
        "forwarded_ns": 10 * number + 1,
        "responded_ns": 10 * number + 2,
        "delivered_ns": 10 * number + 3,
        "fetch_offset": fetch_offset,
        "records_bytes": records_bytes,
        "high_watermark": 7,
        "log_start_offset": 0,
        "error": 0,
        "request_fate": "passed",
        "response_fate": "passed",
        "held_ns": 0,
    }


def story(operations: list[dict[str, Any]], rounds: list[dict[str, Any]]) -> list[Moment]:
    return Story({0: "A", 1: "B"}, 0).in_order(operations, rounds)


@pytest.mark.parametrize(("epoch", "is_shown"), [(0, True), (4, False)])
def test_the_log_of_a_new_leader_is_shown_as_empty_only_at_the_beginning(
    epoch: int, is_shown: bool
) -> None:
    moments = story([leads(epoch)], [])
    assert [one.text for one in moments if isinstance(one, Badge)] == [f"leader, epoch {epoch}"]
    assert any(isinstance(one, Cells) for one in moments) is is_shown


def test_records_whose_values_are_left_out_are_named_by_their_offsets() -> None:
    moments = story([leads(4)], [answered(1, 7, 70), answered(2, 9, 0)])
    texts = [one.text for one in moments if isinstance(one, Arrow)]
    assert texts[:2] == ["fetch from 7 (round 1)", "offset 7, offset 8, HW 7"]
