"""A Fetch response is the same in whatever parts it comes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from neaptide.nemesis.gate.fetch_answer import KEPT_BYTES_MAX, FetchAnswer, fetch_response
from neaptide.nemesis.gate.frames import MalformedStreamError
from tests.gate import wire
from tests.gate.wire import Answer

_answers = st.lists(
    st.builds(
        Answer,
        st.text("abc", min_size=1, max_size=3),
        st.integers(0, 9),
        st.integers(-1, 1 << 40),
        st.binary(max_size=300),
        st.integers(-1, 99),
        st.sampled_from([0, 1, 74]),
    ),
    max_size=4,
    unique_by=lambda answer: (wire.topic_id(answer.topic), answer.partition),
)


@given(st.integers(4, 18), _answers, st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_an_answer_is_read_in_any_parts(
    version: int, answers: list[Answer], sizes: list[int]
) -> None:
    raw = wire.fetch_response(version, answers, correlation_id=9, session_id=4, error=0)
    whole = fetch_response(raw, version)
    assert [each.records_bytes for each in whole.partitions.values()] == [
        len(answer.records) for answer in answers
    ]
    parts = FetchAnswer(version)
    left = raw
    for size in itertools.cycle(sizes):
        part, left = left[:size], left[size:]
        parts.feed(part)
        if not left:
            break
        with pytest.raises(MalformedStreamError, match="too early"):
            parts.end()
    assert parts.end() == whole
    with pytest.raises(MalformedStreamError, match="left over"):
        parts.feed(b"x")


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_aborted_transactions_and_tagged_fields_are_passed_over(version: int) -> None:
    schema: Any = wire._schema("fetch", version, "response")
    tagged = {}
    if version >= 12:
        tagged["diverging_epoch"] = schema.EpochEndOffset(epoch=3, end_offset=5)
        tagged["current_leader"] = schema.LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    aborted = schema.AbortedTransaction(producer_id=7, first_offset=1)
    data = wire._with_fields(
        schema.PartitionData,
        partition_index=3,
        error_code=ErrorCode(0),
        high_watermark=8,
        last_stable_offset=6,
        log_start_offset=2,
        aborted_transactions=(aborted, aborted),
        records=b"rr",
        **tagged,
    )
    topic = wire._with_fields(
        schema.FetchableTopicResponse, topic="t", topic_id=wire.topic_id("t"), partitions=(data,)
    )
    raw = wire.fetch_response_of(version, (topic, topic))
    [answer] = fetch_response(raw, version).partitions.values()
    assert (answer.high_watermark, answer.records_bytes) == (8, 2)
    assert answer.log_start_offset == (2 if version >= 5 else None)


@pytest.mark.parametrize(
    ("version", "topic", "before", "many"),
    [(4, b"\0\1t", 4 + 22, b"\x7f\xff\xff\xff"), (12, b"\2t", 1 + 30, b"\xff\xff\xff\xff\x07")],
)
def test_more_aborted_transactions_than_bytes_come_to_an_end(
    version: int, topic: bytes, before: int, many: bytes
) -> None:
    raw = wire.fetch_response(version, [Answer("t", 0, 1, b"rr")])
    answer = FetchAnswer(version)
    answer.feed(raw[: raw.index(topic) + len(topic) + before] + many)
    with pytest.raises(MalformedStreamError, match="too early"):
        answer.end()
    with pytest.raises(MalformedStreamError, match="without an end"):
        answer.feed(bytes(KEPT_BYTES_MAX))
