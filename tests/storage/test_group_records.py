"""G3: positions of groups in Kafka's own record format, and what a log of them says."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OffsetAndMetadata,
    OffsetCommitRecord,
)
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage.group_records import decode, encode, groups_of
from neaptide.clusters.broker.storage.record_batch import assign, parse_batches, records
from neaptide.clusters.broker.storage.record_writer import record_batch
from tests.storage.batches import batch
from tests.storage.conftest import OpenLog

T0 = TopicPartition("t", 0)
OLD, NEW = GENERATIONS["2.0"], GENERATIONS["2.1"]
NOW_MS = 1_700_000_000_000


def _log(open_log: OpenLog, *committed: OffsetCommitRecord) -> dict[object, object]:
    log = open_log()
    for offset, one in enumerate(committed):
        data = bytearray(record_batch([encode(one, NOW_MS, NEW)], NOW_MS))
        log.append(data, assign(data, offset, 0))
    return dict(groups_of(log.snapshot())[0])


@pytest.mark.parametrize("with_epoch", [True, False])
@given(
    group=st.text(max_size=20),
    offset=st.integers(0, 2**63 - 1),
    epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=20),
)
def test_g3_what_is_written_is_read(
    group: str, offset: int, epoch: int, metadata: str, with_epoch: bool
) -> None:
    position = OffsetAndMetadata(offset, epoch if with_epoch else -1, metadata)
    committed = OffsetCommitRecord(group, T0, position)
    assert decode(*encode(committed, NOW_MS, NEW if with_epoch else OLD)) == committed


def test_g3_the_bytes_are_those_of_kafka() -> None:
    """Versions 1 of the key, 3 of the value: by Kafka's OffsetCommitKey and OffsetCommitValue."""
    key, value = encode(OffsetCommitRecord("g", T0, OffsetAndMetadata(7, 2, "m")), 5, NEW)
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000000")
    assert value == bytes.fromhex("0003 0000000000000007 00000002 0001 6d 0000000000000005")
    _, older = encode(OffsetCommitRecord("g", T0, OffsetAndMetadata(7, 2, "m")), 5, OLD)
    assert older is not None
    assert older[:13] == bytes.fromhex("0001 0000000000000007 0001 6d")


def test_g3_a_record_without_value_deletes_a_position() -> None:
    committed = OffsetCommitRecord("g", T0, None)
    assert decode(*encode(committed, NOW_MS, NEW)) == committed


@pytest.mark.parametrize("key", [None, b"\x00\x10\x00\x01g"], ids=["no key", "of a newer kind"])
def test_g3_other_records_say_nothing_of_groups(key: bytes | None) -> None:
    assert decode(key, b"anything") is None


@pytest.mark.parametrize("key", [b"\x00", b"\x00\x01\x00\x09g", b"\x00\x01\xff\xffg"])
def test_g3_a_record_that_ends_early_is_not_understood(key: bytes) -> None:
    with pytest.raises(struct.error):
        decode(key, None)


def test_g3_a_log_says_the_last_position_of_each_group(open_log: OpenLog) -> None:
    g1, g2 = (
        OffsetCommitRecord("g", T0, OffsetAndMetadata(1)),
        OffsetCommitRecord("g", T0, OffsetAndMetadata(2)),
    )
    h = OffsetCommitRecord("h", T0, OffsetAndMetadata(9))
    assert _log(open_log, g1, h, g2) == {
        ("g", T0): OffsetAndMetadata(2),
        ("h", T0): OffsetAndMetadata(9),
    }


def test_a_batch_of_our_own_is_sound() -> None:
    data = record_batch([(b"k", b"v"), (None, None)], NOW_MS)
    [header] = parse_batches(data)
    assert (header.record_count, header.offset_count, header.producer_id) == (2, 2, -1)
    found = list(records(data, 0, header))
    assert [(one.offset, one.timestamp_ms, one.key, one.value) for one in found] == [
        (0, NOW_MS, b"k", b"v"),
        (1, NOW_MS, None, None),
    ]


def test_a_batch_of_our_own_is_what_kio_writes() -> None:
    ours = bytearray(record_batch([(b"k", b"a")], NOW_MS))
    assign(ours, 0, 0)
    assert bytes(ours) == batch(0, [b"a"], timestamp=NOW_MS)
