"""Kafka's text files: exact content, round trips, and what a malformed one says."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.broker.replication.model import EpochEntry, TopicPartition
from neaptide.clusters.broker.storage import checkpoints
from neaptide.clusters.broker.storage.errors import StorageError


def test_c7_offsets_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    file = tmp_path / checkpoints.HIGH_WATERMARKS
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a-x", 0): 3}
    checkpoints.write_offsets(file, offsets)
    assert file.read_text() == "0\n2\na-x 0 3\nb 1 7\n"
    assert checkpoints.read_offsets(file) == offsets
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_missing_checkpoint_is_an_empty_one_as_is_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "made").touch()
    assert checkpoints.read_offsets(tmp_path / "made") == {}
    assert checkpoints.read_offsets(tmp_path / "none") == {}
    assert checkpoints.read_epochs(tmp_path) == ()


def test_e1_epochs_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    entries = (EpochEntry(0, 0), EpochEntry(3, 17))
    checkpoints.write_epochs(tmp_path, entries)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 17\n"
    assert checkpoints.read_epochs(tmp_path) == entries


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0\n", "version"),
        ("1\n0\n", "version"),
        ("0\n2\nt 0 1\n", "announces 2 entries and has 1"),
        ("0\n1\nt 0\n", "line 3 has 2 fields"),
        ("0\n1\nt 0 x\n", "'x' is no number"),
        ("0\nx\n", "'x' is no number"),
    ],
)
def test_a_malformed_checkpoint_is_named_with_its_fault(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / checkpoints.RECOVERY_POINTS
    file.write_text(text)
    with pytest.raises(StorageError, match=why) as refused:
        checkpoints.read_offsets(file)
    assert file.name in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_meta_properties_of_a_java_broker_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Thu Jan 01 00:00:00 UTC 2026\ncluster.id=abc=\nbroker.id=4\nversion=0\n"
    )
    found = checkpoints.read_meta_properties(tmp_path)
    assert found == {"cluster.id": "abc=", "broker.id": "4", "version": "0"}
