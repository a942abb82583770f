"""R9, F9: a log that retention shortened at its beginning, on a leader and on those who follow."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.errors import Error, IllegalReplicaStateError
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.given import NOW, T
from tests.core.world import A, B, World, cluster


def test_r9_a_leader_takes_over_where_its_log_starts_and_answers_with_it() -> None:
    leader = given.leading(isr=(A,), records=5, high_watermark=5)
    step(leader, events.LogStartAdvanced(T, 3), NOW)
    assert given.of(leader).log.start_offset == 3
    [answer] = [
        effect
        for effect in step(leader, given.fetch(B, 5, max_wait_ms=0), NOW)
        if isinstance(effect, effects.RespondFetch)
    ]
    assert (answer.results[0].error, answer.results[0].log_start_offset) == (Error.NONE, 3)


def test_r9_who_asks_for_what_was_deleted_is_out_of_range() -> None:
    leader = given.leading(isr=(A,), records=5, high_watermark=5)
    step(leader, events.LogStartAdvanced(T, 3), NOW)
    for offset, error in ((2, Error.OFFSET_OUT_OF_RANGE), (3, Error.NONE)):
        done = step(leader, given.fetch(B, offset, request=offset, max_wait_ms=0), NOW)
        [answer] = [effect for effect in done if isinstance(effect, effects.RespondFetch)]
        assert answer.results[0].error is error


def test_r9_nothing_above_the_high_watermark_is_deleted() -> None:
    leader = given.leading(records=5, high_watermark=2)
    with pytest.raises(IllegalReplicaStateError, match="above the high watermark 2"):
        step(leader, events.LogStartAdvanced(T, 3), NOW)
    assert given.of(leader).log.start_offset == 0


def test_r9_retention_of_a_replica_that_is_gone_is_no_matter() -> None:
    assert step(given.broker(), events.LogStartAdvanced(T, 3), NOW) == ()


@pytest.mark.parametrize(("generation", "high_watermark"), [("2.1", 1), ("2.8", 3), ("4.0", 3)])
def test_r9_a_new_leaders_high_watermark_may_be_below_what_a_follower_has_deleted(
    generation: str, high_watermark: int
) -> None:
    """From 2.4 on its own stays where its log starts (Log.updateHighWatermark)."""
    follower = given.fetching(generation, end=5, high_watermark=5, epochs={0: 0})
    step(follower, events.LogStartAdvanced(T, 3), NOW)
    step(follower, given.fetch_answer(follower, 5, high_watermark=1), NOW)
    partition = given.of(follower)
    assert (partition.log.start_offset, partition.log.end_offset) == (3, 6)
    assert partition.high_watermark == high_watermark
    step(follower, given.fetch_answer(follower, high_watermark=4), NOW)
    assert given.of(follower).high_watermark == 4


def _returned_late(generation: str) -> World:
    """B sleeps while m2 to m4 come and all but m4 is deleted."""
    world = cluster(generation, (A, B))
    world.produce("m1")
    world.advance(6_000)
    world.kill(B)
    world.run()
    for record in ("m2", "m3", "m4"):
        world.produce(record)
    world.run()
    world.delete_before(A, 3)
    world.start(B).advance(5_000)
    return world


@pytest.mark.parametrize("generation", ["0.8", "0.10", "0.11", "2.0", "2.1", "4.0"])
def test_f9_a_follower_that_returns_too_late_starts_where_the_leaders_log_starts(
    generation: str,
) -> None:
    world = _returned_late(generation)
    log = world.brokers[B].partitions[T].log
    assert (log.start_offset, log.end_offset) == (3, 4)
    assert world.log(B) == ["m4"]
    assert set(world.isr) == {A, B}
