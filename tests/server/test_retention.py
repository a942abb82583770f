"""R9: the broker's retention deletes old segments of what it replicates, and notifies the core."""

from __future__ import annotations

from pathlib import Path

from neaptide.clusters.broker.replication.interface.events import LogStartAdvanced
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.server.retention import apply_retention
from neaptide.clusters.broker.storage.log_manager import LogManager
from neaptide.clusters.disks.replica_reader import log_offsets
from tests.storage.batches import NOW_MS, batch, with_headers

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SMALL = {"segment.bytes": "100", "retention.bytes": "60", "retention.ms": "-1"}


def opened(path: Path, records: int) -> LogManager:
    directory = LogManager.open([path], 1, {})
    for tp in (T0, T1):
        log = directory.create_log(tp, SMALL)
        for _ in range(records):
            log.append(*with_headers(batch(log.log_end_offset, [b"v"])))
    return directory


def test_r9_old_segments_below_the_high_watermark_go_and_the_core_is_notified(
    tmp_path: Path,
) -> None:
    directory = opened(tmp_path, 5)
    reported: list[object] = []
    apply_retention(directory, {T0: 3, T1: 0}, reported.append, NOW_MS)
    assert reported == [LogStartAdvanced(T0, 3)]
    assert log_offsets(tmp_path, T0) == (3, 5)
    assert log_offsets(tmp_path, T1) == (0, 5)
    directory.shutdown()


def test_r9_a_replica_that_no_controller_has_named_is_left_alone(tmp_path: Path) -> None:
    directory = opened(tmp_path, 5)
    reported: list[object] = []
    apply_retention(directory, {T1: 5}, reported.append, NOW_MS)
    assert [type(event) for event in reported] == [LogStartAdvanced]
    assert log_offsets(tmp_path, T0) == (0, 5)
    directory.shutdown()


def test_what_files_show_of_a_log_that_is_not_there_is_nothing(tmp_path: Path) -> None:
    assert log_offsets(tmp_path, T0) is None
