"""What is on disk, or comes from a producer, costs itself alone (A10)."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import cramjam
import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OffsetAndMetadata,
    OffsetCommitRecord,
)
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage import open_files
from neaptide.clusters.broker.storage.compression import decompress
from neaptide.clusters.broker.storage.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    RecordBatchError,
)
from neaptide.clusters.broker.storage.group_records import encode, groups_of
from neaptide.clusters.broker.storage.record_batch import assign, parse_batches
from neaptide.clusters.broker.storage.record_writer import record_batch
from tests.hardening.poison import INT32_MAX, ONE, SOUND, sealed
from tests.storage.batches import COMPRESSIONS, NOW_MS, batch, with_headers
from tests.storage.conftest import OpenLog

T0 = TopicPartition("t", 0)
V2_1 = GENERATIONS["2.1"]
DAY_MS = 24 * 3_600_000


# --- decompression --------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [name for name in COMPRESSIONS if name != "none"])
def test_a10_records_are_decompressed_up_to_a_limit(compression: str) -> None:
    number, compress = COMPRESSIONS[compression]
    data = memoryview(compress(bytes(1_000_000)))
    assert decompress(number, data, 1_000_000) == bytes(1_000_000)
    with pytest.raises(BatchTooLargeError):
        decompress(number, data, 999_999)


def test_a10_a_bomb_of_zstd_is_too_large_however_small_it_is() -> None:
    """Six kilobytes for two hundred million zeros."""
    bomb = bytes(cramjam.zstd.compress(bytes(200_000_000)))
    assert len(bomb) < 20_000
    with pytest.raises(BatchTooLargeError):
        decompress(4, memoryview(bomb))


def test_a10_a_size_that_snappy_only_claims_is_not_believed() -> None:
    claims = b"\xff\xff\xff\xff\x0f" + b"\x00" * 20
    with pytest.raises(BatchTooLargeError):
        decompress(2, memoryview(claims))


@pytest.mark.parametrize("compression", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x01\x02\x03" * 20, b"\x82SNAPPY\x00" + b"\x01" * 9]
)
def test_a10_what_is_not_compressed_is_corrupt_or_nothing(compression: int, data: bytes) -> None:
    try:
        assert decompress(compression, memoryview(data)) == b""
    except CorruptBatchError:
        pass
    except BatchTooLargeError:
        assert compression == 2


# --- files ----------------------------------------------------------------------------------------


def _open_files(directory: Path) -> int:
    links = Path("/proc/self/fd")
    found = 0
    for link in links.iterdir():
        try:
            found += str(directory) in os.readlink(link)
        except FileNotFoundError:  # the directory's own
            continue
    return found


def test_a10_batches_eight_days_apart_do_not_use_up_the_files(
    open_log: OpenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment each, as in Kafka, and few of them open; all can be read, also after a restart."""
    monkeypatch.setattr(open_files, "most", lambda: 8)
    log = open_log()
    for number in range(40):
        data = batch(number, [b"x"], timestamp=NOW_MS + number * 8 * DAY_MS)
        log.append(*with_headers(data))
        assert _open_files(tmp_path) <= 8
    assert len(log.segment_base_offsets) == 40
    assert [h.base_offset for h in log.snapshot().headers()] == list(range(40))
    assert all(parse_batches(log.read(number, 40, 1, True)) for number in range(40))
    assert log.truncate_to(20) == 20
    log.flush()
    log.close()
    again = open_log(recovery_point=10)
    assert again.log_end_offset == 20
    assert _open_files(tmp_path) <= 8
    again.close()
    assert _open_files(tmp_path) == 0


# --- poison that is in a log already --------------------------------------------------------------


def test_a10_offsets_that_an_index_cannot_hold_have_no_entry(open_log: OpenLog) -> None:
    """Two batches of 2^31-1 records each in one segment: rolled, closed and opened again."""
    poison = sealed(ONE, last_offset_delta=INT32_MAX - 1, count=INT32_MAX)
    data = bytearray(poison + poison)
    log = open_log(index_interval_bytes=0)
    log.append(data, assign(data, 0, 0))
    end = log.log_end_offset
    assert end == 2 * INT32_MAX
    tail = bytearray(SOUND)
    log.append(tail, assign(tail, end, 0))
    log.close()
    again = open_log(index_interval_bytes=0)
    assert again.log_end_offset == end + 3
    assert parse_batches(again.read(end, end + 3, 1 << 20, True))[0].base_offset == end
    again.close()


def test_a10_what_is_damaged_in_the_positions_of_groups_costs_itself_alone(
    open_log: OpenLog,
) -> None:
    def position(group: str, offset: int) -> bytes:
        one = OffsetCommitRecord(group, T0, OffsetAndMetadata(offset))
        return record_batch([encode(one, NOW_MS, V2_1)], NOW_MS)

    key, value = encode(OffsetCommitRecord("k", T0, OffsetAndMetadata(9)), NOW_MS, V2_1)
    assert key is not None
    damaged = bytearray(position("damaged", 4))
    damaged[-1] ^= 1
    log = open_log()
    for data in (
        position("first", 1),
        record_batch([(b"\x00\x01\x7f\xff", b"")], NOW_MS),  # a key that ends early
        record_batch([(key[:4] + b"\xff" + key[5:], value)], NOW_MS),  # no UTF-8
        record_batch([(key, b"\x00")], NOW_MS),  # a value that ends early
        sealed(position("codec", 2), attributes=7),
        sealed(position("zstd", 3), attributes=4),
        sealed(position("count", 3), count=9, last_offset_delta=0),
        bytes(damaged),
        record_batch([(None, None), (key, value)], NOW_MS),
        position("last", 5),
    ):
        buffer = bytearray(data)
        log.append(buffer, assign(buffer, log.log_end_offset, 0))
    found = groups_of(log.snapshot())[0]
    # Of a batch with fewer records than it counts those that are there are taken.
    assert {group: one.offset for (group, _), one in found.items()} == {
        "first": 1,
        "count": 3,
        "k": 9,
        "last": 5,
    }
    log.close()


@pytest.mark.parametrize("length", [3, -1, 1 << 20, INT32_MAX])
def test_a10_a_header_without_a_batch_is_an_error_that_says_so(
    open_log: OpenLog, tmp_path: Path, length: int
) -> None:
    log = open_log()
    log.append(*with_headers(batch(0, [b"x"])))
    log.append(*with_headers(batch(1, [b"y"])))
    [file] = (tmp_path / "t-0").glob("*.log")
    with file.open("r+b") as opened:
        opened.seek(8)
        opened.write(struct.pack(">i", length))
    with pytest.raises(RecordBatchError):
        list(log.snapshot().headers())
    with pytest.raises(RecordBatchError):
        log.batch_for_timestamp(NOW_MS, 0)
    log.close()
