"""What a partition remembers of idempotent producers: the sequence and the last batches of each.

Not their transactions: see transactions; who hands out the ids: see producer_id_manager. Pure
functions on a mapping that is replaced, never changed. A leader checks before it appends; leaders
and followers learn from every batch that they append, so who is elected knows what its predecessor
knew. All of it follows from the log: where a log was cut, or is read at a start, it is made anew
from the batches that are left. As Kafka's ProducerStateManager, without its snapshots.
Source: KIP-98 ("Producer idempotence"), KAFKA-5494 (five batches), KIP-360 (unknown producers).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import Idempotence, UnknownProducer
from neaptide.clusters.broker.replication.model import (
    Batch,
    EndTransactionMarker,
    ProducerSequence,
)
from neaptide.clusters.broker.replication.rule import rule

BATCHES_KEPT: Final = 5
SEQUENCES: Final = 1 << 31  # after the last one comes 0 again


class BatchMetadata(NamedTuple):
    """One batch of a producer, and where it is."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class ProducerStateEntry:
    """A producer's latest epoch, and its last batches in it, the newest last.

    There are none after a marker that names a newer epoch: then the producer begins again.
    """

    producer_epoch: int
    batches: tuple[BatchMetadata, ...]
    coordinator_epoch: int = -1  # of the last marker; -1: there was none
    after_marker: int = 0  # the offset behind it
    # When an expiration first found it without a batch since the one before; None: not yet.
    seen_ms: int | None = field(default=None, compare=False)

    @property
    def next_offset(self) -> int:
        """Behind the last of it that is in the log."""
        last = self.batches[-1].next_offset if self.batches else 0
        return max(last, self.after_marker)


class Producers(Mapping[int, ProducerStateEntry]):
    """States by producer id, never changed: `with_state` costs little, however many there are.

    What is newer lies over what is older, and is merged into it when it is no longer small.
    """

    __slots__ = ("_newer", "_older")

    def __init__(
        self,
        older: Mapping[int, ProducerStateEntry] | None = None,
        newer: Mapping[int, ProducerStateEntry] | None = None,
    ) -> None:
        self._older: Mapping[int, ProducerStateEntry] = {} if older is None else older
        self._newer: Mapping[int, ProducerStateEntry] = {} if newer is None else newer

    def with_state(self, producer_id: int, state: ProducerStateEntry) -> Producers:
        newer = {**self._newer, producer_id: state}
        if len(newer) ** 2 > len(self._older) + _SMALL:
            return Producers({**self._older, **newer})
        return Producers(self._older, newer)

    def state_of(self, producer_id: int) -> ProducerStateEntry | None:
        found = self._newer.get(producer_id)
        return self._older.get(producer_id) if found is None else found

    def __getitem__(self, producer_id: int) -> ProducerStateEntry:
        found = self._newer.get(producer_id)
        return self._older[producer_id] if found is None else found

    def __iter__(self) -> Iterator[int]:
        yield from self._older
        yield from (one for one in self._newer if one not in self._older)

    def __len__(self) -> int:
        return len(self._older) + sum(one not in self._older for one in self._newer)

    def __repr__(self) -> str:
        return f"Producers({dict(self)})"


_SMALL: Final = 64
NO_PRODUCERS: Final = Producers()


def no_producers() -> Producers:
    return NO_PRODUCERS


# --- the leader's question ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InSequence:
    """It is the producer's next batch, or its first: append it."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """It was appended before, there. Nothing is appended, and what was is acknowledged."""

    base_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    error: Error


Checked = InSequence | Duplicate | Refused


@rule
def check(
    producers: Producers, sequence: ProducerSequence, count: int, rule: Idempotence
) -> Checked:
    """What a batch is to a leader that remembers these producers."""
    known = producers.state_of(sequence.producer_id)
    if known is None:
        return _check_unknown(sequence, rule)
    if sequence.producer_epoch < known.producer_epoch:
        return Refused(Error.INVALID_PRODUCER_EPOCH)
    if sequence.producer_epoch > known.producer_epoch:
        return _in_sequence(sequence.base_sequence == 0)
    duplicate = _duplicate(known, sequence.base_sequence, count, rule)
    if duplicate is not None:
        return duplicate
    expected = (known.batches[-1].last_sequence + 1) % SEQUENCES if known.batches else 0
    return _in_sequence(sequence.base_sequence == expected)


def _in_sequence(is_next: bool) -> Checked:
    return InSequence() if is_next else Refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER)


def _check_unknown(sequence: ProducerSequence, rule: Idempotence) -> Checked:
    """All that is known of it may have been deleted, or it never wrote here."""
    if sequence.base_sequence == 0:
        return InSequence()
    match rule.unknown_producer:
        case UnknownProducer.OUT_OF_ORDER:
            return Refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER)
        case UnknownProducer.REFUSED:
            return Refused(Error.UNKNOWN_PRODUCER_ID)
        case UnknownProducer.ACCEPTED:
            return InSequence()


def _duplicate(
    known: ProducerStateEntry, base_sequence: int, count: int, rule: Idempotence
) -> Duplicate | None:
    last_sequence = (base_sequence + count - 1) % SEQUENCES
    for batch in known.batches[-rule.duplicates_known :]:
        if (batch.base_sequence, batch.last_sequence) == (base_sequence, last_sequence):
            return Duplicate(batch.base_offset, batch.next_offset)
    return None


@rule
def check_epoch(producers: Producers, producer_id: int, producer_epoch: int) -> Error:
    """What a coordinator writes for a producer has no sequence; its epoch may not be an old one."""
    known = producers.state_of(producer_id)
    is_old = known is not None and producer_epoch < known.producer_epoch
    return Error.INVALID_PRODUCER_EPOCH if is_old else Error.NONE


@rule
def check_marker(producers: Producers, marker: EndTransactionMarker) -> Error:
    """A marker of an old epoch, or of a coordinator that has a successor, ends nothing."""
    known = producers.state_of(marker.producer_id)
    if known is not None and known.coordinator_epoch > marker.coordinator_epoch:
        return Error.TRANSACTION_COORDINATOR_FENCED
    return check_epoch(producers, marker.producer_id, marker.producer_epoch)


# --- what is remembered ---------------------------------------------------------------------------


def learn(producers: Producers, batch: Batch) -> Producers:
    """A batch was appended; who has no producer id changes nothing."""
    marker, sequence = batch.marker, batch.producer
    if marker is not None:
        ended = _after_marker(producers.state_of(marker.producer_id), marker, batch)
        return producers.with_state(marker.producer_id, ended)
    if sequence is None:
        return producers
    state = _after(producers.state_of(sequence.producer_id), sequence, batch)
    return producers.with_state(sequence.producer_id, state)


def _after_marker(
    known: ProducerStateEntry | None, marker: EndTransactionMarker, batch: Batch
) -> ProducerStateEntry:
    is_same = known is not None and known.producer_epoch == marker.producer_epoch
    return ProducerStateEntry(
        marker.producer_epoch,
        known.batches if known is not None and is_same else (),
        marker.coordinator_epoch,
        batch.next_offset,
    )


def _after(
    known: ProducerStateEntry | None, sequence: ProducerSequence, batch: Batch
) -> ProducerStateEntry:
    last_sequence = (sequence.base_sequence + batch.count - 1) % SEQUENCES
    newest = BatchMetadata(
        sequence.base_sequence, last_sequence, batch.base_offset, batch.next_offset
    )
    earlier: tuple[BatchMetadata, ...] = ()
    if known is not None and known.producer_epoch == sequence.producer_epoch:
        earlier = known.batches[1 - BATCHES_KEPT :]
    if known is None:
        return ProducerStateEntry(sequence.producer_epoch, (newest,))
    return ProducerStateEntry(
        sequence.producer_epoch, (*earlier, newest), known.coordinator_epoch, known.after_marker
    )


def of_batches(batches: Iterable[Batch]) -> Producers:
    """What a log's batches, from its start to its end, say of producers."""
    producers: dict[int, ProducerStateEntry] = {}
    for batch in batches:
        marker, sequence = batch.marker, batch.producer
        if marker is not None:
            known = producers.get(marker.producer_id)
            producers[marker.producer_id] = _after_marker(known, marker, batch)
        elif sequence is not None:
            known = producers.get(sequence.producer_id)
            producers[sequence.producer_id] = _after(known, sequence, batch)
    return Producers(producers)


def expire(
    producers: Producers, now_ms: int, after_ms: int, in_transaction: Collection[int] = ()
) -> Producers:
    """Forgets whoever has sent nothing for so long (producer.id.expiration.ms), but not who is in
    a transaction.

    Time runs from the first look that finds a producer silent, so the looks' interval comes on top.
    """
    kept = {}
    for producer_id, state in producers.items():
        if state.seen_ms is None:
            kept[producer_id] = replace(state, seen_ms=now_ms)
        elif now_ms - state.seen_ms < after_ms or producer_id in in_transaction:
            kept[producer_id] = state
    return Producers(kept)


def reach_past(producers: Producers, end_offset: int) -> bool:
    """Whether a log that ends there lacks something that is remembered."""
    return any(state.next_offset > end_offset for state in producers.values())


def forget_before(producers: Producers, start_offset: int) -> Producers:
    """Forgets the producers of whom no batch is left from the log's new start on."""
    if all(state.next_offset > start_offset for state in producers.values()):
        return producers
    return Producers(
        {
            producer_id: state
            for producer_id, state in producers.items()
            if state.next_offset > start_offset
        }
    )
