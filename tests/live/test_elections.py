"""C5: preferred leaders are elected by znode, by ours and by Apache Kafka."""

from __future__ import annotations

import json

import pytest

from tests.live.alone import REAL, Alone
from tests.live.cluster import until
from tests.live.led import led_by_the_second

pytestmark = pytest.mark.live
ELECTION = "/admin/preferred_replica_election"


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
