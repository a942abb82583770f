"""The leader epochs of one log and the offset at which each began, as `leader-epoch-checkpoint`.

The rules are replication's (replication/epochs.py); here they become a file. It is written at each
change, which is once a leader epoch, not once an append.
"""

from __future__ import annotations

from pathlib import Path

from neaptide.clusters.broker.replication.model import EpochEntry
from neaptide.clusters.broker.replication.partition import leader_epoch_file_cache
from neaptide.clusters.broker.storage.checkpoints import read_epochs, write_epochs


class EpochCache:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._entries: tuple[EpochEntry, ...] = read_epochs(directory)
        self._latest = leader_epoch_file_cache.latest_epoch(self._entries)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note the first offset of a new epoch; a known or older epoch changes nothing."""
        if epoch > self._latest:
            self.replace(leader_epoch_file_cache.assign(self._entries, epoch, start_offset))

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that began at or after the new log end offset."""
        self.replace(leader_epoch_file_cache.truncate_from_end(self._entries, end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that ended before the log start; the one it lies in begins there."""
        self.replace(leader_epoch_file_cache.truncate_from_start(self._entries, start_offset))

    def replace(self, entries: tuple[EpochEntry, ...]) -> None:
        """Take what replication says; it decides when an epoch begins."""
        if entries != self._entries:
            self._replace(entries)

    def clear(self) -> None:
        self.replace(())

    def _replace(self, entries: tuple[EpochEntry, ...]) -> None:
        write_epochs(self._directory, entries)
        self._entries = entries
        self._latest = leader_epoch_file_cache.latest_epoch(entries)
