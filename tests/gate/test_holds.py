"""Holds, drops and delays by a real gate process, between a tiny leader and tiny followers."""

from __future__ import annotations

import asyncio

import pytest

from neaptide.nemesis.gate.model import Rule
from tests.gate import wire
from tests.gate.conftest import Play
from tests.gate.fakes import FOLLOWER, LEADER, FakeFollower, World

pytestmark = pytest.mark.live


def test_a_held_response_waits_with_all_behind_it_and_leaves_in_order(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        await follower.rounds(2)
        rule = Rule("h", "hold", "response", source=LEADER, destination=FOLLOWER, times=1)
        await w.gate.install(rule)
        follower.ask()
        follower.ask()
        follower.correlation_id -= 1
        (held,) = await w.gate.wait_held("h")
        await w.leader.until(lambda: len(w.leader.offsets) == 4)
        assert held["partitions"][0]["round"] == 3
        assert held["partitions"][0]["high_watermark"] == 2
        mark = w.gate.mark()
        assert not follower.reader._buffer  # type: ignore[attr-defined]
        assert await w.gate.release("h") == 1
        await follower.take()
        follower.correlation_id += 1
        await follower.take()
        ended = await w.gate.wait_for(lambda e: e["event"] == "hold_ended", 10, since=mark)
        assert (ended["how"], ended["hold"]) == ("released", held["hold"])
        assert ended["held_ns"] > 0
        assert w.gate.held == {}
        follower.close()

    rows = play(story)
    assert [row["response_fate"] for row in rows] == ["passed", "passed", "held", "passed"]
    assert rows[2]["held_ns"] > 0


def test_100_of_100_aimed_rounds_are_hit_while_load_runs(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        noise = [await w.follower(broker=5), await w.follower(4, broker=6)]
        stop = asyncio.Event()

        async def load(other: FakeFollower) -> None:
            while not stop.is_set():
                await other.rounds(10)

        loads = [asyncio.create_task(load(other)) for other in noise]
        for aim in range(100):
            last = follower.log_end_offset
            where = f"round == {last + 3} and high_watermark == {last + 2}"
            await w.gate.install(
                Rule(f"aim-{aim}", "hold", "response", destination=FOLLOWER, where=where)
            )
            fetching = asyncio.create_task(follower.rounds(3))
            (held,) = await w.gate.wait_held(f"aim-{aim}")
            (facts,) = held["partitions"]
            assert (facts["round"], facts["high_watermark"]) == (last + 3, last + 2)
            assert follower.log_end_offset == last + 2
            await w.gate.release(f"aim-{aim}")
            await fetching
        stop.set()
        await asyncio.gather(*loads)

    play(story)


def test_a_held_request_has_not_reached_its_leader(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        await follower.rounds(1)
        await w.gate.install(Rule("q", "hold", "request", source=FOLLOWER, where="round >= 2"))
        follower.ask()
        (held,) = await w.gate.wait_held("q")
        assert held["partitions"][0]["fetch_offset"] == 1
        assert w.leader.offsets == [0]
        await w.gate.release("q")
        await follower.take()
        assert w.leader.offsets == [0, 1]
        follower.close()

    assert [row["request_fate"] for row in play(story)] == ["passed", "held"]


def test_an_epoch_request_can_be_held_by_itself(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        await w.gate.install(Rule("e", "hold", "request", api="offset_for_leader_epoch"))
        await follower.rounds(1)
        follower.writer.write(wire.epoch_request(3, "t", 0, 4))
        (held,) = await w.gate.wait_held("e")
        assert held["partitions"] == [{"topic": "t", "partition": 0, "leader_epoch": 4}]
        assert [header.api_key for header in w.leader.requests] == [1]
        await w.gate.release("e")
        await w.leader.until(lambda: w.leader.requests[-1].api_key == 23)
        follower.close()

    play(story)


@pytest.mark.parametrize("message", ["request", "response"])
def test_a_dropped_message_breaks_its_connection_and_no_other(play: Play, message: str) -> None:
    async def story(w: World) -> None:
        follower, other = await w.follower(), await w.follower(broker=5)
        await other.rounds(1)
        mark = w.gate.mark()
        follower_ends = {"source": FOLLOWER} if message == "request" else {"destination": FOLLOWER}
        rule = Rule.from_dict({"id": "d", "action": "drop", "message": message, **follower_ends})
        await w.gate.install(rule)
        follower.ask()
        assert await follower.ended()
        await w.gate.wait_for(lambda e: e["event"] == "dropped", 10, since=mark)
        await other.rounds(1)

    row = next(row for row in play(story) if row["follower"] == FOLLOWER)
    fates = (row["request_fate"], row["response_fate"])
    assert fates == (("dropped", None) if message == "request" else ("passed", "dropped"))


def test_discarding_a_held_message_breaks_its_connection(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        await w.gate.install(Rule("h", "hold", "response"))
        follower.ask()
        await w.gate.wait_held("h")
        mark = w.gate.mark()
        assert await w.gate.discard("h") == 1
        assert await follower.ended()
        ended = await w.gate.wait_for(lambda e: e["event"] == "hold_ended", 10, since=mark)
        assert ended["how"] == "discarded"

    (row,) = play(story)
    assert (row["response_fate"], row["delivered_ns"]) == ("discarded", None)
    assert row["held_ns"] > 0


def test_a_hold_ends_when_the_receiver_closes_but_not_when_the_sender_does(play: Play) -> None:
    async def story(w: World) -> None:
        follower, other = await w.follower(), await w.follower(broker=5)
        await w.gate.install(Rule("a", "hold", "response", destination=FOLLOWER))
        await w.gate.install(Rule("b", "hold", "request", source=5))
        follower.ask()
        other.ask()
        await w.gate.wait_held("a")
        await w.gate.wait_held("b")
        mark = w.gate.mark()
        follower.close()
        ended = await w.gate.wait_for(lambda e: e["event"] == "hold_ended", 10, since=mark)
        assert (ended["rule"], ended["how"], ended["closed_by"]) == ("a", "closed", FOLLOWER)
        other.close()
        left = await w.gate.wait_for(lambda e: e["event"] == "hold_sender_closed", 10, since=mark)
        assert left["rule"] == "b"
        assert w.gate.held_by("b")[0]["sender_closed"]
        asked = len(w.leader.requests)
        await w.gate.release("b")  # it was sent, so it arrives
        await w.leader.until(lambda: len(w.leader.requests) == asked + 1)

    play(story)


def test_a_delayed_message_comes_late_and_whole(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        await w.gate.install(Rule("s", "delay", "response", times=1, delay_ms=80))
        await follower.rounds(2)
        follower.close()

    slow, fast = play(story)
    assert slow["delivered_ns"] - slow["responded_ns"] >= 80_000_000
    assert fast["delivered_ns"] is not None
