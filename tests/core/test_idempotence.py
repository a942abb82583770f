"""P4 in the core: what a leader knows again, what it refuses, and from where it knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import coordination_service, effects, events
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import Batch, ProducerSequence
from neaptide.clusters.broker.replication.partition.producer_state_manager import (
    SEQUENCES,
    BatchMetadata,
    of_batches,
)
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.given import NOW, A, B, T

ID = 7
WITH = [name for name, rules in GENERATIONS.items() if rules.idempotence is not None]
NONE = Error.NONE
OUT_OF_ORDER = Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def _batch(base_sequence: int, count: int = 1, *, epoch: int = 0) -> events.ProducedBatch:
    sequence = ProducerSequence(ID, epoch, base_sequence)
    return events.ProducedBatch(count, 100, f"s{base_sequence}", producer=sequence)


def _produce(
    leader: Broker, *batches: events.ProducedBatch, acks: int = 1, request: int = 1
) -> tuple[Effect, ...]:
    return step(leader, events.ProduceRequested(request, acks, 30_000, ((T, batches),)), NOW)


def _answers(done: tuple[Effect, ...]) -> list[tuple[Error, int]]:
    """Error and base offset of every produce answer."""
    return [
        (result.error, result.base_offset)
        for effect in done
        if isinstance(effect, effects.RespondProduce)
        for result in effect.results
    ]


def _answer(leader: Broker, *batches: events.ProducedBatch) -> tuple[Error, int]:
    [answer] = _answers(_produce(leader, *batches))
    return answer


def _after(generation: str, *base_sequences: int, count: int = 1) -> Broker:
    """A leader alone in its ISR that has appended these."""
    leader = given.leading(generation, isr=(A,))
    for base_sequence in base_sequences:
        assert _answer(leader, _batch(base_sequence, count))[0] is NONE
    return leader


# --- what a leader knows again -------------------------------------------------------------------


@pytest.mark.parametrize("generation", WITH)
def test_p4_the_last_batch_is_known_again_and_has_its_first_offset(generation: str) -> None:
    leader = _after(generation, 0, 3, 6, count=3)
    done = _produce(leader, _batch(6, 3))
    assert _answers(done) == [(NONE, 6)]
    assert not given.did(done, effects.AppendToLog)
    assert given.of(leader).log.end_offset == 9


@pytest.mark.parametrize("generation", ["0.8", "0.10"])
def test_p4_before_0_11_nobody_looks_at_sequences(generation: str) -> None:
    leader = _after(generation, 0, 0, 5)
    assert given.of(leader).log.end_offset == 3


@pytest.mark.parametrize(("generation", "known"), [("0.11", 1), ("2.0", 5), ("2.1", 5), ("4.0", 5)])
def test_p4_so_many_batches_are_known_again_and_no_more(generation: str, known: int) -> None:
    leader = _after(generation, *range(7))
    answers = [_answer(leader, _batch(sequence)) for sequence in reversed(range(7))]
    assert answers[:known] == [(NONE, 6 - n) for n in range(known)]
    assert answers[known:] == [(OUT_OF_ORDER, -1)] * (7 - known)


@pytest.mark.parametrize(
    ("base_sequence", "count"),
    [(4, 1), (1, 1), (0, 2), (2, 2)],
    ids=["a gap", "a part of one", "across two", "one, and more"],
)
def test_p4_what_is_neither_next_nor_known_is_refused(base_sequence: int, count: int) -> None:
    leader = _after("2.1", 0)
    _produce(leader, _batch(1, 2))
    before = leader.copy()
    assert _answer(leader, _batch(base_sequence, count)) == (OUT_OF_ORDER, -1)
    assert leader == before
    assert _answer(leader, _batch(3)) == (NONE, 3)


@pytest.mark.parametrize(
    ("generation", "error"),
    [
        ("0.11", OUT_OF_ORDER),
        ("2.0", Error.UNKNOWN_PRODUCER_ID),
        ("2.1", Error.UNKNOWN_PRODUCER_ID),
        ("4.0", NONE),
    ],
)
def test_p4_who_is_unknown_and_does_not_begin_at_0(generation: str, error: Error) -> None:
    assert _answer(_after(generation), _batch(4))[0] is error


def test_p4_an_older_epoch_is_fenced_and_a_newer_one_begins_at_0() -> None:
    leader = _after("2.1", 0, 1)
    assert _answer(leader, _batch(1, epoch=1)) == (OUT_OF_ORDER, -1)
    assert _answer(leader, _batch(0, epoch=1)) == (NONE, 2)
    assert _answer(leader, _batch(2)) == (Error.INVALID_PRODUCER_EPOCH, -1)
    assert _answer(leader, _batch(1, epoch=1)) == (NONE, 3)


def test_p4_after_the_last_sequence_comes_0() -> None:
    wraps = Batch(0, 2, 0, 100, producer=ProducerSequence(ID, 0, SEQUENCES - 1))
    assert of_batches([wraps])[ID].batches == (BatchMetadata(SEQUENCES - 1, 0, 0, 2),)
    leader = given.leading("4.0", isr=(A,))
    assert _answer(leader, _batch(SEQUENCES - 2, 2)) == (NONE, 0)
    assert _answer(leader, _batch(0)) == (NONE, 2)
    assert _answer(leader, _batch(SEQUENCES - 2, 2)) == (NONE, 0)


def test_p4_two_batches_of_an_idempotent_producer_in_one_request_are_refused() -> None:
    leader = _after("2.1")
    assert _answer(leader, _batch(0), _batch(1)) == (Error.CORRUPT_MESSAGE, -1)
    assert given.of(leader).log.end_offset == 0


# --- acks=all ------------------------------------------------------------------------------------


def test_p4_a_duplicate_waits_until_its_first_copy_is_committed() -> None:
    leader = given.leading("2.1", isr=(A, B), min_insync_replicas=2)
    assert _answers(_produce(leader, _batch(0), acks=-1, request=1)) == []
    assert _answers(_produce(leader, _batch(0), acks=-1, request=2)) == []
    assert _answers(step(leader, given.fetch(B, 1), NOW)) == [(NONE, 0), (NONE, 0)]
    assert _answers(_produce(leader, _batch(0), acks=-1, request=3)) == [(NONE, 0)]
    assert given.of(leader).log.end_offset == 1


def test_p4_a_duplicate_is_refused_where_the_isr_is_too_small() -> None:
    leader = given.leading("2.1", isr=(A, B), min_insync_replicas=2)
    _produce(leader, _batch(0), acks=-1)
    shrunk = given.leader_and_isr(A, 1, (A,), min_insync_replicas=2)
    step(leader, shrunk, NOW)
    answers = _answers(_produce(leader, _batch(0), acks=-1, request=2))
    assert answers == [(Error.NOT_ENOUGH_REPLICAS, -1)]


# --- followers, truncation, the start ------------------------------------------------------------


def _fetched(follower: Broker, *base_offsets: int) -> events.FetchResponded:
    """Batches of one record, whose sequence is their offset."""
    answer = given.fetch_answer(follower, *base_offsets)
    batches = tuple(
        replace(batch, producer=ProducerSequence(ID, 0, batch.base_offset))
        for batch in answer.results[0].batches
    )
    return replace(answer, results=(replace(answer.results[0], batches=batches),))


def test_p4_a_follower_learns_from_what_it_appends_and_knows_it_as_leader() -> None:
    follower = given.fetching("2.1")
    step(follower, _fetched(follower, 0, 1, 2), NOW)
    step(follower, given.leader_and_isr(A, 1, (A,)), NOW)
    assert _answer(follower, _batch(1)) == (NONE, 1)
    assert _answer(follower, _batch(4)) == (OUT_OF_ORDER, -1)
    assert _answer(follower, _batch(3)) == (NONE, 3)


def _cut_to(follower: Broker, offset: int) -> tuple[Effect, ...]:
    """A new leader says that the follower's epoch ends there."""
    late = given.fetch_answer(follower)
    step(follower, given.leader_and_isr(B, 1), NOW)
    step(follower, late, NOW)
    return step(follower, given.epochs_answer(follower, offset, leader_epoch=0), NOW)


def test_p4_a_log_that_is_cut_is_read_again_and_the_cut_batches_are_unknown() -> None:
    follower = given.fetching("2.1")
    batches = _fetched(follower, *range(7))
    step(follower, batches, NOW)
    done = given.did(_cut_to(follower, 4), effects.TruncateLog, effects.ReadProducers)
    assert done == [
        effects.TruncateLog(T, 4),
        effects.ReadProducers(T, follower.partitions[T].high_watermark),
    ]
    left = of_batches(batches.results[0].batches[:4])
    assert step(follower, events.ProducersRead(T, left), NOW) == ()
    step(follower, given.leader_and_isr(A, 2, (A,)), NOW)
    assert _answer(follower, _batch(0)) == (NONE, 0)  # it had been the sixth from the end
    assert _answer(follower, _batch(5)) == (OUT_OF_ORDER, -1)
    assert _answer(follower, _batch(4)) == (NONE, 4)


def test_p4_a_cut_that_touches_no_producer_reads_nothing() -> None:
    follower = given.fetching("2.1")
    step(follower, given.fetch_answer(follower, *range(7)), NOW)
    assert given.did(_cut_to(follower, 4), effects.TruncateLog, effects.ReadProducers) == [
        effects.TruncateLog(T, 4)
    ]


def test_p4_a_broker_that_starts_knows_what_its_log_says() -> None:
    found = given.stored(2, 2, epochs={0: 0})
    logged = (Batch(n, 1, 0, 100, producer=ProducerSequence(ID, 0, n)) for n in range(2))
    log = replace(found[T].log, producers=of_batches(logged))
    leader = given.broker("2.1", {T: replace(found[T], log=log)})
    step(leader, given.leader_and_isr(A, 1, (A,)), NOW)
    assert _answer(leader, _batch(0)) == (NONE, 0)
    assert _answer(leader, _batch(2)) == (NONE, 2)


@pytest.mark.parametrize(
    ("generation", "answer"), [("2.1", Error.UNKNOWN_PRODUCER_ID), ("4.0", OUT_OF_ORDER)]
)
def test_p4_a_producer_whose_records_are_deleted_is_forgotten_up_to_2_3(
    generation: str, answer: Error
) -> None:
    leader = _after(generation, 0, 1, 2)
    step(leader, events.LogStartAdvanced(T, 2), NOW)
    assert _answer(leader, _batch(2)) == (NONE, 2)
    step(leader, events.LogStartAdvanced(T, 3), NOW)
    assert _answer(leader, _batch(5))[0] is answer


# --- producer ids --------------------------------------------------------------------------------


def _ids(done: tuple[Effect, ...]) -> list[tuple[int, int]]:
    return [
        (effect.request, effect.producer_id)
        for effect in done
        if isinstance(effect, effects.RespondInitProducerId)
    ]


def test_p4_producer_ids_come_from_one_block_after_the_other() -> None:
    one = given.broker("2.1")
    asks = effects.Coordinate(coordination_service.AllocateProducerIds())
    assert step(one, events.InitProducerIdRequested(1), NOW) == (asks,)
    assert step(one, events.InitProducerIdRequested(2), NOW) == ()
    assert step(one, events.InitProducerIdRequested(3), NOW) == ()
    done = step(one, coordination_service.ProducerIdsAllocated(1000, 1002), NOW)
    assert _ids(done) == [(1, 1000), (2, 1001)]
    assert asks in done
    assert _ids(step(one, coordination_service.ProducerIdsAllocated(5000, 6000), NOW)) == [
        (3, 5000)
    ]
    assert _ids(step(one, events.InitProducerIdRequested(4), NOW)) == [(4, 5001)]


def test_p4_a_block_is_asked_for_again_in_the_next_session() -> None:
    one = given.broker("2.1")
    step(one, events.InitProducerIdRequested(1), NOW)
    step(one, coordination_service.SessionExpired(), NOW)
    asks = effects.Coordinate(coordination_service.AllocateProducerIds())
    assert asks in step(one, coordination_service.SessionStarted(2), NOW)
    step(one, events.RequestAbandoned(1), NOW)
    assert _ids(step(one, coordination_service.ProducerIdsAllocated(0, 1000), NOW)) == []
    assert _ids(step(one, events.InitProducerIdRequested(2), NOW)) == [(2, 0)]


def test_p4_before_0_11_there_are_no_transactions() -> None:
    one = given.broker("0.10")
    [answer] = given.did(step(one, events.InitProducerIdRequested(1, "mine", 60_000), NOW))
    assert answer == effects.RespondInitProducerId(1, Error.INVALID_REQUEST, -1, -1)
