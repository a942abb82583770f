"""Which Java there is, and one clear sentence when it does not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts.java import find_java, parse_java_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_the_version_is_read_as_java_prints_it(text: str, version: int | None) -> None:
    assert parse_java_version(text) == version


def _fake_java(home: Path, text: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)
    return java


def test_java_11_is_refused_and_17_is_taken(tmp_path: Path) -> None:
    _fake_java(tmp_path / "old", 'openjdk version "11.0.2" 2019-01-15')
    java = _fake_java(tmp_path / "new", 'openjdk version "17.0.1"')
    with pytest.raises(MissingPartError, match="is Java 11: install Java 17 or newer"):
        find_java({"JAVA_HOME": str(tmp_path / "old")})
    assert find_java({"JAVA_HOME": str(tmp_path / "new")}) == java
    assert find_java({"PATH": str(java.parent)}) == java


def test_no_java_at_all_and_a_wrong_java_home_are_said_so(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match="Java is missing: install Java 17"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(MissingPartError, match="no bin/java in it"):
        find_java({"JAVA_HOME": str(tmp_path)})
    _fake_java(tmp_path / "broken", "Segmentation fault")
    with pytest.raises(MissingPartError, match="does not run"):
        find_java({"JAVA_HOME": str(tmp_path / "broken")})
