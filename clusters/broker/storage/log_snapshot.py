"""A log as it is at one moment, to be read from its start to its end by any thread.

Its files are opened for that alone. The log must not be cut meanwhile, from either end: whoever
takes a snapshot sees to that. What is appended later is not in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.broker.storage.record_batch import BatchHeader, parse_header
from neaptide.clusters.broker.storage.scan import headers_from, scan


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """`segments` are files and their sizes in bytes. Reading raises StorageError, and
    RecordBatchError where what is on disk is no batch."""

    topic_partition: TopicPartition
    log_start_offset: int
    segments: tuple[tuple[Path, int], ...]

    @property
    def size_bytes(self) -> int:
        return sum(size for _, size in self.segments)

    def headers(self) -> Iterator[BatchHeader]:
        """Of every batch; those alone are read."""
        return (header for header, _ in self.headers_and_control())

    def headers_and_control(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """Likewise; of control batches the whole batch, of others no bytes."""
        for path, size in self.segments:
            try:
                with path.open("rb", buffering=0) as file:
                    for at, header in headers_from(file.fileno, path, 0, size):
                        if header.next_offset > self.log_start_offset:
                            whole = header.size if header.is_control else 0
                            yield header, os.pread(file.fileno(), whole, at) if whole else b""
            except OSError as error:
                raise StorageError(path.parent.parent, str(error)) from error

    def batches(self) -> Iterator[tuple[BatchHeader, bytes, int]]:
        """Every batch with its header: bytes, and the position in them at which it begins."""
        for path, size in self.segments:
            try:
                with path.open("rb", buffering=0) as file:
                    for _, header, data, at in scan(file.fileno(), size, parse_header):
                        if header.next_offset > self.log_start_offset:
                            yield header, data, at
            except OSError as error:
                raise StorageError(path.parent.parent, str(error)) from error
