"""A11: what is known of idempotent producers costs little to change, and not for ever."""

from __future__ import annotations

from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.model import Batch, ProducerSequence
from neaptide.clusters.broker.replication.partition import producer_state_manager
from neaptide.clusters.broker.replication.partition.producer_state_manager import Producers
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.given import NOW, T

DAY_MS = 86_400_000


def _batch(producer_id: int, sequence: int = 0, offset: int = 0) -> Batch:
    return Batch(offset, 1, 0, 100, None, ProducerSequence(producer_id, 0, sequence))


def _known(*ids: int) -> Producers:
    return producer_state_manager.of_batches(_batch(one, offset=one) for one in ids)


def test_a11_who_learns_of_a_producer_does_not_copy_all_of_them() -> None:
    """By what is copied, not by the clock: items of new mappings, for each of many batches."""
    known = _known(*range(10_000))
    copied = 0
    for number in range(1_000):
        before = known
        known = producer_state_manager.learn(known, _batch(number, 1, 10_000 + number))
        shares = known._older is before._older
        copied += len(known._newer) if shares else len(known._older)
    assert copied / 1_000 < 300
    assert len(known) == 10_000
    assert known[5].batches[-1].base_sequence == 1
    assert known[5_000].batches[-1].base_sequence == 0


def test_a11_the_map_is_what_a_dictionary_would_be() -> None:
    expected = {}
    known = producer_state_manager.NO_PRODUCERS
    for number in range(2_000):
        batch = _batch(number * 7 % 500, 0, number)
        known = producer_state_manager.learn(known, batch)
        expected[number * 7 % 500] = known[number * 7 % 500]
    assert known == expected
    assert dict(known) == expected
    assert sorted(known) == sorted(expected)
    assert producer_state_manager.forget_before(known, 1_990) == {
        one: state for one, state in expected.items() if state.batches[-1].next_offset > 1_990
    }


def _produce(producer_id: int, sequence: int) -> events.ProduceRequested:
    batch = events.ProducedBatch(1, 100, "r", producer=ProducerSequence(producer_id, 0, sequence))
    return events.ProduceRequested(1, 1, 1_000, ((T, (batch,)),))


def test_a11_a_producer_is_forgotten_when_it_has_been_silent_for_so_long() -> None:
    leader = given.leading(isr=(given.A,))
    look = events.ProducerExpiration(DAY_MS)
    step(leader, _produce(7, 0), NOW)
    step(leader, _produce(8, 0), NOW)
    step(leader, look, NOW + 1)
    step(leader, look, NOW + DAY_MS)
    assert set(given.of(leader).log.producers) == {7, 8}
    step(leader, _produce(8, 1), NOW + DAY_MS)
    step(leader, look, NOW + 1 + DAY_MS)
    assert set(given.of(leader).log.producers) == {8}
    step(leader, look, NOW + 1 + 2 * DAY_MS)
    assert set(given.of(leader).log.producers) == set()
