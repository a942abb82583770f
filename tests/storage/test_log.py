"""Segments, recovery, retention and flushing of one log."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from neaptide.clusters.broker.replication.model import EpochEntry
from neaptide.clusters.broker.storage.config import LogConfig
from neaptide.clusters.broker.storage.errors import (
    OffsetOutOfRangeError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from neaptide.clusters.broker.storage.indexes import MAX_RELATIVE_OFFSET
from neaptide.clusters.broker.storage.log import Log
from neaptide.clusters.broker.storage.segment import Segment
from tests.storage.batches import NOW_MS, batch, with_headers
from tests.storage.conftest import OpenLog

DAY_MS = 86_400_000


def fill(log: Log, count: int, *, step_ms: int = 0, epoch: int = 0, size: int = 50) -> None:
    for _ in range(count):
        offset = log.log_end_offset
        data = batch(offset, [b"v" * size], epoch=epoch, timestamp=NOW_MS + step_ms * offset)
        log.append(*with_headers(data))


# --- rolling ------------------------------------------------------------------------------------


def test_r8_segments_roll_by_size(open_log: OpenLog) -> None:
    size = len(batch(0, [b"v" * 50]))
    log = open_log(segment_bytes=3 * size)
    fill(log, 7)
    assert log.segment_base_offsets == (0, 3, 6)
    assert log.recovery_point == 6  # a roll flushes


def test_r8_segments_roll_by_time_of_their_records(open_log: OpenLog) -> None:
    log = open_log(segment_ms=1000)
    fill(log, 5, step_ms=400)
    assert log.segment_base_offsets == (0, 3)


def test_r8_segments_roll_when_an_index_is_full(open_log: OpenLog) -> None:
    log = open_log(segment_index_bytes=8 * 6, index_interval_bytes=1)
    fill(log, 15)  # all of one timestamp: the time index has one entry
    # A segment's first batch has no entry.
    assert log.segment_base_offsets == (0, 7, 14)
    assert (log.directory / "00000000000000000000.index").stat().st_size == 48


def test_r8_segments_roll_when_the_time_index_is_full(open_log: OpenLog) -> None:
    log = open_log(segment_index_bytes=12 * 4, index_interval_bytes=1)
    fill(log, 9, step_ms=1)
    # One of its four entries is kept for the roll, which is the last batch's.
    assert log.segment_base_offsets == (0, 4, 8)
    assert (log.directory / "00000000000000000000.timeindex").stat().st_size == 36


def test_r8_segments_roll_when_an_offset_is_too_far_for_an_index(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 1)
    log.append(*with_headers(batch(MAX_RELATIVE_OFFSET, [b"near"])))
    assert list(log.segment_base_offsets) == [0]
    log.append(*with_headers(batch(MAX_RELATIVE_OFFSET + 1, [b"far"])))
    assert log.segment_base_offsets == (0, MAX_RELATIVE_OFFSET + 1)


def test_r8_a_first_batch_too_far_for_an_index_begins_the_segment(open_log: OpenLog) -> None:
    log = open_log()
    log.append(*with_headers(batch(MAX_RELATIVE_OFFSET + 1, [b"far"])))
    assert log.segment_base_offsets == (MAX_RELATIVE_OFFSET + 1,)
    assert [path.name for path in log.directory.glob("*.log")] == ["00000000002147483648.log"]
    near = Log.open(log.directory.with_name("t-1"), log.topic_partition, LogConfig())
    near.append(*with_headers(batch(MAX_RELATIVE_OFFSET, [b"near"])))
    assert near.segment_base_offsets == (0,)


# --- indexes ------------------------------------------------------------------------------------


def test_r8_index_lookups_equal_a_linear_scan(open_log: OpenLog) -> None:
    log = open_log(index_interval_bytes=300)
    fill(log, 60, step_ms=7)
    segment = log._segments[-1]
    assert len(segment.offset_index) > 10
    linear = list(segment.headers_from(0))
    for position, header in linear:
        assert segment.position_of(header.base_offset) == (position, header.base_offset)
        found = log.offset_for_timestamp(header.max_timestamp - 3)
        assert found == (header.max_timestamp, header.base_offset)
    assert log.offset_for_timestamp(linear[-1][1].max_timestamp + 1) is None


@pytest.mark.parametrize("lost", [".index", ".timeindex"])
def test_r8_a_lost_index_is_rebuilt_after_a_clean_shutdown_too(
    open_log: OpenLog, lost: str
) -> None:
    log = open_log(index_interval_bytes=300)
    fill(log, 40, step_ms=5)
    log.flush()
    log.close()
    path = log.directory / f"00000000000000000000{lost}"
    content = path.read_bytes()
    path.unlink()
    again = open_log(recovery_point=40, clean=True, index_interval_bytes=300)
    again.close()
    assert path.read_bytes() == content
    assert again.log_end_offset == 40


def test_zeros_that_a_broker_preallocated_in_an_index_are_no_entries(open_log: OpenLog) -> None:
    log = open_log(index_interval_bytes=300)
    fill(log, 40, step_ms=5)
    log.flush()
    entries = log._segments[0].offset_index.entries
    log.close()
    for suffix in (".index", ".timeindex"):
        with (log.directory / f"00000000000000000000{suffix}").open("ab") as file:
            file.write(bytes(240))
    again = open_log(recovery_point=40, clean=True, index_interval_bytes=300)
    assert again._segments[0].offset_index.entries == entries
    fill(again, 40, step_ms=5)
    again.flush()
    again.close()
    third = open_log(recovery_point=80, clean=True, index_interval_bytes=300)
    assert third._segments[0].offset_index.entries[: len(entries)] == entries
    assert third.log_end_offset == 80


# --- recovery -----------------------------------------------------------------------------------


def test_r8_a_tail_torn_at_any_byte_is_cut_at_the_last_whole_batch(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 3)
    kept = log.size_bytes
    fill(log, 1)
    whole = log.size_bytes
    log.close()
    file = log.directory / "00000000000000000000.log"
    content = file.read_bytes()
    for length in range(kept, whole):
        file.write_bytes(content[:length])
        again = open_log()
        assert (again.log_end_offset, again.size_bytes) == (3, kept)
        again.close()
        assert file.read_bytes() == content[:kept]
    file.write_bytes(content)
    assert open_log().log_end_offset == 4


def test_r8_recovery_cuts_at_a_bad_checksum_and_drops_later_segments(open_log: OpenLog) -> None:
    size = len(batch(0, [b"v" * 50]))
    log = open_log(segment_bytes=3 * size)
    fill(log, 8)
    log.close()
    file = log.directory / "00000000000000000003.log"
    broken = bytearray(file.read_bytes())
    broken[size + 70] ^= 1
    file.write_bytes(bytes(broken))
    again = open_log(recovery_point=3, segment_bytes=3 * size)
    assert again.log_end_offset == 4
    assert again.segment_base_offsets == (0, 3)
    assert not (log.directory / "00000000000000000006.log").exists()


def test_r8_segments_below_the_recovery_point_are_not_read(open_log: OpenLog) -> None:
    size = len(batch(0, [b"v" * 50]))
    log = open_log(segment_bytes=3 * size)
    fill(log, 8)
    log.close()
    file = log.directory / "00000000000000000000.log"
    broken = bytearray(file.read_bytes())
    broken[70] ^= 1
    file.write_bytes(bytes(broken))
    assert open_log(recovery_point=6, segment_bytes=3 * size).log_end_offset == 8


def test_e1_recovery_rebuilds_the_leader_epochs(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 2, epoch=1)
    fill(log, 2, epoch=4)
    log.close()
    (log.directory / "leader-epoch-checkpoint").unlink()
    again = open_log()
    assert again.epochs.entries == (EpochEntry(1, 0), EpochEntry(4, 2))
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n4 2\n"


def test_e1_a_truncation_takes_epochs_with_it_and_an_unused_one_makes_room(
    open_log: OpenLog,
) -> None:
    log = open_log()
    fill(log, 2, epoch=1)
    fill(log, 2, epoch=4)
    log.truncate_to(2)
    assert list(log.epochs.entries) == [EpochEntry(1, 0)]
    log.epochs.assign(5, 2)
    log.epochs.assign(6, 2)
    assert log.epochs.entries == (EpochEntry(1, 0), EpochEntry(6, 2))
    log.delete_records_before(1)
    assert log.epochs.entries == (EpochEntry(1, 1), EpochEntry(6, 2))


# --- reading and cutting ------------------------------------------------------------------------


def test_f4_only_the_first_batch_may_be_larger_than_the_limit(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 1, size=500)
    fill(log, 1, size=5)
    small = len(batch(1, [b"v" * 5]))
    assert log.read(0, 2, 100, min_one_batch=False) == b""
    first = log.read(0, 2, 100, min_one_batch=True)
    assert [h.base_offset for h in with_headers(first)[1]] == [0]
    assert len(log.read(1, 2, small, min_one_batch=False)) == small


def test_a_truncation_inside_of_a_batch_takes_the_whole_batch(open_log: OpenLog) -> None:
    log = open_log()
    log.append(*with_headers(batch(0, [b"a"]), batch(1, [b"b", b"c", b"d"])))
    log.flush()
    assert log.truncate_to(2) == 1
    assert (log.log_end_offset, log.recovery_point) == (1, 1)
    assert log.truncate_to(1) == 1


def test_offsets_outside_of_the_log_are_errors_and_its_end_is_not(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 3)
    log.delete_records_before(1)
    for offset in (0, 4):
        with pytest.raises(OffsetOutOfRangeError, match=r"1\.\.3"):
            log.read(offset, 10, 100, min_one_batch=True)
    assert log.read(3, 10, 100, min_one_batch=True) == b""


def test_f8_an_append_below_the_log_end_offset_is_an_error(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 3)
    with pytest.raises(UnexpectedAppendOffsetError):
        log.append(*with_headers(batch(2, [b"again"])))
    assert log.log_end_offset == 3


# --- flushing -----------------------------------------------------------------------------------


def test_flush_messages_moves_the_recovery_point_and_its_default_does_not(
    open_log: OpenLog,
) -> None:
    log = open_log()
    fill(log, 5)
    assert log.recovery_point == 0
    log.close()
    eager = open_log(flush_messages=2)
    fill(eager, 1)
    assert eager.recovery_point == 6


def test_flush_ms_is_asked_for_by_a_timer(tmp_path: Path, open_log: OpenLog) -> None:
    now = [NOW_MS]
    log = open_log(flush_ms=100)
    log._clock = lambda: now[0]
    fill(log, 1)
    now[0] += 99
    assert not log.is_flush_due
    now[0] += 1
    assert log.is_flush_due
    log.flush()
    assert log.recovery_point == 1
    now[0] += 1000
    assert not log.is_flush_due  # nothing to flush


def test_what_comes_while_a_thread_flushes_is_not_on_disk_yet(open_log: OpenLog) -> None:
    log = open_log(flush_messages=2)
    for value in (b"a", b"b"):
        log.append(*with_headers(batch(log.log_end_offset, [value])), flush=False)
    assert log.needs_flush
    assert log.recovery_point == 0
    flush = log.begin_flush()
    log.append(*with_headers(batch(2, [b"c"])), flush=False)
    flush.sync()
    log.end_flush(flush)
    assert (log.recovery_point, log.needs_flush) == (2, False)


def test_a_log_that_is_cut_while_a_thread_flushes_keeps_its_recovery_point(
    open_log: OpenLog,
) -> None:
    """What was appended in place of the records that were cut off was not flushed."""
    log = open_log()
    fill(log, 5)
    flush = log.begin_flush()
    assert log.truncate_to(1) == 1
    fill(log, 5)
    assert log.log_end_offset > flush.end_offset - 1
    flush.sync()
    log.end_flush(flush)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == log.log_end_offset


def test_indexes_that_were_written_are_flushed_once(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(index_interval_bytes=1)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    fill(log, 3)
    log.flush()
    assert len(synced) == 3
    log.append(*with_headers(batch(log.log_end_offset, [b"a"])))
    log._segments[-1].save_indexes()
    log.flush()
    assert len(synced) == 5  # no new time
    log.flush()
    assert len(synced) == 6


# --- removing ------------------------------------------------------------------------------------


def test_deleted_segments_are_renamed_and_removed_later_or_at_the_next_start(
    tmp_path: Path, open_log: OpenLog
) -> None:
    log = open_log(segment_bytes=200)
    fill(log, 6)
    doomed: list[Path] = []
    log._remove = doomed.extend
    assert log.delete_records_before(log.log_end_offset)
    directory = tmp_path / "t-0"
    assert {path.name for path in doomed} >= {
        f"{0:020d}.log.deleted",
        f"{0:020d}.index.deleted",
        f"{0:020d}.timeindex.deleted",
    }
    assert all(path.exists() for path in doomed)
    left = [int(path.stem) for path in directory.glob("*.log")]
    assert left == list(log.segment_base_offsets)
    log.close()
    again = open_log(segment_bytes=200)
    assert not list(directory.glob("*.deleted"))
    assert again.segment_base_offsets == tuple(left)


def test_a_full_disk_is_one_sentence_that_names_the_directory(
    open_log: OpenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    fill(log, 2)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(StorageError, match="No space left on device") as refused:
            fill(log, 1)
    assert refused.value.directory == tmp_path
    assert log.log_end_offset == 2
    fill(log, 1)  # there is space again
    log.close()
    assert open_log().log_end_offset == 3


def test_a_short_write_is_continued(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log()
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data[:7]), at))
    fill(log, 2)
    monkeypatch.undo()
    log.close()
    assert open_log().log_end_offset == 2


# --- retention ----------------------------------------------------------------------------------


def test_r9_retention_by_time_moves_the_log_start_offset(open_log: OpenLog) -> None:
    size = len(batch(0, [b"v" * 50]))
    log = open_log(segment_bytes=2 * size, retention_ms=DAY_MS)
    fill(log, 6, step_ms=1000)
    at = NOW_MS + DAY_MS
    assert log.apply_retention(at + 1000, high_watermark=6) == 0
    assert log.apply_retention(at + 1001, high_watermark=6) == 2
    assert log.apply_retention(at + 60_000, high_watermark=3) == 2  # not above the high watermark
    assert log.apply_retention(at + 60_000, high_watermark=6) == 6
    assert (log.log_end_offset, log.size_bytes) == (6, 0)


def test_r9_retention_by_size_keeps_at_least_what_is_asked_for(open_log: OpenLog) -> None:
    size = len(batch(0, [b"v" * 50]))
    log = open_log(segment_bytes=2 * size, retention_bytes=5 * size, retention_ms=-1)
    fill(log, 8)
    assert log.apply_retention(NOW_MS, high_watermark=8) == 2
    assert log.size_bytes == 6 * size
    assert not (log.directory / "00000000000000000000.log").exists()


def test_r9_compacted_logs_have_no_retention(open_log: OpenLog) -> None:
    log = open_log(retention_bytes=0, retention_ms=0, cleanup_policy="compact")
    fill(log, 4)
    assert log.apply_retention(NOW_MS + DAY_MS, high_watermark=4) == 0


def test_r9_deleted_records_free_whole_segments_only(open_log: OpenLog) -> None:
    size = len(batch(0, [b"v" * 50]))
    log = open_log(segment_bytes=2 * size)
    fill(log, 6)
    assert log.delete_records_before(3)
    assert not log.delete_records_before(3)
    assert (log.log_start_offset, log.segment_base_offsets) == (3, (2, 4))
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records_before(7)


def test_segment_files_have_kafkas_names(tmp_path: Path, open_log: OpenLog) -> None:
    log = open_log()
    log.truncate_fully_and_start_at(42)
    fill(log, 1)
    log.flush()
    names = sorted(path.name for path in (tmp_path / "t-0").iterdir())
    stem = "00000000000000000042"
    assert names == [
        f"{stem}.index",
        f"{stem}.log",
        f"{stem}.timeindex",
        "leader-epoch-checkpoint",
    ]
    assert isinstance(log._segments[0], Segment)
