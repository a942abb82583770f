"""One connection over a pretend transport: order, and what it never lets pile up."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from neaptide.clusters.broker.server.listener import Connection
from neaptide.clusters.broker.wire.codec import MalformedMessageError
from tests.server.given import Transport


class World:
    """A connection whose requests are answered when the test says so."""

    def __init__(self) -> None:
        self.handled: list[bytes] = []
        self.connection = Connection("CLIENT", 1000, self._handle, lambda _: None, lambda _: None)
        self.transport = Transport()
        self.connection.connection_made(cast(asyncio.BaseTransport, self.transport))

    def _handle(self, connection: Connection, frame: bytes) -> None:
        if frame == b"bad":
            raise MalformedMessageError("bad")
        self.handled.append(frame)

    def send(self, *frames: bytes) -> None:
        self.connection.data_received(b"".join(len(f).to_bytes(4, "big") + f for f in frames))

    async def answer(self, frame: bytes | None) -> None:
        self.connection.respond(frame)
        await asyncio.sleep(0)


def test_the_next_request_waits_until_this_one_is_answered() -> None:
    async def play() -> None:
        world = World()
        world.send(b"1", b"2")
        assert world.handled == [b"1"]
        await world.answer(b"answer to 1")
        assert world.handled == [b"1", b"2"]
        await world.answer(None)  # acks=0
        world.send(b"3")
        assert world.handled == [b"1", b"2", b"3"]
        assert world.transport.written == [b"answer to 1"]

    asyncio.run(play())


def test_frames_come_out_whole_however_the_bytes_come_in() -> None:
    world = World()
    for byte in b"\x00\x00\x00\x05hello":
        assert world.handled == []
        world.connection.data_received(bytes([byte]))
    assert world.handled == [b"hello"]


def test_a_peer_that_does_not_read_gets_no_further_answers_made() -> None:
    async def play() -> None:
        world = World()
        world.send(b"1", b"2")
        world.connection.pause_writing()
        await world.answer(b"a large answer")
        assert world.handled == [b"1"]
        world.connection.resume_writing()
        assert world.handled == [b"1", b"2"]

    asyncio.run(play())


def test_a_peer_that_sends_too_fast_is_not_read_until_it_has_been_answered() -> None:
    async def play() -> None:
        world = World()
        world.send(*[b"x"] * 16)
        assert world.transport.is_reading
        world.send(*[b"x"] * 16)
        assert not world.transport.is_reading
        for _ in range(32):
            await world.answer(b"y")
        assert world.transport.is_reading
        assert len(world.handled) == 32

    asyncio.run(play())


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x00\x03\xe9"])
def test_a_length_that_cannot_be_closes_it(length: bytes) -> None:
    world = World()
    world.connection.data_received(length + b"more")
    assert (world.transport.ended, world.handled) == ("closed", [])


def test_the_largest_length_that_may_be_does_not() -> None:
    world = World()
    world.connection.data_received(b"\x00\x00\x03\xe8" + b"x" * 1000)
    assert (world.transport.ended, world.handled) == (None, [b"x" * 1000])


def test_nothing_is_handled_behind_a_malformed_request() -> None:
    world = World()
    world.send(b"bad", b"good")
    assert (world.transport.ended, world.handled) == ("closed", [])


def test_a_peer_that_does_not_read_is_not_waited_for_when_it_is_refused() -> None:
    world = World()
    world.connection.pause_writing()
    world.connection.refuse(MalformedMessageError("enough"))
    assert world.transport.ended == "aborted"
