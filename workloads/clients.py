"""The harness's end of a process of clients. Not thread-safe: one event loop.

The rule: nobody waits for it without an end. Each command has a deadline, and a process that has
ended, stands still or cannot be understood says so in `find_incident`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.hosts.local import LocalHost, ProcessSpec, RunningProcess
from neaptide.results.run import Incident, Written
from neaptide.results.tables import written_by
from neaptide.workloads.errors import ClientsError
from neaptide.workloads.protocol import SECRET_SETTINGS, ClientsConfig
from neaptide.workloads.recorder import TABLE, writer_label

Event = Mapping[str, Any]
_LINE_BYTES_MAX: Final = 64 * 2**20  # a record's value is in a line, and may be large
_CLOSE_S: Final = 15.0
_ANSWER_WITHIN_S: Final = 30.0
_STOP_LOAD_WITHIN_S: Final = 120.0  # it waits for messages to time out


class Clients:
    """A running process of clients. Make one with `await Clients.start(…)`."""

    def __init__(
        self, process: RunningProcess, config: ClientsConfig, on_event: Callable[[Event], None]
    ) -> None:
        self.process = process
        self.writer = writer_label(config.number)
        self.written = Written(0, 0)  # as the process last said
        self._config = config
        self._on_event = on_event
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._failure: str | None = None
        self._recorder_failure: str | None = None
        self._late: str | None = None
        self._client_failure: str | None = None
        self._writer: asyncio.WriteTransport
        self._reading: asyncio.Task[None]

    @property
    def number(self) -> int:
        return self._config.number

    @property
    def run_directory(self) -> Path:
        return self._config.directory

    @classmethod
    async def start(
        cls,
        host: LocalHost,
        config: ClientsConfig,
        on_event: Callable[[Event], None],
        secret: Mapping[str, str] | None = None,
    ) -> Clients:
        """`secret`: more settings, which are written to no file."""
        path = config.directory / f"clients-{config.number}.json"
        path.write_text(json.dumps(asdict(config)), encoding="utf-8")
        name = f"clients-{config.number}"
        argv = (sys.executable, "-m", "neaptide.workloads.worker", str(path))
        log = config.directory / "logs" / f"{name}.log"
        env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # roles of somebody's own
        if secret:
            env[SECRET_SETTINGS] = json.dumps(dict(secret))
        process = await host.start(
            ProcessSpec(name, argv, config.directory, log, env=env, pipes=True)
        )
        clients = cls(process, config, on_event)
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
        """One command of workloads.protocol; its result. Raises ClientsError.

        One that has a deadline of its own (`deadline_s`) is waited for a while longer.
        """
        if self._failure is not None:
            raise ClientsError(self._failure)
        self._count += 1
        number = self._count
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        line = json.dumps({"id": number, "do": verb, **arguments})
        self._writer.write(line.encode() + b"\n")
        within_s = _STOP_LOAD_WITHIN_S if verb == "stop_load" else _ANSWER_WITHIN_S
        within_s += arguments.get("deadline_s", 0.0)
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            self._late = f"The clients did not answer to {verb} within {within_s:g} s."
            raise ClientsError(self.process.trouble() or self._late) from None
        finally:
            self._answers.pop(number, None)

    def find_incident(self) -> Incident | None:
        """What is wrong with the process, if anything is."""
        if self._recorder_failure is not None:
            return Incident("recorder", self._recorder_failure)
        trouble = self.process.trouble() or self._failure or self._late or self._client_failure
        return None if trouble is None else Incident("client", trouble)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._take(json.loads(line))
            failure = f"The clients have ended (see {self.process.spec.stdout_log})."
        except ValueError as error:  # no JSON, or a line that is too long
            failure = f"What the clients said cannot be understood ({error})."
            self.process.kill()
        self._failure = failure
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ClientsError(failure))

    def _take(self, row: Event) -> None:
        match row.get("event"):
            case None:
                self._answer(row)
            case "written":
                self.written = Written(row["files"], row["rows"])
            case "recorder_failed":
                self._recorder_failure = row["why"]
            case "client_failed":
                self._client_failure = row["why"]
            case _:
                self._on_event(row)

    def _answer(self, row: Event) -> None:
        answer = self._answers.get(row["id"])
        if answer is None or answer.done():
            return
        if row["ok"]:
            answer.set_result(row["result"])
        else:
            answer.set_exception(ClientsError(row["error"]))

    async def kill(self) -> None:
        """SIGKILL, as a fault: what it had recorded is on disk then, and no incident."""
        if self.process.returncode is None:  # with what it started itself
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        self._writer.close()
        await self._reading
        self.written = written_by(self._config.directory / TABLE, self.writer)
        for left in (self._config.directory / TABLE).glob(f".part-{self.writer}-*.tmp"):
            left.unlink()  # rows that nobody could read

    async def close(self) -> Incident | None:
        """Ends the process; all that it recorded is on disk then. What was wrong, if anything."""
        self._writer.close()
        was_stopped = self.process.trouble() if self.process.is_stopped else None
        self.process.resume()  # one that stands still would never end
        late = None
        try:
            status = await self.process.wait(_CLOSE_S)
        except TimeoutError:
            late = f"The clients did not end within {_CLOSE_S:g} s, and were killed."
            self.process.kill()
            status = await self.process.wait()
        await self._reading
        if status:  # it may not have lived to say what it wrote; what it said must be there
            there = written_by(self._config.directory / TABLE, self.writer)
            files = max(self.written.files, there.files)
            self.written = Written(files, max(self.written.rows, there.rows))
        if self._recorder_failure is not None:
            return Incident("recorder", self._recorder_failure)
        ended_badly = self.process.trouble() if status else None
        why = was_stopped or late or ended_badly or self._client_failure
        return None if why is None else Incident("client", why)
