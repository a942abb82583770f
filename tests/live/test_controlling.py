"""A broker that is controller, ours and Apache Kafka's: the other brokers are the test's."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.live.alone import CONSUMER, REAL, Alone
from tests.live.cluster import until
from tests.live.led import led_alone
from tests.live.struct_messages import (
    NONE,
    NOT_LEADER,
    STALE_CONTROLLER,
    UNKNOWN_TOPIC,
)

pytestmark = pytest.mark.live


def test_c1_c4_a_controller_of_an_earlier_epoch_is_refused_and_one_of_this_is_obeyed(
    alone: Alone, topic_name: str
) -> None:
    """StopReplica: first the replica stops and keeps its log, then the log goes too."""
    topic = alone.create_topic(topic_name, [[REAL]])
    alone.append(topic, 3)
    before = alone.controller_epoch()
    alone.zookeeper.delete("/controller")
    until(lambda: alone.controller_epoch() == before + 1, "the next epoch of the controller")
    until(lambda: alone.controller() == REAL, "it is controller again")
    alone.create_topic(f"{topic}-2", [[REAL]])  # by then it knows of the new epoch
    log = alone.log_directory(REAL) / f"{topic}-0"
    assert alone.stop_replica(before, topic, delete=True) == STALE_CONTROLLER
    assert alone.fetch(CONSUMER, topic, 0).offsets == [0, 1, 2]
    assert alone.stop_replica(before + 1, topic, delete=False) == NONE
    assert log.is_dir()
    assert alone.stop_replica(before + 1, topic, delete=True) == NONE
    until(lambda: not log.exists(), "the log is deleted, or renamed at least")


def test_c2_the_controller_notices_a_broker_that_comes_and_one_that_goes(alone: Alone) -> None:
    phantom = alone.phantom(registered=False)
    assert phantom.broker not in alone.live()
    alone.register(phantom)
    phantom.leave()
    until(lambda: phantom.broker not in alone.live(), "it is gone from the metadata")


def test_c3_c8_the_first_live_member_of_the_isr_leads_and_others_say_that_they_do_not(
    alone: Alone, topic_name: str
) -> None:
    first, second = alone.phantom(), alone.phantom()
    topic = alone.create_topic(topic_name, [[second.broker, first.broker, REAL]])
    assert alone.state(topic)["leader"] == second.broker
    assert alone.fetch(CONSUMER, topic, 0).error == NOT_LEADER
    assert alone.fetch(CONSUMER, "nowhere", 0).error == UNKNOWN_TOPIC
    second.leave()
    assert alone.await_leader(topic, other_than=second.broker) == first.broker
    until(lambda: leader_of(alone, topic) == first.broker, "the metadata names it")
    first.leave()
    until(lambda: alone.state(topic)["leader"] == REAL, "the last of the ISR leads")
    assert alone.isr(topic) == [REAL]
    until(lambda: alone.fetch(CONSUMER, topic, 0).error == NONE, "it says that it leads")


def leader_of(alone: Alone, topic: str) -> int:
    partitions = alone.admin.list_topics(topic, timeout=20).topics[topic].partitions
    return int(partitions[0].leader)


def test_c3_c6_without_the_isr_a_partition_waits_for_a_member_of_it(
    alone: Alone, topic_name: str
) -> None:
    leader = led_alone(alone, topic_name, "false")
    leader.leave()
    until(lambda: alone.state(topic_name)["leader"] == -1, "it has no leader")
    assert alone.isr(topic_name) == [leader.broker]
    alone.phantom(again=leader.broker)
    until(lambda: alone.state(topic_name)["leader"] == leader.broker, "the member leads again")


def test_c3_c6_without_the_isr_any_live_replica_leads_if_that_is_wanted(
    alone: Alone, topic_name: str
) -> None:
    led_alone(alone, topic_name, "true").leave()
    until(lambda: alone.state(topic_name)["leader"] == REAL, "the broker out of the ISR leads")
    assert alone.isr(topic_name) == [REAL]


def test_c5_a_topic_gets_more_partitions(alone: Alone, topic_name: str) -> None:
    topic = alone.create_topic(topic_name, [[REAL]])
    path = f"/brokers/topics/{topic}"
    content = alone.znode(path)
    content["partitions"]["1"] = [REAL]
    alone.zookeeper.set(path, json.dumps(content).encode())
    until(lambda: alone.znode(f"{path}/partitions/1/state") is not None, "it has a leader")
    until(lambda: alone.is_known(topic, 2), "and is in the metadata")
    alone.produce(topic, 1, b"more")


def test_c9_leaders_and_replicas_of_a_topic_are_spread_evenly(
    alone: Alone, topic_name: str
) -> None:
    brokers = {REAL, alone.phantom().broker, alone.phantom().broker}
    until(lambda: alone.live() == brokers, "three brokers")
    new = NewTopic(topic_name, num_partitions=6, replication_factor=2)
    alone.admin.create_topics([new], operation_timeout=30)[topic_name].result(60)
    until(lambda: alone.is_known(topic_name, 6), "it is in the metadata")
    partitions = alone.admin.list_topics(topic_name, timeout=20).topics[topic_name].partitions
    assert Counter(each.leader for each in partitions.values()) == dict.fromkeys(brokers, 2)
    held = Counter(replica for each in partitions.values() for replica in each.replicas)
    assert held == dict.fromkeys(brokers, 4)
