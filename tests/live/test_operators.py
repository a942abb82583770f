"""C5: what operators ask by the admin API, of ours and of Apache Kafka, from 2.8 on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32

from tests.live.alone import REAL, Alone
from tests.live.cluster import until
from tests.live.raw import RawConnection, milliseconds
from tests.live.test_controlling import led_alone
from tests.live.test_elections import led_by_the_second

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
