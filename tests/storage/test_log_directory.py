"""A broker's log directory: shutdown and crash, ownership, checkpoints, settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage.config import LogConfig, SettingError, log_config
from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.broker.storage.log_directory import LogDirectory
from tests.storage.batches import batch, with_headers

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def append(directory: LogDirectory, tp: TopicPartition, count: int) -> None:
    log = directory.create_log(tp)
    for _ in range(count):
        log.append(*with_headers(batch(log.log_end_offset, [b"v"])))


def crash(directory: LogDirectory) -> None:
    """What a SIGKILL leaves: the files as they are, the lock free."""
    directory._lock.release()


def test_a_clean_shutdown_leaves_the_marker_and_all_recovery_points(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, 1, {})
    append(directory, T0, 3)
    append(directory, T1, 2)
    directory.shutdown()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    recovery_points = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert recovery_points == "0\n2\nt 0 3\nt 1 2\n"
    again = LogDirectory.open(tmp_path, 1, {})
    assert again.was_clean
    assert {tp: log.log_end_offset for tp, log in again.logs.items()} == {T0: 3, T1: 2}
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again.shutdown()


def test_after_a_crash_logs_are_recovered_from_their_recovery_points(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, 1, {})
    append(directory, T0, 2)
    directory.logs[T0].flush()
    directory.checkpoint_recovery_points()
    append(directory, T0, 2)
    crash(directory)
    file = tmp_path / "t-0" / "00000000000000000000.log"
    file.write_bytes(file.read_bytes()[:-1])
    again = LogDirectory.open(tmp_path, 1, {})
    assert not again.was_clean
    assert (again.logs[T0].log_end_offset, again.logs[T0].recovery_point) == (3, 2)
    again.shutdown()


def test_a_truncation_lowers_the_recovery_point_on_disk_at_once(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, 1, {})
    append(directory, T0, 5)
    directory.logs[T0].flush()
    directory.checkpoint_recovery_points()
    directory.logs[T0].truncate_to(2)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
    directory.shutdown()


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, 1, {})
    with pytest.raises(StorageError, match="a running broker holds its"):
        LogDirectory.open(tmp_path, 1, {})
    directory.shutdown()
    LogDirectory.open(tmp_path, 1, {}).shutdown()


def test_another_brokers_or_clusters_directory_is_refused(tmp_path: Path) -> None:
    LogDirectory.open(tmp_path, 1, {}, cluster_id="one").shutdown()
    with pytest.raises(StorageError, match=r"broker\.id=1, this broker has 2"):
        LogDirectory.open(tmp_path, 2, {}, cluster_id="one")
    with pytest.raises(StorageError, match=r"cluster\.id=one, this broker has two"):
        LogDirectory.open(tmp_path, 1, {}, cluster_id="two")
    LogDirectory.open(tmp_path, 1, {}, cluster_id="one").shutdown()  # refusals leave no lock


def test_r9_the_log_start_offset_outlives_a_restart(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, 1, {})
    append(directory, T0, 5)
    append(directory, T1, 1)
    directory.logs[T0].delete_records_before(3)
    directory.shutdown()
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    again = LogDirectory.open(tmp_path, 1, {})
    assert (again.logs[T0].log_start_offset, again.logs[T1].log_start_offset) == (3, 0)
    again.shutdown()


def test_a_deleted_log_leaves_no_files_and_no_checkpoint_entries(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, 1, {})
    append(directory, T0, 1)
    append(directory, T1, 1)
    directory.write_high_watermarks({T0: 1, T1: 1})
    directory.delete_log(T0)
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["t-1"]
    assert directory.read_high_watermarks() == {T1: 1}
    assert "t 0" not in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    directory.shutdown()


def test_a_deletion_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    (tmp_path / "t-0-delete").mkdir()
    (tmp_path / "t-0-delete" / "00000000000000000000.log").touch()
    directory = LogDirectory.open(tmp_path, 1, {})
    assert directory.logs == {}
    assert not (tmp_path / "t-0-delete").exists()
    directory.shutdown()


def test_settings_have_kafkas_names_defaults_and_precedence() -> None:
    assert log_config({}) == LogConfig()
    broker = {"log.segment.bytes": "1000", "log.retention.hours": "2", "num.io.threads": "8"}
    config = log_config(broker, {"segment.bytes": "500"})
    assert (config.segment_bytes, config.retention_ms) == (500, 7_200_000)
    assert log_config({**broker, "log.retention.ms": "-1"}).retention_ms == -1
    with pytest.raises(SettingError, match=r"Set segment\.bytes to a whole number, not to 'big'"):
        log_config({}, {"segment.bytes": "big"})


def test_a_topics_settings_reach_its_logs(tmp_path: Path) -> None:
    first = LogDirectory.open(tmp_path, 1, {})
    append(first, T0, 1)
    first.shutdown()
    topics = {"t": {"retention.ms": "5"}}
    again = LogDirectory.open(tmp_path, 1, {}, topic_settings=topics)
    assert again.logs[T0].config.retention_ms == 5
    again.reconfigure("t", {"retention.ms": "6"})
    assert again.logs[T0].config.retention_ms == 6
    again.shutdown()


def test_a_log_is_deleted_again_before_the_first_one_is_removed(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, 0, {})
    doomed: list[Path] = []
    directory.remove = doomed.extend
    for _ in range(2):
        directory.create_log(T0)
        directory.delete_log(T0)
    assert [path.name for path in doomed] == [f"{T0}.{n}-delete" for n in (0, 1)]
    assert all(path.is_dir() for path in doomed)
    directory.shutdown()
    again = LogDirectory.open(tmp_path, 0, {})
    assert not again.logs
    assert not any(path.exists() for path in doomed)
    again.shutdown()


def test_c10_a_log_says_of_which_topic_it_is(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, 1, {})
    directory.create_log(T0, topic_id="Hu5LOl5CTyCxLd3gNjBFyw")
    directory.create_log(T1)
    file = tmp_path / "t-0" / "partition.metadata"
    assert file.read_text() == "version: 0\ntopic_id: Hu5LOl5CTyCxLd3gNjBFyw"  # as Kafka's
    assert not (tmp_path / "t-1" / "partition.metadata").exists()
    crash(directory)
    again = LogDirectory.open(tmp_path, 1, {})
    assert again.topic_ids == {T0: "Hu5LOl5CTyCxLd3gNjBFyw"}
    again.assign_topic_id(T1, "AAAAAAAAAAAAAAAAAAAAAQ")
    again.delete_log(T0)
    crash(again)
    assert LogDirectory.open(tmp_path, 1, {}).topic_ids == {T1: "AAAAAAAAAAAAAAAAAAAAAQ"}


@pytest.mark.parametrize("text", ["", "version: 1\ntopic_id: x", "version: 0", "topic_id: x"])
def test_c10_a_malformed_partition_metadata_is_named(tmp_path: Path, text: str) -> None:
    directory = LogDirectory.open(tmp_path, 1, {})
    directory.create_log(T0)
    crash(directory)
    (tmp_path / "t-0" / "partition.metadata").write_text(text)
    with pytest.raises(StorageError, match=r"partition\.metadata is malformed"):
        LogDirectory.open(tmp_path, 1, {})
