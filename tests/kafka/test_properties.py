"""What brokers are given: Kafka's own names, a scenario's settings, links instead of ports."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from neaptide.clusters.cluster import Listeners
from neaptide.clusters.kafka.properties import (
    SMALL_JAVA,
    USUAL_JAVA,
    command,
    properties,
    spelled_out,
)
from neaptide.clusters.kafka.versions import row_of

OWN = (10_001, 10_002)
THROUGH = Listeners(client_port=20_001, replication_port=20_002, coordination_port=20_003)


def reported(version: str, **scenario: str) -> dict[str, str]:
    return properties(row_of(version), scenario, 7, OWN, THROUGH, Path("/data"))


@pytest.mark.parametrize("version", ["0.10.2.2", "3.9.1"])
def test_a_broker_binds_its_own_ports_and_is_reached_through_the_links(version: str) -> None:
    settings = reported(version)
    assert settings["listeners"] == "CLIENT://127.0.0.1:10001,REPLICATION://127.0.0.1:10002"
    assert settings["advertised.listeners"] == (
        "CLIENT://127.0.0.1:20001,REPLICATION://127.0.0.1:20002"
    )
    assert settings["inter.broker.listener.name"] == "REPLICATION"
    assert settings["zookeeper.connect"] == "127.0.0.1:20003"


def test_with_one_listener_all_go_through_the_replication_link() -> None:
    settings = reported("0.9.0.1")
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:10002"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.000.000.001:20002"
    assert "inter.broker.listener.name" not in settings


def test_0_8_knows_host_and_port_only() -> None:
    settings = reported("0.8.2.2")
    assert (settings["host.name"], settings["port"]) == ("127.0.0.1", "10002")
    assert settings["advertised.port"] == "20002"
    assert "listeners" not in settings


def test_a_scenario_sets_what_it_likes_but_not_who_the_broker_is() -> None:
    settings = reported("3.9.1", **{"unclean.leader.election.enable": "true", "broker.id": "9"})
    assert settings["unclean.leader.election.enable"] == "true"
    assert settings["broker.id"] == "7"


def test_the_checkpoint_is_put_off_before_0_11_unless_a_scenario_needs_it() -> None:
    name = "replica.high.watermark.checkpoint.interval.ms"
    assert int(reported("0.10.2.2")[name]) > 600_000
    assert reported("0.10.2.2", **{name: "200"})[name] == "200"
    assert name not in reported("0.11.0.3")


@pytest.mark.parametrize(
    ("address", "longer"),
    [("127.0.0.1", "127.000.000.001"), ("172.18.0.8", "172.18.000.8")],
)
def test_an_address_is_spelled_out_where_every_reader_reads_it_alike(
    address: str, longer: str
) -> None:
    assert spelled_out(address) == longer
    assert socket.inet_ntoa(socket.inet_aton(longer)) == address  # which reads base 8


def test_java_is_small_unless_it_is_to_be_as_kafka_starts_it() -> None:
    files = (Path("/log4j.properties"), Path("/server.properties"))
    small = command("java", "a.jar", *files)
    usual = command("java", "a.jar", *files, USUAL_JAVA)
    assert set(SMALL_JAVA) <= set(small)
    assert not set(USUAL_JAVA) & set(small)
    assert set(USUAL_JAVA) <= set(usual)
    assert "-XX:TieredStopAtLevel=1" not in usual  # both compilers
    assert small[-4:] == usual[-4:] == ("-cp", "a.jar", "kafka.Kafka", "/server.properties")
