"""A fetch round in words, and the round that an anomaly is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neaptide.results.report import write_report
from neaptide.results.report.page import drawing_of
from neaptide.results.report.rounds import (
    anchor,
    first_drawn,
    request_in_words,
    response_in_words,
    rounds_about,
)
from neaptide.results.report.rows import Row, load
from tests.results.losing_run import write_losing_run, write_verdict

NAMES = {0: "A", 2: "C"}
S = 1_000_000_000


def row(**rest: Any) -> Row:
    return {
        "follower": 0, "leader": 2, "topic": "t", "partition": 0, "leader_epoch": 3,
        "round": 14, "requested_ns": 1 * S, "forwarded_ns": 2 * S, "responded_ns": 3 * S,
        "delivered_ns": 4 * S, "fetch_offset": 2, "high_watermark": 1, "log_start_offset": 0,
        "records_bytes": 70, "error": 0, "request_fate": "passed", "response_fate": "passed",
        "held_ns": 0,
    } | rest  # fmt: skip


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (
            {},
            "Fetch request of A to C, t-0, round 14 of epoch 3: from offset 2."
            " It reached the gate at 1.000 s, the leader at 2.000 s.",
        ),
        (
            {
                "forwarded_ns": None, "responded_ns": None, "response_fate": None,
                "request_fate": "discarded", "held_ns": 34_000_000, "leader_epoch": None,
            },
            "Fetch request of A to C, t-0, round 14 of an epoch that is not known: from"
            " offset 2. It reached the gate at 1.000 s and never the leader: discarded."
            " Held 34 ms.",
        ),
        ({"follower": 7}, "Fetch request of 7 to C"),
    ],
)  # fmt: skip
def test_a_request_in_words(rest: dict[str, Any], words: str) -> None:
    assert request_in_words(row(**rest), NAMES).startswith(words)


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (
            {},
            "Fetch response of C to A, t-0, round 14 of epoch 3: high watermark 1, 70 bytes of"
            " records, log start offset 0. It reached the gate at 3.000 s, the follower at"
            " 4.000 s.",
        ),
        (
            {"delivered_ns": None, "response_fate": "dropped", "held_ns": 2 * S},
            "high watermark 1, 70 bytes of records, log start offset 0. It reached the gate at"
            " 3.000 s and never the follower: dropped. Held 2,000 ms.",
        ),
        (
            {"error": 6, "high_watermark": None, "records_bytes": 0, "log_start_offset": None},
            "error 6, no high watermark, no records. It reached",
        ),
    ],
)
def test_a_response_in_words(rest: dict[str, Any], words: str) -> None:
    assert words in response_in_words(row(**rest), NAMES)


def test_an_anchor_names_its_round() -> None:
    assert anchor(row(), "request") == "round-0-2-0-e3-14-request"
    assert anchor(row(leader_epoch=None), "response") == "round-0-2-0-ex-14-response"


BROUGHT = row(round=1, requested_ns=1, fetch_offset=1)
KNOWS = row(round=2, requested_ns=2, fetch_offset=2, records_bytes=0)
WITHHELD = row(round=3, requested_ns=3, records_bytes=0, high_watermark=2, delivered_ns=None)
TRUNCATES = row(round=1, requested_ns=4, fetch_offset=1, records_bytes=0, leader_epoch=4)


def test_a_truncation_comes_before_what_was_withheld_and_that_before_what_was_brought() -> None:
    rounds = [TRUNCATES, WITHHELD, KNOWS, BROUGHT]
    assert rounds_about(rounds, "t", 0, 1) == [
        "round-0-2-0-e4-1-truncation",
        "round-0-2-0-e3-3-response",
        "round-0-2-0-e3-1-response",
    ]
    assert rounds_about(rounds, "t", 0, 0) == ["round-0-2-0-e3-3-response"]


@pytest.mark.parametrize("place", [("u", 0, 1), ("t", 1, 1), ("t", None, 1), ("t", 0, None)])
def test_rounds_of_other_partitions_are_not_meant(place: tuple[Any, Any, Any]) -> None:
    assert rounds_about([BROUGHT, KNOWS, WITHHELD, TRUNCATES], *place) == []


def test_the_first_that_is_drawn_is_taken() -> None:
    assert first_drawn(["a", "b", "c"], {"c", "b"}) == "b"
    assert first_drawn(["a"], set()) is None


def test_every_message_of_a_diagram_has_its_words_and_an_id_of_its_own(tmp_path: Path) -> None:
    run = write_losing_run(tmp_path / "run")
    write_verdict(run)
    messages = drawing_of(load(run)).messages
    anchors = [message.anchor for message in messages]
    assert len(set(anchors)) == len(anchors) == 27
    assert all(message.says for message in messages)
    html = write_report(run).read_text(encoding="utf-8")
    for each in anchors:
        assert html.count(f'id="{each}"') == html.count(f'id="says-{each}"') == 1
    assert '<a href="#round-0-1-0-e1-1-truncation">its round</a>' in html
    words = [message.says for message in messages]
    assert (
        "m2 to t-0, acks=all (operation 3 of process 0): acknowledged at offset 1."
        " Begun at 4.200 s, over at 4.812 s." in words
    )
    assert (
        "A final read of t-0 returned m1 at offset 0 (operation 12 of process 1)."
        " Begun at 11.000 s, over at 11.013 s." in words
    )
