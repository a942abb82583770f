"""Class paths from Maven: what is said where one cannot be had, and that a known one is free."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from neaptide.clusters.kafka.artifacts import ArtifactError, class_path
from tests.kafka.maven import fake_maven

KAFKA = "org.apache.kafka:kafka_2.13:3.9.1"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "neaptide" / "kafka" / "org.apache.kafka_kafka_2.13_3.9.1"


def test_without_maven_the_error_says_what_to_install(cache: Path) -> None:
    with pytest.raises(ArtifactError, match="Install Maven"):
        class_path(KAFKA)


def test_a_coordinate_that_is_none_is_refused(cache: Path) -> None:
    with pytest.raises(ArtifactError, match="group:artifact:version"):
        class_path("kafka-3.9.1")


def test_what_maven_says_is_passed_on(cache: Path) -> None:
    fake_maven(cache, "echo '[ERROR] Unknown host'; exit 1")
    with pytest.raises(ArtifactError, match=r"network.*Unknown host"):
        class_path(KAFKA)


def test_a_known_class_path_needs_no_maven_while_its_jars_are_there(cache: Path) -> None:
    jar = cache.parent / "some.jar"
    fake_maven(cache, f'for last; do :; done; printf %s "{jar}" > "${{last#*=}}"')
    cache.parent.mkdir(parents=True)
    jar.touch()
    assert class_path(KAFKA) == str(jar)
    fake_maven(cache, "exit 1")
    assert class_path(KAFKA) == str(jar)
    jar.unlink()
    with pytest.raises(ArtifactError):
        class_path(KAFKA)


def fetched(cache: Path) -> Path:
    """The jar of a class path that has been fetched."""
    jar = cache.parent / "some.jar"
    cache.parent.mkdir(parents=True)
    script = f'for last; do :; done; printf good > "{jar}"; printf %s "{jar}" > "${{last#*=}}"'
    fake_maven(cache, script)
    assert class_path(KAFKA) == str(jar)
    return jar


def test_a_jar_that_has_changed_is_named_and_fetched_anew_once_it_is_deleted(cache: Path) -> None:
    jar = fetched(cache)
    jar.write_text("evil")
    with pytest.raises(ArtifactError, match=r"some\.jar is not the file .* delete it"):
        class_path(KAFKA)
    jar.unlink()
    assert class_path(KAFKA) == str(jar)
    assert jar.read_text() == "good"


def test_a_jar_that_was_only_touched_is_taken(cache: Path) -> None:
    jar = fetched(cache)
    os.utime(jar, ns=(1, 1))
    fake_maven(cache, "exit 1")
    assert class_path(KAFKA) == str(jar)
    assert json.loads((cache / "checksums").read_text())[0]["mtime_ns"] == 1


def test_a_jar_that_came_damaged_is_distinguished_from_one_that_did_not_come(cache: Path) -> None:
    fake_maven(cache, "echo '[ERROR] Checksum validation failed, expected a but is b'; exit 1")
    with pytest.raises(ArtifactError, match="wrong checksum; try again"):
        class_path(KAFKA)
    fake_maven(cache, "echo '[ERROR] Unknown host'; exit 1")
    with pytest.raises(ArtifactError, match="the network"):
        class_path(KAFKA)


def test_without_network_and_cache_it_is_said_what_there_is_to_do(cache: Path) -> None:
    said = "[ERROR] Could not transfer artifact a:b:pom:1 from/to central: Connection refused"
    fake_maven(cache, f"echo '{said}'; exit 1")
    with pytest.raises(
        ArtifactError, match=r"cannot be reached, .* not in the cache .*--kafka-home"
    ):
        class_path(KAFKA)


def test_what_is_left_out_is_a_class_path_of_its_own(cache: Path) -> None:
    jar = cache.parent / "some.jar"
    fake_maven(cache, f'for last; do :; done; printf %s "{jar}" > "${{last#*=}}"')
    cache.parent.mkdir(parents=True)
    jar.touch()
    class_path(KAFKA, without=["org.rocksdb:rocksdbjni"])
    class_path(KAFKA)
    with_all, without = sorted(cache.parent.glob("*/pom.xml"), key=lambda pom: len(str(pom)))
    assert "<artifactId>rocksdbjni</artifactId></exclusion>" in without.read_text()
    assert "rocksdbjni" not in with_all.read_text()
