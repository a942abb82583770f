"""What KRaft nodes are given: their roles, the quorum through the links, no ZooKeeper."""

from __future__ import annotations

from pathlib import Path

from neaptide.clusters.cluster import Listeners
from neaptide.clusters.kafka.kraft_properties import (
    CONTROLLER_LISTENER,
    Node,
    chosen_features,
    kraft_properties,
)
from neaptide.clusters.security import CLIENT_LISTENER, REPLICATION_LISTENER

THROUGH = Listeners(20_001, 20_002, 0, quorum={100: 20_100, 101: 20_101})
BROKER = Node(7, {CLIENT_LISTENER: 10_001, REPLICATION_LISTENER: 10_002}, Path("/data"))
CONTROLLER = Node(100, {CONTROLLER_LISTENER: 10_100}, Path("/data"))


def test_a_broker_reaches_the_quorum_through_the_links() -> None:
    settings = kraft_properties(BROKER, {}, THROUGH)
    assert (settings["process.roles"], settings["node.id"]) == ("broker", "7")
    assert settings["controller.quorum.voters"] == "100@127.0.0.1:20100,101@127.0.0.1:20101"
    assert settings["listeners"] == "CLIENT://127.0.0.1:10001,REPLICATION://127.0.0.1:10002"
    assert settings["advertised.listeners"] == (
        "CLIENT://127.0.0.1:20001,REPLICATION://127.0.0.1:20002"
    )
    assert settings["inter.broker.listener.name"] == "REPLICATION"


def test_where_voters_change_the_log_says_who_they_are() -> None:
    settings = kraft_properties(BROKER, {}, THROUGH, changes_voters=True)
    assert "controller.quorum.voters" not in settings
    assert settings["controller.quorum.bootstrap.servers"] == "127.0.0.1:20100,127.0.0.1:20101"


def test_a_controller_binds_its_port_and_is_reached_through_its_link() -> None:
    settings = kraft_properties(CONTROLLER, {}, THROUGH)
    assert settings["process.roles"] == "controller"
    assert settings["listeners"] == "CONTROLLER://127.0.0.1:10100"
    assert settings["advertised.listeners"] == "CONTROLLER://127.0.0.1:20100"
    assert "inter.broker.listener.name" not in settings


def test_a_combined_node_is_both() -> None:
    node = Node(100, {**BROKER.ports, **CONTROLLER.ports}, Path("/data"))
    settings = kraft_properties(node, {}, THROUGH)
    assert settings["process.roles"] == "broker,controller"
    assert settings["listeners"].count("://") == 3


def test_a_session_time_out_is_meant_for_whoever_keeps_the_sessions() -> None:
    scenario = {"zookeeper.session.timeout.ms": "20000", "zookeeper.sync.time.ms": "1"}
    settings = kraft_properties(BROKER, scenario, THROUGH)
    assert settings["broker.session.timeout.ms"] == "20000"
    assert not any(name.startswith("zookeeper.") for name in settings)


def test_a_feature_is_for_the_format_and_not_for_the_nodes() -> None:
    scenario = {"eligible.leader.replicas.version": "0", "replica.lag.time.max.ms": "5"}
    assert chosen_features(scenario) == {"eligible.leader.replicas.version": "0"}
    settings = kraft_properties(BROKER, scenario, THROUGH)
    assert settings["replica.lag.time.max.ms"] == "5"
    assert "eligible.leader.replicas.version" not in settings
