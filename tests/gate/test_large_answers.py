"""Fetch responses that pass while they come: what stops them stops them as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest

from neaptide.nemesis.gate import messages as m
from neaptide.nemesis.gate.connection import PASSING_BYTES
from neaptide.nemesis.gate.fetch_answer import fetch_response
from neaptide.nemesis.gate.model import Rule
from tests.gate import wire
from tests.gate.conftest import THREE_ROUNDS, Play, of_rounds
from tests.gate.fakes import FOLLOWER, LEADER, FakeFollower, World, read_frame
from tests.gate.wire import Answer

pytestmark = pytest.mark.live
LARGE = b"0123456789" * 150_000
ANSWER = wire.fetch_response(12, [Answer("t", 0, 7, LARGE)], correlation_id=1)


def large(story: Callable[[World], Awaitable[None]]) -> Callable[[World], Awaitable[None]]:
    """A story with a leader whose every answer is large."""

    async def reported(w: World) -> None:
        w.leader.records = LARGE
        await story(w)

    return reported


async def _whole_bytes(follower: FakeFollower) -> int:
    """How many records the next answer has, all of which must be the leader's."""
    raw = await asyncio.wait_for(read_frame(follower.reader), 20)
    (answer,) = fetch_response(raw, follower.version).partitions.values()
    assert LARGE in raw
    return answer.records_bytes


async def _asked(w: World) -> tuple[FakeFollower, asyncio.StreamWriter]:
    """A follower that has asked a leader that does not answer by itself, and the way to answer."""
    w.leader.answering = False
    follower = await w.follower()
    follower.ask()
    await w.leader.until(lambda: len(w.leader.requests) == 1)
    return follower, w.leader.writers[-1]


async def _some_bytes(follower: FakeFollower) -> None:
    """Return when part of an answer is here."""
    await asyncio.wait_for(follower.reader.readexactly(PASSING_BYTES), 20)


@pytest.mark.parametrize("version", [4, 12])
def test_large_answers_pass_whole_and_are_recorded(play: Play, version: int) -> None:
    @large
    async def story(w: World) -> None:
        follower = await w.follower(version)
        for offset in range(3):
            follower.log_end_offset = offset
            follower.ask()
            assert await _whole_bytes(follower) == len(LARGE)
        follower.close()

    rows = play(story)
    assert of_rounds(rows) == THREE_ROUNDS
    for row in rows:
        assert (row["records_bytes"], row["error"]) == (len(LARGE), 0)
        assert (row["request_fate"], row["response_fate"]) == ("passed", "passed")
        assert row["responded_ns"] <= row["delivered_ns"]


def test_an_answer_begins_to_leave_before_it_is_whole(play: Play) -> None:
    async def story(w: World) -> None:
        follower, leader = await _asked(w)
        leader.write(ANSWER[:-1])
        await _some_bytes(follower)
        assert (await w.gate.state())["connections"]
        leader.write(ANSWER[-1:])
        rest = await asyncio.wait_for(follower.reader.readexactly(len(ANSWER) - PASSING_BYTES), 20)
        assert rest == ANSWER[PASSING_BYTES:]
        follower.close()

    (row,) = play(story)
    assert (row["high_watermark"], row["response_fate"]) == (7, "passed")


def test_a_large_answer_is_held_until_it_is_released(play: Play) -> None:
    @large
    async def story(w: World) -> None:
        follower = await w.follower()
        await w.gate.install(Rule("h", "hold", "response", source=LEADER, where="round == 2"))
        follower.ask()
        assert await _whole_bytes(follower) == len(LARGE)
        follower.ask()
        (held,) = await w.gate.wait_held("h")
        assert held["partitions"][0]["records_bytes"] == len(LARGE)
        taking = asyncio.create_task(_whole_bytes(follower))
        follower.ask()  # what is behind it waits too
        await w.leader.until(lambda: len(w.leader.offsets) == 3)
        assert (await w.gate.state())["holds"]
        assert not taking.done()
        await w.gate.release("h")
        assert await taking == len(LARGE)
        assert await _whole_bytes(follower) == len(LARGE)
        follower.close()

    rows = play(story)
    assert [row["response_fate"] for row in rows] == ["passed", "held", "passed"]


def test_a_large_answer_that_is_held_outlives_its_leader(play: Play) -> None:
    @large
    async def story(w: World) -> None:
        follower = await w.held_at_death()
        await w.gate.bury(LEADER, "delivered")
        assert await _whole_bytes(follower) == len(LARGE)
        assert await follower.ended()

    (row,) = play(story)
    assert row["response_fate"] == "held"


@pytest.mark.parametrize("action", ["drop", "discard"])
def test_a_large_answer_that_is_thrown_away_never_is_whole(play: Play, action: str) -> None:
    @large
    async def story(w: World) -> None:
        follower, other = await w.follower(), await w.follower(broker=5)
        how: Literal["hold", "drop"] = "hold" if action == "discard" else "drop"
        await w.gate.install(Rule("x", how, "response", destination=FOLLOWER))
        follower.ask()
        if action == "discard":
            await w.gate.wait_held("x")
            await w.gate.discard("x")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await asyncio.wait_for(read_frame(follower.reader), 20)
        other.ask()
        assert await _whole_bytes(other) == len(LARGE)

    rows = play(story)
    fates = {row["follower"]: row["response_fate"] for row in rows}
    assert fates == {FOLLOWER: "dropped" if action == "drop" else "discarded", 5: "passed"}


def test_a_leader_that_dies_in_the_middle_of_an_answer_has_not_answered(play: Play) -> None:
    async def story(w: World) -> None:
        follower, leader = await _asked(w)
        leader.write(ANSWER[:-1])
        await _some_bytes(follower)
        w.leader.stop()
        with pytest.raises(asyncio.IncompleteReadError):
            await asyncio.wait_for(follower.reader.readexactly(len(ANSWER) - PASSING_BYTES), 20)

    (row,) = play(story)
    assert (row["request_fate"], row["response_fate"]) == ("passed", None)
    assert row["high_watermark"] is None


def test_a_cut_in_the_middle_of_an_answer_stops_it_until_it_is_healed(play: Play) -> None:
    async def story(w: World) -> None:
        follower, leader = await _asked(w)
        leader.write(ANSWER[:-1])
        await _some_bytes(follower)
        await w.gate.cut(LEADER, FOLLOWER)
        leader.write(ANSWER[-1:])
        rest = asyncio.create_task(follower.reader.readexactly(len(ANSWER) - PASSING_BYTES))
        other = await w.follower(broker=5)  # a round elsewhere: the gate has seen what came before
        other.ask()
        await w.leader.until(lambda: len(w.leader.requests) == 2)
        assert not rest.done()
        await w.gate.heal(LEADER, FOLLOWER)
        assert await asyncio.wait_for(rest, 20) == ANSWER[PASSING_BYTES:]
        follower.close()
        other.close()

    rows = play(story)
    assert [row["response_fate"] for row in rows] == ["passed", None]


def test_a_large_answer_that_cannot_be_read_passes_and_is_reported(play: Play) -> None:
    async def story(w: World) -> None:
        follower, leader = await _asked(w)
        mark = w.gate.mark()
        raw = wire.frame(b"\0\0\0\1" + b"\x7f" * len(LARGE))
        leader.write(raw)
        event = await w.gate.wait_for(lambda e: e["event"] == "malformed", 10, since=mark)
        assert event["reason"].startswith("fetch response: ")
        assert await asyncio.wait_for(follower.reader.readexactly(len(raw)), 20) == raw
        assert w.leader.requests[0].api_key == m.FETCH
        follower.close()

    (row,) = play(story)
    assert (row["request_fate"], row["response_fate"]) == ("passed", None)
