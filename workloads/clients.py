"""The harness's end of a process of clients. Not thread-safe: one event loop."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from neaptide.clusters.hosts.local import LocalHost, ProcessSpec, RunningProcess
from neaptide.workloads.errors import ClientsError
from neaptide.workloads.protocol import ClientsConfig

Event = Mapping[str, Any]
_LINE_BYTES_MAX = 2**20
_CLOSE_S = 15.0


class Clients:
    """A running process of clients. Make one with `await Clients.start(…)`."""

    def __init__(self, process: RunningProcess, on_event: Callable[[Event], None]) -> None:
        self.process = process
        self._on_event = on_event
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._failure: str | None = None
        self._writer: asyncio.WriteTransport
        self._reading: asyncio.Task[None]

    @classmethod
    async def start(
        cls, host: LocalHost, config: ClientsConfig, on_event: Callable[[Event], None]
    ) -> Clients:
        path = config.directory / f"clients-{config.number}.json"
        path.write_text(json.dumps(asdict(config)), encoding="utf-8")
        name = f"clients-{config.number}"
        argv = (sys.executable, "-m", "neaptide.workloads.worker", str(path))
        log = config.directory / "logs" / f"{name}.log"
        process = await host.start(ProcessSpec(name, argv, config.directory, log, pipes=True))
        clients = cls(process, on_event)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), process.popen.stdout
        )
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.popen.stdin)
        clients._writer = transport
        clients._reading = loop.create_task(clients._read(reader))
        return clients

    async def do(self, verb: str, **arguments: Any) -> Any:
        """One command of workloads.protocol; its result. Raises ClientsError."""
        if self._failure is not None:
            raise ClientsError(self._failure)
        self._count += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[self._count] = answer
        line = json.dumps({"id": self._count, "do": verb, **arguments})
        self._writer.write(line.encode() + b"\n")
        return await answer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            row = json.loads(line)
            if "event" in row:
                self._on_event(row)
                continue
            answer = self._answers.pop(row["id"])
            if answer.done():
                continue
            if row["ok"]:
                answer.set_result(row["result"])
            else:
                answer.set_exception(ClientsError(row["error"]))
        self._failure = f"the clients have ended (see {self.process.spec.stdout_log})"
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ClientsError(self._failure))

    async def close(self) -> None:
        """Ends the process; all that it recorded is on disk then."""
        self._writer.close()
        try:
            await self.process.wait(_CLOSE_S)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        await self._reading
