"""The leader epochs of one log and the offset at which each began, as `leader-epoch-checkpoint`.

It records; what an end offset of an epoch means to a follower is replication's question. The file
is written at each change, which is once a leader epoch, not once an append.
Rule (KIP-101): epochs and start offsets both grow. Batches without an epoch (-1) leave no trace.
"""

from __future__ import annotations

from pathlib import Path

from neaptide.clusters.broker.replication.model import UNDEFINED_EPOCH, EpochEntry
from neaptide.clusters.broker.storage.checkpoints import read_epochs, write_epochs


class EpochCache:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._entries: tuple[EpochEntry, ...] = read_epochs(directory)
        self._latest = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note the first offset of a new epoch; a known or older epoch changes nothing.

        An entry that was assigned at this offset and got no records yet makes room: an epoch
        without records has no start of its own.
        """
        if epoch <= self._latest:
            return
        kept = tuple(entry for entry in self._entries if entry.start_offset < start_offset)
        self._replace((*kept, EpochEntry(epoch, start_offset)))

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that began at or after the new log end offset."""
        kept = tuple(entry for entry in self._entries if entry.start_offset < end_offset)
        if kept != self._entries:
            self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that ended before the log start; the one it lies in begins there."""
        later = tuple(entry for entry in self._entries if entry.start_offset > start_offset)
        earlier = self._entries[: len(self._entries) - len(later)]
        if not earlier:
            return
        kept = (EpochEntry(earlier[-1].epoch, start_offset), *later)
        if kept != self._entries:
            self._replace(kept)

    def replace(self, entries: tuple[EpochEntry, ...]) -> None:
        """Take what replication says; it decides when an epoch begins."""
        if entries != self._entries:
            self._replace(entries)

    def clear(self) -> None:
        if self._entries:
            self._replace(())

    def _replace(self, entries: tuple[EpochEntry, ...]) -> None:
        write_epochs(self._directory, entries)
        self._entries = entries
        self._latest = entries[-1].epoch if entries else UNDEFINED_EPOCH
