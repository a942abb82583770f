"""A broker that follows, ours and Apache Kafka's: its leaders are the test's.

Each test is of partitions with a phantom as leader and the broker 0 as follower. What the follower
asks shows where its log ends, and what it has made of the answers before.
"""

from __future__ import annotations

import itertools

import pytest

from tests.live.alone import CONSUMER, REAL, Alone
from tests.live.cluster import until
from tests.live.led import asked_from, followed
from tests.live.phantom import Phantom
from tests.live.struct_messages import (
    EARLIEST,
    FENCED_EPOCH,
    FETCH,
    LATEST,
    LIST_OFFSETS,
    NONE,
    NOT_LEADER,
    OFFSET_FOR_LEADER_EPOCH,
    OUT_OF_RANGE,
    STORAGE_ERROR,
    UNKNOWN_EPOCH,
    UNKNOWN_TOPIC,
    EpochEnd,
    Fetched,
    Place,
    record_offsets,
)

pytestmark = pytest.mark.live
VALUES = [b"0", b"1", b"2", b"3", b"4"]


def filled(alone: Alone, leader: Phantom, place: Place, high_watermark: int) -> None:
    """The follower has five records of epoch 0, and has learned this high watermark."""
    first = leader.next_fetch(place)
    assert asked_from(first, place) == 0
    first.answer({place: Fetched(0, alone.records(0, VALUES))})
    second = leader.next_fetch(place)
    assert asked_from(second, place) == 5
    second.answer({place: Fetched(high_watermark)})
    assert asked_from(leader.next_fetch(place), place) == 5  # taken, and never answered


def all_committed(alone: Alone, topic: str) -> list[int]:
    """The offsets that consumers read when the broker leads, and has committed its five records."""

    def answered() -> Fetched | None:
        answer = alone.fetch(CONSUMER, topic, 0)
        return answer if answer.high_watermark == 5 else None

    answer = until(answered, "the broker leads, and its high watermark is 5")
    assert answer.error == NONE
    return answer.offsets


def truncated_to(alone: Alone, leader: Phantom, place: Place, *ends: EpochEnd) -> int:
    """Where a follower begins to fetch from a new leader, which answers so what it asks before."""
    if alone.system.has_epochs:
        for end in ends:
            leader.next(OFFSET_FOR_LEADER_EPOCH).answer({place: end})
    return asked_from(leader.next_fetch(place), place)


# --- rounds --------------------------------------------------------------------------------------


def test_f1_f8_a_follower_appends_what_continues_its_log_and_nothing_else(
    alone: Alone, topic_name: str
) -> None:
    leader, place = followed(alone, topic_name)
    filled(alone, leader, place, 5)
    leader.leave()
    alone.await_leader(topic_name, other_than=leader.broker)
    assert all_committed(alone, topic_name) == [0, 1, 2, 3, 4]


def test_f8_records_below_the_log_end_are_never_appended(alone: Alone, topic_name: str) -> None:
    leader, place = followed(alone, topic_name)
    first = leader.next_fetch(place)
    first.answer({place: Fetched(0, alone.records(0, VALUES))})
    again = leader.next_fetch(place)
    again.answer({place: Fetched(9, alone.records(3, [b"3", b"4"]))})
    leader.leave()
    until(lambda: alone.state(topic_name)["leader"] == REAL, "the follower is elected")
    [segment] = (alone.log_directory(REAL) / f"{topic_name}-0").glob("*.log")
    assert record_offsets(segment.read_bytes()) == [0, 1, 2, 3, 4]


def test_f8_records_above_the_log_end_leave_a_gap_and_a_cut_in_it_ends_there(
    alone: Alone, topic_name: str
) -> None:
    second = alone.phantom()
    leader, place = followed(alone, topic_name, second)
    leader.next_fetch(place).answer({place: Fetched(0, alone.records(0, [b"0", b"1"]))})
    behind = leader.next_fetch(place)
    assert asked_from(behind, place) == 2
    behind.answer({place: Fetched(2, alone.records(7, [b"7", b"8"]))})
    third = leader.next_fetch(place)
    assert asked_from(third, place) == 9
    third.answer({place: Fetched(5)})
    assert asked_from(leader.next_fetch(place), place) == 9
    # A new leader's log ends in the gap, or the high watermark lies there.
    leader.leave()
    assert alone.await_leader(topic_name, other_than=leader.broker) == second.broker
    assert truncated_to(alone, second, place, EpochEnd(0, 5)) == 5
    second.drop_connections()
    second.next_fetch(place).answer({place: Fetched(6, alone.records(6, [b"6"]))})
    assert asked_from(second.next_fetch(place), place) == 7
    second.leave()
    until(lambda: alone.state(topic_name)["leader"] == REAL, "the follower leads")
    [segment] = (alone.log_directory(REAL) / f"{topic_name}-0").glob("*.log")
    assert record_offsets(segment.read_bytes()) == [0, 1, 6]


def test_f8_f9_an_empty_log_that_starts_inside_the_first_batch_starts_with_it(
    alone: Alone, topic_name: str
) -> None:
    if not alone.system.has_epochs:
        return  # it never gets that batch (KAFKA-6975)
    leader, place = followed(alone, topic_name)
    leader.next_fetch(place).answer({place: Fetched(error=OUT_OF_RANGE)})
    for offset in (20, 10):  # the latest, and the earliest
        leader.next(LIST_OFFSETS).answer({place: offset})
    question = leader.next_fetch(place)
    assert asked_from(question, place) == 10
    question.answer({place: Fetched(12, alone.records(8, VALUES), log_start=10)})
    asked = leader.next_fetch(place).body.partitions[place]
    assert (asked.offset, asked.log_start) == (13, 10)
    [segment] = (alone.log_directory(REAL) / f"{topic_name}-0").glob("*.log")
    assert segment.name == "00000000000000000008.log"


def test_r6_a_follower_takes_over_the_leaders_log_start(alone: Alone, topic_name: str) -> None:
    leader, place = followed(alone, topic_name)
    filled(alone, leader, place, 5)
    if not alone.system.has_epochs:
        return  # a leader names its log start from Fetch v5 on
    leader.drop_connections()
    again = leader.next_fetch(place)
    again.answer({place: Fetched(5, log_start=3)})
    assert leader.next_fetch(place).body.partitions[place].log_start == 3


@pytest.mark.parametrize(
    ("error", "is_final"),
    [
        (NOT_LEADER, False),
        (UNKNOWN_TOPIC, False),
        (STORAGE_ERROR, False),
        (UNKNOWN_EPOCH, False),
        (FENCED_EPOCH, True),
    ],
)
def test_f2_f11_after_an_error_a_follower_asks_again_unless_it_is_fenced(
    alone: Alone, topic_name: str, error: int, is_final: bool
) -> None:
    if error in (STORAGE_ERROR, UNKNOWN_EPOCH, FENCED_EPOCH) and not alone.system.has_epochs:
        error, is_final = NOT_LEADER, False  # not known yet
    leader = alone.phantom()
    alone.create_topic(topic_name, [[leader.broker, REAL]] * 3)
    place, other = (topic_name, 0), (topic_name, 2)  # of one fetcher: F3
    leader.next_fetch(place).answer({place: Fetched(error=error)})
    if is_final:
        for _ in range(3):
            question = leader.next_fetch(other)
            assert place not in question.body.partitions
            question.answer({})
    else:
        assert asked_from(leader.next_fetch(place), place) == 0


def test_f3_f5_partitions_are_shared_out_by_hash_and_served_in_turn(
    alone: Alone, topic_name: str
) -> None:
    """Two fetchers: abs(31 * hash(topic) + partition) % 2."""
    leader = alone.phantom()
    topic = alone.create_topic(topic_name, [[leader.broker, REAL]] * 6)
    whole: set[str] = set()  # fetchers that have got an answer about all their partitions
    orders: dict[str, list[int]] = {}
    served: dict[str, int] = {}
    while len(served) < 2 or len(orders) < 2:
        question = leader.next_fetch((topic, 0), (topic, 1))
        fetcher, order = question.client_id, [number for _, number in question.body.partitions]
        if len(order) == 3 and fetcher in whole and fetcher not in served:
            served[fetcher] = order[0]
            question.answer({(topic, order[0]): Fetched(0, alone.records(0, VALUES))})
        elif fetcher in served:
            assert asked_from(question, (topic, served[fetcher])) == 5
            assert order[-1] == served[fetcher]
            orders[fetcher] = order
        else:
            question.answer({})
            if len(order) == 3:
                whole.add(fetcher)
    assert sorted(map(sorted, orders.values())) == [[0, 2, 4], [1, 3, 5]]


# --- epochs --------------------------------------------------------------------------------------


def test_e1_e3_a_new_leader_has_a_new_epoch_and_says_where_each_one_ends(
    alone: Alone, topic_name: str
) -> None:
    leader, place = followed(alone, topic_name)
    filled(alone, leader, place, 5)
    leader.leave()
    alone.await_leader(topic_name, other_than=leader.broker)
    epoch = alone.state(topic_name)["leader_epoch"]
    assert epoch == 1
    until(lambda: alone.fetch(CONSUMER, topic_name, 0).high_watermark == 5, "it leads")
    alone.append(topic_name, 2)
    file = alone.log_directory(REAL) / f"{topic_name}-0" / "leader-epoch-checkpoint"
    if not alone.system.has_epochs:
        assert not file.exists()
        return
    assert file.read_text().split("\n") == ["0", "2", "0 0", "1 5", ""]
    assert alone.epoch_end(topic_name, 1) == EpochEnd(1, 7)
    assert alone.epoch_end(topic_name, 0) == EpochEnd(0, 5)
    assert alone.epoch_end(topic_name, 9) == EpochEnd(-1, -1)
    assert alone.epoch_end(topic_name, 0, current=0).error == FENCED_EPOCH


# --- truncation ----------------------------------------------------------------------------------


def test_e2_a_new_leaders_follower_truncates_to_its_high_watermark_or_where_its_epoch_ends(
    alone: Alone, topic_name: str
) -> None:
    second = alone.phantom()
    leader, place = followed(alone, topic_name, second)
    filled(alone, leader, place, 2)
    leader.leave()
    assert alone.await_leader(topic_name, other_than=leader.broker) == second.broker
    start = truncated_to(alone, second, place, EpochEnd(0, 4))
    assert start == (4 if alone.system.has_epochs else 2)


def test_e4_a_leader_that_is_gone_before_it_answers_causes_no_truncation(
    alone: Alone, topic_name: str
) -> None:
    second = alone.phantom()
    leader, place = followed(alone, topic_name, second)
    filled(alone, leader, place, 5)
    leader.leave()
    alone.await_leader(topic_name, other_than=leader.broker)
    api = OFFSET_FOR_LEADER_EPOCH if alone.system.has_epochs else FETCH
    second.next(api)  # and no answer
    before = alone.state(topic_name)["leader_epoch"]
    second.leave()
    until(lambda: alone.state(topic_name)["leader"] == REAL, "the survivor leads")
    assert alone.state(topic_name)["leader_epoch"] > before
    assert all_committed(alone, topic_name) == [0, 1, 2, 3, 4]


def test_e5_a_follower_asks_again_for_an_earlier_epoch_until_the_histories_meet(
    alone: Alone, topic_name: str
) -> None:
    """It has epochs 0 (0 to 4) and 2 (5, 6); the last leader has epoch 1, which it never had."""
    others = [alone.phantom() for _ in range(3)]
    leader, place = followed(alone, topic_name, *others)
    filled(alone, leader, place, 2)
    if not alone.system.has_epochs:
        return  # it truncates to 2, and asks nobody: E2
    for last, nth in itertools.pairwise([leader, *others]):
        last.leave()
        assert alone.await_leader(topic_name, other_than=last.broker) == nth.broker
        asked = nth.next(OFFSET_FOR_LEADER_EPOCH)
        if nth is others[-1]:
            break
        assert asked.body == {place: 0}
        asked.answer({place: EpochEnd(0, 5)})
        fetch = nth.next_fetch(place)
        assert asked_from(fetch, place) == 5
        if nth is others[1]:
            fetch.answer({place: Fetched(2, alone.records(5, [b"5", b"6"], epoch=2))})
            assert asked_from(nth.next_fetch(place), place) == 7
    assert asked.body == {place: 2}
    asked.answer({place: EpochEnd(1, 6)})
    again = nth.next(OFFSET_FOR_LEADER_EPOCH)
    assert again.body == {place: 0}
    again.answer({place: EpochEnd(0, 3)})
    assert asked_from(nth.next_fetch(place), place) == 3


@pytest.mark.parametrize(
    ("latest", "earliest", "start"),
    [(20, 10, 10), (3, 0, 3), (7, 0, 5)],
    ids=["a-f9", "b1-f10", "b2-f10"],
)
def test_f9_f10_out_of_range_a_follower_begins_where_the_leaders_log_allows(
    alone: Alone, topic_name: str, latest: int, earliest: int, start: int
) -> None:
    """A: the leader's log begins later. B1: it ends earlier. B2: it has grown since."""
    leader, place = followed(alone, topic_name, unclean="true")
    filled(alone, leader, place, 2)
    leader.drop_connections()
    leader.next_fetch(place).answer({place: Fetched(error=OUT_OF_RANGE)})
    while True:
        question = leader.next(LIST_OFFSETS, FETCH, OFFSET_FOR_LEADER_EPOCH)
        if question.api != LIST_OFFSETS:
            break
        asked = question.body[place]
        assert asked in (LATEST, EARLIEST)
        question.answer({place: latest if asked == LATEST else earliest})
    if question.api == OFFSET_FOR_LEADER_EPOCH:
        pytest.fail("a follower in range asks for no epochs")
    assert asked_from(question, place) == start
