"""The records of `__transaction_state`, in Kafka's format: each the state of a transactional id.

Times in the log are the wall clock's, those of the core are its own: who writes or reads says how
far they are apart. A record without a value deletes its id.
Source: TransactionLogKey.json, TransactionLogValue.json (version 0; 1 is only written where the
feature transaction.version is, which needs KRaft).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from neaptide.clusters.broker.replication.model import EndTransactionMarker, TopicPartition
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
)
from neaptide.clusters.broker.storage.internal_topics import internal_records, read_text, text
from neaptide.clusters.broker.storage.log_snapshot import LogSnapshot
from neaptide.clusters.broker.storage.record_writer import KeyAndValue

_VERSION: Final = 0
_HEAD: Final = struct.Struct(">hqhib")  # version, producer id, epoch, time-out, state
_NO_TIME: Final = -1
_STATES: Final = {state.number: state for state in TransactionState}
Named = tuple[str, TransactionMetadata | None]


def encode(metadata: TransactionMetadata, now_ms: int, clock_ms: int) -> KeyAndValue:
    """`now_ms` by the wall clock, `clock_ms` by that of the core."""
    started = metadata.started_ms
    started_ms = _NO_TIME if started < 0 else now_ms - (clock_ms - started)
    value = _HEAD.pack(
        _VERSION,
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.timeout_ms,
        metadata.state.number,
    )
    value += _encode_partitions(metadata.partitions)
    value += struct.pack(">qq", now_ms, started_ms)
    return struct.pack(">h", _VERSION) + text(metadata.transactional_id), value


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic = [
        (topic, [one.partition for one in of])
        for topic, of in groupby(sorted(partitions), lambda one: one.topic)
    ]
    if not by_topic:
        return struct.pack(">i", -1)
    data = struct.pack(">i", len(by_topic))
    for topic, numbers in by_topic:
        data += text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return data


def decode(key: bytes | None, value: bytes | None, now_ms: int, clock_ms: int) -> Named | None:
    """The id, and its state, or None where it is deleted. None where the record is no such one."""
    if key is None or struct.unpack_from(">h", key)[0] != _VERSION:
        return None
    transactional_id, _ = read_text(key, 2)
    if value is None:
        return transactional_id, None
    version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(value)
    if version != _VERSION or state not in _STATES:
        raise struct.error(f"version {version}, state {state} of a transaction")
    partitions, at = _read_partitions(value, _HEAD.size)
    _, started_ms = struct.unpack_from(">qq", value, at)
    started = -1 if started_ms < 0 else max(0, clock_ms - max(0, now_ms - started_ms))
    return transactional_id, TransactionMetadata(
        transactional_id,
        producer_id,
        epoch,
        timeout_ms,
        _STATES[state],
        tuple(sorted(partitions)),
        started,
    )


def _read_partitions(data: bytes, at: int) -> tuple[list[TopicPartition], int]:
    [topics] = struct.unpack_from(">i", data, at)
    at += 4
    found = []
    for _ in range(topics):
        topic, at = read_text(data, at)
        [count] = struct.unpack_from(">i", data, at)
        found += [TopicPartition(topic, one) for one in _numbers(data, at + 4, count)]
        at += 4 + 4 * count
    return found, at


def _numbers(data: bytes, at: int, count: int) -> tuple[int, ...]:
    if count < 0:
        raise struct.error(f"{count} partitions")
    return struct.unpack_from(f">{count}i", data, at)


def transactions_of(
    log: LogSnapshot, now_ms: int, clock_ms: int
) -> tuple[TransactionMetadata, ...]:
    """What a log says of transactional ids, from its start to its end, as far as it can be read."""
    found: dict[str, TransactionMetadata] = {}
    for _, named in internal_records(log, lambda key, value: decode(key, value, now_ms, clock_ms)):
        if isinstance(named, EndTransactionMarker):
            continue
        transactional_id, metadata = named
        if metadata is None:
            found.pop(transactional_id, None)
        else:
            found[transactional_id] = metadata
    return tuple(found.values())
