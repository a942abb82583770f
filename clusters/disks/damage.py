"""What a bad disk does to the log directory of a broker that is down: bits, tails, files, all.

Of our own directories and a real Kafka's, whose files are the same. Each function says what it did,
in a few words for the history. Where nothing is to be damaged that way it raises UsageError.

The rule: the same directory and the same seed, the same damage.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage import checkpoints
from neaptide.clusters.broker.storage.directory_lock import DirectoryLock
from neaptide.clusters.cluster import DamageKind, DiskFile
from neaptide.clusters.disks.replica_reader import read_entries, segment_files
from neaptide.clusters.errors import UsageError

_TORN_BYTES_MAX: Final = 64
_COVERED_FROM: Final = 17  # of a batch
_EPOCHS: Final = "leader-epoch-checkpoint"
_OF_A_FORMATTED: Final = (".lock", "meta.properties", "bootstrap.checkpoint")
_METADATA: Final = "__cluster_metadata-0"  # of a controller: not what is damaged here


def damage(
    log_directory: Path, kind: DamageKind, file: DiskFile, partition: TopicPartition, seed: int
) -> str:
    """Damage one file, or lose the directory whole. Raises UsageError."""
    with DirectoryLock(log_directory):
        if kind == "lost-directory":
            return _lose_all(log_directory)
        target = _find(log_directory, file, partition)
        return _KINDS[kind](target, random.Random(seed))


def files_of(log_directory: Path, file: DiskFile, partition: TopicPartition) -> list[Path]:
    """Where a broker has, or would have, such files of a partition; oldest first."""
    directory = log_directory / f"{partition.topic}-{partition.partition}"
    return {
        "segment": segment_files(directory),
        "index": sorted(directory.glob("*.index")),
        "timeindex": sorted(directory.glob("*.timeindex")),
        "epochs": [directory / _EPOCHS],
        "high-watermarks": [log_directory / checkpoints.HIGH_WATERMARKS],
        "recovery-points": [log_directory / checkpoints.RECOVERY_POINTS],
    }[file]


def _find(log_directory: Path, file: DiskFile, partition: TopicPartition) -> Path:
    """The newest of its kind."""
    there = [path for path in files_of(log_directory, file, partition) if path.is_file()]
    if not there:
        raise UsageError(f"{log_directory} has no {file} of {partition} to damage.")
    return there[-1]


def _flip_bit(file: Path, rng: random.Random) -> str:
    return _flip(file, rng.randrange(_size(file)), rng.randrange(8))


def _flip_record_bit(file: Path, rng: random.Random) -> str:
    """One that a checksum covers, in every record format: behind the batch's magic."""
    batches = [(at, entry.size) for at, entry, _, _ in read_entries(file, lambda _: None)]
    if not batches:
        raise UsageError(f"{file.name} has no whole batch of records: there is nothing to damage.")
    position, size = rng.choice(batches)
    return _flip(file, position + rng.randrange(_COVERED_FROM, size), rng.randrange(8))


def _flip(file: Path, position: int, bit: int) -> str:
    size = _size(file)
    with file.open("r+b") as opened:
        opened.seek(position)
        byte = opened.read(1)[0]
        opened.seek(position)
        opened.write(bytes([byte ^ (1 << bit)]))
    return f"bit {bit} of byte {position} of {file.name} ({size} bytes)"


def _tear_tail(file: Path, rng: random.Random) -> str:
    size = _size(file)
    torn = rng.randint(1, min(size, _TORN_BYTES_MAX))
    os.truncate(file, size - torn)
    return f"the last {torn} bytes of {file.name} ({size} bytes)"


def _size(file: Path) -> int:
    size = file.stat().st_size
    if size == 0:
        raise UsageError(f"{file.name} is empty: there is nothing to damage.")
    return size


def _lose_file(file: Path, rng: random.Random) -> str:
    file.unlink()
    return file.name


_KINDS: Final[Mapping[DamageKind, Callable[[Path, random.Random], str]]] = {
    "flipped-bit": _flip_bit,
    "flipped-record-bit": _flip_record_bit,
    "torn-tail": _tear_tail,
    "lost-file": _lose_file,
}


def _lose_all(log_directory: Path) -> str:
    """As a disk that was replaced and formatted: there is nothing but whose it is."""
    files = 0
    for entry in log_directory.iterdir():
        if entry.is_dir() and entry.name != _METADATA:
            files += sum(1 for _ in entry.iterdir())
            shutil.rmtree(entry)
        elif entry.is_file() and entry.name not in _OF_A_FORMATTED:
            files += 1
            entry.unlink()
    return f"{files} files"


def keep_snapshot(log_directory: Path, snapshot: Path) -> None:
    """A copy of a directory, for `put_back`; an earlier one of that name is replaced."""
    shutil.rmtree(snapshot, ignore_errors=True)
    shutil.copytree(log_directory, snapshot, ignore=shutil.ignore_patterns(".lock"))


def put_back(log_directory: Path, snapshot: Path) -> None:
    """The directory is as it was when the snapshot was taken. Raises UsageError without one."""
    if not snapshot.is_dir():
        raise UsageError(
            f"No snapshot {snapshot.name!r} of {log_directory.parent.name} has been taken."
        )
    with DirectoryLock(log_directory):
        _lose_all(log_directory)
        ignored = shutil.ignore_patterns(".lock", _METADATA)
        shutil.copytree(snapshot, log_directory, ignore=ignored, dirs_exist_ok=True)
