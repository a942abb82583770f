"""A real gate process between a tiny leader and tiny followers: holds, drops, cuts, deaths."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from clusters.errors import UsageError
from nemesis.gate.errors import GateError
from nemesis.gate.model import CLIENT, Purpose, Rule, Subscription
from tests.gate import wire
from tests.gate.conftest import Play
from tests.gate.fakes import FOLLOWER, LEADER, FakeFollower, World, world

pytestmark = pytest.mark.live


@pytest.mark.parametrize("version", [4, 7, 12])
def test_rounds_pass_and_are_recorded(play: Play, version: int) -> None:
    async def story(w: World) -> None:
        follower = await w.follower(version)
        await follower.rounds(3)
        follower.close()

    rows = play(story)
    assert [(row["round"], row["fetch_offset"], row["high_watermark"]) for row in rows] == [
        (1, 0, 0),
        (2, 1, 1),
        (3, 2, 2),
    ]
    for row in rows:
        assert (row["follower"], row["leader"], row["topic"]) == (FOLLOWER, LEADER, "t")
        assert row["leader_epoch"] == (4 if version >= 9 else None)
        assert (row["records_bytes"], row["error"], row["held_ns"]) == (1, 0, 0)
        assert row["requested_ns"] <= row["forwarded_ns"] <= row["responded_ns"]
        assert (row["request_fate"], row["response_fate"]) == ("passed", "passed")


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
        follower = await w.follower()
        await w.gate.install(Rule("h", "hold", "response", source=LEADER))
        follower.ask()
        await w.gate.wait_held("h")
        await w.gate.sever(LEADER)
        w.leader.stop()
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

    play(story)


def test_client_and_coordination_links_copy_bytes_and_can_be_cut(play: Play) -> None:
    async def story(w: World) -> None:
        ping = wire.request(18, 0, b"", client_id="c")
        for name, ends in (
            (f"client-{LEADER}", ("client", LEADER)),
            (f"coordination-{FOLLOWER}", (FOLLOWER, "coordination")),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", w.gate.ports[name])
            writer.write(ping)
            assert await asyncio.wait_for(reader.readexactly(10), 10)
            await w.gate.cut(*ends)
            asked = len(w.leader.requests)
            writer.write(ping)
            await w.gate.state()
            assert len(w.leader.requests) == asked
            await w.gate.heal(*ends)
            assert await asyncio.wait_for(reader.readexactly(10), 10)
            writer.close()

    assert play(story) == []


def test_what_waits_for_a_slow_reader_comes_as_it_was_sent(play: Play) -> None:
    sent = random.Random(1).randbytes(8 * 1024 * 1024)

    async def story(w: World) -> None:
        w.leader.records = bytes(1024 * 1024)
        may_read, came = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await may_read.wait()
            came.set_result(await reader.readexactly(len(sent)))
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            await w.gate.set_target(f"client-{LEADER}", server.sockets[0].getsockname()[1])
            port = w.gate.ports[f"client-{LEADER}"]
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            follower = await w.follower()
            await follower.rounds(20)  # of another connection, while the first one waits
            may_read.set()
            assert await came == sent
            follower.close()
            writer.close()

    assert len(play(story)) == 20


def test_a_link_refuses_until_its_target_listens_and_again_when_it_does_not(play: Play) -> None:
    async def story(w: World) -> None:
        link, unknown = f"replication-{LEADER}", f"replication-{FOLLOWER}"
        port = w.gate.ports[unknown]  # its target was never told
        with pytest.raises(ConnectionRefusedError):
            await FakeFollower(port).connect()
        await w.gate.set_target(unknown, w.leader.port)
        late = FakeFollower(port)
        await late.connect()
        await late.rounds(1)
        target = w.leader.port
        w.leader.stop()
        await w.gate.set_target(link, target)
        with pytest.raises(ConnectionRefusedError):
            await w.follower()
        await w.leader.start(target)
        follower = await retried(w.follower)  # nobody tells the gate that the leader is back
        await follower.rounds(1)
        with pytest.raises(UsageError, match="no link 'replication-9'"):
            await w.gate.set_target("replication-9", 1)

    play(story)


async def retried(connect: Callable[[], Awaitable[FakeFollower]]) -> FakeFollower:
    """As a client does it."""
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return await connect()
        await asyncio.sleep(0.01)


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
