"""A cluster's znodes are those that a Kafka of ZooKeeper's days has, and no others."""

from __future__ import annotations

import pytest

from tests.live.cluster import BROKERS, LiveCluster

pytestmark = pytest.mark.live
TOPIC = "znodes"
PATHS = {
    "/admin",
    "/admin/delete_topics",
    "/brokers",
    "/brokers/ids",
    "/brokers/ids/0",
    "/brokers/ids/1",
    "/brokers/ids/2",
    "/brokers/topics",
    "/cluster",
    "/cluster/id",
    "/config",
    "/config/brokers",
    "/config/users",
    "/config/changes",
    "/config/topics",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/log_dir_event_notification",
}
# There as soon as an idempotent producer has asked for its id.
ON_DEMAND = {"/latest_producer_id_block"}
PATHS_OF_THE_TOPIC = {
    f"/brokers/topics/{TOPIC}",
    f"/brokers/topics/{TOPIC}/partitions",
    f"/brokers/topics/{TOPIC}/partitions/0",
    f"/brokers/topics/{TOPIC}/partitions/0/state",
    f"/config/topics/{TOPIC}",
}


def paths_below(cluster: LiveCluster, path: str) -> set[str]:
    found = set()
    for child in cluster.zookeeper.get_children(path or "/"):
        if path or child != "zookeeper":  # the service's own
            found |= {f"{path}/{child}"} | paths_below(cluster, f"{path}/{child}")
    return found


def test_c1_c2_c5_the_paths_are_kafkas(cluster: LiveCluster) -> None:
    cluster.create_topic(TOPIC)
    of_topics = {"/brokers/topics/", "/config/topics/", "/isr_change_notification/"}
    found = paths_below(cluster, "")
    others = {path for path in found if not any(path.startswith(start) for start in of_topics)}
    assert others - ON_DEMAND == PATHS
    assert {path for path in found if f"/{TOPIC}" in path} == PATHS_OF_THE_TOPIC


def test_c1_c2_the_keys_are_kafkas(cluster: LiveCluster) -> None:
    for broker in BROKERS:
        assert set(cluster.znode(f"/brokers/ids/{broker}")) == {
            "features",
            "listener_security_protocol_map",
            "endpoints",
            "jmx_port",
            "port",
            "host",
            "version",
            "timestamp",
        }
    assert set(cluster.znode("/controller")) == {"version", "brokerid", "timestamp"}
    assert set(cluster.znode("/cluster/id")) == {"version", "id"}
    assert isinstance(cluster.znode("/controller_epoch"), int)


def test_c5_i6_the_keys_of_a_topic_are_kafkas(cluster: LiveCluster, topic_name: str) -> None:
    topic = cluster.create_topic(topic_name, [[2, 1]], {"min.insync.replicas": "2"})
    described = {"version": 1, "partitions": {"0": [2, 1]}}
    assert cluster.znode(f"/brokers/topics/{topic}") == described
    assert cluster.znode(f"/config/topics/{topic}") == {
        "version": 1,
        "config": {"min.insync.replicas": "2"},
    }
    assert cluster.state(topic) == {
        "controller_epoch": cluster.controller_epoch(),
        "leader": 2,
        "version": 1,
        "leader_epoch": 0,
        "isr": [2, 1],
    }
