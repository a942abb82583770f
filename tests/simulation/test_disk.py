"""F8: logs with gaps on the simulated disks, as on real ones; what a power failure takes."""

from __future__ import annotations

from typing import Any

import pytest

from neaptide.clusters.broker.replication.interface.effects import LogSlice
from neaptide.clusters.broker.replication.model import Batch, TopicPartition
from neaptide.clusters.simulation.disk import Disk, SimulatedLog

TP = TopicPartition("t", 0)


def with_gaps(**settings: Any) -> SimulatedLog:
    """Offsets 0, 1, 4, 5, 9."""
    log = SimulatedLog(**settings)
    log.append(tuple(Batch(offset, 1, 0, 100, f"m{offset}") for offset in (0, 1, 4, 5, 9)))
    return log


def bases(log: SimulatedLog) -> list[int]:
    return [batch.base_offset for batch in log.batches]


@pytest.mark.parametrize(("offset", "found"), [(1, 1), (2, 4), (3, 4), (4, 4), (6, 9), (9, 9)])
def test_f8_what_lies_behind_a_gap_is_read_from_offsets_in_it_in_the_simulation(
    offset: int, found: int
) -> None:
    log = with_gaps()
    [batch], _ = log.read(LogSlice(offset, 10, 1), 1, at_least_one=True)
    assert batch.base_offset == found
    assert log.read(LogSlice(offset, found, 1), 1, at_least_one=True)[0] == ()


@pytest.mark.parametrize(("offset", "left"), [(3, [0, 1]), (4, [0, 1]), (8, [0, 1, 4, 5])])
def test_f8_a_cut_in_a_gap_ends_there_until_the_simulated_broker_starts_again(
    offset: int, left: list[int]
) -> None:
    disk = Disk()
    log = disk.logs[TP] = with_gaps()
    log.cut(offset)
    assert (bases(log), log.end_offset) == (left, offset)
    with pytest.raises(AssertionError, match="below"):
        log.append((Batch(offset - 1, 1, 0, 100, "below"),))
    assert disk.stored()[TP].log.end_offset == log.end_offset == left[-1] + 1


def test_f8_a_cut_inside_a_batch_ends_before_it_in_the_simulation() -> None:
    log = SimulatedLog()
    log.append((Batch(0, 1, 0, 100, "m0"), Batch(4, 3, 0, 100, ("m4", "m5", "m6"))))
    log.cut(5)
    assert (bases(log), log.end_offset) == ([0], 4)


@pytest.mark.parametrize(("high_watermark", "start"), [(3, 0), (4, 4), (8, 4), (9, 9)])
def test_f8_r9_a_simulated_segment_goes_when_the_high_watermark_has_passed_the_gap_behind_it(
    high_watermark: int, start: int
) -> None:
    log = with_gaps(segment_bytes=200, retention_bytes=1)
    log.retain(high_watermark)
    assert log.start_offset == start


@pytest.mark.parametrize("flushed", [0, 5])
def test_a_log_ends_where_it_starts_if_a_power_failure_takes_all_that_retention_left(
    flushed: int,
) -> None:
    """As Kafka has it, whose log start offset outlives the records behind it."""
    disk = Disk()
    log = disk.logs[TP] = with_gaps()
    log.recovery_point = flushed
    log.advance_start(4)
    disk.lose_page_cache({})
    assert (log.start_offset, log.end_offset) == (4, 5 if flushed else 4)
    assert bases(log) == ([4] if flushed else [])
