"""What a real gate process records and reports of rounds between a tiny leader and followers."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from base64 import urlsafe_b64encode
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from neaptide.nemesis.gate.errors import GateError
from neaptide.nemesis.gate.model import Subscription
from tests.gate import wire
from tests.gate.conftest import THREE_ROUNDS, Play, of_rounds
from tests.gate.fakes import FOLLOWER, LEADER, World, world

pytestmark = pytest.mark.live


@pytest.mark.parametrize("version", [4, 7, 12])
def test_rounds_pass_and_are_recorded(play: Play, version: int) -> None:
    async def story(w: World) -> None:
        follower = await w.follower(version)
        await follower.rounds(3)
        follower.close()

    rows = play(story)
    assert of_rounds(rows) == THREE_ROUNDS
    for row in rows:
        assert (row["follower"], row["leader"], row["topic"]) == (FOLLOWER, LEADER, "t")
        assert row["leader_epoch"] == (4 if version >= 9 else None)
        assert (row["records_bytes"], row["error"], row["held_ns"]) == (1, 0, 0)
        assert row["requested_ns"] <= row["forwarded_ns"] <= row["responded_ns"]
        assert (row["request_fate"], row["response_fate"]) == ("passed", "passed")


def test_a_malformed_length_closes_only_its_connection(play: Play) -> None:
    async def story(w: World) -> None:
        bad, good = await w.follower(), await w.follower(broker=5)
        await bad.rounds(1)
        await good.rounds(1)
        mark = w.gate.mark()
        bad.writer.write(struct.pack(">i", -5) + b"rubbish")
        assert await bad.ended()
        event = await w.gate.wait_for(lambda e: e["event"] == "malformed", 10, since=mark)
        assert (event["source"], event["reason"]) == (FOLLOWER, "a frame of -5 bytes")
        await good.rounds(1)

    play(story)


def test_a_message_that_cannot_be_read_passes_and_is_reported(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower()
        mark = w.gate.mark()
        follower.writer.write(wire.request(4, 1, b"\x7f\x7f", client_id="1"))
        event = await w.gate.wait_for(lambda e: e["event"] == "malformed", 10, since=mark)
        assert event["reason"] == "the message ends too early"
        await w.leader.until(lambda: [each.api_key for each in w.leader.requests] == [4])
        follower.writer.write(wire.request(23, 99, b"\0", client_id="x"))
        event = await w.gate.wait_for(lambda e: e["event"] == "unread_version", 10, since=mark)
        assert (event["api_key"], event["api_version"]) == (23, 99)

    play(story)


def test_topics_that_are_named_by_id_get_their_names_and_keep_their_count(play: Play) -> None:
    async def story(w: World) -> None:
        follower = await w.follower(17)
        await follower.rounds(1)
        text = urlsafe_b64encode(wire.topic_id("t").bytes).decode().rstrip("=")
        await w.gate.name_topics({text: "t"})
        await follower.rounds(1)
        follower.close()

    rows = play(story)
    named = [(row["topic"], row["round"]) for row in rows]
    assert named == [(str(wire.topic_id("t")), 1), ("t", 2)]


def test_the_epoch_is_learned_from_the_controller_before_fetch_v9(play: Play) -> None:
    async def story(w: World) -> None:
        await w.gate.set_target(f"replication-{FOLLOWER}", w.leader.port)
        port = w.gate.ports[f"replication-{FOLLOWER}"]
        _, controller = await asyncio.open_connection("127.0.0.1", port)
        mark = w.gate.mark()
        controller.write(wire.leader_and_isr(2, "t", 0, LEADER, 8, controller=2))
        event = await w.gate.wait_for(lambda e: e["event"] == "epoch_learned", 10, since=mark)
        assert (event["broker"], event["leader"], event["leader_epoch"]) == (FOLLOWER, LEADER, 8)
        follower = await w.follower(4)
        await follower.rounds(2)
        controller.close()
        follower.close()

    rows = play(story)
    assert [(row["leader_epoch"], row["round"]) for row in rows] == [(8, 1), (8, 2)]


def test_rounds_are_events_for_who_subscribes_and_positions_follow_them(play: Play) -> None:
    async def story(w: World) -> None:
        follower, other = await w.follower(), await w.follower(broker=5)
        mark = w.gate.mark()
        await w.gate.subscribe(Subscription("s", follower=FOLLOWER))
        await other.rounds(1)
        await follower.rounds(2)
        key = (FOLLOWER, "t", 0)
        await w.gate.wait_until(lambda: w.gate.positions[key].high_watermark == 1, 10)
        assert w.gate.positions[key].log_end_offset == 1
        await w.gate.unsubscribe("s")
        await follower.rounds(1)
        await w.gate.state()
        seen = []
        async for event in w.gate.events(mark):
            if event["event"] == "round":
                seen.append((event["follower"], event["round"], event["phase"]))
            if len(seen) == 6:
                break
        phases = ("started", "answered", "delivered")
        assert seen == [(FOLLOWER, n, phase) for n in (1, 2) for phase in phases]
        assert w.gate.positions[key].round == 2
        await w.gate.revive(5)  # whom nobody follows
        assert key in w.gate.positions
        await w.gate.revive(LEADER)
        assert key not in w.gate.positions

    play(story)


def test_a_gate_that_dies_is_an_error_for_who_waits_and_its_records_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))

    async def story() -> None:
        with contextlib.suppress(AssertionError):  # its exit status is not 0
            async with world(tmp_path / "run") as w:
                follower = await w.follower()
                await follower.rounds(5)
                await w.gate.flush()
                w.gate.process.kill()
                with pytest.raises(GateError, match="the gate has ended"):
                    await w.gate.wait_held("h")
                with pytest.raises(GateError):
                    await w.gate.remove("h")

    asyncio.run(story())
    assert pq.read_table(tmp_path / "run" / "fetch_rounds").num_rows == 5
