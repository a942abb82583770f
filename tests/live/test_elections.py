"""C5: preferred leaders are elected, by znode and by ElectLeaders; Apache Kafka elects them too."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition

from tests.live.alone import REAL, Alone
from tests.live.cluster import until
from tests.live.phantom import Phantom
from tests.live.test_controlling import led_alone

pytestmark = pytest.mark.live
ELECTION = "/admin/preferred_replica_election"


def led_by_the_second(alone: Alone, topic: str) -> Phantom:
    """The preferred leader, a phantom, was dead and is in sync again; the broker leads."""
    preferred = alone.phantom()
    alone.create_topic(topic, [[preferred.broker, REAL]])
    preferred.leave()
    until(lambda: alone.state(topic)["leader"] == REAL, "the broker leads")
    until(lambda: alone.isr(topic) == [REAL], "it is alone in the ISR")
    back = alone.phantom(again=preferred.broker)

    def is_in_sync() -> bool:
        alone.fetch(back.broker, topic, 0)
        return alone.isr(topic) == sorted([REAL, back.broker])

    until(is_in_sync, "the phantom is in the ISR")
    return back


def ask_for_election(alone: Alone, *topics: str) -> None:
    named = [{"topic": topic, "partition": 0} for topic in topics]
    content = json.dumps({"version": 1, "partitions": named}).encode()
    alone.zookeeper.create(ELECTION, content)


def test_c5_the_znode_has_the_preferred_leader_elected_and_is_deleted(
    alone: Alone, topic_name: str
) -> None:
    preferred = led_by_the_second(alone, topic_name)
    before = alone.state(topic_name)
    ask_for_election(alone, topic_name)
    until(lambda: alone.state(topic_name)["leader"] == preferred.broker, "it leads")
    after = alone.state(topic_name)
    assert after["leader_epoch"] == before["leader_epoch"] + 1
    assert sorted(after["isr"]) == sorted(before["isr"])
    until(lambda: not alone.zookeeper.exists(ELECTION), "the znode is gone")


def test_c5_a_preferred_leader_that_is_not_in_sync_is_not_elected(
    alone: Alone, topic_name: str
) -> None:
    """The znode is deleted all the same: it can be asked for again."""
    preferred = alone.phantom()
    alone.create_topic(topic_name, [[preferred.broker, REAL]])
    preferred.leave()
    until(lambda: alone.isr(topic_name) == [REAL], "the broker leads alone")
    alone.phantom(again=preferred.broker)
    before = alone.state(topic_name)
    ask_for_election(alone, topic_name)
    until(lambda: not alone.zookeeper.exists(ELECTION), "the znode is gone")
    assert alone.state(topic_name) == before


# --- ElectLeaders --------------------------------------------------------------------------------


def elect(alone: Alone, kind: ElectionType, *topics: str) -> dict[str, str]:
    """What each partition came to: "elected", or the name of an error."""
    partitions = [TopicPartition(topic, 0) for topic in topics]
    answer = alone.admin.elect_leaders(kind, partitions, request_timeout=60)
    return {one.topic: _outcome(error) for one, error in answer.result(60).items()}


def _outcome(error: KafkaException | None) -> str:
    if error is None:
        return "elected"
    cause = getattr(error, "args", [error])[0]
    return str(cause.name())


def test_c5_elect_leaders_answers_partition_by_partition(newer: Alone, topic_name: str) -> None:
    preferred = led_by_the_second(newer, topic_name)
    led = newer.create_topic(f"{topic_name}-led", [[REAL]])
    assert elect(newer, ElectionType.PREFERRED, topic_name, led, "no-such-topic") == {
        topic_name: "elected",
        led: "ELECTION_NOT_NEEDED",
        "no-such-topic": "UNKNOWN_TOPIC_OR_PART",
    }
    assert newer.state(topic_name)["leader"] == preferred.broker


def test_c5_a_preferred_leader_that_is_dead_is_an_error(newer: Alone, topic_name: str) -> None:
    preferred = newer.phantom()
    newer.create_topic(topic_name, [[preferred.broker, REAL]])
    preferred.leave()
    until(lambda: newer.state(topic_name)["leader"] == REAL, "the broker leads")
    until(lambda: preferred.broker not in newer.live(), "the metadata know that it is dead")
    outcome = elect(newer, ElectionType.PREFERRED, topic_name)
    assert outcome == {topic_name: "PREFERRED_LEADER_NOT_AVAILABLE"}


def test_c5_an_unclean_election_is_made_on_demand(newer: Alone, topic_name: str) -> None:
    led_alone(newer, topic_name, "false").leave()
    until(lambda: newer.state(topic_name)["leader"] == -1, "it has no leader")
    outcome = elect(newer, ElectionType.PREFERRED, topic_name)
    assert outcome == {topic_name: "PREFERRED_LEADER_NOT_AVAILABLE"}
    assert elect(newer, ElectionType.UNCLEAN, topic_name) == {topic_name: "elected"}
    assert newer.state(topic_name)["leader"] == REAL
    assert newer.isr(topic_name) == [REAL]
    outcome = elect(newer, ElectionType.UNCLEAN, topic_name)
    assert outcome == {topic_name: "ELECTION_NOT_NEEDED"}
