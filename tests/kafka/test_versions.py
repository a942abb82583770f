"""The table of versions: by which row a version is run, and why some are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.clusters.kafka.artifacts import ArtifactError
from neaptide.clusters.kafka.versions import (
    ROWS,
    Addressing,
    Mode,
    coordinates,
    kafka_class_path,
    parse_release,
    row_of,
)
from tests.kafka.maven import fake_maven


@pytest.mark.parametrize(
    ("version", "since"),
    [
        ("0.8.2.2", (0, 8, 2)),
        ("0.9.0.1", (0, 9)),
        ("0.10.1.1", (0, 10)),
        ("0.10.2.2", (0, 10, 2)),
        ("0.11.0.3", (0, 11)),
        ("1.1.1", (0, 11)),
        ("2.0.1", (2, 0)),
        ("2.3.1", (2, 0)),
        ("2.7.2", (2, 4)),
        ("2.8.2", (2, 8)),
        ("3.9.1", (3, 0)),
    ],
)
def test_a_version_is_run_by_the_last_row_that_is_not_newer(
    version: str, since: tuple[int, ...]
) -> None:
    assert row_of(version).since == since


def test_rows_are_in_order_and_no_two_begin_at_one_version() -> None:
    begins = [row.since for row in ROWS]
    assert begins == sorted(set(begins))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("3.9", "write all of it, as 3.9.1"),
        ("", "write all of it, as 3.9.1"),
        ("3.9.x", "write all of it, as 3.9.1"),
        ("0.7.2", "too old; choose 0.8.2.2"),
        ("4.1.0-kraft", "always KRaft; write kafka:4.1.0"),
        ("2.8.2-kraft", "from Apache Kafka 3.9 on; choose 3.9.1-kraft"),
        ("3.9.1-both", "write all of it, as 3.9.1, 3.9.1-kraft or"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_can(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_release(text)


@pytest.mark.parametrize(
    ("text", "number", "mode"),
    [
        ("3.9.1", "3.9.1", Mode.ZOOKEEPER),
        ("3.9.1-kraft", "3.9.1", Mode.KRAFT),
        ("3.9.1-combined", "3.9.1", Mode.COMBINED),
        ("4.1.0", "4.1.0", Mode.KRAFT),
        ("4.1.0-combined", "4.1.0", Mode.COMBINED),
    ],
)
def test_a_suffix_says_where_the_state_is_kept(text: str, number: str, mode: Mode) -> None:
    release = parse_release(text)
    assert (release.number, release.mode) == (number, mode)
    assert coordinates(text)[0] == f"org.apache.kafka:kafka_2.13:{number}"


def test_the_broker_comes_first_on_the_class_path() -> None:
    assert coordinates("0.10.2.2")[0] == "org.apache.kafka:kafka_2.11:0.10.2.2"
    assert coordinates("3.9.1")[0] == "org.apache.kafka:kafka_2.13:3.9.1"


def test_listeners_have_names_from_0_10_2_on() -> None:
    assert row_of("0.10.1.1").addressing is Addressing.ONE_LISTENER
    assert row_of("0.10.2.0").addressing is Addressing.NAMED_LISTENERS


def test_topics_have_ids_from_2_8_on() -> None:
    assert not row_of("2.7.2").topic_ids
    assert row_of("2.8.0").topic_ids


@pytest.mark.parametrize(
    "maven_says",
    [
        "Could not find artifact org.apache.kafka:kafka_2.13:jar:3.9.77 in central",
        "dependencies: org.apache.kafka:kafka_2.13:jar:3.9.77 was not found in central during",
    ],
)
def test_a_version_that_maven_central_does_not_have_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maven_says: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    fake_maven(tmp_path / "neaptide" / "kafka" / "any", f"echo '[ERROR] {maven_says}'; exit 1")
    with pytest.raises(ArtifactError, match=r"no org\.apache\.kafka:kafka_2\.13:3\.9\.77; choose"):
        kafka_class_path("3.9.77")
