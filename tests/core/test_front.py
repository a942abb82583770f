"""The front of the simulation for plays: holds, single deliveries, what is asked after steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import events
from neaptide.nemesis.search.invariants import BrokenError
from tests.core.world import A, B, C, T, World, cluster


def _bodies(world: World, source: int, target: int) -> list[type]:
    return [type(m.body) for m in world.in_flight if (m.source, m.target) == (source, target)]


def test_what_is_held_keeps_up_its_link_and_no_other() -> None:
    world = cluster("2.1", (A, B, C))
    world.hold(events.FetchResponded, source=A, target=B)
    request = world.produce("m")
    world.advance(600)
    assert [type(m.body) for m in world.held()] == [events.FetchResponded]
    assert (world.log(B), world.log(C), world.is_acked(request)) == ([], ["m"], False)
    world.holds.clear()
    world.run()
    assert (world.log(B), world.is_acked(request)) == (["m"], True)


def test_one_message_is_delivered_out_of_turn_and_no_other_with_it() -> None:
    world = cluster("2.1", (A, B, C))
    world.hold(events.FetchResponded, source=A)
    world.produce("m")
    world.run()
    to_c = next(m for m in world.held() if m.target == C)
    world.deliver(to_c)
    assert (world.log(B), world.log(C)) == ([], ["m"])
    assert _bodies(world, A, B) == [events.FetchResponded]
    assert _bodies(world, A, C) == []


def test_time_may_pass_while_nothing_arrives() -> None:
    world = cluster("2.1", (A, B))
    before = world.now_ms
    request = world.produce("m", timeout_ms=100)
    world.advance(200, deliver=False)
    assert world.now_ms == before + 200
    assert world.log(B) == []
    assert world.result(request) is Error.REQUEST_TIMED_OUT  # the leader's timer has fired
    world.run()
    assert world.log(B) == ["m"]


def test_a_request_that_is_held_too_long_is_asked_again() -> None:
    world = cluster("2.1", (A, B))
    world.hold(events.FetchRequested)
    world.advance(1_000)
    (first,) = world.held()
    world.advance(28_000)
    assert world.held() == [first]
    world.advance(4_000)  # replica.socket.timeout.ms and replica.fetch.backoff.ms are over
    (second,) = world.held()
    assert second.sequence != first.sequence


def test_a_play_that_breaks_an_invariant_fails_at_once() -> None:
    world = cluster("2.1", (A, B))
    held = world.brokers[A].partitions
    held[T] = replace(held[T], high_watermark=9)
    with pytest.raises(BrokenError, match="high-watermark-in-log"):
        world.advance(600)


@pytest.mark.parametrize("lose_from", [0, None])
def test_committed_records_may_go_with_the_page_cache_and_not_otherwise(
    lose_from: int | None,
) -> None:
    world = cluster("2.1", (A, B, C))
    world.produce("m")
    world.advance(600)
    world.kill(C, lose_from=lose_from)
    if lose_from is None:
        world.disks[C].logs[T].cut(0)
        with pytest.raises(BrokenError, match="weak-isr"):
            world.run()
    else:
        world.run()
        assert world.isr == (A, B)
