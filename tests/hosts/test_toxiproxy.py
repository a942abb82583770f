"""Toxics of the real server, by what they do to bytes: each has a twin without them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from neaptide.clusters.errors import HostError, MissingPartError
from neaptide.clusters.hosts import toxiproxy
from neaptide.clusters.hosts.local import LocalHost
from neaptide.clusters.hosts.toxiproxy import TOXICS, Stream, Toxic, ToxicKind, ToxicLinks

LINK = "client-0"
SOME = bytes(range(256)) * 4
WITHIN_S = 30.0


@dataclass
class Echo:
    """A server that sends back what it is sent, and closes when it is sent a `.`."""

    port: int = 0
    received: bytearray = field(default_factory=bytearray)
    closed_at: float | None = None

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.received += data
                if data == b".":
                    break
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            self.closed_at = time.monotonic()
            writer.close()


@dataclass
class Wire:
    """An echo at the far end of a link that may have toxics."""

    links: ToxicLinks
    echo: Echo
    port: int
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def put(self, kind: ToxicKind, stream: Stream, **given: int) -> None:
        await self.links.begin(LINK, "t", toxic(kind, stream, **given))


def toxic(kind: ToxicKind, stream: Stream, **given: int) -> Toxic:
    defaults = {name: a.default for name, a in TOXICS[kind].items() if a.default is not None}
    made = Toxic(kind, stream, {**defaults, **given})
    assert made.problem() is None
    return made


@pytest.fixture
def play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Wire], Awaitable[None]]], None]:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # nobody asks that about loopback
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")

    async def stage(story: Callable[[Wire], Awaitable[None]]) -> None:
        host, echo = LocalHost(), Echo()
        await echo.start()
        links = await ToxicLinks.start(host, tmp_path)
        try:
            port = await links.lead(LINK, "127.0.0.1", echo.port)
            wire = Wire(links, echo, port)
            async with asyncio.timeout(120):
                try:
                    await story(wire)
                finally:
                    await wire.close()
        finally:
            links.close()
            await host.close()
            echo.server.close()

    return lambda story: asyncio.run(stage(story))


Play = Callable[[Callable[[Wire], Awaitable[None]]], None]
needs_server = pytest.mark.needs("toxiproxy")


async def echoed(wire: Wire, data: bytes = SOME) -> tuple[bytes, float]:
    """What comes back by a connection of its own, and after how many seconds."""
    reader, writer = await wire.connect()
    begun = time.monotonic()
    writer.write(data)
    answer = await asyncio.wait_for(reader.readexactly(len(data)), WITHIN_S)
    took_s = time.monotonic() - begun
    return answer, took_s


@needs_server
def test_a_link_without_toxics_passes_all_as_it_was_sent(play: Play) -> None:
    async def story(wire: Wire) -> None:
        data = SOME * 2_000
        assert (await echoed(wire, data))[0] == data

    play(story)


@needs_server
@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_latency_is_at_least_as_long_as_it_says_until_it_ends(play: Play, stream: Stream) -> None:
    async def story(wire: Wire) -> None:
        running, _ = await wire.connect()
        await wire.put("latency", stream, latency_ms=400, jitter_ms=100)
        assert await asyncio.wait_for(running.read(), WITHIN_S) == b"", "it was made before"
        answer, took_s = await echoed(wire)
        assert (answer, took_s >= 0.3) == (SOME, True)
        await wire.links.end("t")
        assert (await echoed(wire))[0] == SOME

    play(story)


@needs_server
def test_no_more_bytes_pass_than_the_bandwidth_allows(play: Play) -> None:
    async def story(wire: Wire) -> None:
        await wire.put("bandwidth", "downstream", kb_per_s=100)
        reader, writer = await wire.connect()
        begun, received = time.monotonic(), 0
        writer.write(bytes(60_000))
        while received < 60_000:
            received += len(await asyncio.wait_for(reader.read(65536), WITHIN_S))
            allowed = (time.monotonic() - begun) * 100_000
            assert received <= allowed + 10_000, "a tenth of a second at most is sent at once"

    play(story)


@needs_server
def test_a_sliced_stream_comes_in_parts_and_whole(play: Play) -> None:
    async def story(wire: Wire) -> None:
        async def parts() -> list[bytes]:
            reader, writer = await wire.connect()
            writer.write(SOME)
            come: list[bytes] = []
            while sum(map(len, come)) < len(SOME):
                come.append(await asyncio.wait_for(reader.read(65536), WITHIN_S))
            return come

        await wire.put("slicer", "downstream", bytes=100, variation_bytes=20, delay_us=50_000)
        sliced = await parts()
        assert b"".join(sliced) == SOME
        assert len(sliced) > 2
        assert any(len(part) <= 120 for part in sliced)
        await wire.links.end("t")
        assert len(await parts()) < len(sliced)

    play(story)


@needs_server
def test_a_connection_closes_after_so_many_bytes(play: Play) -> None:
    async def story(wire: Wire) -> None:
        await wire.put("limit_data", "downstream", bytes=300)
        for _ in range(2):  # each connection is counted for itself
            reader, writer = await wire.connect()
            writer.write(SOME)
            assert await asyncio.wait_for(reader.read(), WITHIN_S) == SOME[:300]

    play(story)


@needs_server
def test_the_end_of_a_stream_comes_late_and_what_was_before_it_does_not(play: Play) -> None:
    async def story(wire: Wire) -> None:
        await wire.put("slow_close", "downstream", delay_ms=500)
        reader, writer = await wire.connect()
        writer.write(SOME)
        assert await asyncio.wait_for(reader.readexactly(len(SOME)), WITHIN_S) == SOME
        assert wire.echo.closed_at is None
        writer.write(b".")
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""
        assert wire.echo.closed_at is not None
        assert time.monotonic() - wire.echo.closed_at >= 0.45

    play(story)


@needs_server
def test_a_timeout_lets_nothing_pass_and_its_end_closes_the_connection(play: Play) -> None:
    async def story(wire: Wire) -> None:
        await wire.put("timeout", "upstream")
        reader, writer = await wire.connect()
        writer.write(SOME)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.7)
        assert wire.echo.received == b""
        await wire.links.end("t")
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""
        assert wire.echo.received == b"", "what was lost does not come later"
        assert (await echoed(wire))[0] == SOME

    play(story)


@needs_server
def test_a_timeout_of_so_many_ms_closes_the_connection_by_itself(play: Play) -> None:
    async def story(wire: Wire) -> None:
        await wire.put("timeout", "downstream", timeout_ms=200)
        reader, writer = await wire.connect()
        begun = time.monotonic()
        writer.write(SOME)
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""
        assert time.monotonic() - begun >= 0.2
        assert wire.echo.received == SOME, "it is the answer that is lost"

    play(story)


@needs_server
def test_a_reset_is_seen_as_one(play: Play) -> None:
    async def story(wire: Wire) -> None:
        await wire.put("reset_peer", "downstream")
        reader, writer = await wire.connect()
        writer.write(SOME)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), WITHIN_S)

    play(story)


@needs_server
def test_two_toxics_of_a_link_are_there_at_one_time_and_end_one_by_one(play: Play) -> None:
    async def story(wire: Wire) -> None:
        slow = toxic("latency", "downstream", latency_ms=300)
        await wire.links.begin(LINK, "slow", slow)
        await wire.links.begin(LINK, "short", toxic("limit_data", "downstream", bytes=10))
        reader, writer = await wire.connect()
        begun = time.monotonic()
        writer.write(SOME)
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == SOME[:10]
        assert time.monotonic() - begun >= 0.3
        await wire.links.end("slow")
        reader, writer = await wire.connect()
        writer.write(SOME)
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == SOME[:10]
        await wire.links.end("short")
        assert (await echoed(wire))[0] == SOME

    play(story)


@needs_server
def test_a_connection_that_nobody_reads_does_not_keep_a_toxic_from_beginning(play: Play) -> None:
    """Its bytes stand still: the server cannot change it as it runs."""

    async def story(wire: Wire) -> None:
        _, writer = await wire.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(bytes(16 * 1024 * 1024))
        before = -1
        while before < len(wire.echo.received):
            before = len(wire.echo.received)
            await asyncio.sleep(0.3)
        await wire.put("latency", "downstream", latency_ms=1)
        await wire.links.end("t")
        assert (await echoed(wire))[0] == SOME

    play(story)


@needs_server
def test_a_server_that_has_gone_is_an_error_of_one_sentence(play: Play) -> None:
    async def story(wire: Wire) -> None:
        wire.links.process.kill()
        await wire.links.process.wait()
        assert "toxiproxy" in (wire.links.process.trouble() or "")
        with pytest.raises(HostError, match="did not do what it was asked for"):
            await wire.put("latency", "downstream", latency_ms=1)

    play(story)


@needs_server
def test_a_web_proxy_of_the_environment_is_not_asked(play: Play) -> None:
    """The fixture names one that nobody is behind."""

    async def story(wire: Wire) -> None:
        assert (await echoed(wire))[0] == SOME

    play(story)


def test_the_server_that_was_built_comes_before_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPartError, match="go install github"):
        toxiproxy.find_server()
    on_the_path = tmp_path / "toxiproxy-server"
    on_the_path.write_text("#!/bin/sh\n")
    on_the_path.chmod(0o755)
    assert toxiproxy.find_server() == on_the_path
    built = toxiproxy.server_directory() / "server"
    built.parent.mkdir(parents=True)
    built.write_text("#!/bin/sh\n")
    built.chmod(0o755)
    assert toxiproxy.find_server() == built


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        ("latency", {"latency_ms": 0, "jitter_ms": 0}, "latency_ms = 0 must be 1 or more"),
        ("latency", {"latency_ms": 5}, "latency needs jitter_ms"),
        ("timeout", {"timeout_ms": 0, "bytes": 1}, "timeout has no bytes"),
        ("slicer", {"bytes": 5, "variation_bytes": 5, "delay_us": 0}, "must be less than bytes"),
    ],
)
def test_what_is_no_toxic_says_why(kind: ToxicKind, given: dict[str, int], says: str) -> None:
    assert says in (Toxic(kind, "upstream", given).problem() or "")
