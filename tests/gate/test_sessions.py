"""Fetch sessions: a round is one of every partition in the session, named or not."""

from __future__ import annotations

from neaptide.nemesis.gate.messages import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    TopicPartition,
)
from neaptide.nemesis.gate.sessions import FetchSession

_A, _B = ("t", 0), ("t", 1)


def _request(epoch: int, *forgotten: TopicPartition, **offsets: int) -> FetchRequest:
    partitions = {{"a": _A, "b": _B}[k]: FetchPartition(v) for k, v in offsets.items()}
    return FetchRequest(1, 5, epoch, partitions, forgotten)


def test_an_incremental_request_is_about_the_whole_session() -> None:
    session = FetchSession()
    session.request(_request(0, a=1, b=2))
    assert session.request(_request(1, b=3)) == {_A: FetchPartition(1), _B: FetchPartition(3)}
    assert session.request(_request(2, _A)) == {_B: FetchPartition(3)}


def test_a_full_request_starts_anew() -> None:
    session = FetchSession()
    session.request(_request(0, a=1, b=2))
    assert session.request(_request(0, a=1)) == {_A: FetchPartition(1)}
    assert session.request(_request(-1, b=1)) == {_B: FetchPartition(1)}


def test_a_partition_without_news_keeps_its_offsets_and_has_no_records() -> None:
    session = FetchSession()
    asked = session.request(_request(0, a=1, b=2))
    news = FetchedPartition(0, 4, 0, 100)
    session.response(FetchResponse(0, 5, {_A: news, _B: FetchedPartition(3, 9, 0, 0)}), asked)
    asked = session.request(_request(1))
    answers = session.response(FetchResponse(0, 5, {_B: news}), asked)
    assert answers == {_A: FetchedPartition(0, 4, 0, 0), _B: news}


def test_an_error_of_the_whole_response_answers_for_nothing() -> None:
    session = FetchSession()
    asked = session.request(_request(0, a=1))
    assert session.response(FetchResponse(70, 0, {}), asked) == {}
