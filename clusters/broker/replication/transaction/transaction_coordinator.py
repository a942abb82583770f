"""What producers request of a transaction coordinator, and how a transaction goes on to its end.

Each step is a record of `__transaction_state` first; nothing else changes a transactional id until
that record is committed. Once the end of a transaction is decided (Prepare…), its producer is
answered; then markers go to all of its partitions, and the last record (Complete…) says that they
are written. As Kafka's TransactionCoordinator.
Sources: KIP-98, KIP-360 (a producer that comes back with its epoch), KIP-588 (PRODUCER_FENCED).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import topic_creation
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OFFSETS_TOPIC,
    partition_for,
)
from neaptide.clusters.broker.replication.interface.coordination_service import ProducerIdsAllocated
from neaptide.clusters.broker.replication.interface.effects import (
    RespondInitProducerId,
    RespondTransaction,
)
from neaptide.clusters.broker.replication.interface.events import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    AddOffsetsToTxnRequested,
    AddPartitionsToTxnRequested,
    EndTxnRequested,
    InitProducerIdRequested,
    MarkerRetry,
    TransactionExpiration,
    TransactionsRead,
    WriteTxnMarkersFailed,
    WriteTxnMarkersResponded,
)
from neaptide.clusters.broker.replication.leader import purgatory
from neaptide.clusters.broker.replication.leader.produce import (
    COORDINATOR_ERRORS,
    DelayedRecord,
    own_number,
)
from neaptide.clusters.broker.replication.model import TEXT_MAX_BYTES, TopicPartition
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.transaction import (
    producer_id_manager,
    transaction_marker_channel_manager,
    transaction_state_manager,
)
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    COMPLETE,
    LAST_EPOCH,
    PREPARED,
    TransactionMetadata,
    TransactionState,
)
from neaptide.clusters.broker.replication.transaction.transaction_state_manager import coordinated

_COMMIT, _ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
# What a producer is answered for what became of the record.
_ANSWERS = {
    **COORDINATOR_ERRORS,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
}


# --- who waits for a record, and what is answered then --------------------------------------------


@dataclass(frozen=True, slots=True)
class Initialized:
    """InitProducerId. `fences`: the transaction of before is aborted first, and then it is asked
    for again."""

    request: int
    fences: bool = False

    def respond(self, broker: Broker, error: Error, metadata: TransactionMetadata) -> None:
        if error is Error.NONE and self.fences:
            error = Error.CONCURRENT_TRANSACTIONS
        if error is not Error.NONE:
            broker.do(RespondInitProducerId(self.request, error))
            return
        broker.do(
            RespondInitProducerId(
                self.request, error, metadata.producer_id, metadata.producer_epoch
            )
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """AddPartitionsToTxn with its partitions, AddOffsetsToTxn, or EndTxn."""

    request: int
    partitions: tuple[TopicPartition, ...] = ()

    def respond(self, broker: Broker, error: Error, metadata: TransactionMetadata) -> None:
        each = tuple((place, error) for place in self.partitions)
        broker.do(RespondTransaction(self.request, error, each))


@dataclass(frozen=True, slots=True)
class Nobody:
    def respond(self, broker: Broker, error: Error, metadata: TransactionMetadata) -> None:
        """It was the coordinator's own doing."""


Waiting = Initialized | Asked | Nobody


@dataclass(frozen=True, slots=True)
class DelayedTransition(DelayedRecord):
    """The next state of a transactional id, in `__transaction_state`."""

    coordinator_epoch: int
    after: TransactionMetadata
    waiting: Waiting

    @rule
    def complete(self, broker: Broker) -> None:
        error, after = self.outcome, self.after
        if broker.coordinator_epochs.get(self.partition) != self.coordinator_epoch:
            self.waiting.respond(broker, Error.NOT_COORDINATOR, after)
            return
        is_written = error is Error.NONE
        transaction_state_manager.end_transition(broker, after, is_written=is_written)
        if is_written and after.state in PREPARED:
            broker.unmarked[after.transactional_id] = after.partitions
            transaction_marker_channel_manager.send_markers(broker)
            if not after.partitions:  # there is nothing to wait for
                broker.set_timer(MarkerRetry(), 0)
        elif is_written and after.state in COMPLETE:
            broker.unmarked.pop(after.transactional_id, None)
        elif after.state in COMPLETE:
            broker.set_timer(MarkerRetry(), transaction_marker_channel_manager.RETRY_MS)
        self.waiting.respond(broker, _ANSWERS.get(error, error), after)


def _transit(
    broker: Broker,
    before: TransactionMetadata,
    after: TransactionMetadata,
    waiting: Waiting,
    now_ms: int,
) -> None:
    place, _ = coordinated(broker, after.transactional_id)
    transaction_state_manager.begin_transition(broker, place, before, after.state)
    appended = transaction_state_manager.append(broker, place, after, now_ms)
    epoch = broker.coordinator_epochs[place]
    delayed = DelayedTransition(own_number(broker), place, appended, epoch, after, waiting)
    purgatory.complete_or_park(broker, delayed, after.timeout_ms)


# --- InitProducerId -------------------------------------------------------------------------------


def on_init_producer_id(broker: Broker, event: InitProducerIdRequested, now_ms: int) -> None:
    if event.transactional_id is None:
        producer_id_manager.wait(broker, event.request)
        _hand_out(broker, now_ms)
        return
    error = _init_error(broker, event)
    if error is not Error.NONE:
        broker.do(RespondInitProducerId(event.request, error))
        return
    _initialize(broker, event, None, now_ms)


def _init_error(broker: Broker, event: InitProducerIdRequested) -> Error:
    assert event.transactional_id is not None
    if broker.rules.idempotence is None or not event.transactional_id:
        return Error.INVALID_REQUEST
    if len(event.transactional_id.encode()) > TEXT_MAX_BYTES:
        return Error.UNKNOWN_SERVER_ERROR  # as Kafka, which cannot write it either
    if not 0 < event.transaction_timeout_ms <= broker.settings.transaction_max_timeout_ms:
        return Error.INVALID_TRANSACTION_TIMEOUT
    return coordinated(broker, event.transactional_id)[1]


def _hand_out(broker: Broker, now_ms: int) -> None:
    for request, producer_id in producer_id_manager.hand_out(broker):
        event = broker.initializing.pop(request, None)
        if event is None:
            broker.do(RespondInitProducerId(request, Error.NONE, producer_id, 0))
        else:
            _initialize(broker, event, producer_id, now_ms)


def _initialize(
    broker: Broker, event: InitProducerIdRequested, new_id: int | None, now_ms: int
) -> None:
    """`new_id`: one that nobody has had, where one was needed."""
    assert event.transactional_id is not None
    transactional_id, waiting = event.transactional_id, Initialized(event.request)
    _, error = coordinated(broker, transactional_id)
    known = broker.transactions.get(transactional_id)
    if error is Error.NONE and known is not None:
        error = _error_of_init(known.metadata, event)
        if error is Error.NONE and known.pending is not None:
            error = Error.CONCURRENT_TRANSACTIONS
    if error is not Error.NONE:
        broker.do(RespondInitProducerId(event.request, error))
        return
    if known is not None and known.metadata.state is TransactionState.ONGOING:
        fence(broker, known.metadata, Initialized(event.request, fences=True), now_ms)
        return
    if known is None or known.metadata.producer_epoch >= LAST_EPOCH:
        if new_id is None:
            broker.initializing[event.request] = event
            producer_id_manager.wait(broker, event.request)
            _hand_out(broker, now_ms)
            return
        fresh = TransactionMetadata(transactional_id, new_id, -1, event.transaction_timeout_ms)
        before, epoch = (fresh if known is None else known.metadata), 0
        after = replace(fresh, producer_epoch=epoch)
        _transit(broker, before, after, waiting, now_ms)
        return
    _transit(broker, known.metadata, next_epoch(known.metadata, event), waiting, now_ms)


def _error_of_init(metadata: TransactionMetadata, event: InitProducerIdRequested) -> Error:
    """KIP-360: who names the epoch that it has must have the newest, or that before it, where it
    asks again because it was not answered."""
    if metadata.state in PREPARED:
        return Error.CONCURRENT_TRANSACTIONS
    if event.producer_id == NO_PRODUCER_ID:
        return Error.NONE
    newest = metadata.producer_epoch, metadata.last_producer_epoch
    is_known = event.producer_id == metadata.producer_id and event.producer_epoch in newest
    return Error.NONE if is_known else Error.PRODUCER_FENCED


@rule
def next_epoch(
    metadata: TransactionMetadata, event: InitProducerIdRequested
) -> TransactionMetadata:
    is_again = event.producer_id != NO_PRODUCER_ID
    is_again = is_again and event.producer_epoch == metadata.last_producer_epoch
    epoch = metadata.producer_epoch if is_again else metadata.producer_epoch + 1
    named = event.producer_epoch if event.producer_id != NO_PRODUCER_ID else NO_PRODUCER_EPOCH
    return TransactionMetadata(
        metadata.transactional_id,
        metadata.producer_id,
        epoch,
        event.transaction_timeout_ms,
        last_producer_epoch=named,
    )


def on_producer_ids_allocated(broker: Broker, event: ProducerIdsAllocated, now_ms: int) -> None:
    producer_id_manager.on_allocated(broker, event)
    _hand_out(broker, now_ms)


def on_session_started(broker: Broker, now_ms: int) -> None:
    _hand_out(broker, now_ms)


def forget_request(broker: Broker, request: int) -> None:
    """Nobody waits for the answer any more."""
    broker.initializing.pop(request, None)
    producer_id_manager.forget_request(broker, request)


# --- a transaction under way ----------------------------------------------------------------------


def on_add_partitions(broker: Broker, event: AddPartitionsToTxnRequested, now_ms: int) -> None:
    """All of them, or none: one that nobody knows keeps the others out, too."""
    if event.verifies:
        _verify(broker, event)
        return
    unknown = [one for one in event.partitions if not _is_known(broker, one)]
    if unknown:
        each = tuple(
            (one, Error.UNKNOWN_TOPIC_OR_PARTITION)
            if one in unknown
            else (one, Error.OPERATION_NOT_ATTEMPTED)
            for one in event.partitions
        )
        broker.do(RespondTransaction(event.request, Error.NONE, each))
        return
    _add(broker, event, event.partitions, Asked(event.request, event.partitions), now_ms)


def _verify(broker: Broker, event: AddPartitionsToTxnRequested) -> None:
    """What is under way does not matter: a producer that has been answered may write."""
    metadata, error = metadata_for(broker, event)
    if error is Error.CONCURRENT_TRANSACTIONS:
        error = Error.NONE
    if error is Error.NONE and metadata.state in PREPARED:
        error = Error.CONCURRENT_TRANSACTIONS
    added = metadata.partitions if metadata.state is TransactionState.ONGOING else ()
    each = tuple(
        (one, Error.INVALID_TXN_STATE if error is Error.NONE and one not in added else error)
        for one in event.partitions
    )
    broker.do(RespondTransaction(event.request, Error.NONE, each, event.transactional_id))


def _is_known(broker: Broker, place: TopicPartition) -> bool:
    return place.partition in broker.metadata.topics.get(place.topic, {})


def on_add_offsets(broker: Broker, event: AddOffsetsToTxnRequested, now_ms: int) -> None:
    """Where the group's offsets are, markers have to go, too. The first who asks has the topic
    made: a group without members may commit nowhere but here."""
    count = broker.metadata.partition_counts.get(OFFSETS_TOPIC)
    if not count:
        if OFFSETS_TOPIC not in broker.metadata.topics:
            topic_creation.create_internal_topic(broker, OFFSETS_TOPIC)
        broker.do(RespondTransaction(event.request, Error.COORDINATOR_NOT_AVAILABLE))
        return
    _add(broker, event, (partition_for(event.group, count),), Asked(event.request), now_ms)


def _add(
    broker: Broker,
    event: AddPartitionsToTxnRequested | AddOffsetsToTxnRequested,
    partitions: tuple[TopicPartition, ...],
    waiting: Asked,
    now_ms: int,
) -> None:
    metadata, error = metadata_for(broker, event)
    if error is Error.NONE and metadata.state in PREPARED:
        error = Error.CONCURRENT_TRANSACTIONS
    is_ongoing = metadata.state is TransactionState.ONGOING
    is_there = is_ongoing and set(metadata.partitions).issuperset(partitions)
    if error is not Error.NONE or is_there:
        waiting.respond(broker, error, metadata)
        return
    after = replace(
        metadata,
        state=TransactionState.ONGOING,
        partitions=with_added(metadata, partitions),
        started_ms=metadata.started_ms if is_ongoing else now_ms,
    )
    _transit(broker, metadata, after, waiting, now_ms)


@rule
def with_added(
    metadata: TransactionMetadata, partitions: tuple[TopicPartition, ...]
) -> tuple[TopicPartition, ...]:
    """A transaction that is over has none."""
    return tuple(sorted({*metadata.partitions, *partitions}))


def on_end_txn(broker: Broker, event: EndTxnRequested, now_ms: int) -> None:
    metadata, error = metadata_for(broker, event)
    if error is Error.NONE:
        error = _end_error(metadata.state, is_commit=event.is_commit)
    is_ongoing = metadata.state is TransactionState.ONGOING
    if error is not Error.NONE or not is_ongoing:  # or it has ended so already
        Asked(event.request).respond(broker, error, metadata)
        return
    prepared = _COMMIT if event.is_commit else _ABORT
    after = replace(metadata, state=prepared)
    _transit(broker, metadata, after, Asked(event.request), now_ms)


@rule
def _end_error(state: TransactionState, *, is_commit: bool) -> Error:
    """What has been decided is decided: the same may be asked for again, the other may not."""
    of_commit = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    of_abort = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
    if state is TransactionState.ONGOING:
        return Error.NONE
    if state not in (of_commit if is_commit else of_abort):
        return Error.INVALID_TXN_STATE
    return Error.CONCURRENT_TRANSACTIONS if state in PREPARED else Error.NONE


@rule
def metadata_for(
    broker: Broker,
    event: AddPartitionsToTxnRequested | AddOffsetsToTxnRequested | EndTxnRequested,
) -> tuple[TransactionMetadata, Error]:
    """Of the producer that asks, if it still is the one with this transactional id."""
    nothing = TransactionMetadata(event.transactional_id, -1, -1, 0)
    if not event.transactional_id:
        return nothing, Error.INVALID_REQUEST
    _, error = coordinated(broker, event.transactional_id)
    known = broker.transactions.get(event.transactional_id)
    if error is not Error.NONE:
        return nothing, error
    if known is None or known.metadata.producer_id != event.producer_id:
        return nothing, Error.INVALID_PRODUCER_ID_MAPPING
    if known.metadata.producer_epoch != event.producer_epoch:
        return known.metadata, Error.PRODUCER_FENCED
    if known.pending is not None:
        return known.metadata, Error.CONCURRENT_TRANSACTIONS
    return known.metadata, Error.NONE


# --- the end of a transaction ---------------------------------------------------------------------


@rule
def fence(broker: Broker, metadata: TransactionMetadata, waiting: Waiting, now_ms: int) -> None:
    """Aborts a transaction whose producer is silent, or has a successor: no write of its epoch
    counts behind the markers, which name the next one."""
    after = replace(
        metadata,
        state=_ABORT,
        producer_epoch=metadata.producer_epoch + 1,
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )
    _transit(broker, metadata, after, waiting, now_ms)


def on_transaction_expiration(broker: Broker, timer: TransactionExpiration, now_ms: int) -> None:
    """transaction.timeout.ms: how long each may take, as its producer has said."""
    if not broker.coordinator_epochs:
        return
    interval = broker.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
    broker.set_timer(timer, interval)
    for known in tuple(broker.transactions.values()):
        metadata = known.metadata
        is_ongoing = metadata.state is TransactionState.ONGOING and known.pending is None
        if is_ongoing and now_ms - metadata.started_ms > metadata.timeout_ms:
            broker.note(f"{metadata.transactional_id}: the transaction takes too long, and aborts")
            fence(broker, metadata, Nobody(), now_ms)


def on_transactions_read(broker: Broker, event: TransactionsRead, now_ms: int) -> None:
    transaction_state_manager.on_transactions_read(broker, event, now_ms)
    _go_on(broker, now_ms)


def on_markers_responded(broker: Broker, event: WriteTxnMarkersResponded, now_ms: int) -> None:
    transaction_marker_channel_manager.on_responded(broker, event)
    _go_on(broker, now_ms)


def on_markers_failed(broker: Broker, event: WriteTxnMarkersFailed, now_ms: int) -> None:
    transaction_marker_channel_manager.on_failed(broker, event)


def on_marker_retry(broker: Broker, timer: MarkerRetry, now_ms: int) -> None:
    _go_on(broker, now_ms)


def _go_on(broker: Broker, now_ms: int) -> None:
    """Writes down which transactions are over, and sends the markers of the others."""
    for transactional_id in transaction_marker_channel_manager.unfinished(broker):
        metadata = broker.transactions[transactional_id].metadata
        is_commit = metadata.state is _COMMIT
        state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        after = replace(metadata, state=state, partitions=(), started_ms=-1)
        _transit(broker, metadata, after, Nobody(), now_ms)
    transaction_marker_channel_manager.send_markers(broker)
