"""What a power failure leaves of a broker's logs: what was flushed, or what a test has kept."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neaptide.clusters.broker.replication.model import EpochEntry
from neaptide.clusters.broker.storage import checkpoints
from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.broker.storage.log_directory import LogDirectory
from neaptide.clusters.disks.power_failure import KeepError, LostTail, power_off
from neaptide.clusters.disks.replica_reader import log_end_offsets
from tests.disks.segments import T0, T1, offsets_and_values, write_segment
from tests.storage.batches import NOW_MS, batch, message, with_headers


def broken_off(root: Path, flushed: int, written: int, segment_bytes: int) -> None:
    """A killed broker whose log was flushed up to one offset and written up to another."""
    directory = LogDirectory.open(root, 1, {"log.segment.bytes": str(segment_bytes)})
    log = directory.create_log(T0)
    for offset in range(written):
        log.append(*with_headers(batch(offset, [b"v"], epoch=offset // 3)))
        if offset == flushed - 1:
            log.flush()
    log.recovery_point = flushed  # as if no roll had flushed more
    directory.checkpoint_recovery_points()
    log._segments[-1].save_indexes()
    directory._lock.release()


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    written=st.integers(0, 12),
    data=st.data(),
    segment_batches=st.integers(1, 5),
)
def test_a_power_failure_keeps_exactly_what_was_flushed(
    tmp_path_factory: pytest.TempPathFactory,
    written: int,
    data: st.DataObject,
    segment_batches: int,
) -> None:
    root = tmp_path_factory.mktemp("logs")
    flushed = data.draw(st.integers(0, written))
    broken_off(root, flushed, written, segment_batches * len(batch(0, [b"v"])))
    assert log_end_offsets(root) == {T0: written}
    size = len(batch(0, [b"v"]))
    assert power_off(root) == {T0: LostTail(flushed, written, (written - flushed) * size)}
    expected: list[tuple[int | None, str | None]] = [(offset, "v") for offset in range(flushed)]
    expected = expected or [(None, None)]
    assert offsets_and_values(root) == expected
    epochs = checkpoints.read_epochs(root / "t-0")
    assert epochs == tuple(EpochEntry(n, 3 * n) for n in range((flushed + 2) // 3))
    again = LogDirectory.open(root, 1, {})
    assert again.logs[T0].log_end_offset == flushed
    again.shutdown()


def test_a_disk_may_have_kept_more_but_never_less(tmp_path: Path) -> None:
    broken_off(tmp_path, flushed=3, written=6, segment_bytes=10_000)
    with pytest.raises(KeepError, match="keep of t-0 is 2"):
        power_off(tmp_path, {T0: 2})
    with pytest.raises(KeepError, match="no such log"):
        power_off(tmp_path, {T1: 2})
    assert power_off(tmp_path, {T0: 5})[T0].cut_at == 5
    assert power_off(tmp_path, {T0: 99})[T0].lost_bytes == 0
    assert log_end_offsets(tmp_path) == {T0: 5}


def test_a_cut_inside_of_a_batch_takes_the_batch_in_any_format(tmp_path: Path) -> None:
    inner = b"".join(message(offset, b"in", magic=1) for offset in (0, 1))
    content = (
        message(0, b"a", magic=1)
        + message(2, gzip.compress(inner), magic=1, attributes=1)
        + batch(3, [b"b"])
    )
    write_segment(tmp_path, "t-0", 0, content)
    checkpoints.write_offsets(tmp_path / checkpoints.RECOVERY_POINTS, {T0: 2})
    assert power_off(tmp_path)[T0].cut_at == 1
    assert offsets_and_values(tmp_path) == [(0, "a")]


def test_indexes_lose_what_the_log_loses(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, 1, {"log.index.interval.bytes": "150"})
    log = directory.create_log(T0)
    for offset in range(20):
        log.append(*with_headers(batch(offset, [b"v" * 50], timestamp=NOW_MS + offset)))
    log.flush()
    stem = tmp_path / "t-0" / "00000000000000000000"
    entries = [entry for entry in log._segments[0].offset_index.entries if entry.offset < 10]
    directory._lock.release()
    power_off(tmp_path, {T0: 10})
    assert stem.with_suffix(".index").stat().st_size == 8 * len(entries) > 0
    assert stem.with_suffix(".timeindex").stat().st_size == 12 * len(entries)


def test_a_running_broker_cannot_be_powered_off(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, 1, {})
    with pytest.raises(StorageError, match="stop that one first"):
        power_off(tmp_path)
    directory.shutdown()
    assert power_off(tmp_path) == {}
