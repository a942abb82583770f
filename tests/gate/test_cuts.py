"""Cuts and dead brokers at a real gate process, between a tiny leader and tiny followers."""

from __future__ import annotations

import asyncio

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.gate.model import CLIENT, Purpose, Rule
from tests.gate import wire
from tests.gate.conftest import Play
from tests.gate.fakes import FOLLOWER, LEADER, World

pytestmark = pytest.mark.live


def test_a_cut_stops_one_direction_only_until_it_is_healed(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        await follower.rounds(1)
        await w.gate.cut(LEADER, FOLLOWER, "replication")
        follower.ask()
        await w.leader.until(lambda: len(w.leader.offsets) == 2)  # requests still pass
        late = await w.follower()  # a new connection is accepted, and carries one way too
        late.ask()
        await w.leader.until(lambda: len(w.leader.offsets) == 3)
        assert not follower.reader._buffer  # type: ignore[attr-defined]
        assert not late.reader._buffer  # type: ignore[attr-defined]
        await w.gate.heal(LEADER, FOLLOWER, "replication")
        await follower.take()
        await late.take()
        await w.gate.cut(FOLLOWER, LEADER)
        follower.ask()
        another = await w.follower(broker=5)
        await another.rounds(3)  # others are not cut
        assert len(w.leader.offsets) == 6
        await w.gate.heal_all(reset=True)
        assert await follower.ended()

    play(story)


def test_a_cut_from_an_unknown_follower_begins_with_its_first_request(play: Play) -> None:
    async def story(w: World) -> None:
        await w.gate.cut(FOLLOWER, LEADER)
        follower, other = await w.follower(), await w.follower(broker=5)
        follower.ask()
        await other.rounds(5)
        assert len(w.leader.offsets) == 5
        await w.gate.heal(FOLLOWER, LEADER)
        await follower.take()

    play(story)


def test_what_a_dead_leader_had_sent_is_discarded_if_the_schedule_says_so(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        await follower.rounds(1)
        await w.gate.install(Rule("h", "hold", "response", source=LEADER))
        follower.ask()
        await w.gate.wait_held("h")
        mark = w.gate.mark()
        await w.gate.sever(LEADER)
        with pytest.raises(ConnectionRefusedError):
            await w.follower(broker=5)
        w.leader.stop()
        await w.gate.bury(LEADER, "discarded")
        assert await follower.ended()
        ended = await w.gate.wait_for(lambda e: e["event"] == "hold_ended", 10, since=mark)
        assert ended["how"] == "discarded"

    rows = play(story)
    assert [row["response_fate"] for row in rows] == ["passed", "discarded"]


def test_what_a_dead_leader_had_sent_is_delivered_if_the_schedule_says_so(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.held_at_death()
        assert not follower.reader._buffer  # type: ignore[attr-defined]
        await w.gate.bury(LEADER, "delivered")
        await follower.take()
        assert await follower.ended()

    (row,) = play(story)
    assert row["response_fate"] == "held"
    assert row["delivered_ns"] is not None


def test_a_severed_broker_comes_back_after_it_is_revived(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        await follower.rounds(1)
        await w.gate.sever(FOLLOWER)
        follower.ask()
        other = await w.follower(broker=5)
        await other.rounds(3)
        assert len(w.leader.offsets) == 4
        await w.gate.bury(FOLLOWER, "discarded")
        await w.gate.revive(FOLLOWER)
        again = await w.follower()
        await again.rounds(2)
        with pytest.raises(UsageError, match="broker 3 is not severed"):
            await w.gate.bury(LEADER, "discarded")

    play(story)


@pytest.mark.parametrize("purpose", [None, "client"])
def test_on_a_shared_listener_a_cut_of_clients_leaves_the_replicas(
    play_shared: Play, purpose: Purpose | None
) -> None:
    async def story(w: World) -> None:
        await w.gate.cut(CLIENT, LEADER, purpose)
        follower, consumer = await w.follower(4), await w.follower(4, broker=-1)
        consumer.ask()
        await follower.rounds(2)
        assert w.leader.offsets == [0, 1]
        await w.gate.heal_all()
        await consumer.take()

    play_shared(story)


def test_on_a_shared_listener_a_cut_of_replicas_leaves_the_clients(play_shared: Play) -> None:
    async def story(w: World) -> None:
        await w.gate.cut(FOLLOWER, LEADER, "replication")
        follower, consumer = await w.follower(4), await w.follower(4, broker=-1)
        follower.ask()
        await consumer.rounds(2)
        assert w.leader.offsets == [0, 1]

    play_shared(story)


def test_a_controller_learns_who_asks_and_a_cut_stops_that_node_only(play: Play) -> None:
    async def story(w: World) -> None:
        port = w.gate.ports["controller-100"]
        await w.gate.cut(1, 100, "coordination")
        ways = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for (_, writer), client_id in zip(
            ways, ("raft-client-1", "1", "raft-client-2"), strict=True
        ):
            writer.write(wire.request(3, 0, b"", client_id=client_id))
        await asyncio.wait_for(ways[2][0].read(1), 20)
        assert [request.client_id for request in w.leader.requests] == ["raft-client-2"]
        for _, writer in ways:
            writer.close()

    play(story)
