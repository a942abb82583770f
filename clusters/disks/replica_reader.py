"""What a stopped broker's replicas hold: rows for `replicas/`, and the ends of their logs.

Read-only, for our own directories and a real Kafka's, in every record format. A log may end in the
middle of a batch, as a kill or a power failure leaves it: reading stops there and says so.
"""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage import checkpoints
from neaptide.clusters.broker.storage.errors import RecordBatchError
from neaptide.clusters.broker.storage.log_directory import partition_directories
from neaptide.clusters.broker.storage.record_batch import Record
from neaptide.clusters.broker.storage.scan import scan
from neaptide.clusters.broker.storage.segment import LOG_SUFFIX
from neaptide.clusters.disks.log_entries import LogEntry, entry_records, parse_entry
from neaptide.results.record_texts import record_text, text_of

_CONTROL_KEY: Final = struct.Struct(">hh")
_MARKERS: Final[Mapping[int, str]] = {0: "abort", 1: "commit"}


class ReplicaRow(TypedDict):
    """The columns of `neaptide.results.schema.REPLICAS`."""

    broker: int
    topic: str
    partition: int
    offset: int | None
    leader_epoch: int | None
    batch_base_offset: int | None
    timestamp_ms: int | None
    key: str | None
    value: str | None
    control: bool
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None


@dataclass(frozen=True, slots=True)
class TornTail:
    """A log that stops being readable before its files end."""

    file: Path
    position: int
    unread_bytes: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.file} is torn at byte {self.position}, {self.unread_bytes} bytes were not "
            f"read: {self.reason}"
        )


def warn_torn(tail: TornTail) -> None:
    warnings.warn(str(tail), stacklevel=2)


OnTorn = Callable[[TornTail], None]


def read_replicas(
    log_directories: Sequence[Path], broker_id: int, on_torn: OnTorn = warn_torn
) -> Iterator[ReplicaRow]:
    """One row per record of every replica; an empty replica has one row without an offset."""
    for log_directory in log_directories:
        start_offsets = checkpoints.read_offsets(log_directory / checkpoints.LOG_START_OFFSETS)
        high_watermarks = checkpoints.read_offsets(log_directory / checkpoints.HIGH_WATERMARKS)
        for tp, directory in partition_directories(log_directory).items():
            yield from _replica_rows(
                directory, broker_id, tp, start_offsets.get(tp), high_watermarks.get(tp), on_torn
            )


def log_end_offsets(log_directory: Path) -> Mapping[TopicPartition, int]:
    """Up to where the files of each log go, flushed or not."""
    return {
        tp: log_end_offset(directory)
        for tp, directory in partition_directories(log_directory).items()
    }


def log_offsets(log_directory: Path, tp: TopicPartition) -> tuple[int, int] | None:
    """(log start offset, log end offset) of one replica; None: it is not there to be read.

    Its broker may be alive: a segment that it deletes meanwhile makes it unreadable once.
    """
    try:
        directory = partition_directories(log_directory).get(tp)
        if directory is None:
            return None
        start_offsets = checkpoints.read_offsets(log_directory / checkpoints.LOG_START_OFFSETS)
        files = segment_files(directory)
        first_offset = int(files[0].stem) if files else 0
        return max(first_offset, start_offsets.get(tp, 0)), log_end_offset(directory)
    except FileNotFoundError:
        return None


def segment_files(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{LOG_SUFFIX}"))


@contextmanager
def opened(file: Path) -> Iterator[tuple[int, int]]:
    """(descriptor, size) for reading."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield descriptor, os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def read_entries(file: Path, on_torn: OnTorn) -> Iterator[tuple[int, LogEntry, bytes, int]]:
    """As `scan`: (position in the file, entry, buffer, position in the buffer)."""
    end_of_entries = 0
    with opened(file) as (descriptor, size):
        try:
            for position, entry, buffer, at in scan(descriptor, size, parse_entry):
                end_of_entries = position + entry.size
                yield position, entry, buffer, at
        except RecordBatchError as error:
            on_torn(TornTail(file, end_of_entries, size - end_of_entries, str(error)))


def _entries(directory: Path, on_torn: OnTorn) -> Iterator[tuple[LogEntry, bytes, int]]:
    """The entries of a log up to its end or to where it is torn."""
    torn: list[TornTail] = []
    for file in segment_files(directory):
        for _, entry, buffer, at in read_entries(file, torn.append):
            yield entry, buffer, at
        if torn:
            on_torn(torn[0])
            return


def log_end_offset(directory: Path, on_torn: OnTorn = lambda _: None) -> int:
    """The log end offset of one replica, from its files alone."""
    end_offset = 0
    torn: list[TornTail] = []
    for file in segment_files(directory):
        end_offset = max(end_offset, int(file.stem))
        for _, entry, _, _ in read_entries(file, torn.append):
            end_offset = entry.last_offset + 1
        if torn:
            on_torn(torn[0])
            break
    return end_offset


def _replica_rows(
    directory: Path,
    broker_id: int,
    tp: TopicPartition,
    start_offset: int | None,
    high_watermark: int | None,
    on_torn: OnTorn,
) -> Iterator[ReplicaRow]:
    files = segment_files(directory)
    first_offset = int(files[0].stem) if files else 0
    log_start_offset = max(first_offset, start_offset or 0)
    end_offset = log_end_offset(directory, on_torn)

    def row(entry: LogEntry | None, base_offset: int | None, record: Record | None) -> ReplicaRow:
        control = entry is not None and entry.is_control
        if entry is not None and record is not None and control:
            key, value = _marker(entry, record)
        else:
            key = text_of(record.key) if record else None
            value = record_text(record.value, record.headers) if record else None
        return {
            "broker": broker_id,
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": record.offset if record else None,
            "leader_epoch": entry.leader_epoch if entry else None,
            "batch_base_offset": base_offset,
            "timestamp_ms": record.timestamp_ms if record and record.timestamp_ms >= 0 else None,
            "key": key,
            "value": value,
            "control": control,
            "log_start_offset": log_start_offset,
            "log_end_offset": end_offset,
            "high_watermark": high_watermark,
        }

    is_empty = True
    for entry, buffer, at in _entries(directory, lambda _: None):  # reported once, above
        base_offset = entry.base_offset
        for record in entry_records(buffer, at, entry):
            base_offset = record.offset if base_offset is None else base_offset
            if record.offset >= log_start_offset:
                is_empty = False
                yield row(entry, base_offset, record)
    if is_empty:
        yield row(None, None, None)


def _marker(entry: LogEntry, record: Record) -> tuple[str | None, str | None]:
    """Whose marker a control record is, and which. Source: KIP-98 (the key of a control record is
    its version and its type, two numbers of 16 bits)."""
    header = entry.header
    whose = f"producer {header.producer_id} epoch {header.producer_epoch}" if header else None
    key = record.key or b""
    if len(key) < _CONTROL_KEY.size:
        return whose, text_of(key)
    _, kind = _CONTROL_KEY.unpack_from(key)
    return whose, _MARKERS.get(kind, str(kind))
