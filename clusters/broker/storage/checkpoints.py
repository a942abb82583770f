"""The small text files of a log directory: checkpoints, `meta.properties`, the shutdown marker.

Each is replaced as a whole: temporary file, fsync, rename, fsync of the directory. So a reader
finds the old content or the new, and a malformed file is an error, never a guess.
Checkpoints are a version (0), a count, and one entry a line.
Source: the files that Kafka itself writes (`replication-offset-checkpoint` and its siblings,
KIP-101 for `leader-epoch-checkpoint`, KIP-516 for `partition.metadata`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from neaptide.clusters.broker.replication.model import EpochEntry, TopicPartition
from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.properties import PropertiesError, read_properties, write_properties

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

_VERSION: Final = "0"


def read_offsets(file: Path) -> dict[TopicPartition, int]:
    """A checkpoint of offsets by partition; empty where there is no such file."""
    offsets = {}
    for line in _read_entries(file, fields=3):
        topic, partition, offset = line
        offsets[TopicPartition(topic, _number(file, partition))] = _number(file, offset)
    return offsets


def write_offsets(file: Path, offsets: Mapping[TopicPartition, int]) -> None:
    entries = sorted(offsets.items())
    _write_entries(file, (f"{tp.topic} {tp.partition} {offset}" for tp, offset in entries))


def read_epochs(directory: Path) -> tuple[EpochEntry, ...]:
    """The leader epochs of one partition, from its own directory."""
    file = directory / LEADER_EPOCHS
    return tuple(
        EpochEntry(_number(file, epoch), _number(file, offset))
        for epoch, offset in _read_entries(file, fields=2)
    )


def write_epochs(directory: Path, entries: Iterable[EpochEntry]) -> None:
    _write_entries(
        directory / LEADER_EPOCHS, (f"{entry.epoch} {entry.start_offset}" for entry in entries)
    )


def read_topic_id(directory: Path) -> str | None:
    """Of which topic a log is (KIP-516), from its own directory; None: nobody has said so yet."""
    file = directory / PARTITION_METADATA
    if not file.exists():
        return None
    lines = [line.partition(":") for line in file.read_text().splitlines() if line.strip()]
    content = {name.strip(): value.strip() for name, _, value in lines}
    if content.get("version") != _VERSION or not content.get("topic_id"):
        raise _malformed(file, "it does not have version 0 and a topic_id")
    return content["topic_id"]


def write_topic_id(directory: Path, topic_id: str) -> None:
    replace_file(directory / PARTITION_METADATA, f"version: {_VERSION}\ntopic_id: {topic_id}")


def read_meta_properties(directory: Path) -> dict[str, str] | None:
    """Who owns a log directory, or None where nobody has said so yet."""
    file = directory / META_PROPERTIES
    if not file.exists():
        return None
    try:
        return read_properties(file.read_text())
    except PropertiesError as error:
        raise StorageError(directory, f"{file.name}: {error}") from None


def write_meta_properties(directory: Path, broker_id: int, cluster_id: str | None) -> None:
    settings = {"broker.id": str(broker_id), "version": "0"}
    if cluster_id is not None:
        settings["cluster.id"] = cluster_id
    replace_file(directory / META_PROPERTIES, write_properties(settings))


def replace_file(file: Path, text: str) -> None:
    temporary = file.with_name(file.name + ".tmp")
    try:
        with temporary.open("w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
        sync_directory(file.parent)
    except OSError as error:
        raise StorageError(file.parent, f"{file.name} cannot be written ({error})") from error


def sync_directory(directory: Path) -> None:
    """Make the names in a directory (created, renamed, removed) durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_entries(file: Path, fields: int) -> list[list[str]]:
    if not file.exists():
        return []
    lines = file.read_text().splitlines()
    if not lines:  # Kafka makes the files empty before it first writes them
        return []
    if len(lines) < 2 or lines[0].strip() != _VERSION:
        raise _malformed(file, "it does not begin with version 0 and a count")
    entries = [line.split() for line in lines[2:] if line.strip()]
    if len(entries) != _number(file, lines[1]):
        raise _malformed(file, f"it announces {lines[1].strip()} entries and has {len(entries)}")
    for number, entry in enumerate(entries, start=3):
        if len(entry) != fields:
            raise _malformed(file, f"line {number} has {len(entry)} fields instead of {fields}")
    return entries


def _write_entries(file: Path, entries: Iterable[str]) -> None:
    lines = list(entries)
    replace_file(file, "\n".join([_VERSION, str(len(lines)), *lines]) + "\n")


def _number(file: Path, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _malformed(file, f"{text!r} is no number") from None


def _malformed(file: Path, why: str) -> StorageError:
    return StorageError(file.parent, f"{file.name} is malformed, {why}; put it right or remove it")
