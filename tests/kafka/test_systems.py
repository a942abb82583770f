"""Systems by name: Apache Kafka beside the own generations."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.clusters.kafka import versions
from neaptide.harness.scenarios.systems import (
    KNOWN,
    client_settings,
    parse_system,
    parse_systems,
    topic_id,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An installation of Apache Kafka, as far as its file names go."""
    (tmp_path / "libs").mkdir()
    for name in ("kafka_2.13-3.9.1.jar", "kafka-clients-3.9.1.jar"):
        (tmp_path / "libs" / name).touch()
    return tmp_path


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


def test_a_kafka_of_the_users_own_is_run_as_home_and_as_its_version(home: Path) -> None:
    names = ["kafka:home", "kafka:home-kraft", "kafka:3.9.1-combined", "kafka:4.1.0"]
    systems = parse_systems(names, home)
    assert [str(s) for s in systems] == [
        "kafka:3.9.1",
        "kafka:3.9.1-kraft",
        "kafka:3.9.1-combined",
        "kafka:4.1.0",
    ]
    assert [s.home is not None for s in systems] == [True, True, True, False]
    assert systems[1].options == f"--system kafka:3.9.1-kraft --kafka-home {home}"


def test_its_class_path_is_its_own_jars_and_what_it_lacks(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [system] = parse_systems(["kafka:home"], home)
    monkeypatch.setattr(versions, "class_path", lambda *names: "fetched:" + " ".join(names))
    jars = f"{home}/libs/kafka-clients-3.9.1.jar:{home}/libs/kafka_2.13-3.9.1.jar"
    logging = "fetched:org.slf4j:slf4j-reload4j:1.7.36"
    assert versions.kafka_class_path(system.version, system.home) == f"{logging}:{jars}"
    (home / "libs" / "slf4j-reload4j-1.7.35.jar").touch()
    [system] = parse_systems(["kafka:home"], home)
    whole = versions.kafka_class_path(system.version, system.home)
    assert "fetched" not in whole


def test_a_folder_that_is_no_kafka_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no broker's jar in libs/; name the folder"):
        parse_systems(["kafka:home"], tmp_path)


def test_a_kafka_that_nobody_asks_for_is_refused(home: Path) -> None:
    with pytest.raises(UsageError, match=r"add --system kafka:home, or kafka:3\.9\.1"):
        parse_systems(["neaptide:0.11"], home)


def test_home_without_a_folder_is_refused() -> None:
    with pytest.raises(UsageError, match="kafka:image-kraft needs --host docker --image NAME"):
        parse_systems(["kafka:image-kraft"])
    with pytest.raises(UsageError, match="kafka:home needs --kafka-home DIR"):
        parse_systems(["kafka:home"])


def test_a_topic_has_the_same_id_in_every_run_and_another_than_its_neighbour() -> None:
    kafka = parse_system("kafka:3.9.1")
    assert topic_id(kafka, "t") == topic_id(kafka, "t")
    assert topic_id(kafka, "t") != topic_id(kafka, "u")
    assert topic_id(parse_system("kafka:2.7.2"), "t") is None
    assert topic_id(parse_system("kafka:3.9.1-kraft"), "t") is None  # the controllers choose it
    assert topic_id(parse_system("neaptide:0.11"), "t") is None
    assert topic_id(parse_system("neaptide:4.0"), "t") == topic_id(kafka, "t")
