"""Archives of what Java loads: one for each Java and class path, used only where there is one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from neaptide.clusters.shared_archive import RECORDING, archive_of, options, prune, record


def test_each_class_path_has_its_archive() -> None:
    one, other = archive_of("/usr/bin/java", "a.jar"), archive_of("/usr/bin/java", "b.jar")
    assert one != other
    assert one == archive_of("/usr/bin/java", "a.jar")


def test_java_records_where_there_is_no_archive_and_uses_it_where_there_is(tmp_path: Path) -> None:
    archive = tmp_path / "x.jsa"
    assert options(archive) == RECORDING
    archive.touch()
    assert options(archive) == (f"-XX:SharedArchiveFile={archive}",)


@pytest.mark.parametrize("has_jcmd", [True, False])
def test_what_cannot_be_recorded_leaves_nothing(tmp_path: Path, has_jcmd: bool) -> None:
    if has_jcmd:
        (tmp_path / "jcmd").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "jcmd").chmod(0o755)
    archive = tmp_path / "shared" / "x.jsa"
    assert not asyncio.run(record(archive, str(tmp_path / "java"), 1))
    assert not archive.exists()
    assert list(tmp_path.glob("shared/*")) == []


def test_what_was_recorded_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / "jcmd").write_text('#!/bin/sh\neval "echo archive > $4"\n')
    (tmp_path / "jcmd").chmod(0o755)
    archive = tmp_path / "shared" / "x.jsa"
    assert asyncio.run(record(archive, str(tmp_path / "java"), 1))
    assert [file.name for file in archive.parent.iterdir()] == ["x.jsa"]


def test_what_was_not_used_for_longest_goes_when_all_are_too_large(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "used", "new", "kept")):
        archive = tmp_path / f"{name}.jsa"
        archive.write_bytes(bytes(100))
        os.utime(archive, (number, number))
    (tmp_path / "other.txt").write_bytes(bytes(10_000))
    (tmp_path / ".x.jsa-4999999").write_bytes(bytes(100))  # nobody has that pid
    (tmp_path / f".x.jsa-{os.getpid()}").write_bytes(bytes(100))
    assert options(tmp_path / "used.jsa") != RECORDING
    prune(tmp_path, tmp_path / "kept.jsa", kept_bytes_max=300)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"used.jsa", "new.jsa", "kept.jsa", "other.txt", f".x.jsa-{os.getpid()}"}
    prune(tmp_path, tmp_path / "kept.jsa", kept_bytes_max=0)
    assert (tmp_path / "kept.jsa").exists()
    assert not (tmp_path / "used.jsa").exists()
