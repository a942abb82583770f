"""R1-R7: what a log end offset and a high watermark are, and who moves them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest

from neaptide.clusters.broker.replication.errors import Error, IllegalReplicaStateError
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.coordination_service import LeaderAndIsrWritten
from neaptide.clusters.broker.replication.interface.events import IsrExpiration, TimerFired
from neaptide.clusters.broker.replication.model import LeaderAndIsr
from neaptide.clusters.broker.replication.partition import partition_rules
from neaptide.clusters.broker.replication.partition.remote_replica import RemoteReplica
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.given import NOW, A, B, C, T
from tests.core.world import World, cluster

# --- R1 ------------------------------------------------------------------------------------------


def test_r1_ten_records_are_0_to_9_and_the_log_ends_at_10() -> None:
    leader = given.leading(isr=(A,))
    for request in range(10):
        step(leader, given.produce(request=request), NOW)
    assert given.of(leader).log.end_offset == 10
    assert [entry for entry in given.of(leader).log.epochs] == [(0, 0)]


def test_r1_a_consumer_reads_below_the_high_watermark_only() -> None:
    leader = given.leading(records=10, high_watermark=4)
    (answer,) = given.did(step(leader, given.fetch(-1, 0), NOW), effects.RespondFetch)
    assert answer.results[0].records == effects.LogSlice(0, 4, 1_048_576)
    assert answer.results[0].high_watermark == 4


def test_r1_a_consumer_at_the_high_watermark_waits_though_the_log_goes_on() -> None:
    leader = given.leading(records=10, high_watermark=4)
    assert not given.did(step(leader, given.fetch(-1, 4), NOW), effects.RespondFetch)


# --- R2, R3 --------------------------------------------------------------------------------------


def test_r2_each_offset_is_moved_by_its_own_event_only() -> None:
    leader = given.leading(isr=(A, B), records=3)
    step(leader, given.produce(acks=1), NOW)
    assert (given.of(leader).log.end_offset, given.remote(leader, B)) == (4, -1)
    step(leader, given.fetch(B, 2), NOW)
    assert (given.of(leader).log.end_offset, given.remote(leader, B)) == (4, 2)
    assert given.of(leader).high_watermark == 2

    follower = given.fetching(end=3, high_watermark=1, epochs={0: 0})
    step(follower, given.fetch_answer(follower, 3, 4, high_watermark=9), NOW)
    assert (given.of(follower).log.end_offset, given.of(follower).high_watermark) == (5, 5)
    step(follower, given.fetch_answer(follower, high_watermark=4), NOW)
    assert (given.of(follower).log.end_offset, given.of(follower).high_watermark) == (5, 4)


def test_r2_a_leader_alone_in_its_isr_commits_what_it_appends() -> None:
    leader = given.leading(isr=(A,))
    step(leader, given.produce(), NOW)
    assert given.of(leader).high_watermark == 1


@pytest.mark.parametrize(
    ("isr", "in_time", "expected"),
    [
        ((A, B, C), (), 3),  # min(15, 3, 4) = 3
        ((A, C), (), 4),
        ((A, C), (B,), 3),  # B is not in the ISR, but caught up in time: it counts
        ((A,), (), 15),
        ((A,), (C,), 4),
    ],
)
def test_r3_high_watermark_is_the_minimum_over_isr_and_caught_up_replicas(
    isr: tuple[int, ...], in_time: tuple[int, ...], expected: int
) -> None:
    partition = given.of(given.leading(isr=isr, records=15))
    remotes = {
        replica: RemoteReplica(
            log_end_offset=end,
            last_caught_up_time_ms=NOW - (10_000 if replica in in_time else 10_001),
        )
        for replica, end in ((B, 3), (C, 4))
    }
    leader = replace(given.role(given.leading(isr=isr)), remotes=remotes)
    partition = replace(partition, role=leader, high_watermark=0)
    moved = partition_rules.maybe_increment_high_watermark(
        partition, now_ms=NOW, lag_time_max_ms=10_000, rules=GENERATIONS["0.11"]
    )
    assert moved == replace(partition, high_watermark=expected)


def test_r3_high_watermark_never_goes_back_on_a_leader() -> None:
    leader = given.leading(isr=(A, B), records=15, high_watermark=8)
    step(leader, given.fetch(B, 3), NOW)
    assert (given.of(leader).high_watermark, given.remote(leader, B)) == (8, 3)


# --- R4: the tables of seeds 002 and 004 ---------------------------------------------------------


def _table(world: World) -> tuple[int, int, int, int, int]:
    """Leader's LEO and HW, its copy of the follower's LEO, follower's LEO and HW."""
    leader = world.brokers[A]
    return (*world.offsets(A), given.remote(leader, B), *world.offsets(B))


def _deliver(world: World, body: type) -> None:
    (message,) = [m for m in world.in_flight if isinstance(m.body, body)]
    world.deliver(message)


def _level(generation: str) -> World:
    world = cluster(generation, (A, B))
    world.hold(events.FetchRequested)
    world.hold(events.FetchResponded)
    return world


@pytest.mark.parametrize("generation", ["0.10", "0.11"])
def test_r4_high_watermark_needs_two_rounds_when_the_fetch_comes_after_the_produce(
    generation: str,
) -> None:
    world = _level(generation)
    world.advance(500)  # the parked fetch ends empty
    _deliver(world, events.FetchResponded)
    assert _table(world) == (0, 0, 0, 0, 0)
    acked = world.produce("m")
    assert _table(world) == (1, 0, 0, 0, 0)
    _deliver(world, events.FetchRequested)  # round 1, fetch offset 0
    assert _table(world) == (1, 0, 0, 0, 0)
    _deliver(world, events.FetchResponded)
    assert _table(world) == (1, 0, 0, 1, 0)
    assert world.result(acked) is None
    _deliver(world, events.FetchRequested)  # round 2, fetch offset 1
    assert _table(world) == (1, 1, 1, 1, 0)
    assert world.is_acked(acked)
    world.advance(500)  # nothing to read: the round is parked
    _deliver(world, events.FetchResponded)
    assert _table(world) == (1, 1, 1, 1, 1)


@pytest.mark.parametrize("generation", ["0.10", "0.11"])
def test_r4_high_watermark_needs_two_rounds_when_the_produce_wakes_the_parked_fetch(
    generation: str,
) -> None:
    world = _level(generation)
    acked = world.produce("m")
    assert _table(world) == (1, 0, 0, 0, 0)
    (woken,) = [m.body for m in world.in_flight if isinstance(m.body, events.FetchResponded)]
    assert [len(r.batches) for r in woken.results] == [1]
    assert [r.high_watermark for r in woken.results] == [0]
    _deliver(world, events.FetchResponded)
    assert _table(world) == (1, 0, 0, 1, 0)
    _deliver(world, events.FetchRequested)
    assert _table(world) == (1, 1, 1, 1, 0)
    assert world.is_acked(acked)
    world.advance(500)
    _deliver(world, events.FetchResponded)
    assert _table(world) == (1, 1, 1, 1, 1)


# --- R5 ------------------------------------------------------------------------------------------


def test_r5_a_local_log_end_offset_cannot_be_set_by_a_fetch() -> None:
    leader = given.leading(records=3)
    before = given.of(leader)
    with pytest.raises(IllegalReplicaStateError, match="no remote replica"):
        partition_rules.record_follower_fetch(
            before,
            A,
            fetch_offset=9,
            log_start_offset=0,
            now_ms=NOW,
            rules=GENERATIONS["0.11"],
        )
    with pytest.raises(FrozenInstanceError):
        before.log.end_offset = 9  # type: ignore[misc]
    assert given.of(leader) == before


def test_r5_a_remote_replica_has_no_high_watermark_to_set() -> None:
    assert not hasattr(RemoteReplica(), "high_watermark")
    with pytest.raises((AttributeError, TypeError)):
        RemoteReplica().high_watermark = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("high_watermark", [-1, 4])
def test_r5_a_high_watermark_is_never_negative_nor_past_the_log(high_watermark: int) -> None:
    partition = given.of(given.leading(records=3))
    with pytest.raises(IllegalReplicaStateError, match=f"high watermark {high_watermark} is"):
        partition_rules.set_high_watermark(partition, high_watermark)
    assert partition_rules.set_high_watermark(partition, 3) == replace(partition, high_watermark=3)


def test_r5_an_unknown_event_raises_and_changes_nothing() -> None:
    leader = given.leading(records=3)
    before = leader.copy()
    with pytest.raises(IllegalReplicaStateError):
        step(leader, object(), NOW)
    with pytest.raises(IllegalReplicaStateError):
        step(leader, TimerFired(object()), NOW)  # type: ignore[arg-type]
    assert leader == before


# --- R6, R7 --------------------------------------------------------------------------------------


def test_r6_a_follower_takes_over_the_leaders_log_start_offset() -> None:
    follower = given.fetching(end=5, high_watermark=5, epochs={0: 0, 1: 3})
    done = step(follower, given.fetch_answer(follower, high_watermark=5, start=4), NOW)
    assert given.of(follower).log.start_offset == 4
    assert given.of(follower).log.epochs == ((1, 4),)
    assert effects.AdvanceLogStartOffset(T, 4) in done
    assert effects.WriteLeaderEpochCheckpoint(T, given.of(follower).log.epochs) in done


def test_r6_a_log_start_offset_never_goes_back_nor_past_the_end() -> None:
    follower = given.fetching(end=5, high_watermark=5, start=2, epochs={0: 2})
    step(follower, given.fetch_answer(follower, high_watermark=5, start=1), NOW)
    assert given.of(follower).log.start_offset == 2
    step(follower, given.fetch_answer(follower, high_watermark=5, start=9), NOW)
    assert given.of(follower).log.start_offset == 5


def test_r6_the_leader_remembers_a_followers_log_start_offset() -> None:
    leader = given.leading(records=5)
    step(leader, given.fetch(B, 5, start=3), NOW)
    assert given.role(leader).remotes[B].log_start_offset == 3


def test_r7_shrinking_the_isr_to_the_leader_commits_all_and_completes_what_waits() -> None:
    leader = given.leading(isr=(A, B))
    step(leader, given.produce(request=1), NOW)
    step(leader, given.fetch(-1, 0, request=2, max_wait_ms=60_000), NOW)
    step(leader, TimerFired(IsrExpiration()), NOW + 10_001)
    assert given.of(leader).high_watermark == 0
    shrunk = LeaderAndIsr(A, 0, (A,), 1, version=1)
    done = step(leader, LeaderAndIsrWritten(T, shrunk, False), NOW + 10_002)
    assert given.of(leader).high_watermark == 1
    produced, fetched = given.did(done, effects.RespondProduce, effects.RespondFetch)
    assert produced == effects.RespondProduce(
        1, -1, (effects.ProducedPartition(T, Error.NONE, 0, 0),)
    )
    assert fetched.results[0].records == effects.LogSlice(0, 1, 1_048_576)
    assert leader.delayed == {}
    assert leader.watchers == {}


def test_a_copy_has_all_that_the_broker_has_and_dictionaries_of_its_own() -> None:
    one = given.leading("2.1", records=5, high_watermark=5)
    copied = one.copy()
    for field in fields(one):
        mine, its = getattr(one, field.name), getattr(copied, field.name)
        assert mine == its, field.name
        assert (mine is not its) == isinstance(mine, dict | list), field.name
