"""P4: transactions, from an id to the last stable offset; each rule beside what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OFFSETS_TOPIC,
    OffsetAndMetadata,
    OffsetCommitRecord,
)
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.coordination_service import (
    CreateTopic,
    ProducerIdsAllocated,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    EndTransactionMarker,
    LeaderAndIsr,
    ProducerSequence,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition.partition_rules import last_stable_offset
from neaptide.clusters.broker.replication.partition.transactions import (
    AbortedTransaction,
    Transactions,
)
from neaptide.clusters.broker.replication.step import step
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TRANSACTIONS_TOPIC,
    TransactionMetadata,
    TransactionState,
)
from tests.core.given import NOW, A, B, C, T, broker

X = TopicPartition(TRANSACTIONS_TOPIC, 0)
G = TopicPartition(OFFSETS_TOPIC, 0)
LIVE = tuple(BrokerRegistration(number, ()) for number in (A, B, C))
COUNTS = {TRANSACTIONS_TOPIC: 1, OFFSETS_TOPIC: 1}
NOTHING: Mapping[str, str] = {}
TIMEOUT_MS = 60_000
State = TransactionState
One = TypeVar("One")


class Coordinator:
    """Broker A, which leads everything: transactions, groups, and T. `isr` is that of all three.

    Where it sends markers, `deliver` lets them arrive, at itself, and answers.
    """

    def __init__(
        self, generation: str = "2.8", isr: tuple[int, ...] = (A,), **settings: Any
    ) -> None:
        self.isr = isr
        self.broker: Broker = broker(generation, None, **settings)
        self.now = NOW
        self.last = 100
        self.done: list[Effect] = []
        self.lead(A, 0)
        self.do(events.TransactionsRead(X, ()))
        self.do(events.CommittedOffsetsRead(G, {}))
        self.do(ProducerIdsAllocated(1000, 2000))

    def lead(self, leader: int, epoch: int) -> None:
        wanted = {"min.insync.replicas": "1"}
        states = tuple(
            events.PartitionState(
                place, LeaderAndIsr(leader, epoch, self.isr, 1, epoch), (A, B, C), wanted
            )
            for place in (X, G, T)
        )
        self.do(events.UpdateMetadataRequested(1, C, 1, states, LIVE, COUNTS))
        self.do(events.LeaderAndIsrRequested(1, C, 1, states, LIVE))

    def do(self, event: object) -> list[Effect]:
        self.done = list(step(self.broker, event, self.now))
        return self.done

    def found(self, kind: type[One]) -> list[One]:
        return [one for one in self.done if isinstance(one, kind)]

    def number(self) -> int:
        self.last += 1
        return self.last

    # --- what a producer asks ---

    def init(self, **more: Any) -> tuple[Error, int, int]:
        given = {"transactional_id": "tx", "transaction_timeout_ms": TIMEOUT_MS, **more}
        self.do(events.InitProducerIdRequested(self.number(), **given))
        return self.identity()

    def identity(self) -> tuple[Error, int, int]:
        [answer] = self.found(effects.RespondInitProducerId)
        return answer.error, answer.producer_id, answer.producer_epoch

    def add(
        self, epoch: int = 0, *places: TopicPartition, producer_id: int = 1000
    ) -> dict[TopicPartition, Error]:
        self.do(
            events.AddPartitionsToTxnRequested(
                self.number(), "tx", producer_id, epoch, places or (T,)
            )
        )
        [answer] = self.found(effects.RespondTransaction)
        return dict(answer.partitions)

    def write(self, epoch: int = 0, sequence: int = 0, *, transactional: bool = True) -> Error:
        producer = ProducerSequence(1000, epoch, sequence, transactional)
        batch = events.ProducedBatch(1, 100, "m", producer=producer)
        request = events.ProduceRequested(self.number(), -1, 9_000, ((T, (batch,)),), "tx")
        self.do(request)
        [answer] = self.found(effects.RespondProduce)
        return answer.results[0].error

    def end(self, *, commit: bool, epoch: int = 0) -> Error | None:
        """None: it is not answered yet."""
        self.do(events.EndTxnRequested(self.number(), "tx", 1000, epoch, commit))
        answers = [one.error for one in self.found(effects.RespondTransaction)]
        return answers[0] if answers else None

    def deliver(self) -> list[effects.RespondWriteTxnMarkers]:
        """Those that were just sent."""
        answers = []
        for sent in self.found(effects.SendWriteTxnMarkers):
            self.do(events.WriteTxnMarkersRequested(self.number(), sent.markers))
            [answer] = self.found(effects.RespondWriteTxnMarkers)
            answers.append(answer)
            self.do(events.WriteTxnMarkersResponded(A, sent.sequence, answer.results))
        return answers

    # --- what there is ---

    @property
    def metadata(self) -> TransactionMetadata:
        return self.broker.transactions["tx"].metadata

    @property
    def stable(self) -> int:
        return last_stable_offset(self.broker.partitions[T])

    def appended(self, place: TopicPartition) -> list[Any]:
        """The values of the records of the last event."""
        writes = [one for one in self.found(effects.AppendToLog) if one.partition == place]
        identities = [batch.identity for one in writes for batch in one.batches]
        return [value for one in identities if isinstance(one, tuple) for value in one]


def _started(**more: Any) -> Coordinator:
    """A transaction has one record in T."""
    one = Coordinator(**more)
    assert one.init() == (Error.NONE, 1000, 0)
    assert one.add() == {T: Error.NONE}
    assert one.write() is Error.NONE
    return one


# --- InitProducerId -------------------------------------------------------------------------------


def test_p4_each_new_start_of_a_producer_has_a_newer_epoch_of_the_same_id() -> None:
    one = Coordinator()
    assert one.init() == (Error.NONE, 1000, 0)
    assert one.init() == (Error.NONE, 1000, 1)
    assert one.init(transactional_id="other") == (Error.NONE, 1001, 0)
    assert one.init(transactional_id=None) == (Error.NONE, 1002, 0)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"transactional_id": ""}, Error.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, Error.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, Error.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_000}, Error.NONE),
    ],
)
def test_p4_what_is_asked_for_must_make_sense(more: dict[str, Any], error: Error) -> None:
    assert Coordinator().init(**more)[0] is error


def test_p4_a_producer_that_names_its_epoch_has_it_raised_once_however_often_it_asks() -> None:
    """KIP-360."""
    one = Coordinator()
    one.init()
    named = {"producer_id": 1000, "producer_epoch": 0}
    assert one.init(**named) == (Error.NONE, 1000, 1)
    assert one.init(**named) == (Error.NONE, 1000, 1)
    assert one.init(producer_id=1000, producer_epoch=1) == (Error.NONE, 1000, 2)
    assert one.init(**named) == (Error.PRODUCER_FENCED, -1, -1)
    assert one.init(producer_id=7, producer_epoch=2) == (Error.PRODUCER_FENCED, -1, -1)


def test_p4_after_the_last_epoch_the_id_is_another() -> None:
    one = Coordinator()
    last = TransactionMetadata("tx", 5, 2**15 - 2, TIMEOUT_MS)
    one.do(events.TransactionsRead(X, (replace(last, producer_epoch=2**15 - 3),)))
    assert one.init() == (Error.NONE, 5, 2**15 - 2)
    assert one.init() == (Error.NONE, 1000, 0)


def test_p4_who_does_not_coordinate_says_so() -> None:
    one = Coordinator()
    one.lead(B, 1)
    assert one.init()[0] is Error.NOT_COORDINATOR
    assert one.add() == {T: Error.NOT_COORDINATOR}
    assert one.end(commit=True) is Error.NOT_COORDINATOR


# --- a transaction under way ----------------------------------------------------------------------


def test_p4_partitions_are_in_the_log_before_they_are_answered() -> None:
    one = Coordinator()
    one.init()
    assert one.add() == {T: Error.NONE}
    assert [(m.state, m.partitions) for m in one.appended(X)] == [(State.ONGOING, (T,))]
    assert one.add() == {T: Error.NONE}
    assert one.appended(X) == []  # it is in already
    one.add(0, G)
    assert [m.partitions for m in one.appended(X)] == [(G, T)]


@pytest.mark.parametrize(
    ("epoch", "producer_id", "error"),
    [
        (1, 1000, Error.PRODUCER_FENCED),
        (0, 7, Error.INVALID_PRODUCER_ID_MAPPING),
        (0, 1000, Error.NONE),
    ],
)
def test_p4_only_who_has_the_id_and_the_epoch_may_add(
    epoch: int, producer_id: int, error: Error
) -> None:
    one = Coordinator()
    one.init()
    assert one.add(epoch, producer_id=producer_id) == {T: error}


def test_p4_a_partition_that_nobody_knows_keeps_the_others_out() -> None:
    one = Coordinator()
    one.init()
    nowhere = TopicPartition("nowhere", 0)
    assert one.add(0, T, nowhere) == {
        T: Error.OPERATION_NOT_ATTEMPTED,
        nowhere: Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert one.metadata.state is State.EMPTY


def test_p4_what_waits_for_its_record_keeps_all_else_waiting() -> None:
    one = Coordinator(isr=(A, B))
    one.do(events.InitProducerIdRequested(1, "tx", TIMEOUT_MS))
    assert one.found(effects.RespondInitProducerId) == []
    one.do(events.InitProducerIdRequested(2, "tx", TIMEOUT_MS))
    assert one.identity()[0] is Error.CONCURRENT_TRANSACTIONS
    _fetched(one, X)
    assert one.identity() == (Error.NONE, 1000, 0)


def test_p4_who_waits_is_sent_to_the_next_coordinator() -> None:
    one = Coordinator(isr=(A, B))
    one.do(events.InitProducerIdRequested(1, "tx", TIMEOUT_MS))
    one.lead(B, 1)
    assert one.identity()[0] is Error.NOT_COORDINATOR
    assert one.broker.transactions == {}


def _fetched(one: Coordinator, place: TopicPartition) -> None:
    """B has all of a partition."""
    end = one.broker.partitions[place].log.end_offset
    asked = events.FetchedPartition(place, end, 1_000_000, 0, 0, -1)
    one.do(events.FetchRequested(one.number(), B, 0, 1, (asked,)))


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_p4_the_end_is_decided_then_marked_then_written_down(commit: bool) -> None:
    one = _started()
    assert one.end(commit=commit) is Error.NONE
    prepared = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    assert [m.state for m in one.appended(X)] == [prepared]
    [sent] = one.found(effects.SendWriteTxnMarkers)
    assert sent.markers == ((EndTransactionMarker(1000, 0, 0, commit), (T,)),)
    one.deliver()
    complete = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
    assert [(m.state, m.partitions) for m in one.appended(X)] == [(complete, ())]
    assert (one.broker.unmarked, one.broker.marking) == ({}, {})


def test_p4_what_is_decided_may_be_asked_for_again_and_its_contrary_may_not() -> None:
    one = _started()
    one.end(commit=True)
    markers = list(one.done)
    assert one.end(commit=True) is Error.CONCURRENT_TRANSACTIONS
    assert one.end(commit=False) is Error.INVALID_TXN_STATE
    one.done = markers
    one.deliver()
    assert one.end(commit=True) is Error.NONE
    assert one.end(commit=False) is Error.INVALID_TXN_STATE
    one.init()
    assert one.end(commit=True, epoch=1) is Error.INVALID_TXN_STATE  # there is none


def test_p4_the_next_transaction_waits_for_the_markers_of_this_one() -> None:
    one = _started()
    one.end(commit=True)
    markers = list(one.done)
    assert one.add() == {T: Error.CONCURRENT_TRANSACTIONS}
    one.done = markers
    one.deliver()
    assert one.add() == {T: Error.NONE}


def test_p4_a_producer_that_starts_again_has_its_transaction_aborted() -> None:
    one = _started()
    assert one.init()[0] is Error.CONCURRENT_TRANSACTIONS
    [sent] = one.found(effects.SendWriteTxnMarkers)
    assert sent.markers == ((EndTransactionMarker(1000, 1, 0, False), (T,)),)
    one.deliver()
    assert one.init() == (Error.NONE, 1000, 2)
    assert one.write(epoch=0, sequence=1) is Error.INVALID_PRODUCER_EPOCH
    assert one.end(commit=True, epoch=0) is Error.PRODUCER_FENCED


def test_p4_a_transaction_that_takes_too_long_is_aborted() -> None:
    one = _started()
    one.now += TIMEOUT_MS
    one.do(events.TimerFired(events.TransactionExpiration()))
    assert one.metadata.state is State.ONGOING
    assert one.found(effects.SetTimer) == [effects.SetTimer(events.TransactionExpiration(), 10_000)]
    one.now += 1
    one.do(events.TimerFired(events.TransactionExpiration()))
    assert (one.metadata.state, one.metadata.producer_epoch) == (State.PREPARE_ABORT, 1)


# --- markers on their way -------------------------------------------------------------------------


def test_p4_markers_that_are_not_written_are_sent_again() -> None:
    one = _started()
    one.end(commit=True)
    [sent] = one.found(effects.SendWriteTxnMarkers)
    one.do(events.WriteTxnMarkersFailed(A, sent.sequence))
    assert one.found(effects.SetTimer) == [effects.SetTimer(events.MarkerRetry(), 100)]
    one.do(events.TimerFired(events.MarkerRetry()))
    [again] = one.found(effects.SendWriteTxnMarkers)
    assert again.markers == sent.markers
    refused = events.MarkedPartition(1000, T, Error.NOT_LEADER_OR_FOLLOWER)
    one.do(events.WriteTxnMarkersResponded(A, again.sequence, (refused,)))
    [more] = one.found(effects.SendWriteTxnMarkers)
    assert more.markers == sent.markers


def test_p4_a_coordinator_that_is_fenced_stops() -> None:
    one = _started()
    one.end(commit=True)
    [sent] = one.found(effects.SendWriteTxnMarkers)
    refused = events.MarkedPartition(1000, T, Error.TRANSACTION_COORDINATOR_FENCED)
    one.do(events.WriteTxnMarkersResponded(A, sent.sequence, (refused,)))
    assert (one.found(effects.SendWriteTxnMarkers), one.broker.unmarked) == ([], {})
    assert one.metadata.state is State.PREPARE_COMMIT


def test_p4_the_next_coordinator_goes_on_with_what_is_decided() -> None:
    one = Coordinator()
    prepared = TransactionMetadata("tx", 7, 3, TIMEOUT_MS, State.PREPARE_COMMIT, (T,))
    one.lead(A, 5)
    one.do(events.TransactionsRead(X, (prepared,)))
    [sent] = one.found(effects.SendWriteTxnMarkers)
    assert sent.markers == ((EndTransactionMarker(7, 3, 5, True), (T,)),)
    one.do(events.TransactionsRead(X, (replace(prepared, state=State.ONGOING),)))
    assert one.found(effects.SendWriteTxnMarkers) == []


def test_p4_an_answer_to_markers_of_before_an_election_says_nothing() -> None:
    one = _started()
    one.end(commit=True)
    [sent] = one.found(effects.SendWriteTxnMarkers)
    kept = one.metadata
    one.lead(A, 1)
    one.do(events.TransactionsRead(X, (kept,)))
    one.do(
        events.WriteTxnMarkersResponded(
            A, sent.sequence, (events.MarkedPartition(1000, T, Error.NONE),)
        )
    )
    [again] = one.found(effects.SendWriteTxnMarkers)
    assert again.markers == ((EndTransactionMarker(1000, 0, 1, True), (T,)),)


def test_p4_the_last_record_is_written_again_where_it_was_not_in_time() -> None:
    one = Coordinator(isr=(A, B))
    prepared = TransactionMetadata("tx", 1000, 0, TIMEOUT_MS, State.PREPARE_COMMIT, (T,))
    one.do(events.TransactionsRead(X, (prepared,)))
    [sent] = one.found(effects.SendWriteTxnMarkers)
    written = events.MarkedPartition(1000, T, Error.NONE)
    one.do(events.WriteTxnMarkersResponded(A, sent.sequence, (written,)))
    assert [m.state for m in one.appended(X)] == [State.COMPLETE_COMMIT]
    [late] = (request for request in one.broker.delayed if request < 0)
    one.do(events.TimerFired(events.DelayedOperationExpired(late)))
    assert one.found(effects.SetTimer) == [effects.SetTimer(events.MarkerRetry(), 100)]
    assert one.metadata.state is State.PREPARE_COMMIT
    one.do(events.TimerFired(events.MarkerRetry()))
    assert [m.state for m in one.appended(X)] == [State.COMPLETE_COMMIT]
    _fetched(one, X)
    assert (one.metadata.state, one.broker.unmarked) == (State.COMPLETE_COMMIT, {})


def test_p4_a_record_that_is_not_committed_in_time_has_changed_nothing() -> None:
    one = Coordinator(isr=(A, B))
    one.do(events.InitProducerIdRequested(1, "tx", TIMEOUT_MS))
    [late] = (request for request in one.broker.delayed if request < 0)
    one.do(events.TimerFired(events.DelayedOperationExpired(late)))
    assert one.identity()[0] is Error.COORDINATOR_NOT_AVAILABLE
    one.do(events.InitProducerIdRequested(2, "tx", TIMEOUT_MS))
    _fetched(one, X)
    assert one.identity() == (Error.NONE, 1000, 0)


def test_p4_a_transaction_whose_end_is_on_its_way_does_not_take_too_long() -> None:
    one = Coordinator(isr=(A, B))
    ongoing = TransactionMetadata("tx", 1000, 0, 1, State.ONGOING, (T,), NOW)
    one.do(events.TransactionsRead(X, (ongoing,)))
    one.do(events.EndTxnRequested(1, "tx", 1000, 0, True))
    one.now += 2
    one.do(events.TimerFired(events.TransactionExpiration()))
    assert one.appended(X) == []


def test_p4_a_transaction_of_no_partition_ends_too() -> None:
    one = Coordinator()
    one.init()
    one.do(events.AddPartitionsToTxnRequested(5, "tx", 1000, 0, ()))
    assert one.end(commit=True) is Error.NONE
    assert effects.SetTimer(events.MarkerRetry(), 0) in one.done
    one.do(events.TimerFired(events.MarkerRetry()))
    assert (one.metadata.state, one.broker.unmarked) == (State.COMPLETE_COMMIT, {})


def test_p4_a_coordinator_goes_on_before_it_knows_how_many_there_are() -> None:
    """It has just started: LeaderAndIsr names its partition, UpdateMetadata is still to come."""
    second = TopicPartition(TRANSACTIONS_TOPIC, 1)
    one = broker("2.8", None)
    state = events.PartitionState(second, LeaderAndIsr(A, 4, (A,), 1, 4), (A, B, C), {})
    step(one, events.LeaderAndIsrRequested(1, C, 1, (state,), LIVE), NOW)
    prepared = TransactionMetadata("tx", 7, 3, TIMEOUT_MS, State.PREPARE_COMMIT, (T,))
    done = step(one, events.TransactionsRead(second, (prepared,)), NOW)
    assert done[-1] == effects.SetTimer(events.MarkerRetry(), 100)
    known = events.PartitionState(T, LeaderAndIsr(B, 0, (B,), 1, 0), (A, B, C), {})
    counts = {TRANSACTIONS_TOPIC: 2}
    step(one, events.UpdateMetadataRequested(1, C, 1, (state, known), LIVE, counts), NOW)
    [sent] = (
        effect
        for effect in step(one, events.TimerFired(events.MarkerRetry()), NOW)
        if isinstance(effect, effects.SendWriteTxnMarkers)
    )
    assert (sent.leader, sent.markers[0][0].coordinator_epoch) == (B, 4)


def test_p4_an_id_that_no_record_has_room_for_is_refused() -> None:
    one = Coordinator()
    assert one.init(transactional_id="x" * 32_768)[0] is Error.UNKNOWN_SERVER_ERROR
    assert one.init(transactional_id="x" * 32_767)[0] is Error.NONE


# --- what a leader makes of it --------------------------------------------------------------------


def _mark(one: Coordinator, *, epoch: int = 0, coordinator: int = 0, commit: bool = True) -> Error:
    marker = EndTransactionMarker(1000, epoch, coordinator, commit)
    one.do(events.WriteTxnMarkersRequested(one.number(), ((marker, (T,)),)))
    [answer] = one.found(effects.RespondWriteTxnMarkers)
    return answer.results[0].error


def test_p4_a_marker_of_an_old_epoch_or_coordinator_ends_nothing() -> None:
    one = _started()
    assert _mark(one, coordinator=3) is Error.NONE
    assert _mark(one, coordinator=2) is Error.TRANSACTION_COORDINATOR_FENCED
    assert _mark(one, epoch=4, coordinator=3) is Error.NONE
    assert _mark(one, epoch=3, coordinator=3) is Error.INVALID_PRODUCER_EPOCH


def test_p4_after_a_marker_of_a_newer_epoch_sequences_begin_again() -> None:
    one = _started()
    _mark(one, epoch=1, commit=False)
    assert one.write(epoch=1, sequence=1) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert one.write(epoch=1, sequence=0) is Error.NONE
    same = _started()
    _mark(same, epoch=0)
    assert same.write(epoch=0, sequence=1) is Error.NONE


@pytest.mark.parametrize("generation", ["2.8", "4.0"])
def test_p4_records_of_a_transaction_need_the_id_of_one(generation: str) -> None:
    one = Coordinator(generation)
    producer = ProducerSequence(1000, 0, 0, is_transactional=True)
    batch = events.ProducedBatch(1, 100, "m", producer=producer)
    one.do(events.ProduceRequested(5, -1, 9_000, ((T, (batch,)),)))
    [answer] = one.found(effects.RespondProduce)
    assert answer.results[0].error is Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert one.broker.partitions[T].log.end_offset == 0


def test_p4_a_producer_in_a_transaction_writes_nothing_beside_it() -> None:
    one = _started()
    assert one.write(sequence=1, transactional=False) is Error.INVALID_TXN_STATE
    _mark(one)
    assert one.write(sequence=1, transactional=False) is Error.NONE


def test_p4_what_is_stable_ends_where_the_oldest_open_transaction_begins() -> None:
    one = Coordinator()
    one.init()
    assert one.stable == 0
    one.add()
    one.write()
    one.write(sequence=1)
    assert (one.stable, one.broker.partitions[T].high_watermark) == (0, 2)
    _mark(one)
    assert one.stable == 3


def test_p4_who_is_in_a_transaction_is_not_forgotten() -> None:
    one = _started()
    for now in (NOW, NOW + 10):
        one.now = now
        one.do(events.ProducerExpiration(10))
    assert 1000 in one.broker.partitions[T].log.producers
    _mark(one)
    for now in (NOW + 20, NOW + 30):
        one.now = now
        one.do(events.ProducerExpiration(10))
    assert 1000 not in one.broker.partitions[T].log.producers


def test_p4_a_marker_that_is_not_committed_has_ended_nothing_yet() -> None:
    one = Coordinator(isr=(A, B))
    producer = ProducerSequence(1000, 0, 0, is_transactional=True)
    batch = events.ProducedBatch(1, 100, "m", producer=producer)
    one.do(events.ProduceRequested(1, -1, 9_000, ((T, (batch,)),), "tx"))
    _fetched(one, T)
    assert (one.stable, one.broker.partitions[T].high_watermark) == (0, 1)
    marker = EndTransactionMarker(1000, 0, 0, True)
    one.do(events.WriteTxnMarkersRequested(2, ((marker, (T,)),)))
    assert one.found(effects.RespondWriteTxnMarkers) == []
    assert one.stable == 0
    _fetched(one, T)
    assert [one.error for one in _answered(one)] == [Error.NONE]
    assert one.stable == 2


def _answered(one: Coordinator) -> tuple[events.MarkedPartition, ...]:
    [answer] = one.found(effects.RespondWriteTxnMarkers)
    return answer.results


@pytest.mark.parametrize(("is_committed", "end"), [(True, 0), (False, 1)])
def test_p4_who_wants_committed_records_reads_what_is_stable(is_committed: bool, end: int) -> None:
    one = _started()
    asked = events.FetchedPartition(T, 0, 1_000_000, 0, 0, -1)
    one.do(events.FetchRequested(1, -1, 0, 1, (asked,), is_committed=is_committed))
    [answer] = one.found(effects.RespondFetch)
    [result] = answer.results
    assert (result.last_stable_offset, result.high_watermark) == (0, 1)
    assert (result.records.end if result.records else 0) == end
    one.do(
        events.ListOffsetsRequested(2, -1, (events.OffsetAsked(T, -1),), is_committed=is_committed)
    )
    [listed] = one.found(effects.RespondListOffsets)
    assert [found.offset for found in listed.results] == [end]


@pytest.mark.parametrize("commit", [True, False])
def test_p4_aborted_transactions_go_into_the_index(commit: bool) -> None:
    one = _started()
    _mark(one, commit=commit)
    [write] = one.found(effects.AppendToLog)
    assert write.aborted == (() if commit else (AbortedTransaction(1000, 0, 1, 2),))


def test_p4_a_log_that_lost_a_marker_has_the_transaction_open_again() -> None:
    """What the log says after a cut is read from it."""
    one = _started()
    _mark(one)
    one.lead(B, 1)
    follower = one.broker
    assert follower.partitions[T].log.transactions == Transactions()
    cut = events.ProducersRead(T, follower.partitions[T].log.producers, Transactions({1000: 0}))
    one.do(cut)
    assert follower.partitions[T].log.transactions.ongoing == {1000: 0}


# --- offsets in a transaction ---------------------------------------------------------------------


def _commit_offset(one: Coordinator, offset: int, *, transactional: bool) -> Error:
    committed = (OffsetCommitRecord("g", T, OffsetAndMetadata(offset)),)
    if transactional:
        one.do(events.TxnOffsetCommitRequested(one.number(), "g", 1000, 0, committed))
        [answer] = one.found(effects.RespondTxnOffsetCommit)
        return answer.results[0][1]
    one.do(events.OffsetCommitRequested(one.number(), "g", -1, committed))
    [plain] = one.found(effects.RespondOffsetCommit)
    return plain.results[0][1]


def _committed(one: Coordinator, *, is_stable: bool = False) -> tuple[int, bool]:
    """The group's offset, and whether it is said to be decided yet."""
    wanted = (events.WantedOffsets("g", (T,)),)
    one.do(events.OffsetFetchRequested(one.number(), wanted, is_stable))
    [answer] = one.found(effects.RespondOffsetFetch)
    [of_group] = answer.groups
    return of_group.results[0][1].offset, T not in of_group.unstable


@pytest.mark.parametrize(("commit", "offset"), [(True, 9), (False, 4)])
def test_p4_offsets_of_a_transaction_hold_once_it_is_committed(commit: bool, offset: int) -> None:
    one = Coordinator()
    one.init()
    _commit_offset(one, 4, transactional=False)
    one.do(events.AddOffsetsToTxnRequested(5, "tx", 1000, 0, "g"))
    assert one.metadata.partitions == (G,)
    assert _commit_offset(one, 9, transactional=True) is Error.NONE
    assert _committed(one) == (4, True)
    assert _committed(one, is_stable=True) == (4, False)
    one.end(commit=commit)
    one.deliver()
    assert _committed(one, is_stable=True) == (offset, True)


def test_p4_the_first_who_commits_offsets_has_their_topic_made() -> None:
    one = broker("2.8", None)
    step(one, events.UpdateMetadataRequested(1, C, 1, (), LIVE), NOW)
    created, answer = step(one, events.AddOffsetsToTxnRequested(5, "tx", 1000, 0, "g"), NOW)
    assert isinstance(created, effects.Coordinate)
    assert isinstance(created.request, CreateTopic)
    assert created.request.topic == OFFSETS_TOPIC
    assert answer == effects.RespondTransaction(5, Error.COORDINATOR_NOT_AVAILABLE)


def test_p4_what_is_committed_later_does_not_give_way() -> None:
    one = Coordinator()
    one.init()
    one.do(events.AddOffsetsToTxnRequested(5, "tx", 1000, 0, "g"))
    _commit_offset(one, 9, transactional=True)
    _commit_offset(one, 12, transactional=False)
    one.end(commit=True)
    one.deliver()
    assert _committed(one) == (12, True)


def test_p4_offsets_of_an_old_epoch_are_refused() -> None:
    one = Coordinator()
    one.init()
    one.do(events.AddOffsetsToTxnRequested(5, "tx", 1000, 0, "g"))
    assert _commit_offset(one, 9, transactional=True) is Error.NONE
    assert one.init()[0] is Error.CONCURRENT_TRANSACTIONS
    one.deliver()
    assert _commit_offset(one, 10, transactional=True) is Error.INVALID_PRODUCER_EPOCH


# --- verification (KIP-890) -----------------------------------------------------------------------


def _late(one: Coordinator, sequence: int = 0) -> list[effects.SendAddPartitionsToTxn]:
    producer = ProducerSequence(1000, 0, sequence, is_transactional=True)
    batch = events.ProducedBatch(1, 100, "m", producer=producer)
    one.do(events.ProduceRequested(one.number(), -1, 9_000, ((T, (batch,)),), "tx"))
    return one.found(effects.SendAddPartitionsToTxn)


def _asked(one: Coordinator, sent: effects.SendAddPartitionsToTxn) -> Error:
    """The coordinator answers, and then the leader does."""
    one.do(
        events.AddPartitionsToTxnRequested(
            one.number(), "tx", sent.producer_id, sent.producer_epoch, (T,), verifies=True
        )
    )
    [answer] = one.found(effects.RespondTransaction)
    one.do(events.AddPartitionsToTxnResponded(sent.sequence, answer.partitions))
    [produced] = one.found(effects.RespondProduce)
    return produced.results[0].error


def test_p4_from_3_6_on_a_leader_asks_before_the_first_batch_alone() -> None:
    one = Coordinator("4.0")
    one.init()
    one.add()
    [sent] = _late(one)
    assert one.found(effects.AppendToLog) == []
    assert _asked(one, sent) is Error.NONE
    assert _late(one, 1) == []
    before = Coordinator("2.8")
    before.init()
    assert _late(before) == []
    assert len(before.found(effects.AppendToLog)) == 1


def test_p4_what_is_in_no_transaction_is_not_appended() -> None:
    one = Coordinator("4.0")
    one.init()
    [sent] = _late(one)
    assert _asked(one, sent) is Error.INVALID_TXN_STATE
    assert one.broker.partitions[T].log.end_offset == 0


def test_p4_what_was_said_of_a_transaction_that_has_ended_since_does_not_count() -> None:
    one = Coordinator("4.0")
    one.init()
    one.add()
    [sent] = _late(one)
    _mark(one, commit=False)
    one.do(events.AddPartitionsToTxnResponded(sent.sequence, ((T, Error.NONE),)))
    [produced] = one.found(effects.RespondProduce)
    assert produced.results[0].error is Error.INVALID_TXN_STATE


def test_p4_a_coordinator_that_does_not_answer_has_the_client_try_again() -> None:
    one = Coordinator("4.0")
    one.init()
    [sent] = _late(one)
    one.do(events.AddPartitionsToTxnFailed(sent.sequence))
    [produced] = one.found(effects.RespondProduce)
    assert produced.results[0].error is Error.NOT_ENOUGH_REPLICAS


# --- operators ------------------------------------------------------------------------------------


def test_p4_operators_see_transactions_and_producers() -> None:
    one = _started(generation="2.8")
    one.do(events.DescribeTransactionsRequested(1, ("tx", "nobody")))
    [described] = one.found(effects.RespondDescribeTransactions)
    assert [(name, error) for name, error, _ in described.results] == [
        ("tx", Error.NONE),
        ("nobody", Error.TRANSACTIONAL_ID_NOT_FOUND),
    ]
    for request, count in (
        (events.ListTransactionsRequested(2), 1),
        (events.ListTransactionsRequested(2, states=("Empty",)), 0),
        (events.ListTransactionsRequested(2, states=("Ongoing",), producer_ids=(1000,)), 1),
        (events.ListTransactionsRequested(2, duration_ms=1_000), 0),
    ):
        one.do(request)
        [listed] = one.found(effects.RespondListTransactions)
        assert len(listed.transactions) == count
    one.do(events.DescribeProducersRequested(3, (T, TopicPartition("nowhere", 0))))
    [producers] = one.found(effects.RespondDescribeProducers)
    assert producers.results == (
        (T, Error.NONE, (effects.ActiveProducer(1000, 0, 0, -1, 0),)),
        (TopicPartition("nowhere", 0), Error.UNKNOWN_TOPIC_OR_PARTITION, ()),
    )
