"""F8: logs with gaps between their offsets, as compaction leaves them at a leader."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.model import EpochEntry
from neaptide.clusters.broker.storage.config import LogConfig
from neaptide.clusters.broker.storage.errors import UnexpectedAppendOffsetError
from neaptide.clusters.broker.storage.log import Log
from neaptide.clusters.broker.storage.record_batch import parse_batches
from tests.storage.batches import NOW_MS, batch, with_headers
from tests.storage.conftest import OpenLog


def with_gaps(open_log: OpenLog, segment_bytes: int = 1 << 20) -> Log:
    """Offsets 0, 1, 4, 5, 9; the epochs 0 and, from 4 on, 3."""
    log = open_log(segment_bytes=segment_bytes)
    for offset in (0, 1, 4, 5, 9):
        epoch = 3 if offset >= 4 else 0
        log.append(*with_headers(batch(offset, [b"v" * 50], epoch=epoch)))
    return log


def bases(data: bytes) -> list[int]:
    return [header.base_offset for header in parse_batches(data)]


TWO_BATCHES = 2 * len(batch(0, [b"v" * 50]))
in_one_segment_or_more = pytest.mark.parametrize("segment_bytes", [1 << 20, TWO_BATCHES])


@in_one_segment_or_more
def test_f8_what_lies_behind_a_gap_is_read_from_offsets_in_it(
    open_log: OpenLog, segment_bytes: int
) -> None:
    log = with_gaps(open_log, segment_bytes)
    assert log.log_end_offset == 10
    for offset, found in ((1, 1), (2, 4), (3, 4), (4, 4), (6, 9), (8, 9), (9, 9)):
        assert bases(log.read(offset, 10, 1, min_one_batch=True)) == [found]
        assert log.read(offset, found, 1 << 20, min_one_batch=True) == b""
    assert log.epochs.entries == (EpochEntry(0, 0), EpochEntry(3, 4))


@in_one_segment_or_more
@pytest.mark.parametrize(("offset", "left"), [(3, [0, 1]), (4, [0, 1]), (8, [0, 1, 4, 5])])
def test_f8_a_cut_in_a_gap_ends_there_until_the_log_is_opened_again(
    open_log: OpenLog, segment_bytes: int, offset: int, left: list[int]
) -> None:
    log = with_gaps(open_log, segment_bytes)
    assert log.truncate_to(offset) == log.log_end_offset == offset
    read = [log.read(at, offset, 1 << 20, min_one_batch=True) for at in log.segment_base_offsets]
    assert [one for data in read for one in bases(data)] == left
    with pytest.raises(UnexpectedAppendOffsetError):
        log.append(*with_headers(batch(offset - 1, [b"below"])))
    log.close()
    again = open_log(segment_bytes=segment_bytes)
    assert again.log_end_offset == max(left[-1] + 1, log.segment_base_offsets[-1])


@in_one_segment_or_more
def test_f8_gaps_are_no_damage_to_a_recovery(open_log: OpenLog, segment_bytes: int) -> None:
    log = with_gaps(open_log, segment_bytes)
    log.close()
    again = open_log(segment_bytes=segment_bytes)
    assert again.segment_base_offsets == log.segment_base_offsets
    assert again.log_end_offset == 10
    assert bases(again.read(6, 10, 1 << 20, min_one_batch=True)) == [9]
    assert again.epochs.entries == (EpochEntry(0, 0), EpochEntry(3, 4))


@pytest.mark.parametrize(("high_watermark", "start"), [(3, 0), (4, 4), (8, 4), (9, 9)])
def test_f8_r9_a_segment_goes_when_the_high_watermark_has_passed_the_gap_behind_it(
    open_log: OpenLog, high_watermark: int, start: int
) -> None:
    """Otherwise the log would start above the high watermark."""
    log = with_gaps(open_log, TWO_BATCHES)
    assert log.segment_base_offsets == (0, 4, 9)
    log.reconfigure(LogConfig(segment_bytes=TWO_BATCHES, retention_bytes=1))
    assert log.apply_retention(NOW_MS, high_watermark) == start
