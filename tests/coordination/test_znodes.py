"""Kafka's JSON, exactly, there and back; and what a malformed znode says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    Endpoint,
    LeaderAndIsr,
    TopicConfiguration,
    TopicPartition,
)

T0 = TopicPartition("t", 0)


def test_paths_are_kafkas() -> None:
    assert znodes.state_path(TopicPartition("a.b", 3)) == "/brokers/topics/a.b/partitions/3/state"
    assert znodes.broker_path(7) == "/brokers/ids/7"
    assert znodes.topic_config_path("t") == "/config/topics/t"


def test_i6_a_partition_state_has_kafkas_keys() -> None:
    state = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=3, version=9)
    data = znodes.encode_state(state)
    assert data == (b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}')
    assert znodes.decode_state(T0, data, 9) == state


def test_e7_a_partition_state_names_the_eligible_and_the_last_known_leader() -> None:
    state = LeaderAndIsr(-1, 4, (), 3, 9, elr=(1, 2), last_known_leader=2)
    content = json.loads(znodes.encode_state(state))
    assert (content["elr"], content["last_known_leader"]) == ([1, 2], 2)
    assert znodes.decode_state(T0, znodes.encode_state(state), 9, 77) == state
    assert znodes.decode_state(T0, znodes.encode_state(state), 9, 77).written_at == 77


def test_e7_a_registration_owns_up_to_an_unclean_shutdown_and_to_nothing_else() -> None:
    endpoints = (Endpoint("CLIENT", "127.0.0.1", 9092),)
    for unclean in (True, False):
        one = BrokerRegistration(5, endpoints, epoch=8, unclean_shutdown=unclean)
        data = znodes.encode_broker(one, 1234)
        assert ("unclean_shutdown" in json.loads(data)) is unclean
        assert znodes.decode_broker(5, data, 8) == one


def test_topics_and_their_settings_have_kafkas_keys() -> None:
    data = znodes.encode_assignment({1: (2, 3), 0: (1, 2)})
    assert data == b'{"version":1,"partitions":{"0":[1,2],"1":[2,3]}}'
    config = znodes.encode_settings({"min.insync.replicas": "2"})
    assert config == b'{"version":1,"config":{"min.insync.replicas":"2"}}'
    topic = znodes.decode_topic("t", data, config)
    assert topic == TopicConfiguration({0: (1, 2), 1: (2, 3)}, {"min.insync.replicas": "2"})
    assert znodes.decode_topic("t", data, None).settings == {}


def test_a_topic_that_kafka_3_wrote_is_read() -> None:
    data = (
        b'{"removing_replicas":{},"partitions":{"0":[1]},"topic_id":"x",'
        b'"adding_replicas":{},"version":3}'
    )
    assert znodes.decode_topic("t", data, None).assignment == {0: (1,)}


def test_c2_a_registration_has_kafkas_keys_and_its_epoch_is_the_znodes() -> None:
    endpoints = (Endpoint("CLIENT", "127.0.0.1", 9092), Endpoint("INTERNAL", "::1", 9093))
    registration = BrokerRegistration(5, endpoints, "r1")
    data = znodes.encode_broker(registration, 1234)
    content = json.loads(data)
    assert content == {
        "features": {},
        "listener_security_protocol_map": {"CLIENT": "PLAINTEXT", "INTERNAL": "PLAINTEXT"},
        "endpoints": ["CLIENT://127.0.0.1:9092", "INTERNAL://::1:9093"],
        "jmx_port": -1,
        "port": 9092,
        "host": "127.0.0.1",
        "version": 5,
        "timestamp": "1234",
        "rack": "r1",
    }
    assert znodes.decode_broker(5, data, 77) == BrokerRegistration(5, endpoints, "r1", 77)


def test_a_registration_of_kafka_0_8_is_read() -> None:
    data = b'{"jmx_port":-1,"timestamp":"1","host":"h","version":1,"port":9092}'
    found = znodes.decode_broker(0, data, 1)
    assert found.endpoints == (Endpoint("PLAINTEXT", "h", 9092),)


def test_c1_controller_epoch_and_cluster_id_have_kafkas_form() -> None:
    data = znodes.encode_controller(2, 99)
    assert data == b'{"version":1,"brokerid":2,"timestamp":"99"}'
    assert znodes.decode_controller(data) == 2
    assert znodes.decode_epoch(znodes.encode_epoch(12)) == 12
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("abc")) == "abc"


@given(
    st.lists(
        st.builds(TopicPartition, st.from_regex(r"[a-z._-]{1,20}", fullmatch=True), st.integers(0))
    )
)
def test_i7_isr_changes_round_trip(partitions: list[TopicPartition]) -> None:
    data = znodes.encode_partitions(partitions)
    assert json.loads(data)["version"] == 1
    assert znodes.decode_partitions("n", data) == tuple(partitions)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"isr":3}', b"\xff"])
def test_a_malformed_znode_is_named(data: bytes) -> None:
    with pytest.raises(znodes.MalformedZnodeError, match="state of partition t-0"):
        znodes.decode_state(T0, data, 0)
    with pytest.raises(znodes.MalformedZnodeError, match="broker 4"):
        znodes.decode_broker(4, data, 0)
    with pytest.raises(znodes.MalformedZnodeError, match="the controller"):
        znodes.decode_controller(data)
