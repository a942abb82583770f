"""What comes from a node takes the place of what was here, and only when it is whole."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from neaptide.clusters.hosts.ssh_host import unpack


def had(directory: Path) -> dict[str, str]:
    return {str(f.relative_to(directory)): f.read_text() for f in directory.rglob("*.log")}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "here" / "data"
    directory.mkdir(parents=True)
    (directory / "old.log").write_text("old")
    return directory


def test_the_directory_holds_what_the_archive_has_and_nothing_else(
    tmp_path: Path, logs: Path
) -> None:
    (tmp_path / "new.log").write_text("new")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "new.log", "t-0/new.log")
    unpack(tmp_path / "a.tar.gz", logs)
    assert had(logs) == {"t-0/new.log": "new"}
    assert [path.name for path in logs.parent.iterdir()] == ["data"]


def test_an_archive_that_is_cut_off_leaves_what_was_there(tmp_path: Path, logs: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"\x1f\x8b no archive")
    with pytest.raises((tarfile.TarError, OSError, EOFError)):
        unpack(tmp_path / "a.tar.gz", logs)
    assert had(logs) == {"old.log": "old"}
