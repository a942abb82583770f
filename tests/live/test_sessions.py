"""Fetch sessions (KIP-227) of leaders and of followers, ours and Apache Kafka's, from 2.0 on.

The messages are of the version that brokers of that age send each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kio.schema.fetch.v8 import request as fetch_v8
from kio.schema.fetch.v10 import request as fetch_v10
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64

from neaptide.clusters.broker.wire.codec import make
from tests.live.alone import CONSUMER, REAL, WITH_SESSIONS, Alone
from tests.live.conftest import Kept, each_of
from tests.live.phantom import Phantom, Question
from tests.live.raw import RawConnection, milliseconds
from tests.live.struct_messages import (
    FETCH,
    SESSION_NOT_FOUND,
    WRONG_SESSION_EPOCH,
    Fetched,
    Place,
    record_offsets,
)

pytestmark = pytest.mark.live
NO_SESSION, FIRST, NEVER = 0, 0, -1  # session id; session epochs of a full request
GIVEN = 77  # the session that a phantom gives
VERSIONS: Mapping[int, Any] = {8: fetch_v8, 10: fetch_v10}


@pytest.fixture(scope="module", params=each_of(WITH_SESSIONS))
def with_sessions(request: pytest.FixtureRequest, kept: Kept) -> Alone:
    return kept(request.param)


@pytest.fixture
def alone(with_sessions: Alone) -> Iterator[Alone]:
    yield with_sessions
    with_sessions.end_phantoms()


# --- of a leader ---------------------------------------------------------------------------------


def fetch_request(
    version: int,
    topic: str,
    asked: Mapping[int, int],
    *,
    session: int,
    epoch: int,
    forgotten: tuple[int, ...],
) -> Any:
    """A consumer's, to be answered at once. `asked`: offsets by partition."""
    of, name = VERSIONS[version], TopicName(topic)
    partitions = tuple(
        make(
            of.FetchPartition,
            partition=i32(number),
            fetch_offset=i64(offset),
            current_leader_epoch=i32(-1),
            log_start_offset=i64(-1),
            partition_max_bytes=i32(1 << 20),
        )
        for number, offset in asked.items()
    )
    forgets = (of.ForgottenTopic(topic=name, partitions=tuple(map(i32, forgotten))),)
    return of.FetchRequest(
        replica_id=BrokerId(CONSUMER),
        max_wait=milliseconds(0),
        min_bytes=i32(0),
        session_id=i32(session),
        session_epoch=i32(epoch),
        topics=(of.FetchTopic(topic=name, partitions=partitions),) if partitions else (),
        forgotten_topics_data=forgets if forgotten else (),
    )


def answers(response: Any) -> dict[int, Any]:
    """By partition, of the one topic; none where the response names none."""
    return {int(one.partition_index): one for each in response.responses for one in each.partitions}


def test_f16_a_session_names_what_has_changed_and_one_that_does_not_fit_is_an_error(
    alone: Alone, topic_name: str
) -> None:
    topic = alone.create_topic(topic_name, [[REAL]] * 3)
    alone.produce(topic, 2, b"before")
    with RawConnection(alone.client_port(REAL)) as connection:

        def ask(epoch: int, asked: Mapping[int, int], *forgotten: int) -> Any:
            version = alone.system.fetch
            return connection.ask(
                fetch_request(
                    version, topic, asked, session=session, epoch=epoch, forgotten=forgotten
                )
            )

        session = NO_SESSION
        alike = {0: 0, 1: 0, 2: 1}
        without = ask(NEVER, alike)
        assert (int(without.session_id), set(answers(without))) == (NO_SESSION, {0, 1, 2})
        opened = ask(FIRST, alike)
        session = int(opened.session_id)
        assert session != NO_SESSION
        assert set(answers(opened)) == {0, 1, 2}

        nothing = ask(1, {})
        assert (int(nothing.session_id), answers(nothing)) == (session, {})
        alone.produce(topic, 1, b"new")
        [(number, answer)] = answers(ask(2, {})).items()
        offsets = record_offsets(bytes(answer.records or b""))
        assert (number, offsets, int(answer.high_watermark)) == (1, [0], 1)
        # Its offset is still the old one: the record is sent again. Then it is the next one.
        assert set(answers(ask(3, {}))) == {1}
        assert answers(ask(4, {1: 1})) == {}
        assert answers(ask(5, {}, 0)) == {}
        alone.produce(topic, 0, b"forgotten")
        assert answers(ask(6, {})) == {}

        for wrong in (6, 8):
            refused = ask(wrong, {})
            assert refused.error_code.name == "invalid_fetch_session_epoch"
            assert answers(refused) == {}
        alone.produce(topic, 2, b"after")
        assert set(answers(ask(7, {}))) == {2}  # the session lives on
        known, session = session, session % (2**31 - 1) + 1
        unknown = ask(8, {})
        assert unknown.error_code.name == "fetch_session_id_not_found"
        assert answers(unknown) == {}
        session = known
        assert int(ask(NEVER, alike).session_id) == NO_SESSION  # which ends it
        assert ask(8, {}).error_code.name == "fetch_session_id_not_found"


# --- of a follower -------------------------------------------------------------------------------


def whole_fetch(leader: Phantom, *places: Place) -> Question:
    """A full request about these partitions, which one fetcher has; it begins a session."""
    while True:
        question = leader.next_fetch(*places)
        assert (question.body.session, question.body.session_epoch) == (NO_SESSION, FIRST)
        if set(question.body.partitions) == set(places):
            return question
        question.answer({})


def next_of(leader: Phantom, fetcher: str) -> tuple[Question, int, int, dict[Place, int]]:
    """The next fetch, its session and epoch, and the offsets that it names. The other fetcher waits
    for its answer."""
    while True:
        question = leader.next(FETCH)
        if question.client_id == fetcher:
            named = {place: one.offset for place, one in question.body.partitions.items()}
            return question, question.body.session, question.body.session_epoch, named


@pytest.mark.parametrize(
    ("error", "ends"), [(SESSION_NOT_FOUND, NO_SESSION), (WRONG_SESSION_EPOCH, GIVEN)]
)
def test_f16_a_follower_names_in_its_session_what_has_changed_and_begins_anew_after_an_error(
    alone: Alone, topic_name: str, error: int, ends: int
) -> None:
    leader = alone.phantom()
    topic = alone.create_topic(topic_name, [[leader.broker, REAL]] * 3)
    first, second = (topic, 0), (topic, 2)  # of one fetcher: F3
    opening = whole_fetch(leader, first, second)
    fetcher = opening.client_id
    records = alone.records(0, [b"0", b"1"])
    opening.answer_fetch({first: Fetched(0, records), second: Fetched()}, GIVEN)

    question, *said = next_of(leader, fetcher)
    assert said == [GIVEN, 1, {first: 2}]
    question.answer_fetch({}, GIVEN)  # no news
    question, *said = next_of(leader, fetcher)
    assert said == [GIVEN, 2, {}]
    question.answer_fetch({second: Fetched(0, records)}, GIVEN)
    question, *said = next_of(leader, fetcher)
    assert said == [GIVEN, 3, {second: 2}]

    question.answer_fetch({}, error=error)
    question, *said = next_of(leader, fetcher)
    assert said == [ends, FIRST, {first: 2, second: 2}]
    question.answer_fetch({first: Fetched(), second: Fetched()})  # no room for a session
    _, *said = next_of(leader, fetcher)
    assert said == [NO_SESSION, FIRST, {first: 2, second: 2}]
