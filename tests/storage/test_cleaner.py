"""R10: what compaction leaves of a log, and what it must not touch; each rule with its twin."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.clusters.broker.replication.model import EndTransactionMarker, TopicPartition
from neaptide.clusters.broker.replication.partition.transactions import AbortedTransaction
from neaptide.clusters.broker.storage import checkpoints
from neaptide.clusters.broker.storage import log as log_module
from neaptide.clusters.broker.storage.cleaner import Cleaning, LastOfProducer
from neaptide.clusters.broker.storage.config import LogConfig, log_config
from neaptide.clusters.broker.storage.internal_topics import encode_marker
from neaptide.clusters.broker.storage.log import Log
from neaptide.clusters.broker.storage.log_directory import LogDirectory
from neaptide.clusters.broker.storage.record_batch import (
    assign,
    parse_batches,
    parse_header,
    records,
)
from neaptide.clusters.broker.storage.record_writer import KeyAndValue, record_batch
from tests.storage.batches import COMPRESSIONS, NOW_MS, batch, with_headers
from tests.storage.conftest import TP, OpenLog

COMPACT = {"cleanup_policy": "compact", "segment_bytes": 1 << 20, "delete_retention_ms": 0}
Kept = list[tuple[int, bytes | None, bytes | None]]
SECOND_NS = 1_000_000_000


def write(log: Log, batch_bytes: bytes) -> None:
    buffer = bytearray(batch_bytes)
    log.append(buffer, assign(buffer, log.log_end_offset, 0))


def put(log: Log, *kept: KeyAndValue, roll: bool = True, **of: Any) -> None:
    """One batch, in a segment of its own where it is not said otherwise."""
    write(log, record_batch(kept, NOW_MS, **of))
    if roll:
        log._roll(log.log_end_offset)


def put_marker(log: Log, producer_id: int, *, is_commit: bool) -> None:
    marker = encode_marker(EndTransactionMarker(producer_id, 0, 1, is_commit))
    producer = producer_id, 0, -1
    put(log, marker, producer=producer, is_transactional=True, is_control=True)


def clean(
    log: Log,
    up_to: int | None = None,
    producers: dict[int, LastOfProducer] | None = None,
    now_ms: int = NOW_MS,
) -> bool:
    dirt = log.dirt(up_to, now_ms)
    if dirt is None:
        return False
    cleaning = log.begin_cleaning(dirt, producers or {})
    return log.end_cleaning(cleaning, cleaning.run())


def begun(log: Log) -> Cleaning:
    dirt = log.dirt(None, NOW_MS)
    assert dirt is not None
    return log.begin_cleaning(dirt, {})


def left(log: Log) -> Kept:
    return [
        (record.offset, record.key, record.value)
        for header, data, at in log.snapshot().batches()
        if not header.is_control
        for record in records(data, at, header)
    ]


def offsets(log: Log) -> list[int]:
    return [offset for offset, _, _ in left(log)]


def age(log: Log, *seconds: int) -> None:
    """How long ago the first segments were written."""
    for segment, ago in zip(log._segments, seconds, strict=False):
        ns = segment.modified_ns - ago * SECOND_NS
        os.utime(segment.path, ns=(ns, ns))


# --- records -------------------------------------------------------------------------------------


def test_r10_the_newest_record_of_each_key_stays_where_it_was(open_log: OpenLog) -> None:
    log = open_log(**COMPACT)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"), (b"c", b"1"), (b"a", b"3"))
    put(log, (b"b", b"2"), roll=False)
    assert clean(log)
    # The last one is in the active segment, of which the cleaner knows nothing.
    assert left(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3"), (5, b"b", b"2")]
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_to) == (0, 6, 5)
    assert not clean(log)


def test_r10_a_log_that_is_not_compacted_is_left_alone(open_log: OpenLog) -> None:
    log = open_log()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    assert not clean(log)


def test_r10_a_record_without_a_key_goes(open_log: OpenLog) -> None:
    log = open_log(**COMPACT)
    put(log, (None, b"of before"), (b"a", b"1"))
    clean(log)
    assert offsets(log) == [1]


def test_r10_what_was_cleaned_before_goes_when_something_newer_is_cleaned(
    open_log: OpenLog,
) -> None:
    log = open_log(**COMPACT)
    put(log, (b"a", b"1"), (b"b", b"1"))
    clean(log)
    put(log, (b"a", b"2"))
    clean(log)
    assert left(log) == [(1, b"b", b"1"), (2, b"a", b"2")]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_r10_a_batch_of_which_some_stays_is_read_as_before(
    open_log: OpenLog, compression: str
) -> None:
    log = open_log(**COMPACT)
    data = batch(0, [b"1", b"2", b"3"], compression=compression)
    log.append(*with_headers(data))
    log._roll(3)
    clean(log)
    [(header, found, at)] = log.snapshot().batches()
    parse_batches(found)  # its checksum holds
    [record] = records(found, at, header)
    assert (record.offset, record.value, record.timestamp_ms) == (2, b"3", NOW_MS + 2)
    assert (header.base_offset, header.next_offset, header.record_count) == (0, 3, 1)
    assert (header.max_timestamp, header.compression) == (NOW_MS + 2, 0)


@pytest.mark.parametrize(("retention_ms", "stays"), [(20_000, True), (5_000, False)])
def test_r10_a_tombstone_stays_its_time_after_what_was_cleaned_before_it(
    open_log: OpenLog, retention_ms: int, stays: bool
) -> None:
    log = open_log(**COMPACT | {"delete_retention_ms": retention_ms, "segment_bytes": 1})
    put(log, (b"a", b"1"))
    put(log, (b"a", None))
    put(log, (b"b", b"1"))
    age(log, 20, 10, 0)
    clean(log)
    assert left(log) == [(1, b"a", None), (2, b"b", b"1")]  # before, nothing had been cleaned
    put(log, (b"c", b"1"))
    clean(log)
    assert ((1, b"a", None) in left(log)) is stays


# --- what is not looked at -----------------------------------------------------------------------


def test_r10_nothing_at_or_above_the_bound_is_cleaned(open_log: OpenLog) -> None:
    log = open_log(**COMPACT)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), (b"b", b"1"))
    put(log, (b"a", b"3"))
    assert not clean(log, up_to=0)
    assert not clean(log, up_to=1) or offsets(log) == [0, 1, 2, 3]
    clean(log, up_to=2)  # in the middle of the second segment
    assert offsets(log) == [0, 1, 2, 3]
    clean(log, up_to=3)
    assert offsets(log) == [1, 2, 3]


def test_r10_what_is_younger_than_the_lag_is_not_cleaned_nor_what_is_behind_it(
    open_log: OpenLog,
) -> None:
    log = open_log(**COMPACT | {"min_compaction_lag_ms": 1_000})
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    assert not clean(log, now_ms=NOW_MS + 999)
    assert clean(log, now_ms=NOW_MS + 1_000)
    assert offsets(log) == [1]


def test_r10_dirt_is_counted_in_bytes_and_may_be_late(open_log: OpenLog) -> None:
    log = open_log(**COMPACT | {"max_compaction_lag_ms": 1_000})
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"))
    clean(log)
    put(log, (b"c", b"1"))
    dirt = log.dirt(None, NOW_MS + 1_000)
    assert dirt is not None
    assert (dirt.segments, round(dirt.ratio, 3), dirt.is_late) == (2, 0.333, False)
    late = log.dirt(None, NOW_MS + 1_001)
    assert late is not None
    assert late.is_late


def test_r10_segments_of_a_compacted_log_roll_by_the_largest_lag_too() -> None:
    lag = {"segment.ms": "5000", "max.compaction.lag.ms": "100"}
    assert log_config({}, {**lag, "cleanup.policy": "compact"}).roll_ms == 100
    assert log_config({}, {**lag, "cleanup.policy": "delete"}).roll_ms == 5_000


# --- producers and transactions -------------------------------------------------------------------


def test_r10_the_last_batch_of_a_producer_stays_without_records(open_log: OpenLog) -> None:
    log = open_log(**COMPACT)
    put(log, (b"a", b"1"), producer=(7, 0, 0))
    put(log, (b"a", b"2"), producer=(7, 0, 1))
    put(log, (b"a", b"3"))
    clean(log, producers={7: LastOfProducer(1, 0)})
    headers = list(log.snapshot().headers())
    assert [(one.base_offset, one.record_count, one.base_sequence) for one in headers] == [
        (1, 0, 1),
        (2, 1, -1),
    ]
    clean(log, up_to=log.log_end_offset)
    log.cleaned_to = 0
    clean(log)  # nothing is remembered of it any more
    assert [one.base_offset for one in log.snapshot().headers()] == [2]


@pytest.mark.parametrize("is_commit", [True, False])
def test_r10_what_was_aborted_goes_and_hides_nothing_that_was_committed(
    open_log: OpenLog, is_commit: bool
) -> None:
    log = open_log(**COMPACT)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), producer=(7, 0, 0), is_transactional=True)
    put_marker(log, 7, is_commit=is_commit)
    if not is_commit:
        log.add_aborted([AbortedTransaction(7, 1, 2, 3)])
    clean(log)
    assert left(log) == ([(1, b"a", b"2")] if is_commit else [(0, b"a", b"1")])
    controls = [one.base_offset for one in log.snapshot().headers() if one.is_control]
    assert controls == [2]  # while anything of its transaction was there


def test_r10_a_marker_goes_when_nothing_of_its_transaction_is_left_and_its_time_is_over(
    open_log: OpenLog,
) -> None:
    log = open_log(**COMPACT | {"segment_bytes": 200})
    put(log, (b"a", b"1"), producer=(7, 0, 0), is_transactional=True)
    put_marker(log, 7, is_commit=True)
    put(log, (b"a", b"2"), (b"long", b"x" * 300))
    clean(log)
    assert [one.is_control for one in log.snapshot().headers()] == [True, False]
    put(log, (b"b", b"1"))
    clean(log, producers={7: LastOfProducer(None, 0)})
    assert [one.is_control for one in log.snapshot().headers()] == [True, False, False]
    put(log, (b"c", b"1"))
    clean(log)
    assert not any(one.is_control for one in log.snapshot().headers())


@pytest.mark.parametrize(
    ("markers_have_keys", "key", "stays"),
    [
        (True, b"\0\0\0\1", False),
        (True, b"\0\0\0\0", True),  # of a marker that aborts
        (True, b"other", True),
        (False, b"\0\0\0\1", True),
    ],
)
def test_r10_up_to_3_2_a_record_with_the_key_of_a_marker_takes_that_away(
    open_log: OpenLog, markers_have_keys: bool, key: bytes, stays: bool
) -> None:
    """KAFKA-14055: what it committed is part of an open transaction then."""
    log = open_log(**COMPACT)
    put(log, (b"a", b"1"), producer=(7, 0, 0), is_transactional=True)
    put_marker(log, 7, is_commit=True)
    put(log, (key, b"2"))
    put(log, (b"last", b"3"))
    dirt = log.dirt(None, NOW_MS)
    assert dirt is not None
    cleaning = log.begin_cleaning(dirt, {}, markers_have_keys=markers_have_keys)
    assert log.end_cleaning(cleaning, cleaning.run())
    markers = [one.base_offset for one in log.snapshot().headers() if one.is_control]
    assert markers == ([1] if stays else [])
    assert (0, b"a", b"1") in left(log)


def test_r10_only_what_lies_in_an_aborted_transaction_is_aborted(open_log: OpenLog) -> None:
    log = open_log(**COMPACT)
    of = {"producer": (7, 0, 0), "is_transactional": True}
    for key in (b"a", b"b", b"c"):
        put(log, (key, b"1"), **of)
        put_marker(log, 7, is_commit=key == b"b")
    put(log, (b"d", b"1"), producer=(8, 0, 0), is_transactional=True)
    log.add_aborted([AbortedTransaction(7, 0, 1, 2), AbortedTransaction(7, 4, 5, 6)])
    clean(log)
    assert left(log) == [(2, b"b", b"1"), (6, b"d", b"1")]


# --- files ---------------------------------------------------------------------------------------


def test_r10_small_segments_become_one_and_reads_go_on_over_the_gaps(open_log: OpenLog) -> None:
    log = open_log(**COMPACT)
    for number in range(10):
        put(log, (b"a" if number % 3 else b"%d" % number, b"%d" % number))
    clean(log)
    assert log.segment_base_offsets == (0, 10)
    assert offsets(log) == [0, 3, 6, 8, 9]
    for offset, first in ((0, 0), (1, 3), (4, 6), (7, 8), (9, 9)):
        assert parse_header(log.read(offset, 99, 1 << 20, True)).base_offset == first
    assert log.truncate_to(5) == 5
    assert offsets(log) == [0, 3]
    assert log.cleaned_to == 5


def test_r10_a_segment_of_which_nothing_is_left_goes_but_not_the_first(open_log: OpenLog) -> None:
    log = open_log(**COMPACT | {"segment_bytes": 100})
    for number in range(4):
        put(log, (b"a", b"%d" % number * 40))
    clean(log)
    assert log.segment_base_offsets == (0, 3, 4)
    assert log.log_start_offset == 0
    assert offsets(log) == [3]
    assert parse_header(log.read(0, 99, 1 << 20, True)).base_offset == 3


def test_r10_retention_goes_on_behind_a_first_segment_of_which_nothing_is_left(
    open_log: OpenLog,
) -> None:
    both = {"cleanup_policy": "compact,delete", "segment_bytes": 1, "retention_ms": 1_000}
    log = open_log(**COMPACT | both)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    clean(log)
    assert log.segment_base_offsets == (0, 1, 2)
    assert log.apply_retention(NOW_MS + 1_000, 2) == 0
    assert log.apply_retention(NOW_MS + 1_001, 2) == 2


def test_r10_a_pass_is_about_so_much_dirt_as_its_keys_have_room_for(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "DIRTY_BYTES_MAX", 150)
    log = open_log(**COMPACT)
    for number in range(5):
        put(log, (b"a", b"%d" % number))
    assert clean(log)
    assert (offsets(log), log.cleaned_to) == ([1, 2, 3, 4], 2)
    assert clean(log)
    assert (offsets(log), log.cleaned_to) == ([3, 4], 4)
    assert clean(log)
    assert (offsets(log), log.cleaned_to) == ([4], 5)


@pytest.mark.parametrize("clean_shutdown", [True, False])
def test_r10_a_cleaned_log_is_the_same_after_a_restart(
    open_log: OpenLog, clean_shutdown: bool
) -> None:
    log = open_log(**COMPACT)
    for number in range(6):
        put(log, (b"%d" % (number % 2), b"%d" % number))
    clean(log)
    log.flush()
    log.close()
    before = left(log)
    again = open_log(0, clean_shutdown, **COMPACT)
    assert left(again) == before
    assert (again.log_start_offset, again.log_end_offset) == (0, 6)
    # The newest time of a batch is in the index, too.
    assert again.offset_for_timestamp(NOW_MS) == (NOW_MS, 4)


@pytest.mark.parametrize("gone", [0, 1, 3])
def test_r10_a_crash_while_segments_are_replaced_loses_nothing(
    open_log: OpenLog, gone: int
) -> None:
    log = open_log(**COMPACT)
    for number in range(4):
        put(log, (b"%d" % (number % 2), b"%d" % number))
    cleaning = begun(log)
    [cleaned] = cleaning.run()
    log.flush()
    log.close()
    assert offsets(open_log(log.log_end_offset, **COMPACT)) == [0, 1, 2, 3]
    assert not cleaned.path.exists()  # nobody has put it into place
    [cleaned] = cleaning.run()
    cleaned.path.rename(cleaned.path.with_suffix(".swap"))
    for number in range(gone):
        (log.directory / f"{number + 1:020d}.log").unlink()
    again = open_log(log.log_end_offset, **COMPACT)
    assert offsets(again) == [2, 3]
    assert again.segment_base_offsets == (0, 4)
    assert not list(log.directory.glob("*.swap"))


def test_r10_no_segment_goes_because_the_one_before_it_is_damaged(open_log: OpenLog) -> None:
    log = open_log(**COMPACT)
    for number in range(4):
        put(log, (b"%d" % number, b"%d" % number))
    log.flush()
    log.close()
    with (log.directory / "00000000000000000000.log").open("r+b") as file:
        file.seek(3)  # of its base offset, which no checksum covers
        file.write(b"\x01")
    assert open_log(log.log_end_offset, **COMPACT).segment_base_offsets == (0, 1, 2, 3, 4)


def test_r10_a_pass_over_a_log_that_was_cut_meanwhile_is_in_vain(open_log: OpenLog) -> None:
    log = open_log(**COMPACT)
    for number in range(3):
        put(log, (b"a", b"%d" % number))
    cleaning = begun(log)
    cleaned = cleaning.run()
    log.truncate_to(2)
    assert not log.end_cleaning(cleaning, cleaned)
    assert offsets(log) == [0, 1]
    assert not any(one.path.exists() for one in cleaned)


def test_r10_a_pass_over_segments_that_were_deleted_meanwhile_is_in_vain(
    open_log: OpenLog,
) -> None:
    log = open_log(**COMPACT)
    for number in range(3):
        put(log, (b"a", b"%d" % number))
    cleaning = begun(log)
    log.delete_records_before(1)
    with pytest.raises(FileNotFoundError):
        cleaning.run()
    assert not log.is_current(cleaning)


def test_r10_how_far_a_log_is_clean_outlives_a_restart_and_goes_with_the_log(
    tmp_path: Path,
) -> None:
    path = tmp_path / "logs"
    compacted = {"log.cleanup.policy": "compact"}
    directory = LogDirectory.open(path, 0, compacted, clock=lambda: NOW_MS)
    log = directory.create_log(TP)
    put(log, (b"a", b"1"))
    clean(log)
    directory.checkpoint_cleaned()
    directory.shutdown()
    again = LogDirectory.open(path, 0, compacted, clock=lambda: NOW_MS)
    assert again.logs[TP].cleaned_to == 1
    again.delete_log(TP)
    assert checkpoints.read_offsets(path / checkpoints.CLEANED) == {}
    again.shutdown()


def test_r10_the_aborted_transactions_of_a_merged_segment_are_in_its_index(
    open_log: OpenLog,
) -> None:
    log = open_log(**COMPACT)
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"), producer=(7, 0, 0), is_transactional=True)
    put_marker(log, 7, is_commit=False)
    log.add_aborted([AbortedTransaction(7, 1, 2, 3)])
    clean(log)
    assert sorted(path.name for path in log.directory.glob("*.txnindex")) == [
        "00000000000000000000.txnindex"
    ]
    assert log.aborted_within(0, 3) == (AbortedTransaction(7, 1, 2, 3),)


# --- anything ------------------------------------------------------------------------------------


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=4),
        min_size=1,
        max_size=25,
    ),
    st.sets(st.integers(0, 25)),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_r10_whatever_is_written_the_newest_of_each_key_is_left(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[int, bool]]],
    cleaned_after: set[int],
    is_reopened: bool,
) -> None:
    directory = tmp_path_factory.mktemp("any") / "t-0"
    config = LogConfig(cleanup_policy="compact", segment_bytes=250, delete_retention_ms=1 << 40)

    def opened(recovery_point: int = 0) -> Log:
        return Log.open(
            directory, TopicPartition("t", 0), config, recovery_point, clock=lambda: NOW_MS
        )

    log = opened()
    written: Kept = []
    for number, keys in enumerate(batches):
        kept: list[KeyAndValue] = [
            (b"%d" % key, b"%d" % number if has_value else None) for key, has_value in keys
        ]
        written += [
            (log.log_end_offset + place, key, value) for place, (key, value) in enumerate(kept)
        ]
        put(log, *kept, roll=False)
        if number in cleaned_after:
            clean(log)
            if is_reopened:
                log.flush()
                log.close()
                log = opened(log.recovery_point)
    found = left(log)
    newest = {key: (offset, key, value) for offset, key, value in written}
    assert set(found) <= set(written)
    assert [offset for offset, _, _ in found] == sorted(offset for offset, _, _ in found)
    assert set(newest.values()) <= set(found)
    assert log.log_end_offset == len(written)
    log.close()
