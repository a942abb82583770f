"""Mutants of the rules of transactions: what is stable, who may end what, when it is over.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.broker import Broker, Verification
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import Idempotence
from neaptide.clusters.broker.replication.interface.events import (
    AddOffsetsToTxnRequested,
    AddPartitionsToTxnRequested,
    EndTxnRequested,
    InitProducerIdRequested,
    ProducedBatch,
    ProduceRequested,
    ProducersRead,
    TransactionsRead,
    WriteTxnMarkersRequested,
    WriteTxnMarkersResponded,
)
from neaptide.clusters.broker.replication.leader import (
    produce,
    transaction_markers,
    transaction_verification,
)
from neaptide.clusters.broker.replication.leader.produce import Appended
from neaptide.clusters.broker.replication.leader.transaction_markers import (
    MARKER_BYTES,
    DelayedMarkers,
)
from neaptide.clusters.broker.replication.model import (
    Batch,
    EndTransactionMarker,
    ProducerSequence,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition import producer_state_manager, transactions
from neaptide.clusters.broker.replication.partition.producer_state_manager import (
    Checked,
    InSequence,
    Producers,
    Refused,
)
from neaptide.clusters.broker.replication.partition.transactions import (
    NO_TRANSACTIONS,
    Transactions,
)
from neaptide.clusters.broker.replication.replicas import log_manager
from neaptide.clusters.broker.replication.rule import Rule
from neaptide.clusters.broker.replication.transaction import (
    transaction_coordinator,
    transaction_marker_channel_manager,
    transaction_state_manager,
)
from neaptide.clusters.broker.replication.transaction.transaction_coordinator import Waiting
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TransactionMetadata,
)
from neaptide.nemesis.search.mutants.mutant import USUAL, V4_0, Mutant, rule
from neaptide.nemesis.search.targets import LATE, TRANSACT

_FAULTS: Final = (*USUAL, TRANSACT)
_after = transactions.after.own
_check = producer_state_manager.check.own
_on_producers_read = log_manager.on_producers_read.own
_fence = transaction_coordinator.fence.own
_metadata_for = transaction_coordinator.metadata_for.own
_next_epoch = transaction_coordinator.next_epoch.own
_on_read = transaction_state_manager.on_transactions_read.own
_on_responded = transaction_marker_channel_manager.on_responded.own
_marker_of = transaction_marker_channel_manager.marker_of.own


# --- what is stable ------------------------------------------------------------------------------


def all_is_stable(transactions: Transactions) -> int | None:
    return None


def only_open_is_unstable(transactions: Transactions) -> int | None:
    return min(transactions.ongoing.values(), default=None)


def marker_ends_nothing(transactions: Transactions, batch: Batch) -> Transactions:
    return transactions if batch.marker is not None else _after(transactions, batch)


def begins_at_its_last(transactions: Transactions, batch: Batch) -> Transactions:
    """What was first is forgotten with each batch."""
    after = _after(transactions, batch)
    producer = batch.producer
    if producer is None or producer.producer_id not in after.ongoing:
        return after
    return replace(after, ongoing={**after.ongoing, producer.producer_id: batch.base_offset})


def cut_ends_all(broker: Broker, event: ProducersRead, now_ms: int) -> None:
    _on_producers_read(broker, replace(event, transactions=NO_TRANSACTIONS), now_ms)


def marker_ends_all(transactions: Transactions, batch: Batch) -> Transactions:
    after = _after(transactions, batch)
    return replace(after, ongoing={}) if batch.marker is not None else after


# --- whose it is ---------------------------------------------------------------------------------


def takes_any_epoch(
    broker: Broker,
    event: AddPartitionsToTxnRequested | AddOffsetsToTxnRequested | EndTxnRequested,
) -> tuple[TransactionMetadata, Error]:
    metadata, error = _metadata_for(broker, event)
    return metadata, Error.NONE if error is Error.PRODUCER_FENCED else error


def keeps_its_epoch(metadata: TransactionMetadata, event: InitProducerIdRequested) -> Any:
    return replace(_next_epoch(metadata, event), producer_epoch=metadata.producer_epoch)


def fences_in_its_epoch(
    broker: Broker, metadata: TransactionMetadata, waiting: Waiting, now_ms: int
) -> None:
    """The markers name the epoch of who is fenced."""
    _fence(broker, replace(metadata, producer_epoch=metadata.producer_epoch - 1), waiting, now_ms)


def commits_always(broker: Broker, known: Any) -> EndTransactionMarker:
    return _marker_of(broker, known)._replace(is_commit=True)


def takes_old_epochs(
    producers: Producers, sequence: ProducerSequence, count: int, rule: Idempotence
) -> Checked:
    checked = _check(producers, sequence, count, rule)
    return InSequence() if checked == Refused(Error.INVALID_PRODUCER_EPOCH) else checked


def adds_nothing(
    metadata: TransactionMetadata, partitions: tuple[TopicPartition, ...]
) -> tuple[TopicPartition, ...]:
    return metadata.partitions


# --- what a coordinator knows --------------------------------------------------------------------


def reads_nothing(broker: Broker, event: TransactionsRead, now_ms: int) -> None:
    _on_read(broker, replace(event, transactions=()), now_ms)


def leaves_what_is_prepared(broker: Broker, event: TransactionsRead, now_ms: int) -> None:
    _on_read(broker, event, now_ms)
    broker.unmarked.clear()


def goes_on_after_its_term(broker: Broker, topic_partition: TopicPartition) -> None:
    """It still speaks for what it has led."""


def decides_by_itself(
    broker: Broker, place: TopicPartition, metadata: TransactionMetadata, now_ms: int
) -> Appended:
    """As with acks=1."""
    batch = ProducedBatch(1, metadata.size_bytes, (metadata,))
    return produce.append(broker, place, (batch,), 1, now_ms, of_coordinator=True)


def takes_errors_for_markers(broker: Broker, event: WriteTxnMarkersResponded) -> None:
    results = tuple(one._replace(error=Error.NONE) for one in event.results)
    _on_responded(broker, replace(event, results=results))


def marks_one_partition(broker: Broker, event: WriteTxnMarkersResponded) -> None:
    """The first that is written stands for all."""
    _on_responded(broker, event)
    if any(one.error is Error.NONE for one in event.results):
        broker.unmarked.update(dict.fromkeys(broker.unmarked, ()))


def answers_markers_at_once(broker: Broker, event: WriteTxnMarkersRequested, now_ms: int) -> None:
    appended = {}
    for marker, partitions in event.markers:
        batch = ProducedBatch(1, MARKER_BYTES, (marker,), marker=marker)
        for place in partitions:
            of = produce.append(broker, place, (batch,), 1, now_ms, of_coordinator=True)
            appended[marker, place] = of
    DelayedMarkers(event.request, appended).complete(broker)


def no_marker_is_old(producers: Producers, marker: EndTransactionMarker) -> Error:
    """Whatever coordinator it is of, and whatever epoch it names."""
    return Error.NONE


# --- verification --------------------------------------------------------------------------------


def asks_nobody(broker: Broker, event: ProduceRequested) -> dict[TopicPartition, int]:
    return {}


def takes_any_answer(
    broker: Broker,
    verification: Verification,
    said: Mapping[TopicPartition, Error],
    now_ms: int,
) -> None:
    produce.on_produce(broker, verification.event, now_ms, {})


def _mutant(name: str, rule_of: Rule[..., Any], by: Any, sentence: str, **rest: Any) -> Mutant:
    """One function is another one, and producers write in transactions."""
    given: dict[str, Any] = {"faults": _FAULTS, "steps_only": True, **rest}
    return rule(name, rule_of, by, sentence, **given)


_LATE: Final = (*_FAULTS, LATE)

MUTANTS: Final = (
    _mutant(
        "all-is-stable",
        transactions.first_unstable_offset,
        all_is_stable,
        "Consumers of committed records are sent what is in open transactions.",
    ),
    _mutant(
        "ended-is-stable-at-once",
        transactions.first_unstable_offset,
        only_open_is_unstable,
        "A transaction is stable with its marker, before that is below the high watermark.",
    ),
    _mutant(
        "marker-ends-nothing",
        transactions.after,
        marker_ends_nothing,
        "A log does not note that a marker ends a transaction.",
    ),
    _mutant(
        "transaction-begins-at-its-last",
        transactions.after,
        begins_at_its_last,
        "A transaction is taken to begin with its last batch.",
    ),
    _mutant(
        "cut-ends-all",
        log_manager.on_producers_read,
        cut_ends_all,
        "Where a log is cut, no transaction is open any more.",
    ),
    _mutant(
        "marker-ends-all",
        transactions.after,
        marker_ends_all,
        "A marker ends the transactions of all producers in a log.",
    ),
    _mutant(
        "fenced-producer-ends",
        transaction_coordinator.metadata_for,
        takes_any_epoch,
        "A producer that has a successor may add to its transaction, and end it.",
    ),
    _mutant(
        "successor-keeps-the-epoch",
        transaction_coordinator.next_epoch,
        keeps_its_epoch,
        "A producer that comes back has the epoch of the one before it.",
    ),
    _mutant(
        "fences-in-the-old-epoch",
        transaction_coordinator.fence,
        fences_in_its_epoch,
        "A transaction that is fenced is aborted in its own epoch: its late writes count.",
        faults=_LATE,
    ),
    _mutant(
        "aborts-commit",
        transaction_marker_channel_manager.marker_of,
        commits_always,
        "The markers of an abort commit.",
    ),
    _mutant(
        "old-epochs-append",
        producer_state_manager.check,
        takes_old_epochs,
        "A leader takes records of an earlier epoch of their producer.",
        faults=_LATE,
    ),
    _mutant(
        "forgets-what-is-added",
        transaction_coordinator.with_added,
        adds_nothing,
        "A transaction coordinator does not note the partitions of a transaction.",
    ),
    _mutant(
        "transactions-not-read",
        transaction_state_manager.on_transactions_read,
        reads_nothing,
        "A new transaction coordinator knows nothing of what is in its log.",
    ),
    _mutant(
        "prepared-is-left",
        transaction_state_manager.on_transactions_read,
        leaves_what_is_prepared,
        "A new transaction coordinator does not go on with what was decided before it.",
    ),
    _mutant(
        "coordinates-after-its-term",
        transaction_state_manager.on_resignation,
        goes_on_after_its_term,
        "Who leads its partition no more still coordinates its transactions.",
    ),
    _mutant(
        "decides-by-itself",
        transaction_state_manager.append,
        decides_by_itself,
        "A transaction coordinator does not wait for the replicas of its log.",
    ),
    _mutant(
        "refused-markers-count",
        transaction_marker_channel_manager.on_responded,
        takes_errors_for_markers,
        "A marker that a leader has refused is taken to be written.",
    ),
    _mutant(
        "one-marker-is-all",
        transaction_marker_channel_manager.on_responded,
        marks_one_partition,
        "A transaction is over with the marker of one of its partitions.",
    ),
    _mutant(
        "markers-answered-at-once",
        transaction_markers.on_write_txn_markers,
        answers_markers_at_once,
        "A leader answers for a marker before its followers have it.",
    ),
    _mutant(
        "any-coordinator-marks",
        producer_state_manager.check_marker,
        no_marker_is_old,
        "A log takes markers of coordinators that have a successor.",
        faults=("hold", "zombie", TRANSACT),
        shown="a coordinator that lives on with a marker that is held, and a second transaction",
    ),
    _mutant(
        "asks-no-coordinator",
        transaction_verification.unverified_in,
        asks_nobody,
        "A leader takes the first batch of a transaction without asking whether there is one.",
        rules=V4_0,
        faults=_LATE,
    ),
    _mutant(
        "takes-any-answer",
        transaction_verification.go_on,
        takes_any_answer,
        "A leader takes a batch whatever the coordinator says of its transaction.",
        rules=V4_0,
        faults=_LATE,
    ),
)
