"""What a topic accepts: times that are not far off, and keys where it is compacted."""

from __future__ import annotations

import struct
import time

import pytest
from crc32c import crc32c

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface.events import ProducedBatch
from neaptide.clusters.broker.server.produced import Accepted, TooMuchAtOnceError, produced_batch
from neaptide.clusters.broker.storage.compression import NUMBERS, compress
from neaptide.clusters.broker.storage.record_batch import BatchHeader, parse_batches, records
from tests.storage.batches import COMPRESSIONS, NOW_MS, batch

HOUR_MS = 3_600_000


def error_of(records: bytes, accepted: Accepted, *, names_invalid_records: bool = True) -> Error:
    produced = produced_batch(
        records, 7, accepted, names_invalid_records=names_invalid_records, at_once=True
    )
    return produced.error


def without_time(records: bytes) -> bytes:
    """Base and largest timestamp are -1."""
    changed = bytearray(records)
    struct.pack_into(">qq", changed, 27, -1, -1)
    struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


def bytes_of(produced: ProducedBatch) -> bytes:
    assert isinstance(produced.identity, bytes)
    return produced.identity


@pytest.mark.parametrize(
    ("off_ms", "error"),
    [
        (-HOUR_MS - 1, Error.INVALID_TIMESTAMP),
        (-HOUR_MS, Error.NONE),
        (0, Error.NONE),
        (HOUR_MS, Error.NONE),
        (HOUR_MS + 1, Error.INVALID_TIMESTAMP),
    ],
)
def test_a11_a_record_is_no_further_off_than_its_topic_allows(off_ms: int, error: Error) -> None:
    accepted = Accepted(NOW_MS, before_max_ms=HOUR_MS, after_max_ms=HOUR_MS)
    assert error_of(batch(0, [b"a"], timestamp=NOW_MS + off_ms), accepted) is error


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
def test_a11_one_record_of_many_is_enough(off_ms: int) -> None:
    """The first is too old by one millisecond, or the last too new."""
    times = NOW_MS + off_ms - (1 if off_ms < 0 else 0)
    accepted = Accepted(NOW_MS, before_max_ms=HOUR_MS, after_max_ms=HOUR_MS)
    assert error_of(batch(0, [b"a", b"b"], timestamp=times), accepted) is Error.INVALID_TIMESTAMP


def test_a11_a_record_without_a_time_and_one_that_gets_another_are_accepted() -> None:
    strict = Accepted(NOW_MS, before_max_ms=0, after_max_ms=0)
    assert error_of(without_time(batch(0, [b"a"])), strict) is Error.NONE
    at_append = Accepted(NOW_MS, is_append_time=True, before_max_ms=0, after_max_ms=0)
    produced = produced_batch(
        batch(0, [b"a"], timestamp=5), 7, at_append, names_invalid_records=True, at_once=True
    )
    assert produced.error is Error.NONE
    [header] = parse_batches(bytes_of(produced))
    assert header.max_timestamp == NOW_MS


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a11_a_compacted_topic_needs_keys(compression: str) -> None:
    compacted = Accepted(NOW_MS, needs_keys=True)
    without = batch(0, [b"a"], key=None, compression=compression)
    assert error_of(without, compacted) is Error.INVALID_RECORD
    assert error_of(without, compacted, names_invalid_records=False) is Error.CORRUPT_MESSAGE
    assert error_of(batch(0, [b"a"], compression=compression), compacted) is Error.NONE
    assert error_of(without, Accepted(NOW_MS)) is Error.NONE


def test_a_batch_that_takes_long_is_not_walked_over_at_once() -> None:
    many = batch(0, [b""] * 10_001)
    with pytest.raises(TooMuchAtOnceError):
        error_of(many, Accepted(NOW_MS, needs_keys=True))


def test_an_hour_ahead_is_the_most_from_4_0_on() -> None:
    limits = {name: rules.message_timestamp_after_max_ms for name, rules in GENERATIONS.items()}
    assert limits.pop("4.0") == HOUR_MS
    assert set(limits.values()) == {2**63 - 1}


def test_a_batch_that_cannot_be_accepted_is_not_sent_again() -> None:
    """CORRUPT_MESSAGE would be tried again; before INVALID_RECORD there was nothing else."""
    cut_short = batch(0, [b"a"])[:-1]
    assert error_of(cut_short, Accepted(NOW_MS)) is Error.INVALID_RECORD
    assert (
        error_of(cut_short, Accepted(NOW_MS), names_invalid_records=False) is Error.CORRUPT_MESSAGE
    )
    damaged = bytearray(batch(0, [b"a"]))
    damaged[-1] ^= 1
    assert error_of(bytes(damaged), Accepted(NOW_MS)) is Error.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("producer", "error"), [((7, 0, 0), Error.NONE), ((-1, -1, -1), Error.INVALID_RECORD)]
)
def test_a_batch_of_a_transaction_names_its_producer(
    producer: tuple[int, int, int], error: Error
) -> None:
    changed = bytearray(batch(0, [b"a"], producer=producer))
    changed[22] |= 0b1_0000  # attributes: isTransactional
    struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    assert error_of(bytes(changed), Accepted(NOW_MS)) is error


def _without_bytes(header: BatchHeader) -> BatchHeader:
    return header._replace(length=0, attributes=0, checksum=0)


def is_as_before(before: bytes, after: bytes, compression: int) -> bool:
    """The same records, offsets, times and producer, compressed so."""
    [old], [new] = parse_batches(before), parse_batches(after)  # which looks at the checksum
    same = _without_bytes(old) == _without_bytes(new)
    assert list(records(before, 0, old)) == list(records(after, 0, new))
    assert old.attributes & ~7 == new.attributes & ~7
    return same and new.compression == compression


@pytest.mark.parametrize("after", NUMBERS)
@pytest.mark.parametrize("before", COMPRESSIONS)
def test_p6_a_topic_may_have_its_batches_compressed_otherwise(before: str, after: str) -> None:
    """Also where the records are many snappy blocks."""
    producer = 7, 1, 3
    sound = batch(0, [b"a" * 40_000, b"b", None], compression=before, producer=producer)
    accepted = Accepted(NOW_MS, compression=NUMBERS[after])
    made = produced_batch(sound, 7, accepted, names_invalid_records=True, at_once=True)
    assert made.error is Error.NONE
    assert made.size == len(bytes_of(made))
    assert is_as_before(sound, bytes_of(made), NUMBERS[after])
    kept = produced_batch(sound, 7, Accepted(NOW_MS), names_invalid_records=True, at_once=True)
    assert bytes_of(kept) == sound


def test_p6_to_compress_much_is_not_done_at_once() -> None:
    much = batch(0, [b"x" * 200_000])
    with pytest.raises(TooMuchAtOnceError):
        error_of(much, Accepted(NOW_MS, compression=NUMBERS["gzip"]))
    assert error_of(much, Accepted(NOW_MS, compression=NUMBERS["uncompressed"])) is Error.NONE


@pytest.mark.parametrize("compression", NUMBERS.values())
def test_p6_nothing_of_the_machines_clock_is_in_what_is_compressed(
    monkeypatch: pytest.MonkeyPatch, compression: int
) -> None:
    made = []
    for now_s in (1e9, 2e9):
        monkeypatch.setattr(time, "time", lambda now_s=now_s: now_s)
        made.append(compress(compression, b"records" * 9))
    assert made[0] == made[1]
