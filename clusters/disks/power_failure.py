"""A power failure, done to the log directory of a broker that was just killed.

SIGKILL loses nothing: what was written is in the page cache. This cuts every log where the disk is
known to have it, at its recovery point (`recovery-point-offset-checkpoint`), or at a higher offset
that the caller names: a disk may keep more than was flushed, never less. The checkpoint may be
older than the last flush: it is written every `log.flush.offset.checkpoint.interval.ms` (60 s), and
by a real Kafka not at all in its first 30 s. Who knows better says so in `keep`: after
`flush.messages=1`, for instance, all of `replica_reader.log_end_offsets`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage import checkpoints
from neaptide.clusters.broker.storage.config import LogConfig
from neaptide.clusters.broker.storage.directory_lock import DirectoryLock
from neaptide.clusters.broker.storage.epoch_cache import EpochCache
from neaptide.clusters.broker.storage.indexes import OffsetIndex, TimeIndex
from neaptide.clusters.broker.storage.log_directory import partition_directories
from neaptide.clusters.disks.replica_reader import (
    TornTail,
    log_end_offset,
    read_entries,
    segment_files,
)
from neaptide.clusters.errors import UsageError

_BESIDE_A_SEGMENT = (".index", ".timeindex", ".txnindex", ".snapshot")


@dataclass(frozen=True, slots=True)
class LostTail:
    """The offsets from `cut_at` to before `log_end_offset` are gone; none if they are equal."""

    cut_at: int
    log_end_offset: int
    lost_bytes: int


@dataclass(frozen=True, slots=True)
class _Cut:
    file: Path
    position: int
    offset: int


class KeepError(UsageError):
    """`keep` names a log that is not there, or an offset below what had been flushed."""


def power_off(
    log_directory: Path, keep: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, LostTail]:
    """Cut every log at its recovery point, or at its offset in `keep`; what each one lost."""
    kept = dict(keep or {})
    with DirectoryLock(log_directory):
        points = checkpoints.read_offsets(log_directory / checkpoints.RECOVERY_POINTS)
        directories = partition_directories(log_directory)
        for tp, offset in kept.items():
            if tp not in directories:
                raise KeepError(f"keep names {tp}, but {log_directory} has no such log")
            if offset < points.get(tp, 0):
                raise KeepError(
                    f"keep of {tp} is {offset}, but everything below {points[tp]} was flushed"
                )
        return {
            tp: _cut(directory, kept.get(tp, points.get(tp, 0)))
            for tp, directory in directories.items()
        }


def _cut(directory: Path, offset: int) -> LostTail:
    files = segment_files(directory)
    end_offset = log_end_offset(directory)
    cut = _find_cut(files, offset)
    if cut is None:
        return LostTail(end_offset, end_offset, 0)
    later = files[files.index(cut.file) + 1 :]
    lost_bytes = sum(file.stat().st_size for file in (cut.file, *later)) - cut.position
    for file in later:
        _remove_segment(file)
    _shorten(cut)
    for snapshot in directory.glob("*.snapshot"):
        if int(snapshot.stem) > cut.offset:
            snapshot.unlink()
    EpochCache(directory).truncate_from_end(cut.offset)
    checkpoints.sync_directory(directory)
    return LostTail(cut.offset, max(end_offset, cut.offset), lost_bytes)


def _find_cut(files: list[Path], offset: int) -> _Cut | None:
    """The first batch that reaches `offset`, or that is torn: it goes, with all behind it."""
    end_offset = 0
    torn: list[TornTail] = []
    for file in files:
        end_offset = max(end_offset, int(file.stem))
        for position, entry, _, _ in read_entries(file, torn.append):
            if entry.last_offset >= offset:
                return _Cut(file, position, end_offset)
            end_offset = entry.last_offset + 1
        if torn:
            return _Cut(file, torn[0].position, end_offset)
    return None


def _shorten(cut: _Cut) -> None:
    os.truncate(cut.file, cut.position)
    base_offset = int(cut.file.stem)
    index_bytes = LogConfig().segment_index_bytes
    offset_index = OffsetIndex(cut.file.with_suffix(".index"), base_offset, index_bytes)
    if offset_index.path.exists():
        offset_index.load()
        offset_index.truncate_to_position(cut.position)
    time_index = TimeIndex(cut.file.with_suffix(".timeindex"), base_offset, index_bytes)
    if time_index.path.exists():
        time_index.load()
        time_index.truncate_to_offset(cut.offset)


def _remove_segment(file: Path) -> None:
    for path in (file, *(file.with_suffix(suffix) for suffix in _BESIDE_A_SEGMENT)):
        path.unlink(missing_ok=True)
