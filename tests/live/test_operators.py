"""C5: what operators ask by the admin API, of ours and of Apache Kafka, from 2.8 on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32

from tests.live.alone import REAL, Alone
from tests.live.cluster import until
from tests.live.led import await_assigned, led_alone, led_by_the_second
from tests.live.raw import RawConnection, milliseconds

pytestmark = pytest.mark.live


@pytest.fixture
def alone(newer: Alone) -> Iterator[Alone]:
    yield newer
    newer.end_phantoms()


# --- ElectLeaders --------------------------------------------------------------------------------

PREFERRED, UNCLEAN = i8(0), i8(1)


def elect(alone: Alone, kind: i8, *topics: str) -> dict[str, str]:
    """What each partition came to: "none", or the name of an error."""
    asked = tuple(TopicPartitions(topic=TopicName(topic), partitions=(i32(0),)) for topic in topics)
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=asked, timeout=milliseconds(30_000)
    )
    with RawConnection(alone.client_port(REAL)) as connection:
        answer = connection.ask(request)
    assert answer.error_code is ErrorCode.none
    return {
        str(one.topic): str(result.error_code.name)
        for one in answer.replica_election_results
        for result in one.partition_result
    }


def test_c5_elect_leaders_answers_partition_by_partition(alone: Alone, topic_name: str) -> None:
    preferred = led_by_the_second(alone, topic_name)
    led = alone.create_topic(f"{topic_name}-led", [[REAL]])
    assert elect(alone, PREFERRED, topic_name, led, "no-such-topic") == {
        topic_name: "none",
        led: "election_not_needed",
        "no-such-topic": "unknown_topic_or_partition",
    }
    assert alone.state(topic_name)["leader"] == preferred.broker


def test_c5_a_preferred_leader_that_is_dead_is_an_error(alone: Alone, topic_name: str) -> None:
    preferred = alone.phantom()
    alone.create_topic(topic_name, [[preferred.broker, REAL]])
    preferred.leave()
    until(lambda: alone.state(topic_name)["leader"] == REAL, "the broker leads")
    until(lambda: preferred.broker not in alone.live(), "the metadata know that it is dead")
    outcome = elect(alone, PREFERRED, topic_name)
    assert outcome == {topic_name: "preferred_leader_not_available"}


def test_c5_an_unclean_election_is_made_on_demand(alone: Alone, topic_name: str) -> None:
    led_alone(alone, topic_name, "false").leave()
    until(lambda: alone.state(topic_name)["leader"] == -1, "it has no leader")
    outcome = elect(alone, PREFERRED, topic_name)
    assert outcome == {topic_name: "preferred_leader_not_available"}
    assert elect(alone, UNCLEAN, topic_name) == {topic_name: "none"}
    assert alone.state(topic_name)["leader"] == REAL
    assert alone.isr(topic_name) == [REAL]
    outcome = elect(alone, UNCLEAN, topic_name)
    assert outcome == {topic_name: "election_not_needed"}


# --- AlterPartitionReassignments, ListPartitionReassignments -------------------------------------


def alter(alone: Alone, topic: str, replicas: Sequence[int] | None) -> str:
    """ "none", or the name of an error."""
    wanted = None if replicas is None else tuple(BrokerId(one) for one in replicas)
    partition = ReassignablePartition(partition_index=i32(0), replicas=wanted)
    asked = ReassignableTopic(name=TopicName(topic), partitions=(partition,))
    request = AlterPartitionReassignmentsRequest(timeout=milliseconds(30_000), topics=(asked,))
    with RawConnection(alone.client_port(REAL)) as connection:
        answer = connection.ask(request)
    assert answer.error_code is ErrorCode.none
    (result,) = (one for topic in answer.responses for one in topic.partitions)
    return str(result.error_code.name)


class Ongoing(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def ongoing(alone: Alone, topic: str) -> Ongoing | None:
    request = ListPartitionReassignmentsRequest(timeout=milliseconds(30_000), topics=None)
    with RawConnection(alone.client_port(REAL)) as connection:
        answer = connection.ask(request)
    assert answer.error_code is ErrorCode.none
    for one in answer.topics:
        if one.name == topic:
            (found,) = one.partitions
            return Ongoing(
                tuple(found.replicas),
                tuple(found.adding_replicas),
                tuple(found.removing_replicas),
            )
    return None


def test_c5_a_reassignment_is_listed_until_it_is_over(alone: Alone, topic_name: str) -> None:
    topic = alone.create_topic(topic_name, [[REAL]])
    alone.append(topic, 2)
    new = alone.phantom()
    assert ongoing(alone, topic) is None
    assert alter(alone, topic, [new.broker]) == "none"
    assert ongoing(alone, topic) == Ongoing((new.broker, REAL), (new.broker,), (REAL,))

    def is_over() -> bool:
        alone.fetch(new.broker, topic, 2)
        return ongoing(alone, topic) is None

    until(is_over, "it is over")
    await_assigned(alone, topic, new.broker)
    log = alone.log_directory(REAL) / f"{topic}-0"
    until(lambda: not log.exists(), "the log is deleted, or renamed at least")


def test_c5_a_reassignment_is_cancelled(alone: Alone, topic_name: str) -> None:
    topic = alone.create_topic(topic_name, [[REAL]])
    new = alone.phantom()
    assert alter(alone, topic, None) == "no_reassignment_in_progress"
    assert alter(alone, topic, [new.broker]) == "none"
    assert alter(alone, topic, None) == "none"
    until(lambda: ongoing(alone, topic) is None, "it is over")
    await_assigned(alone, topic, REAL)
    assert alter(alone, topic, None) == "no_reassignment_in_progress"


def test_c5_what_cannot_be_assigned_is_refused(alone: Alone, topic_name: str) -> None:
    topic = alone.create_topic(topic_name, [[REAL]])
    for replicas in ([], [REAL, REAL], [REAL, -1], [REAL, 999]):
        assert alter(alone, topic, replicas) == "invalid_replica_assignment", replicas
    assert ongoing(alone, topic) is None
