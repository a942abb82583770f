"""The links of a real gate process: where they lead, and what passes as it came."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.gate.model import Target
from tests.gate import wire
from tests.gate.conftest import Play
from tests.gate.fakes import FOLLOWER, LEADER, FakeFollower, World

pytestmark = pytest.mark.live


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
        port = w.gate.ports[unknown]  # its target was never given
        with pytest.raises(ConnectionRefusedError):
            await FakeFollower(port).connect()
        await w.gate.set_target(unknown, w.leader.port)
        late = FakeFollower(port)
        await late.connect()
        await late.rounds(1)
        late.close()
        target = w.leader.port
        w.leader.stop()
        await w.gate.set_target(link, target)
        with pytest.raises(ConnectionRefusedError):
            await w.follower()
        await w.leader.start(target)
        follower = await retried(w.follower)  # nobody reports to the gate that the leader is back
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


def test_what_leads_to_a_target_is_dialled_and_the_target_is_what_must_be_there(play: Play) -> None:
    """`via` listens all the time: whoever connects to a dead broker is refused all the same."""

    async def story(w: World) -> None:
        link, target = f"replication-{LEADER}", w.leader.port
        came: list[int] = []

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.append(1)
            writer.close()

        async with await asyncio.start_server(forward, "127.0.0.1", 0) as server:
            via = Target(server.sockets[0].getsockname()[1])
            await w.gate.set_target(link, target, via=via)
            follower = await w.follower()
            assert await follower.ended()
            assert came == [1]
            w.leader.stop()
            await w.gate.set_target(link, target, via=via)
            with pytest.raises(ConnectionRefusedError):
                await w.follower()
            assert came == [1]

    play(story)


@pytest.mark.parametrize("led", [True, False])
def test_a_reset_by_what_a_link_is_led_through_is_passed_on(play: Play, led: bool) -> None:
    """Of a link that leads straight to a broker it may be the broker's death: that is an end."""

    async def story(w: World) -> None:
        async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            opened = writer.get_extra_info("socket")
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

        async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            via = Target(port) if led else None
            await w.gate.set_target(f"client-{LEADER}", port, via=via)
            reader, writer = await retried_at(w.gate.ports[f"client-{LEADER}"])
            writer.write(b"x")
            if led:
                with pytest.raises(ConnectionResetError):
                    await asyncio.wait_for(reader.read(), 20)
            else:
                assert await asyncio.wait_for(reader.read(), 20) == b""
            writer.close()

    play(story)


async def retried_at(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.01)
