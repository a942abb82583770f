"""A broker that obeys its controller, ours and Apache Kafka's: the controller is the test."""

from __future__ import annotations

import pytest

from tests.live.alone import REAL, Alone
from tests.live.cluster import until
from tests.live.phantom import Phantom
from tests.live.struct_messages import (
    NONE,
    OFFSET_FOR_LEADER_EPOCH,
    EpochEnd,
    Fetched,
    Place,
    record_offsets,
)

pytestmark = pytest.mark.live


def follows_no_more(leader: Phantom, place: Place, other: Place) -> None:
    """Three rounds about another partition of the same fetcher (F3) are not about this one."""
    for _ in range(3):
        while True:
            question = leader.next_fetch(other)
            if place not in question.body.partitions:
                break
            question.answer({})
        question.answer({})


def follows_from(leader: Phantom, place: Place) -> int:
    question = leader.next_fetch(place)
    question.answer({place: Fetched(3)})
    return int(question.body.partitions[place].offset)


@pytest.mark.parametrize("delete", [False, True], ids=["keep", "delete"])
def test_c4_a_replica_is_stopped_with_or_without_its_log_and_follows_again(
    alone: Alone, topic_name: str, delete: bool
) -> None:
    leader, second = alone.phantom(), alone.phantom()
    topic = alone.create_topic(topic_name, [[leader.broker, second.broker, REAL]] * 3)
    place, other = (topic, 0), (topic, 2)
    log = alone.log_directory(REAL) / f"{topic}-0"
    leader.next_fetch(place).answer({place: Fetched(0, alone.records(0, [b"0", b"1", b"2"]))})
    until(lambda: follows_from(leader, place) == 3, "it has the records")
    assert follows_from(leader, place) == 3  # and has learned by the answer that 3 are committed

    assert alone.stop_replica(alone.controller_epoch(), topic, delete=delete) == NONE
    follows_no_more(leader, place, other)
    if delete:
        until(lambda: not log.exists(), "the log is deleted, or renamed at least")
    else:
        [segment] = log.glob("*.log")
        assert record_offsets(segment.read_bytes()) == [0, 1, 2]

    assert alone.leader_and_isr(topic, second, leader_epoch=1) == NONE
    if alone.system.has_epochs and not delete:
        asked = second.next(OFFSET_FOR_LEADER_EPOCH)
        assert asked.body[place] == 0
        asked.answer({place: EpochEnd(0, 3)})
    assert follows_from(second, place) == (0 if delete else 3)
    until(log.is_dir, "it has a log again")
