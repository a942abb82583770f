"""F16: fetch sessions (KIP-227): what is left unsaid, who has a session, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS, FetchSessions
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.effects import FetchedResult, LogSlice
from neaptide.clusters.broker.replication.interface.events import FetchedPartition
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import EpochEnd
from neaptide.clusters.broker.server.apis.fetch import (
    SESSIONS_VERSION,
    decode_fetch,
    decode_fetch_response,
    encode_fetch,
    encode_fetch_request,
    session_of_response,
)
from neaptide.clusters.broker.server.apis.row import PendingRequest, SendResponse
from neaptide.clusters.broker.server.apis.table import client_apis, replication_apis
from neaptide.clusters.broker.server.config import server_config
from neaptide.clusters.broker.server.fetch_session import (
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchSessionCache,
    Full,
    Incremental,
    SessionError,
    Sessionless,
    next_epoch,
)
from neaptide.clusters.broker.server.fetch_session_handler import FetchSessionHandler
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from neaptide.clusters.broker.wire.topic_ids import FETCH_WITH_TOPIC_IDS, TopicNames
from tests.server.given import CONNECTION, CONTEXT, GOOD
from tests.topic_ids import id_of_name

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
FETCHER = events.FetcherId(1, 0)


def asked(partition: TopicPartition, offset: int = 0, epoch: int = 3) -> FetchedPartition:
    return FetchedPartition(
        partition, offset, 1_000, log_start_offset=0, current_leader_epoch=epoch
    )


def result(partition: TopicPartition, mark: int = 0, **more: Any) -> FetchedResult:
    values = {"error": Error.NONE, "log_start_offset": 0, "records": None, **more}
    return FetchedResult(partition, high_watermark=mark, **values)


class Records:
    """A reader of logs, in each of which there is what was asked for."""

    def read(self, *_: object) -> tuple[bytes, Error]:
        return b"", Error.NONE


class Wire:
    """A fetcher and its leader, with all that they say encoded and decoded."""

    def __init__(self, slots: int = 10, generation: str = "2.8") -> None:
        self.now_ms = 0
        self.config = replace(server_config(GOOD), generation=GENERATIONS[generation])
        self.apis = replication_apis(generation)
        self.topics = ["t", "u"]  # that the leader knows
        self.sent = effects.SendFetch(FETCHER, 1, 500, 1, 10_000, ())
        self.cache = FetchSessionCache(slots, lambda: self.now_ms)
        self.names = TopicNames(lambda: {id_of_name(name): name for name in self.topics})
        self.context = replace(CONTEXT, fetch_sessions=self.cache, topic_names=self.names)
        self.handler = FetchSessionHandler()
        self.named: list[TopicPartition] = []

    def request(self, *partitions: FetchedPartition) -> tuple[PendingRequest, Any]:
        """Sends it; returns it, and what the core of the leader gets."""
        if self.config.generation.fetch_version >= FETCH_WITH_TOPIC_IDS:
            partitions = tuple(
                replace(one, topic_id=one.topic_id or id_of_name(one.partition.topic))
                for one in partitions
            )
        self.sent = effects.SendFetch(FETCHER, 1, 500, 1, 10_000, partitions)
        entity = encode_fetch_request(self.sent, self.config, self.handler.request(partitions))
        frame = encode_request(entity, correlation_id=1, client_id="c")
        header, received = decode_request(frame[4:], self.apis)
        self.named = [
            TopicPartition(name, int(one.partition))
            for topic in received.topics
            for name in [
                self.names.name_of(topic.topic_id) if hasattr(topic, "topic_id") else topic.topic
            ]
            for one in topic.partitions
        ]
        pending = PendingRequest(9, CONNECTION, header, max_bytes=1_000)
        return pending, decode_fetch(pending, received, self.context)

    def respond(
        self, pending: PendingRequest, *results: FetchedResult
    ) -> set[TopicPartition] | None:
        """Answers it; returns which partitions are in the response; None: it is not believed."""
        response = encode_fetch(pending, effects.RespondFetch(9, results), self.context)
        assert isinstance(response, SendResponse)
        frame = encode_response(response.entity, 1)
        _, entity = decode_response(frame[4:], pending.header.api, pending.header.version)
        said = session_of_response(self.sent, entity)
        fetched = decode_fetch_response(self.sent, entity).results
        assert {one.partition for one in fetched} == said[2]
        return said[2] if self.handler.responded(*said) else None


def test_f16_a_session_begins_with_a_full_request_and_then_names_what_changes() -> None:
    wire = Wire()
    first, event = wire.request(asked(T0), asked(T1), asked(U0))
    assert event.partitions == (asked(T0), asked(T1), asked(U0))
    assert wire.respond(first, result(T0), result(T1), result(U0)) == {T0, T1, U0}
    assert len(wire.cache) == 1

    second, event = wire.request(asked(T0), asked(T1, 5), asked(U0))
    assert wire.named == [T1]
    assert event.partitions == (asked(T0), asked(T1, 5), asked(U0))  # the core sees them all
    assert wire.respond(second, result(T0), result(T1, 2), result(U0)) == {T1}

    third, event = wire.request(asked(T1, 5), asked(T0, epoch=4), asked(U0))
    assert wire.named == [T0]
    # Who had news is served last.
    assert [one.partition for one in event.partitions] == [T0, U0, T1]
    assert wire.respond(third, result(T0), result(U0), result(T1, 2)) == set()

    fourth, event = wire.request(asked(T1, 5), asked(U0))
    assert (wire.named, [one.partition for one in event.partitions]) == ([], [U0, T1])
    assert wire.respond(fourth, result(U0), result(T1, 2)) == set()


@pytest.mark.parametrize(
    "news",
    [
        result(T0, 1),
        result(T0, log_start_offset=1),
        result(T0, error=Error.NOT_LEADER_OR_FOLLOWER),
        result(T0, diverging_epoch=EpochEnd(0, 0)),
    ],
)
def test_f16_what_is_news(news: FetchedResult) -> None:
    wire = Wire()
    first, _ = wire.request(asked(T0), asked(T1))
    wire.respond(first, result(T0), result(T1))
    second, _ = wire.request(asked(T0), asked(T1))
    assert wire.respond(second, news, result(T1)) == {T0}
    third, _ = wire.request(asked(T0), asked(T1))
    # An error and where it diverges are said again; after an error the partition is too.
    says_again = news.error is not Error.NONE or news.diverging_epoch is not None
    assert wire.respond(third, news, result(T1)) == ({T0} if says_again else set())
    fourth, _ = wire.request(asked(T0), asked(T1))
    after = result(T0, news.high_watermark, log_start_offset=news.log_start_offset)
    failed = news.error is not Error.NONE
    assert wire.respond(fourth, after, result(T1)) == ({T0} if failed else set())


def test_f16_records_are_news() -> None:
    wire = Wire()
    first, _ = wire.request(asked(T0))
    wire.respond(first, result(T0))
    (session,) = wire.cache._sessions.values()
    assert session.takes(result(T0, records=LogSlice(0, 1, 9)), b"a batch")
    assert not session.takes(result(T0), b"")


def test_f16_a_session_that_is_gone_or_at_another_epoch_is_an_error_and_then_begun_anew() -> None:
    wire = Wire()
    first, _ = wire.request(asked(T0))
    wire.respond(first, result(T0))
    wire.cache._sessions.clear()  # a restart
    second, event = wire.request(asked(T0))
    assert event.partitions == ()
    assert wire.respond(second) is None
    third, event = wire.request(asked(T0))
    assert event.partitions == (asked(T0),)
    assert wire.respond(third, result(T0)) == {T0}
    # A request whose response is lost: the next one is full, and ends the session.
    wire.request(asked(T0))
    wire.handler.failed()
    fifth, event = wire.request(asked(T0))
    assert (event.partitions, len(wire.cache)) == ((asked(T0),), 0)
    assert wire.respond(fifth, result(T0)) == {T0}
    assert len(wire.cache) == 1


def _begin(cache: FetchSessionCache, session: int, epoch: int, *named: FetchedPartition) -> Any:
    return cache.begin(session, epoch, named, (), is_follower=True)


def _new(cache: FetchSessionCache, size: int = 1, *, is_follower: bool = False) -> int:
    partitions = [TopicPartition("t", number) for number in range(size)]
    context = Full(tuple(asked(one) for one in partitions), is_follower)
    return cache.create(context, [result(one) for one in partitions])


def test_f16_what_a_request_means() -> None:
    cache = FetchSessionCache(10, lambda: 0)
    assert _begin(cache, NO_SESSION, FINAL_EPOCH, asked(T0)) == Sessionless((asked(T0),))
    assert _begin(cache, NO_SESSION, INITIAL_EPOCH, asked(T0)) == Full((asked(T0),), True)
    session = _new(cache)
    assert _begin(cache, session, 2) == SessionError(Error.INVALID_FETCH_SESSION_EPOCH)
    assert _begin(cache, session + 1, 1) == SessionError(Error.FETCH_SESSION_ID_NOT_FOUND)
    context = _begin(cache, session, 1)
    assert isinstance(context, Incremental)
    assert _begin(cache, session, 1) == SessionError(Error.INVALID_FETCH_SESSION_EPOCH)
    forgets: FetchContext = cache.begin(session, 2, (), (T0,), is_follower=True)
    assert (forgets, len(cache)) == (Sessionless(()), 0)
    session = _new(cache)
    assert _begin(cache, session, FINAL_EPOCH) == Sessionless(())
    assert len(cache) == 0


def test_f16_the_epoch_after_the_greatest_is_1() -> None:
    assert [next_epoch(one) for one in (0, 1, 2**31 - 1, -1)] == [1, 2, 1, -1]


def test_f16_a_response_that_comes_after_a_later_request_of_its_session_is_an_error() -> None:
    wire = Wire()
    first, _ = wire.request(asked(T0))
    wire.respond(first, result(T0))
    second, _ = wire.request(asked(T0))
    (session,) = wire.cache._sessions.values()
    _begin(wire.cache, session.id, session.epoch)
    assert wire.respond(second, result(T0)) is None


@pytest.mark.parametrize(
    ("first", "first_is_follower", "second", "second_is_follower", "after_ms", "has_room"),
    [
        (1, False, 9, False, 1, False),  # young: it goes for no consumer
        (9, False, 1, True, 1, True),  # but for a follower
        (9, True, 9, True, 1, False),
        (9, True, 1, False, EVICTION_MS + 1, True),  # unused for so long: for everybody
        (9, True, 1, False, EVICTION_MS, False),
    ],
)
def test_f16_who_makes_room_for_whom(
    first: int,
    first_is_follower: bool,
    second: int,
    second_is_follower: bool,
    after_ms: int,
    has_room: bool,
) -> None:
    wire = Wire(slots=1)
    assert _new(wire.cache, first, is_follower=first_is_follower)
    wire.now_ms = after_ms
    made = _new(wire.cache, second, is_follower=second_is_follower)
    assert (made != NO_SESSION, len(wire.cache)) == (has_room, 1)


@pytest.mark.parametrize(("size", "has_room"), [(3, False), (4, False), (5, True)])
def test_f16_an_old_session_in_use_goes_for_a_larger_one(size: int, has_room: bool) -> None:
    wire = Wire(slots=1)
    session = _new(wire.cache, 4)
    wire.now_ms = EVICTION_MS + 1
    assert isinstance(_begin(wire.cache, session, 1), Incremental)
    assert (_new(wire.cache, size) != NO_SESSION) is has_room


@pytest.mark.parametrize(("age_while_used", "has_room"), [(True, True), (False, False)])
def test_f16_before_2_5_a_session_ages_while_it_is_used(
    age_while_used: bool, has_room: bool
) -> None:
    """KAFKA-9137: a session in use goes for any other one after two minutes."""
    now_ms = 0
    cache = FetchSessionCache(1, lambda: now_ms, age_while_used=age_while_used)
    session = _new(cache, 4, is_follower=True)
    now_ms = EVICTION_MS + 1
    assert isinstance(_begin(cache, session, 1), Incremental)
    assert (_new(cache, 1) != NO_SESSION) is has_room


def test_f16_without_room_each_request_is_full() -> None:
    wire = Wire(slots=0)
    for _ in range(2):
        pending, _ = wire.request(asked(T0), asked(T1))
        assert wire.named == [T0, T1]
        assert wire.respond(pending, result(T0), result(T1)) == {T0, T1}


def test_f16_before_2_0_no_session_is_given() -> None:
    without = [
        name for name, one in GENERATIONS.items() if one.fetch_sessions is FetchSessions.NONE
    ]
    assert without == ["0.8", "0.10", "0.11"]
    offered = {name: SESSIONS_VERSION in replication_apis(name)[Api.FETCH] for name in GENERATIONS}
    assert {SESSIONS_VERSION in client_apis(name)[Api.FETCH] for name in without} == {False}
    assert all(offered.values())  # between brokers, whoever asks
    wire = Wire()
    wire.context = replace(CONTEXT, fetch_sessions=None, reader=cast(Any, Records()))
    pending, _ = wire.request(asked(T0))
    assert wire.respond(pending, result(T0)) == {T0}
    _, event = wire.request(asked(T0))
    assert event.partitions == (asked(T0),)


@pytest.mark.parametrize("answered", [{T0}, {T0, T1, U0}])
def test_f16_a_response_about_other_partitions_is_not_believed(
    answered: set[TopicPartition],
) -> None:
    handler = FetchSessionHandler()
    handler.request((asked(T0), asked(T1)))
    assert not handler.responded(Error.NONE, 7, answered)
    assert handler.request((asked(T0), asked(T1))).epoch == INITIAL_EPOCH
    assert handler.responded(Error.NONE, 7, {T0, T1})
    handler.request((asked(T0), asked(T1)))
    assert handler.responded(Error.NONE, 7, answered) is (U0 not in answered)


def test_f16_a_topic_that_had_an_id_alone_gets_its_name_in_the_session() -> None:
    """The leader learns of a topic after its follower: nobody names the partition again."""
    wire = Wire(generation="4.0")
    wire.topics = []
    pending, event = wire.request(asked(T0))
    [unknown] = [one.partition for one in event.partitions]
    assert unknown.topic != "t"
    wire.respond(pending, result(unknown, -1, error=Error.UNKNOWN_TOPIC_OR_PARTITION))
    wire.topics = ["t"]
    pending, event = wire.request(asked(T0))
    assert wire.named == []
    assert [one.partition for one in event.partitions] == [T0]
    assert wire.respond(pending, result(T0, 5)) == {T0}
    pending, event = wire.request(asked(T0))
    assert wire.respond(pending, result(T0, 5)) == set()


def test_f16_topics_have_ids_in_what_a_session_forgets() -> None:
    wire = Wire(generation="4.0")
    pending, _ = wire.request(asked(T0), asked(U0))
    wire.respond(pending, result(T0), result(U0))
    _, event = wire.request(asked(T0))
    assert wire.named == []
    assert [one.partition for one in event.partitions] == [T0]


def test_f16_a_topic_that_was_made_again_begins_a_new_session() -> None:
    wire = Wire(generation="4.0")
    wire.topics = ["t", "u", "another t"]
    pending, _ = wire.request(asked(T0), asked(U0))
    wire.respond(pending, result(T0), result(U0))
    again = replace(asked(T0), topic_id=id_of_name("another t"))
    pending, event = wire.request(again, asked(U0))
    assert isinstance(pending.fetch.context, Full)
    assert wire.named == [TopicPartition("another t", 0), U0]
    assert [one.topic_id for one in event.partitions] == [
        id_of_name("another t"),
        id_of_name("u"),
    ]


@pytest.mark.parametrize("uses_topic_ids", [False, True])
def test_f16_a_session_goes_on_naming_topics_as_it_began(uses_topic_ids: bool) -> None:
    cache = FetchSessionCache(10, lambda: 0)
    begun = cache.begin(0, INITIAL_EPOCH, (asked(T0),), (), is_follower=False)
    assert isinstance(begun, Full)
    session = cache.create(begun, [result(T0)])
    context = cache.begin(session, 1, (), (), is_follower=False, uses_topic_ids=uses_topic_ids)
    if uses_topic_ids:
        assert context == SessionError(Error.FETCH_SESSION_TOPIC_ID_ERROR)
    else:
        assert isinstance(context, Incremental)


def test_f16_a_topic_without_an_id_has_all_named_as_before() -> None:
    """Kafka does so too: the last version of Fetch that names topics by names is v12."""
    config = replace(server_config(GOOD), generation=GENERATIONS["4.0"])
    with_id = replace(asked(T0), topic_id=id_of_name("t"))
    for partitions, version in (((with_id,), 15), ((with_id, asked(U0)), 12)):
        sent = effects.SendFetch(FETCHER, 1, 500, 1, 10_000, partitions)
        assert int(type(encode_fetch_request(sent, config)).__version__) == version
