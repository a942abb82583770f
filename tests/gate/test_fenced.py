"""What a follower was answered last, on the wire: so `fenced` knows who is in another epoch."""

from __future__ import annotations

from typing import Any

import pytest

from neaptide.nemesis.gate.model import Rule, Subscription
from tests.gate import wire
from tests.gate.conftest import Play
from tests.gate.fakes import FOLLOWER, LEADER, FakeFollower, World, read_frame

pytestmark = pytest.mark.live

FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75
KEY = (FOLLOWER, "t", 0)


async def _answered(w: World, error: int) -> None:
    await w.gate.wait_until(lambda: w.gate.answered.get(KEY) == error, 10)


async def _ask_for_epoch(follower: FakeFollower, version: int, *, of_client: bool = False) -> None:
    who: dict[str, Any] = (
        {"replica_id": -1, "client_id": "consumer"} if of_client else {"replica_id": FOLLOWER}
    )
    follower.writer.write(wire.epoch_request(version, "t", 0, 4, **who))
    await read_frame(follower.reader)


@pytest.mark.parametrize("version", [10, 12])
def test_the_error_of_the_last_fetch_is_known(play: Play, version: int) -> None:
    async def story(w: World) -> None:
        follower = await w.follower(version)
        await w.gate.subscribe(Subscription("s"))
        w.leader.error = FENCED_LEADER_EPOCH
        await follower.rounds(1)
        await _answered(w, FENCED_LEADER_EPOCH)
        w.leader.error = 0
        await follower.rounds(1)
        await _answered(w, 0)

    play(story)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_so_is_that_of_the_last_offset_for_leader_epoch(play: Play, version: int) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        await w.gate.subscribe(Subscription("s"))
        await follower.rounds(1)
        w.leader.error = UNKNOWN_LEADER_EPOCH
        await _ask_for_epoch(follower, version)
        await _answered(w, UNKNOWN_LEADER_EPOCH)
        w.leader.error = 0
        await _ask_for_epoch(follower, version)
        await _answered(w, 0)

    play(story)


@pytest.mark.parametrize("version", [2, 4])
def test_what_a_client_learns_of_epochs_is_of_no_follower(play: Play, version: int) -> None:
    async def story(w: World) -> None:
        follower, client = await w.follower(), await w.follower(broker=-1)
        await w.gate.subscribe(Subscription("s"))
        w.leader.error = FENCED_LEADER_EPOCH
        await _ask_for_epoch(client, version, of_client=True)
        w.leader.error = 0
        await follower.rounds(1)
        await _answered(w, 0)
        assert w.gate.answered == {KEY: 0}

    play(story)


def test_an_answer_that_is_held_has_reported_nothing_yet(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        await w.gate.subscribe(Subscription("s"))
        await follower.rounds(1)
        await _answered(w, 0)
        await w.gate.install(Rule("h", "hold", "response", source=LEADER, destination=FOLLOWER))
        w.leader.error = FENCED_LEADER_EPOCH
        follower.ask()
        await w.gate.wait_held("h")
        assert w.gate.answered == {KEY: 0}
        await w.gate.release("h")
        await _answered(w, FENCED_LEADER_EPOCH)

    play(story)


def test_who_died_was_notified_of_nothing_since(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        await w.gate.subscribe(Subscription("s"))
        w.leader.error = FENCED_LEADER_EPOCH
        await follower.rounds(1)
        await _answered(w, FENCED_LEADER_EPOCH)
        await w.gate.sever(FOLLOWER)
        assert w.gate.answered == {}

    play(story)
