"""The leader epoch cache: (epoch, start offset), ascending (KIP-101). Pure functions on a tuple.

What is here is what `leader-epoch-checkpoint` holds; writing the file is an effect elsewhere.
"""

from __future__ import annotations

from clusters.broker.replication.model import UNDEFINED_EPOCH, UNKNOWN_OFFSET, EpochEntry

Epochs = tuple[EpochEntry, ...]


def latest_epoch(epochs: Epochs) -> int:
    return epochs[-1].epoch if epochs else UNDEFINED_EPOCH


def assign(epochs: Epochs, epoch: int, start_offset: int) -> Epochs:
    """Notes the first offset of an epoch; an epoch that is known, or older, changes nothing."""
    if epoch < 0 or epoch <= latest_epoch(epochs):
        return epochs
    return (*epochs, EpochEntry(epoch, start_offset))


def truncate_from_end(epochs: Epochs, end_offset: int) -> Epochs:
    """Forgets the epochs that begin at or after the log's new end."""
    return tuple(entry for entry in epochs if entry.start_offset < end_offset)


def truncate_from_start(epochs: Epochs, start_offset: int) -> Epochs:
    """Forgets the epochs that end at or before the log's new start; the first begins there."""
    later = tuple(entry for entry in epochs if entry.start_offset > start_offset)
    earlier = epochs[: len(epochs) - len(later)]
    if not earlier:
        return later
    return (EpochEntry(earlier[-1].epoch, start_offset), *later)


def end_offset_for(epochs: Epochs, epoch: int, log_end_offset: int) -> int:
    """Where an epoch ends in this log: the answer to OffsetForLeaderEpoch (KIP-101).

    The latest epoch ends at the log end offset; an older one where the next known one begins;
    an epoch before or after all known ones is UNKNOWN_OFFSET. Who knows no epoch asks for
    UNDEFINED_EPOCH: that is the latest one of a leader that knows none either (so 0.11 to 1.1.0).
    """
    if epoch == latest_epoch(epochs):
        return log_end_offset
    if not epochs or epoch < epochs[0].epoch:
        return UNKNOWN_OFFSET
    later = [entry.start_offset for entry in epochs if entry.epoch > epoch]
    return later[0] if later else UNKNOWN_OFFSET
