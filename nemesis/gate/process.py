"""The gate as a process: its listeners, and its control stream on standard input and output.

It lives as long as its standard input is open, and so no longer than its harness.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Final, cast

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.gate.connection import Connection
from neaptide.nemesis.gate.control import Controls, obey
from neaptide.nemesis.gate.door import Door
from neaptide.nemesis.gate.events import Event
from neaptide.nemesis.gate.model import GateConfig, LinkSpec, Target
from neaptide.nemesis.gate.recorder import Recorder
from neaptide.nemesis.gate.switch import Switch
from neaptide.results.errors import StoreError

UNREPORTED_BYTES_MAX: Final = 32 * 1024 * 1024  # of events that the harness has not read
COMMAND_BYTES_MAX: Final = 1024 * 1024
_TICK_S: Final = 0.5


class EventStream:
    """Lines of JSON to standard output. Rounds, and only rounds, are left out if it is full.

    That they were is reported before anything else.
    """

    def __init__(self, transport: asyncio.WriteTransport, clock_ns: Callable[[], int]) -> None:
        self._transport = transport
        self._clock_ns = clock_ns
        self._not_reported = 0

    def emit(self, event: Event) -> None:
        if self._transport.is_closing():  # the harness is gone, and this process will be soon
            return
        full = self._transport.get_write_buffer_size() > UNREPORTED_BYTES_MAX
        if full and event.get("event") == "round":
            self._not_reported += 1
            return
        if self._not_reported:
            count, self._not_reported = self._not_reported, 0
            missing = {"event": "rounds_not_reported", "at_ns": self._clock_ns(), "count": count}
            self._write(missing)
        self._write(event)

    def _write(self, event: Event) -> None:
        self._transport.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")


class Listeners:
    """The listening sockets, and where each leads to."""

    def __init__(self, switch: Switch, address: str) -> None:
        self._switch = switch
        self._address = address
        self._doors: dict[str, Door] = {}
        self._dials: set[asyncio.Task[None]] = set()

    async def open(self, link: LinkSpec) -> int:
        """Have a port for a link, and listen there if its target can be reached; the port."""
        door = Door(link, self._address, lambda: self._accept(link.name))
        self._doors[link.name] = door
        await self._follow(door)
        return door.port

    async def set_target(self, name: str, target: Target, via: Target | None) -> None:
        """Where new connections of a link lead to from now on."""
        if name not in self._doors:
            raise UsageError(f"there is no link {name!r}: must be one of {', '.join(self._doors)}")
        door = self._doors[name]
        door.link = replace(door.link, target=target, via=via)
        await self._follow(door)

    async def follow_network(self, broker: int) -> None:
        """A broker was severed or revived: its listeners refuse, or accept again."""
        doors = [d for d in self._doors.values() if broker in (d.link.source, d.link.destination)]
        await asyncio.gather(*(self._follow(door) for door in doors))

    async def _follow(self, door: Door) -> None:
        ends = (door.link.source, door.link.destination)
        await door.follow(self._switch.network.is_severed(*ends))

    def close(self) -> None:
        for door in self._doors.values():
            door.close()
        for task in self._dials:
            task.cancel()

    def _accept(self, name: str) -> asyncio.BaseProtocol:
        connection = self._switch.accept(self._doors[name].link)
        if connection is None:
            return _Refusal()
        task = asyncio.get_running_loop().create_task(self._dial(connection))
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)
        return connection.near

    async def _dial(self, connection: Connection) -> None:
        target = connection.link.via or cast(Target, connection.link.target)
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: connection.far, target.host, target.port)
        except OSError:  # the target is down: so is this connection
            connection.destroy("discarded")
            self._doors[connection.link.name].lost()
            return
        if connection.closed.is_set():  # whoever connected has left meanwhile
            connection.far.abort()


class _Refusal(asyncio.Protocol):
    """Closes what was accepted."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


class _Output(asyncio.BaseProtocol):
    """Standard output; `closed` once all that was said is written, or nobody reads any more."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


async def serve(config: GateConfig) -> None:
    """Be the gate until standard input ends, or a signal says so."""
    loop = asyncio.get_running_loop()

    def clock_ns() -> int:
        return time.monotonic_ns() - config.clock_origin_ns

    output, said = await loop.connect_write_pipe(_Output, sys.stdout.buffer)
    stream = EventStream(output, clock_ns)
    recorder = Recorder(config.run)
    switch = Switch(clock_ns, stream.emit, recorder)
    listeners = Listeners(switch, config.listen)
    ports = {link.name: await listeners.open(link) for link in config.links}
    stream.emit({"event": "ready", "at_ns": clock_ns(), "ports": ports})
    ticking = loop.create_task(_tick(recorder, stream, clock_ns))
    obeying = loop.create_task(_obey_all(Controls(switch, recorder, listeners), stream))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, obeying.cancel)
    try:
        await asyncio.wait((ticking, obeying), return_when=asyncio.FIRST_COMPLETED)
        if not obeying.done():
            await ticking  # it never ends by itself: raise what it failed with
    finally:
        ticking.cancel()
        listeners.close()
        try:
            switch.close()
        except StoreError as error:
            stream.emit({"event": "recorder_failed", "at_ns": clock_ns(), "why": str(error)})
            raise
        finally:
            stream.emit(_written(recorder))
            output.close()
            await said.closed.wait()


def _written(recorder: Recorder) -> Event:
    written = {table: asdict(rows) for table, rows in recorder.written.items()}
    return {"event": "written", "tables": written}


async def _obey_all(controls: Controls, stream: EventStream) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=COMMAND_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while line := await reader.readline():
        answer: dict[str, Any] = await obey(controls, line)
        stream.emit(answer)


async def _tick(recorder: Recorder, stream: EventStream, clock_ns: Callable[[], int]) -> None:
    said = recorder.written
    while True:
        await asyncio.sleep(_TICK_S)
        recorder.tick(clock_ns())
        if recorder.written != said:
            said = recorder.written
            stream.emit(_written(recorder))
