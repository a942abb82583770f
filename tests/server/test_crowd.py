"""What all connections together may take (A11), by Kafka's names and with Kafka's defaults."""

from __future__ import annotations

import asyncio
import resource
from typing import cast

import pytest

from neaptide.clusters.broker.server.config import server_config
from neaptide.clusters.broker.server.crowd import Crowd, CrowdLimits
from neaptide.clusters.broker.server.listener import Connection
from tests.server.given import GOOD, Transport


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Peer:
    """A connection, and the requests that the broker was given by it."""

    def __init__(self, crowd: Crowd, *, between_brokers: bool = False, most: int = 10**9) -> None:
        self.handled: list[int] = []
        self.connection = Connection(
            "CLIENT", most, self._handle, lambda _: None, lambda _: None, crowd, between_brokers
        )
        self.transport = Transport()
        self.connection.connection_made(cast(asyncio.BaseTransport, self.transport))

    def _handle(self, connection: Connection, frame: bytes) -> None:
        self.handled.append(len(frame))

    def send(self, *frames: bytes) -> None:
        self.connection.data_received(b"".join(len(f).to_bytes(4, "big") + f for f in frames))

    @property
    def is_refused(self) -> bool:
        return self.transport.ended == "aborted"


def test_a11_kafkas_limits_have_kafkas_defaults() -> None:
    config = server_config(GOOD)
    assert config.queued_max_requests == 500
    assert config.queued_max_request_bytes is None
    assert config.fetch_max_bytes == 55 * 1024 * 1024
    assert config.connections_max_idle_ms == 600_000
    assert (config.max_connections, config.max_connections_per_ip) == (2**31 - 1, 2**31 - 1)
    assert config.producer_id_expiration_ms == 86_400_000


def test_a11_max_connections_holds_for_clients_and_not_for_brokers() -> None:
    crowd = Crowd(CrowdLimits(max_connections=2))
    first, second, third = Peer(crowd), Peer(crowd), Peer(crowd)
    assert [first.is_refused, second.is_refused, third.is_refused] == [False, False, True]
    assert not Peer(crowd, between_brokers=True).is_refused
    first.connection.connection_lost(None)
    second.connection.connection_lost(None)
    assert not Peer(crowd).is_refused


def test_a11_max_connections_per_ip_closes_what_is_more() -> None:
    crowd = Crowd(CrowdLimits(max_connections_per_ip=1))
    first = Peer(crowd)
    assert Peer(crowd).is_refused
    first.connection.connection_lost(None)
    assert not Peer(crowd).is_refused


def test_a11_there_are_no_more_connections_than_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10, 10))
    crowd = Crowd(CrowdLimits())
    assert [Peer(crowd).is_refused for _ in range(7)] == [False] * 6 + [True]


def test_a11_an_idle_connection_is_closed_and_one_that_waits_for_its_answer_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    crowd = Crowd(CrowdLimits(connections_max_idle_ms=600_000), clock)
    idle, waiting, busy, unread = Peer(crowd), Peer(crowd), Peer(crowd), Peer(crowd)
    waiting.send(b"a fetch that waits")
    unread.send(b"something large")
    unread.connection.pause_writing()
    clock.now = 599.0
    assert crowd.end_idle() == 0
    busy.connection.data_received(b"\x00")
    clock.now = 600.0
    assert crowd.end_idle() == 2
    ends = [peer.transport.ended for peer in (idle, waiting, busy, unread)]
    assert ends == ["closed", None, None, "aborted"]


def test_a11_large_requests_are_not_read_ahead() -> None:
    """Seventeen of a hundred megabytes were, on each connection."""

    async def play() -> None:
        peer = Peer(Crowd(CrowdLimits()))
        peer.send(b"x" * 10)
        assert peer.transport.is_reading
        peer.connection.data_received((1 << 24).to_bytes(4, "big") + bytes(1 << 20))
        assert not peer.transport.is_reading
        peer.connection.respond(b"done")
        await asyncio.sleep(0)
        assert peer.transport.is_reading
        peer.connection.data_received(bytes((1 << 24) - (1 << 20)))
        assert peer.handled == [10, 1 << 24]

    asyncio.run(play())


def test_a11_queued_max_requests_holds_for_all_connections() -> None:
    async def play() -> None:
        crowd = Crowd(CrowdLimits(queued_max_requests=3))
        peers = [Peer(crowd), Peer(crowd)]
        for peer in peers:
            peer.send(b"1", b"2", b"3")  # one is under way, two wait
        assert not peers[1].transport.is_reading
        peers[0].connection.respond(b"done")
        await asyncio.sleep(0)
        peers[0].connection.respond(b"done")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert peers[1].transport.is_reading

    asyncio.run(play())


def test_a11_queued_max_request_bytes_lets_what_has_begun_end() -> None:
    async def play() -> None:
        crowd = Crowd(CrowdLimits(queued_max_request_bytes=1000))
        first, second = Peer(crowd), Peer(crowd)
        first.connection.data_received((1000).to_bytes(4, "big") + bytes(500))
        assert first.transport.is_reading
        second.send(b"x" * 10)  # it was on its way
        second.connection.respond(b"done")
        await asyncio.sleep(0)
        assert not second.transport.is_reading
        first.connection.data_received(bytes(500))
        assert first.handled == [1000]
        first.connection.respond(b"done")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert second.transport.is_reading

    asyncio.run(play())


def test_a11_large_answers_wait_while_many_are_not_read() -> None:
    crowd = Crowd(CrowdLimits())
    peers = [Peer(crowd) for _ in range(3)]
    for peer in peers:
        assert crowd.may_answer_at_length
        peer.transport.written.append(bytes(1 << 25))
        peer.connection.pause_writing()
        if peer is peers[1]:
            break
    assert not crowd.may_answer_at_length
    peers[0].connection.resume_writing()
    assert crowd.may_answer_at_length
    peers[0].connection.pause_writing()
    peers[1].connection.connection_lost(None)
    assert crowd.may_answer_at_length
