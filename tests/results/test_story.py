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


def sent(
    value: str, kind: str, invoked_ns: int, completed_ns: int, **fields: Any
) -> dict[str, Any]:
    """Process and operation are the same: each value is sent once."""
    row = {
        "f": "send", "type": kind, "operation": invoked_ns, "row": 0, "process": 1, "topic": "t",
        "partition": 0, "value": value, "acks": "1", "offset": None, "error": None,
        "invoked_ns": invoked_ns, "completed_ns": completed_ns,
    }  # fmt: skip
    return {**row, **fields}


NEXT = '{"leader": 1, "isr": [1]}'
NOBODY = '{"leader": null, "isr": [0]}'


def ends(moments: list[Moment]) -> list[tuple[str, str, str]]:
    return [(one.source, one.destination, one.text) for one in moments if isinstance(one, Arrow)]


def test_a_send_without_an_answer_starts_and_ends_at_the_broker_that_was_asked() -> None:
    """Another one leads by then; what that one has acknowledged comes from there."""
    lost = sent("m1", "info", 10, 30, error="_MSG_TIMED_OUT")
    acked = sent("m2", "ok", 25, 40, offset=0)
    rows = [leads(0), lost, leads(1, invoked_ns=20, value=NEXT), acked]
    assert ends(story(rows, [])) == [
        ("producer", "A", "m1"),
        ("producer", "B", "m2"),
        ("A", "producer", "m1: _MSG_TIMED_OUT (info)"),
        ("B", "producer", "ack m2 at offset 0 (acks=1)"),
    ]


def test_a_client_whose_step_names_a_broker_asks_no_leader() -> None:
    rows = [
        leads(0),
        leads(1, invoked_ns=7, value=NEXT),
        sent("m1", "ok", 10, 30, offset=0),
        sent("m2", "fail", 11, 31, error="NOT_ENOUGH_REPLICAS"),
    ]
    moments = Story({0: "A", 1: "B"}, 0, {"m1": "A", "m2": "X"}).in_order(rows, [])
    assert ends(moments) == [
        ("producer", "A", "m1"),
        ("producer", "B", "m2"),  # there is no X
        ("A", "producer", "ack m1 at offset 0 (acks=1)"),
        ("B", "producer", "m2: NOT_ENOUGH_REPLICAS (fail)"),
    ]


def test_where_nobody_led_no_broker_is_said_to_have_been_asked() -> None:
    rows = [
        leads(0, value=NOBODY),
        sent("m1", "info", 10, 30),
        sent("m2", "ok", 11, 31, offset=0),
    ]
    moments = story(rows, [])
    assert ends(moments) == []
    said = [(one.lifeline, one.text) for one in moments if isinstance(one, Badge)]
    assert said == [
        ("producer", "m1: no answer (info)"),
        ("producer", "ack m2 at offset 0 (acks=1)"),
    ]
