"""Reading a stopped broker's replicas: rows, formats, torn tails."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from neaptide.clusters.broker.storage import checkpoints
from neaptide.clusters.broker.storage.log_directory import LogDirectory
from neaptide.clusters.disks.replica_reader import TornTail, read_replicas
from neaptide.results.schema import REPLICAS
from tests.disks.segments import T0, T1, offsets_and_values, write_segment
from tests.storage.batches import COMPRESSIONS, NOW_MS, batch, message, with_headers


def test_rows_have_the_columns_of_the_schema(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, 3, {})
    log = directory.create_log(T0)
    log.append(*with_headers(batch(0, [b"a", "\N{SNOWMAN}".encode()], epoch=2)))
    log.append(*with_headers(batch(2, [b"\xff\x00", None], epoch=4, key=None)))
    directory.create_log(T1)
    directory.write_high_watermarks({T0: 3})
    directory.shutdown()
    rows = list(read_replicas([tmp_path], 3))
    pa.Table.from_pylist(rows, schema=REPLICAS).validate(full=True)
    assert rows[1] == {
        "broker": 3,
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "leader_epoch": 2,
        "batch_base_offset": 0,
        "timestamp_ms": NOW_MS + 1,
        "key": "k",
        "value": "\N{SNOWMAN}",
        "control": False,
        "log_start_offset": 0,
        "log_end_offset": 4,
        "high_watermark": 3,
    }
    assert [row["value"] for row in rows[2:4]] == ["hex:ff00", None]
    empty = rows[4]
    assert (empty["partition"], empty["offset"], empty["log_end_offset"]) == (1, None, 0)
    assert len(rows) == 5


@pytest.mark.parametrize(
    ("key", "value"), [(b"\0\0\0\0", "abort"), (b"\0\0\0\1", "commit"), (b"\0\0\0\2", "2")]
)
def test_control_records_say_whose_marker_they_are_and_which(
    tmp_path: Path, key: bytes, value: str
) -> None:
    control = batch(0, [b"\0\0\0\0\0\1"], attributes=0x30, key=key)
    write_segment(tmp_path, "t-0", 0, control)
    (row,) = read_replicas([tmp_path], 1)
    assert (row["control"], row["key"], row["value"]) == (True, "producer -1 epoch -1", value)


def test_records_below_the_log_start_offset_are_gone(tmp_path: Path) -> None:
    write_segment(tmp_path, "t-0", 0, batch(0, [b"a", b"b", b"c"]))
    checkpoints.write_offsets(tmp_path / checkpoints.LOG_START_OFFSETS, {T0: 2})
    (row,) = read_replicas([tmp_path], 1)
    assert (row["offset"], row["log_start_offset"]) == (2, 2)


def test_a_kraft_brokers_metadata_and_doomed_directories_are_no_replicas(tmp_path: Path) -> None:
    for name in ("__cluster_metadata-0", "t-0.0123abcd-delete", "t-0.0123abcd-future", "t-1"):
        write_segment(tmp_path, name, 0, batch(0, [b"a"]))
    assert [row["partition"] for row in read_replicas([tmp_path], 1)] == [1]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_p6_compressed_batches_are_read(tmp_path: Path, compression: str) -> None:
    write_segment(tmp_path, "t-0", 0, batch(0, [b"a", b"b"], compression=compression))
    assert offsets_and_values(tmp_path) == [(0, "a"), (1, "b")]


def test_formats_v0_and_v1_are_read_with_their_compressed_sets(tmp_path: Path) -> None:
    v0_set = b"".join(message(offset, b"in0", magic=0) for offset in (1, 2))
    v1_set = b"".join(message(offset, b"in1", magic=1, timestamp=offset) for offset in (0, 1))
    content = (
        message(0, b"plain", magic=0)
        + message(2, gzip.compress(v0_set), magic=0, attributes=1)
        + message(3, b"stamped", magic=1, key=b"k")
        + message(5, gzip.compress(v1_set), magic=1, attributes=1)
        + batch(6, [b"new"], epoch=9)
    )
    write_segment(tmp_path, "t-0", 0, content)
    rows = list(read_replicas([tmp_path], 1))
    assert [(row["offset"], row["value"]) for row in rows] == [
        (0, "plain"),
        (1, "in0"),
        (2, "in0"),
        (3, "stamped"),
        (4, "in1"),
        (5, "in1"),
        (6, "new"),
    ]
    assert [row["leader_epoch"] for row in rows] == [None] * 6 + [9]
    assert [row["batch_base_offset"] for row in rows] == [0, 1, 1, 3, 4, 4, 6]
    assert [row["timestamp_ms"] for row in rows[:4]] == [None, None, None, NOW_MS]
    assert [row["timestamp_ms"] for row in rows[4:]] == [0, 1, NOW_MS]


@pytest.mark.parametrize("last", [batch(1, [b"b"]), message(1, b"b", magic=1)], ids=["v2", "v1"])
def test_reading_stops_at_a_torn_tail_and_says_so(tmp_path: Path, last: bytes) -> None:
    whole = batch(0, [b"a"])
    for length in range(1, len(last)):
        file = write_segment(tmp_path, "t-0", 0, whole + last[:length])
        torn: list[TornTail] = []
        rows = list(read_replicas([tmp_path], 1, torn.append))
        assert [(row["offset"], row["log_end_offset"]) for row in rows] == [(0, 1)]
        assert [(t.file, t.position, t.unread_bytes) for t in torn] == [(file, len(whole), length)]
    write_segment(tmp_path, "t-0", 0, whole + last)
    assert offsets_and_values(tmp_path) == [(0, "a"), (1, "b")]  # and no warning
