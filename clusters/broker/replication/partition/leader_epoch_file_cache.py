"""The leader epoch cache: (epoch, start offset), ascending (KIP-101). Pure functions on a tuple.

What is here is what `leader-epoch-checkpoint` holds; writing the file is an effect elsewhere.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from neaptide.clusters.broker.replication.model import UNDEFINED_EPOCH, UNKNOWN_OFFSET, EpochEntry
from neaptide.clusters.broker.replication.rule import rule

Epochs = tuple[EpochEntry, ...]


def latest_epoch(epochs: Epochs) -> int:
    return epochs[-1].epoch if epochs else UNDEFINED_EPOCH


@rule
def assign(epochs: Epochs, epoch: int, start_offset: int) -> Epochs:
    """Notes the first offset of an epoch; an epoch that is known, or older, changes nothing.

    Epochs that were noted at this offset, or after it, got no record: they make room, whichever
    comes now, so that the start offsets grow as the epochs do (KAFKA-7415).
    """
    if epoch < 0:
        return epochs
    kept = truncate_from_end(epochs, start_offset)
    if epoch <= latest_epoch(kept):
        return kept
    return (*kept, EpochEntry(epoch, start_offset))


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


# --- KIP-279: an answer that names its epoch ------------------------------------------------------


class EpochEnd(NamedTuple):
    """Where an epoch ends in a log; UNDEFINED_EPOCH and UNKNOWN_OFFSET where that is not known."""

    epoch: int
    end_offset: int


UNKNOWN_END: Final = EpochEnd(UNDEFINED_EPOCH, UNKNOWN_OFFSET)


def largest_epoch_up_to(epochs: Epochs, epoch: int, log_end_offset: int) -> EpochEnd:
    """The largest known epoch that is not after the one asked for, and where it ends (KIP-279).

    Of an epoch before all known ones nothing is left in this log: it ends where the log's first
    epoch begins.
    """
    if epoch == UNDEFINED_EPOCH or epoch > latest_epoch(epochs):
        return UNKNOWN_END
    earlier = [entry for entry in epochs if entry.epoch <= epoch]
    found = earlier[-1].epoch if earlier else epoch
    later = epochs[len(earlier) :]
    return EpochEnd(found, later[0].start_offset if later else log_end_offset)


class MeetingPoint(NamedTuple):
    """Where to cut a log, and whether it then is a prefix of the leader's."""

    offset: int
    have_met: bool


@rule
def meeting_point(epochs: Epochs, log_end_offset: int, leaders: EpochEnd) -> MeetingPoint:
    """What a follower makes of a leader's answer that named an epoch, and said where it ends.

    If this log has that epoch too, both are the same up to where the first of the two ends it.
    Otherwise only what lies before it can be common: cut there, and ask for that epoch next.
    """
    own = largest_epoch_up_to(epochs, leaders.epoch, log_end_offset)
    if own.end_offset == UNKNOWN_OFFSET:  # nothing here is of a later epoch than the leader's
        return MeetingPoint(min(leaders.end_offset, log_end_offset), have_met=True)
    if own.epoch == leaders.epoch:
        end_offset = min(own.end_offset, leaders.end_offset, log_end_offset)
        return MeetingPoint(end_offset, have_met=True)
    return MeetingPoint(min(own.end_offset, log_end_offset), have_met=False)
