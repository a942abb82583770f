"""Segments as tests write and read them."""

from __future__ import annotations

from pathlib import Path

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.disks.replica_reader import read_replicas

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def write_segment(root: Path, directory: str, base_offset: int, content: bytes) -> Path:
    (root / directory).mkdir(exist_ok=True)
    file = root / directory / f"{base_offset:020d}.log"
    file.write_bytes(content)
    return file


def offsets_and_values(root: Path) -> list[tuple[int | None, str | None]]:
    return [(row["offset"], row["value"]) for row in read_replicas([root], 1)]
