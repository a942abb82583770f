"""What a leader of 2.8 and later answers, ours and Apache Kafka's.

The epoch of the last record (KIP-595), the latest offset of a new leader (KIP-207), and which
replica serves a consumer (KIP-392). The other replicas are phantoms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from kio.schema.fetch.v12.request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from kio.schema.fetch.v12.response import FetchResponse
from kio.schema.fetch.v12.response import PartitionData as Answer
from kio.schema.list_offsets.v4 import request as list_offsets_v4
from kio.schema.list_offsets.v5 import request as list_offsets_v5
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from tests.live.alone import CONSUMER, REAL, Alone
from tests.live.cluster import until
from tests.live.led import await_assigned, reassign
from tests.live.phantom import Phantom
from tests.live.raw import RawConnection, milliseconds
from tests.live.struct_messages import EARLIEST, LATEST, NONE, record_offsets

pytestmark = pytest.mark.live


@pytest.fixture
def alone(newer: Alone) -> Iterator[Alone]:
    yield newer
    newer.end_phantoms()


# --- requests ------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """Of one partition; `last_epoch`: the epoch of the record before `offset`, -1: not named."""

    offset: int
    last_epoch: int = -1
    leader_epoch: int = -1


def fetch_request(
    topic: str,
    asked: Mapping[int, Asked],
    *,
    replica: int = CONSUMER,
    rack: str = "",
) -> FetchRequest:
    """Version 12, to be answered at once; partitions by number."""
    name = TopicName(topic)
    partitions = tuple(
        FetchPartition(
            partition=i32(number),
            current_leader_epoch=i32(one.leader_epoch),
            fetch_offset=i64(one.offset),
            last_fetched_epoch=i32(one.last_epoch),
            partition_max_bytes=i32(1 << 20),
        )
        for number, one in asked.items()
    )
    return FetchRequest(
        replica_id=BrokerId(replica),
        max_wait=milliseconds(0),
        min_bytes=i32(0),
        session_id=i32(0),
        session_epoch=i32(-1),  # none
        topics=(FetchTopic(topic=name, partitions=partitions),),
        forgotten_topics_data=(),
        rack_id=rack,
    )


def answers(response: FetchResponse) -> dict[int, Answer]:
    """By partition, of the one topic; none where the response names none."""
    return {int(one.partition_index): one for each in response.responses for one in each.partitions}


def offsets(answer: Answer) -> list[int]:
    return record_offsets(bytes(answer.records or b""))


def ask_latest(alone: Alone, topic: str, timestamp: int = LATEST, version: int = 5) -> Any:
    """ListOffsets of partition 0, as a consumer: the error's name, and the offset."""
    of: Any = list_offsets_v5 if version == 5 else list_offsets_v4
    partition = of.ListOffsetsPartition(partition_index=i32(0), timestamp=i64(timestamp))
    listed = of.ListOffsetsRequest(
        replica_id=BrokerId(CONSUMER),
        isolation_level=i8(0),
        topics=(of.ListOffsetsTopic(name=TopicName(topic), partitions=(partition,)),),
    )
    with RawConnection(alone.client_port(REAL)) as connection:
        answer = connection.ask(listed).topics[0].partitions[0]
    return answer.error_code.name, int(answer.offset)


# --- epochs --------------------------------------------------------------------------------------


def led(alone: Alone, name: str, followers: int) -> tuple[str, list[Phantom]]:
    """A topic that the broker leads in epoch 0, and the phantoms of its ISR."""
    phantoms = [alone.phantom() for _ in range(followers)]
    brokers = [REAL, *(phantom.broker for phantom in phantoms)]
    topic = alone.create_topic(name, [brokers])
    assert alone.isr(topic) == sorted(brokers)
    assert alone.state(topic)["leader_epoch"] == 0
    return topic, phantoms


def next_epoch(alone: Alone, topic: str, *stay: int) -> int:
    """All followers die but these, and are replicas no more: the leader has a newer epoch, also
    where the ISR shrinks in the same one (KAFKA-15021)."""
    before = alone.state(topic)["leader_epoch"]
    reassign(alone, topic, REAL, *stay)
    await_assigned(alone, topic, REAL, *stay)
    epoch = int(alone.state(topic)["leader_epoch"])
    assert epoch > before
    until(
        lambda: alone.fetch(CONSUMER, topic, 0, epoch=epoch).error == NONE,
        "the leader knows its new epoch",
    )
    return epoch


@pytest.mark.parametrize("is_consumer", [False, True], ids=["follower", "consumer"])
def test_e8_a_fetch_whose_last_epoch_diverges_is_answered_where_and_without_records(
    alone: Alone, topic_name: str, is_consumer: bool
) -> None:
    """The leader has epoch 0 (0 to 2) and a later one (3, 4), and wrote nothing in epoch 1."""
    topic, [follower, *others] = led(alone, topic_name, 3)
    alone.append(topic, 3)
    next_epoch(alone, topic, follower.broker, others[0].broker)
    epoch = next_epoch(alone, topic, follower.broker)
    assert epoch > 1
    alone.append(topic, 2)

    def fetched(replica: int, offset: int, last_epoch: int, error: str = "none") -> Answer:
        port = alone.client_port(REAL) if replica == CONSUMER else alone.replication_port(REAL)
        asked = {0: Asked(offset, last_epoch, leader_epoch=epoch)}
        with RawConnection(port) as connection:
            [answer] = answers(
                connection.ask(fetch_request(topic, asked, replica=replica))
            ).values()
        assert answer.error_code.name == error
        return answer

    if is_consumer:  # which reads no further than the high watermark
        fetched(follower.broker, 5, epoch)
        assert int(fetched(CONSUMER, 0, -1).high_watermark) == 5
    replica = CONSUMER if is_consumer else follower.broker
    for offset, last_epoch, diverging in (
        (5, 0, (0, 3)),  # epoch 0 ended earlier here
        (4, 0, (0, 3)),
        (3, 1, (0, 3)),  # an epoch in which the leader wrote nothing
    ):
        answer = fetched(replica, offset, last_epoch)
        said = (int(answer.diverging_epoch.epoch), int(answer.diverging_epoch.end_offset))
        assert (said, offsets(answer)) == (diverging, [])
    # An epoch that the leader does not know yet: it cannot say where that one begins.
    assert offsets(fetched(replica, 4, 9, "offset_out_of_range")) == []
    if not is_consumer:  # and its offsets did not count
        assert int(fetched(CONSUMER, 0, -1).high_watermark) == 0
    for offset, last_epoch, records in (
        (3, 0, [3, 4]),  # at the very end of epoch 0
        (2, 0, [2, 3, 4]),
        (4, epoch, [4]),
        (4, -1, [4]),  # who names no epoch is not checked
        (5, epoch, []),
    ):
        answer = fetched(replica, offset, last_epoch)
        said = (int(answer.diverging_epoch.epoch), int(answer.diverging_epoch.end_offset))
        assert (said, offsets(answer)) == ((-1, -1), records)


def test_f15_a_new_leader_gives_no_latest_offset_until_its_epoch_begins_below_the_high_watermark(
    alone: Alone, topic_name: str
) -> None:
    topic, [follower, _] = led(alone, topic_name, 2)
    alone.append(topic, 3)
    # The high watermark is behind the log's end, but not behind where the leader's epoch starts.
    assert ask_latest(alone, topic) == ("none", 0)
    next_epoch(alone, topic, follower.broker)
    assert ask_latest(alone, topic) == ("offset_not_available", -1)
    assert ask_latest(alone, topic, version=4) == ("leader_not_available", -1)
    assert ask_latest(alone, topic, EARLIEST) == ("none", 0)
    alone.append(topic, 1)
    alone.fetch(follower.broker, topic, 2)
    assert ask_latest(alone, topic) == ("offset_not_available", -1)
    alone.fetch(follower.broker, topic, 3)  # all from before the epoch; one record is left
    assert ask_latest(alone, topic) == ("none", 3)


# --- followers that consumers read from ----------------------------------------------------------


def consumed(alone: Alone, topic: str, offset: int, rack: str = "") -> Answer:
    with RawConnection(alone.client_port(REAL)) as connection:
        asked = fetch_request(topic, {0: Asked(offset)}, rack=rack)
        [answer] = answers(connection.ask(asked)).values()
    return answer


def test_f14_a_leader_sends_a_consumer_to_the_longest_log_of_its_rack(
    alone: Alone, topic_name: str
) -> None:
    near, further, far = (alone.phantom(rack=rack) for rack in ("r1", "r1", "r2"))
    brokers = [REAL, near.broker, further.broker, far.broker]
    topic = alone.create_topic(topic_name, [brokers])
    alone.append(topic, 3)
    assert int(consumed(alone, topic, 0, "r1").preferred_read_replica) == -1  # none has fetched
    alone.fetch(further.broker, topic, 1)
    alone.fetch(near.broker, topic, 2)
    alone.fetch(far.broker, topic, 3)

    def sent(offset: int, rack: str) -> tuple[int, list[int]]:
        answer = consumed(alone, topic, offset, rack)
        assert answer.error_code.name == "none"
        return int(answer.preferred_read_replica), offsets(answer)

    assert sent(0, "r1") == (near.broker, [])
    assert sent(2, "r1") == (near.broker, [])
    assert sent(0, "r2") == (far.broker, [])
    for rack in ("r3", ""):
        assert sent(0, rack) == (-1, [0])  # which is committed: all have it
    assert sent(3, "r1") == (-1, [])  # nobody of the rack has so much
