"""Record batches v2: what is refused, what is written in place, what the records are."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.storage.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    TruncatedBatchError,
    UnsupportedCompressionError,
)
from neaptide.clusters.broker.storage.record_batch import (
    HEADER_SIZE,
    assign,
    parse_batches,
    records,
    validate_produced,
    with_append_time,
)
from tests.storage.batches import COMPRESSIONS, NOW_MS, batch


def test_headers_name_offsets_sizes_and_epochs() -> None:
    first, second = batch(5, [b"a", b"b"], epoch=3), batch(7, [b"c"], epoch=4)
    headers = parse_batches(first + second)
    assert [(h.base_offset, h.last_offset, h.next_offset) for h in headers] == [
        (5, 6, 7),
        (7, 7, 8),
    ]
    assert [h.size for h in headers] == [len(first), len(second)]
    assert [h.leader_epoch for h in headers] == [3, 4]
    assert headers[0].max_timestamp == NOW_MS + 1


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_p6_records_come_out_of_every_compression_type(compression: str) -> None:
    values = [b"one", None, b"drei", b"x" * 5000]
    data = batch(10, values, compression=compression)
    (header,) = parse_batches(data)
    found = list(records(data, 0, header))
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == [10, 11, 12, 13]
    assert [record.timestamp_ms for record in found] == [NOW_MS + i for i in range(4)]
    assert {record.key for record in found} == {b"k"}


def test_p3_every_flipped_bit_behind_the_checksum_is_seen() -> None:
    sound = batch(0, [b"value"])
    for position in range(17, len(sound)):
        broken = bytearray(sound)
        broken[position] ^= 0x40
        with pytest.raises(CorruptBatchError):
            parse_batches(bytes(broken))
    assert parse_batches(sound)


def test_every_shorter_prefix_is_truncated() -> None:
    sound = batch(0, [b"value"])
    for length in range(1, len(sound)):
        with pytest.raises(TruncatedBatchError):
            parse_batches(sound[:length])
    assert parse_batches(b"") == []


def test_p3_a_batch_over_the_limit_is_too_large_and_one_at_the_limit_is_not() -> None:
    data = batch(0, [b"value"])
    with pytest.raises(BatchTooLargeError) as refused:
        parse_batches(data, max_batch_size=len(data) - 1)
    assert refused.value.kafka_error == "MESSAGE_TOO_LARGE"
    assert len(parse_batches(data, max_batch_size=len(data))) == 1


@pytest.mark.parametrize("magic", [0, 1, 3, 127])
def test_another_magic_is_refused(magic: int) -> None:
    data = bytearray(batch(0, [b"value"]))
    data[16] = magic
    with pytest.raises(CorruptBatchError, match="magic"):
        parse_batches(bytes(data))


def test_assigned_offsets_and_epoch_leave_checksum_and_records_alone() -> None:
    data = bytearray(batch(0, [b"a", b"b"]) + batch(0, [b"c"]))
    headers = assign(data, 100, 7)
    assert parse_batches(data) == headers
    assert [(h.base_offset, h.leader_epoch) for h in headers] == [(100, 7), (102, 7)]
    assert [r.offset for r in records(data, 0, headers[0])] == [100, 101]


def test_a_log_append_time_holds_for_all_records_and_is_checksummed() -> None:
    produced = batch(0, [b"a", b"b"], compression="gzip")
    data = with_append_time(produced, parse_batches(produced)[0], NOW_MS + 77)
    (header,) = parse_batches(data)
    assert header.max_timestamp == NOW_MS + 77
    assert {r.timestamp_ms for r in records(data, 0, header)} == {NOW_MS + 77}


def test_what_a_producer_may_not_send() -> None:
    (sound,) = parse_batches(batch(0, [b"a", b"b"]))
    validate_produced(sound)
    for wrong in (
        sound._replace(record_count=3),
        sound._replace(record_count=0, last_offset_delta=-1),
        sound._replace(attributes=0x20),
        sound._replace(producer_id=5, base_sequence=-1),
    ):
        with pytest.raises(InvalidRecordError):
            validate_produced(wrong)


def test_records_that_lie_about_their_lengths_are_corrupt() -> None:
    data = bytearray(batch(0, [b"value"]))
    (header,) = parse_batches(bytes(data))
    data[HEADER_SIZE] = 0x7E
    with pytest.raises(CorruptBatchError):
        list(records(bytes(data), 0, header))


def test_an_unknown_compression_type_is_named() -> None:
    data = batch(0, [b"value"])
    (header,) = parse_batches(data)
    with pytest.raises(UnsupportedCompressionError, match="7"):
        list(records(data, 0, header._replace(attributes=7)))
