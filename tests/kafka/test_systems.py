"""Systems by name: Apache Kafka beside the own generations."""

from __future__ import annotations

import pytest

from clusters.errors import UsageError
from harness.systems import KNOWN, client_settings, parse_system, topic_id


def test_a_kafka_is_named_by_its_version() -> None:
    system = parse_system("kafka:0.10.2.2")
    assert (system.kind, system.version, str(system)) == ("kafka", "0.10.2.2", "kafka:0.10.2.2")


def test_what_repro_plays_by_itself_needs_no_kafka() -> None:
    assert all(name.startswith("neaptide:") for name in KNOWN)


@pytest.mark.parametrize("text", ["kafka", "kafka:", "kafka:3.9", "redpanda:1.0.0"])
def test_what_is_no_system_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_system(text)


def test_clients_of_old_brokers_do_not_ask_for_versions() -> None:
    assert client_settings(parse_system("kafka:0.9.0.1"))["api.version.request"] == "false"
    assert client_settings(parse_system("kafka:0.10.2.2")) == {}
    assert client_settings(parse_system("neaptide:0.10")) == {}


def test_a_topic_has_the_same_id_in_every_run_and_another_than_its_neighbour() -> None:
    kafka = parse_system("kafka:3.9.1")
    assert topic_id(kafka, "t") == topic_id(kafka, "t")
    assert topic_id(kafka, "t") != topic_id(kafka, "u")
    assert topic_id(parse_system("kafka:2.7.2"), "t") is None
    assert topic_id(parse_system("neaptide:0.11"), "t") is None
