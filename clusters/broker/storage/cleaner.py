"""Compaction: what a log keeps of its records when it is cleaned, and the segments that this makes.

Of each key the newest record stays. A newest one without a value (a tombstone) stays until
`delete.retention.ms` has passed since what was cleaned before was written; so does a marker of a
transaction of which nothing is left. What was aborted goes. Offsets stay what they were, and the
last batch of each producer stays without records, so that its sequence numbers go on.
A pass looks at the dirty segments to know the newest offset of each key, then writes all segments
up to there anew, small ones together. Nothing here changes a log: see `Log.end_cleaning`.
As Kafka's LogCleaner and Cleaner; segments' ages by the times of their files (as up to 3.0).
Source: "Log Compaction" in Kafka's documentation, KIP-58 (min.compaction.lag.ms), KIP-98.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.transactions import AbortedTransaction
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.broker.storage.indexes import MAX_RELATIVE_OFFSET
from neaptide.clusters.broker.storage.record_batch import (
    BatchHeader,
    Record,
    parse_header,
    raw_records,
    records,
    validate_checksum,
    with_records,
)
from neaptide.clusters.broker.storage.scan import scan

CLEANED_SUFFIX: Final = ".cleaned"  # until it is whole
SWAP_SUFFIX: Final = ".swap"  # while it takes the place of others
NewestOffsets = Mapping[bytes, int]
Aborted = Mapping[int, Sequence[AbortedTransaction]]  # by producer id


class Source(NamedTuple):
    """A segment as it is; `modified_ns`: when its file was last written."""

    base_offset: int
    next_offset: int
    path: Path
    size: int
    modified_ns: int


class LastOfProducer(NamedTuple):
    """Where a producer's last batch with data ends; None: its last batch is a marker."""

    last_offset: int | None
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleanedSegment:
    """What took the place of these sources: a file, or nothing where nothing of them is left."""

    sources: tuple[Source, ...]
    path: Path
    headers: tuple[BatchHeader, ...]


@dataclass(frozen=True, slots=True)
class Cleaning:
    """One pass over a log up to `end_offset`; dirty from `first_dirty_offset` on.

    `cuts`: how often the log had been cut when this began. `markers_have_keys`: a marker goes where
    a later record has its key, whatever is left of its transaction (KAFKA-14055).
    """

    topic_partition: TopicPartition
    sources: tuple[Source, ...]
    first_dirty_offset: int
    end_offset: int
    segment_bytes: int
    delete_retention_ms: int
    aborted: Aborted
    producers: Mapping[int, LastOfProducer]
    cuts: int
    markers_have_keys: bool = False

    def run(self) -> tuple[CleanedSegment, ...]:
        """Writes the new segments beside the old ones, flushed; by any thread.

        Raises StorageError, FileNotFoundError where a segment was deleted meanwhile, and
        RecordBatchError where what is on disk is no batch.
        """
        try:
            one = _Pass(self, self._newest_offsets(), self._horizon_ns())
            return tuple(map(one.clean, group_segments(self.sources, self.segment_bytes)))
        except FileNotFoundError:
            raise
        except OSError as error:
            directory = self.sources[0].path.parent
            raise StorageError(directory.parent, str(error)) from error

    def _newest_offsets(self) -> NewestOffsets:
        newest: dict[bytes, int] = {}
        for source in self.sources:
            if source.next_offset <= self.first_dirty_offset:
                continue
            for header, data, at in _batches(source):
                if header.is_control or is_aborted(header, self.aborted):
                    continue
                for record in records(data, at, header):
                    if record.key is not None and record.offset >= self.first_dirty_offset:
                        newest[record.key] = record.offset
        return newest

    def _horizon_ns(self) -> int:
        """A tombstone, or a marker, in a file that is not younger may go.

        It is as old as the newest of what was cleaned before, less `delete.retention.ms`: whoever
        has read from the beginning until then has seen it.
        """
        clean = [one for one in self.sources if one.next_offset <= self.first_dirty_offset]
        return clean[-1].modified_ns - self.delete_retention_ms * 1_000_000 if clean else -1


@rule
def group_segments(sources: Iterable[Source], segment_bytes: int) -> list[tuple[Source, ...]]:
    """Neighbours that together are no larger than a segment may be become one."""
    groups: list[list[Source]] = []
    size = 0
    for source in sources:
        is_near = groups and source.next_offset - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        if is_near and size + source.size <= segment_bytes:
            groups[-1].append(source)
            size += source.size
        else:
            groups.append([source])
            size = source.size
    return [tuple(group) for group in groups]


def by_producer(aborted: Iterable[AbortedTransaction]) -> Aborted:
    """Each producer's, in the order of their markers."""
    found: dict[int, list[AbortedTransaction]] = defaultdict(list)
    for one in aborted:
        found[one.producer_id].append(one)
    return found


@rule
def is_aborted(header: BatchHeader, aborted: Aborted) -> bool:
    """Of a producer's transactions no two overlap: the first that ends behind the batch has it."""
    own = aborted.get(header.producer_id, ()) if header.is_transactional else ()
    number = bisect_left(own, header.base_offset, key=lambda one: one.last_offset)
    return number < len(own) and own[number].first_offset <= header.base_offset


@rule
def is_kept(record: Record, newest: NewestOffsets, *, keeps_tombstones: bool) -> bool:
    """A record without a key is of before the topic was compacted, and goes."""
    if record.key is None or record.offset < newest.get(record.key, -1):
        return False
    return record.value is not None or keeps_tombstones


@rule
def is_last_of_producer(header: BatchHeader, producers: Mapping[int, LastOfProducer]) -> bool:
    last = producers.get(header.producer_id)
    if last is None:
        return False
    if last.last_offset is not None:
        return header.last_offset == last.last_offset
    return header.is_control and header.producer_epoch == last.producer_epoch


@dataclass(slots=True)
class _Pass:
    cleaning: Cleaning
    newest: NewestOffsets
    horizon_ns: int
    has_data: set[int] = field(default_factory=set)  # producers whose open transaction was met

    def clean(self, sources: tuple[Source, ...]) -> CleanedSegment:
        path = sources[0].path.with_name(sources[0].path.name + CLEANED_SUFFIX)
        headers = []
        with path.open("wb") as file:
            for source in sources:
                for batch in self._kept(source):
                    headers.append(parse_header(batch))
                    file.write(batch)
            file.flush()
            os.fsync(file.fileno())
        os.utime(path, ns=(sources[-1].modified_ns, sources[-1].modified_ns))
        return CleanedSegment(sources, path, tuple(headers))

    def _kept(self, source: Source) -> Iterator[bytes]:
        keeps_old = source.modified_ns > self.horizon_ns
        for header, data, at in _batches(source):
            whole = data[at : at + header.size]
            if header.is_control:
                kept = self._kept_of_control(header, whole, keeps_old)
            else:
                kept = self._kept_of_data(header, whole, keeps_old)
            if kept:
                yield kept
            elif is_last_of_producer(header, self.cleaning.producers):
                yield with_records(whole, header, [])

    def _kept_of_control(self, header: BatchHeader, whole: bytes, keeps_old: bool) -> bytes:
        """A marker stays while anything of its transaction was there when this began."""
        had_data = header.producer_id in self.has_data
        self.has_data.discard(header.producer_id)
        if self.cleaning.markers_have_keys:
            [marker] = records(whole, 0, header)
            if marker.key is not None and marker.offset < self.newest.get(marker.key, -1):
                return b""
        return whole if had_data or keeps_old else b""

    def _kept_of_data(self, header: BatchHeader, whole: bytes, keeps_old: bool) -> bytes:
        if header.is_transactional:
            self.has_data.add(header.producer_id)
        if is_aborted(header, self.cleaning.aborted):
            return b""
        found = list(raw_records(whole, 0, header))
        kept = [
            (record, raw)
            for record, raw in found
            if is_kept(record, self.newest, keeps_tombstones=keeps_old)
        ]
        if len(kept) == len(found):
            return whole if kept else b""
        return with_records(whole, header, kept) if kept else b""


def _batches(source: Source) -> Iterator[tuple[BatchHeader, bytes, int]]:
    with source.path.open("rb", buffering=0) as file:
        for _, header, data, at in scan(file.fileno(), source.size, parse_header):
            validate_checksum(data, at, header)
            yield header, data, at
