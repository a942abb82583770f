"""Archives of what Java loads: one for each Java and class path, used only where there is one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from neaptide.clusters.shared_archive import RECORDING, archive_of, options, record


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
