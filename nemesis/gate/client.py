"""The harness's end of a gate process: commands out, answers and events in.

Not thread-safe: one event loop. A gate that ends unasked makes every wait and command raise
GateError, for what it held or cut is no longer held or cut.
"""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, cast
from uuid import UUID

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.local import LocalHost, ProcessSpec, RunningProcess
from neaptide.nemesis.gate.errors import GateError
from neaptide.nemesis.gate.events import Event
from neaptide.nemesis.gate.model import (
    Cut,
    Endpoint,
    GateConfig,
    InFlight,
    Purpose,
    Rule,
    Subscription,
    Target,
)
from neaptide.results.run import Written

_HISTORY_EVENTS_MAX: Final = 100_000
_LINE_BYTES_MAX: Final = 16 * 1024 * 1024
_START_DEADLINE_S: Final = 30.0
_COMMAND_DEADLINE_S: Final = 30.0
_CLOSE_WITHIN_S: Final = 10.0
# Every answer that passes is a large buffer, made and freed again. By itself glibc gives its pages
# back each time, and to get them anew, zeroed, cost the gate half of its processor time.
_KEEP_PAGES: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(256 * 1024 * 1024),
    "MALLOC_TOP_PAD_": str(64 * 1024 * 1024),
}


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """What the wire last showed of a follower: its log end offset, and the high watermark."""

    leader: int
    leader_epoch: int | None
    round: int
    log_end_offset: int  # the fetch offset of its last request
    high_watermark: int | None  # of the last response that was delivered to it


class Gate:
    """A running gate. Make one with `await Gate.start(config, host)`."""

    def __init__(self, process: RunningProcess, ports: dict[str, int]) -> None:
        self.process = process
        self.ports = ports  # link name → the port that the gate listens on
        self.held: dict[int, Event] = {}  # hold id → its hold_started event
        # (follower, topic, partition) → …: of rounds that are subscribed to
        self.positions: dict[tuple[int, str, int], FetchPosition] = {}
        # the same → the error of the last Fetch or OffsetForLeaderEpoch response delivered to it
        self.answered: dict[tuple[int, str, int], int | None] = {}
        self.written: dict[str, Written] = {}  # by table, as the gate last said
        self.recorder_failure: str | None = None
        self._history: list[Event] = []
        self._forgotten = 0  # how many events came before the first in the history
        self._listeners: list[Callable[[Event], None]] = []
        self._changed = asyncio.Event()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._request_count = 0
        self._failure: str | None = None
        self._writer: asyncio.WriteTransport
        self._reading: asyncio.Task[None]

    @classmethod
    async def start(cls, config: GateConfig, host: LocalHost) -> Gate:
        """Start a gate process; returns when it listens."""
        directory = config.run.absolute()
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "gate.json"
        path.write_text(config.to_json(), encoding="utf-8")
        argv = (sys.executable, "-m", "neaptide.nemesis.gate", str(path))
        log = directory / "logs" / "gate.log"
        process = await host.start(
            ProcessSpec("gate", argv, directory, log, env=_KEEP_PAGES, pipes=True)
        )
        reader, writer = await _open_pipes(process)
        try:
            async with asyncio.timeout(_START_DEADLINE_S):
                line = await reader.readline()
        except TimeoutError:
            process.kill()
            raise GateError(f"the gate did not start: see {log}") from None
        if not line:
            raise GateError(f"the gate ended at its start: see {log}")
        gate = cls(process, json.loads(line)["ports"])
        gate._writer = writer
        gate._reading = asyncio.create_task(gate._read(reader))
        return gate

    # Rules and holds.

    async def install(self, rule: Rule) -> None:
        """A rule is in force when this returns."""
        await self._do("install", rule=asdict(rule))

    async def remove(self, rule_id: str) -> None:
        """The rule takes no more messages; what it holds stays held."""
        await self._do("remove", rule=rule_id)

    async def release(self, rule_id: str, *, keep: bool = False) -> int:
        """Let go, in order, what a rule holds, and remove it unless `keep`; how many."""
        return int(await self._do("release", rule=rule_id, keep=keep))

    async def discard(self, rule_id: str, *, keep: bool = False) -> int:
        """Throw away what a rule holds, which closes its connections; how many."""
        return int(await self._do("discard", rule=rule_id, keep=keep))

    def held_by(self, rule_id: str) -> list[Event]:
        """What a rule holds now: the hold_started events, oldest first."""
        return [event for event in self.held.values() if event["rule"] == rule_id]

    # Links.

    async def cut(
        self, source: Endpoint | None, destination: Endpoint | None, purpose: Purpose | None = None
    ) -> None:
        """Stop all bytes from source to destination. None: any."""
        await self._do("cut", cut=asdict(Cut(source, destination, purpose)))

    async def heal(
        self,
        source: Endpoint | None,
        destination: Endpoint | None,
        purpose: Purpose | None = None,
        *,
        reset: bool = False,
    ) -> None:
        """Undo that cut: bytes go on, or with `reset` its connections are closed."""
        await self._do("heal", cut=asdict(Cut(source, destination, purpose)), reset=reset)

    async def heal_all(self, *, reset: bool = False) -> None:
        """Undo every cut."""
        await self._do("heal", cut=None, reset=reset)

    async def slow(
        self,
        source: Endpoint | None,
        destination: Endpoint | None,
        purpose: Purpose | None = None,
        *,
        delay_ms: int,
    ) -> None:
        """Let bytes from source to destination take `delay_ms`; 0: no longer."""
        where = asdict(Cut(source, destination, purpose))
        await self._do("slow", where=where, delay_ms=delay_ms)

    async def set_target(
        self, link: str, port: int, host: str = "127.0.0.1", via: Target | None = None
    ) -> None:
        """Where new connections of a link lead to. `via`: dialled in place of it, leads to it."""
        target, through = asdict(Target(port, host)), None if via is None else asdict(via)
        await self._do("set_target", link=link, target=target, via=through)

    async def name_topics(self, names: Mapping[str, str]) -> None:
        """Topic id, as Kafka writes it, → name: for Fetch v13 on, which names topics by id."""
        ids = {name: UUID(bytes=urlsafe_b64decode(raw + "==")) for raw, name in names.items()}
        await self._do("name_topics", names={str(each): name for name, each in ids.items()})

    # Deaths.

    async def sever(self, broker: int) -> None:
        """From now on no byte passes to or from a broker: do this, then kill it."""
        self.answered = {key: error for key, error in self.answered.items() if key[0] != broker}
        await self._do("sever", broker=broker)

    async def bury(self, broker: int, in_flight: InFlight) -> None:
        """A severed broker was killed: deliver or discard what it had sent, and close."""
        await self._do("bury", broker=broker, in_flight=in_flight)

    async def revive(self, broker: int) -> None:
        """Let a broker be reached again: do this before it is restarted.

        Who followed it has no position until it fetches again: the new process may lead on in the
        same epoch, and know of no high watermark.
        """
        await self._do("revive", broker=broker)
        for key, position in tuple(self.positions.items()):
            if position.leader == broker:
                del self.positions[key]

    # Events.

    async def subscribe(self, subscription: Subscription) -> None:
        """Have rounds reported as events, and `positions` follow them."""
        await self._do("subscribe", subscription=asdict(subscription))

    async def unsubscribe(self, subscription_id: str) -> None:
        await self._do("unsubscribe", subscription=subscription_id)

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call a function with each event, in order; what is returned ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def mark(self) -> int:
        """A place in the stream of events: after all that have come so far."""
        return self._forgotten + len(self._history)

    async def events(self, since: int | None = None) -> AsyncIterator[Event]:
        """The events after a mark (None: from now on), and all that follow."""
        position = self.mark() if since is None else since
        while True:
            while position < self.mark():
                index = max(position - self._forgotten, 0)
                position = self._forgotten + index + 1
                yield self._history[index]
            self._check()
            self._changed.clear()
            await self._changed.wait()

    async def wait_for(
        self, predicate: Callable[[Event], bool], timeout_s: float, since: int | None = None
    ) -> Event:
        """The first event after a mark that satisfies; TimeoutError if none comes in time."""
        async with asyncio.timeout(timeout_s):
            async for event in self.events(since):
                if predicate(event):
                    return event
        raise GateError("the gate's events have ended")

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Return as soon as a condition on `held` or `positions` is true."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._check()
                self._changed.clear()
                await self._changed.wait()

    async def wait_held(self, rule_id: str, count: int = 1, timeout_s: float = 30.0) -> list[Event]:
        """Return when a rule holds so many messages: proof that the aim was hit."""
        await self.wait_until(lambda: len(self.held_by(rule_id)) >= count, timeout_s)
        return self.held_by(rule_id)

    # The process.

    async def flush(self) -> None:
        """Have all rounds and messages that are over on disk."""
        self._take_written(await self._do("flush"))

    async def state(self) -> dict[str, Any]:
        """Rules, holds, connections and severed brokers, as the gate has them."""
        return cast(dict[str, Any], await self._do("state"))

    async def close(self) -> None:
        """End the process: its connections close, its records are written. Idempotent."""
        self._writer.close()
        self.process.resume()  # one that stands still would never end
        try:
            await self.process.wait(_CLOSE_WITHIN_S)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        await self._reading

    async def _do(self, command: str, **arguments: Any) -> Any:
        self._check()
        self._request_count += 1
        number = self._request_count
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        line = json.dumps({"id": number, "do": command, **arguments})
        self._writer.write(line.encode() + b"\n")
        try:
            async with asyncio.timeout(_COMMAND_DEADLINE_S):
                return await answer
        except TimeoutError:
            raise GateError(f"the gate did not answer to {command}") from None
        finally:
            self._answers.pop(number, None)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                row = json.loads(line)
                if "event" in row:
                    self._take(row)
                else:
                    self._answer(row)
            self._failure = f"the gate has ended (see {self.process.spec.stdout_log})"
        except ValueError as error:  # no JSON, or a line that is too long: it is no gate any more
            self._failure = f"the gate cannot be understood ({error})"
            self.process.kill()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(GateError(self._failure))
        self._changed.set()

    def _answer(self, row: dict[str, Any]) -> None:
        answer = self._answers.get(row["id"])
        if answer is None or answer.done():
            return
        if row["ok"]:
            answer.set_result(row["result"])
        elif "failed" in row:
            answer.set_exception(GateError(row["failed"]))
        else:
            answer.set_exception(UsageError(row["error"]))

    def _take_written(self, tables: dict[str, Any]) -> None:
        self.written = {name: Written(**rows) for name, rows in tables.items()}

    def _take(self, event: Event) -> None:
        match event["event"]:
            case "written":
                self._take_written(event["tables"])
                return
            case "recorder_failed":
                self.recorder_failure = event["why"]
            case "hold_started":
                self.held[event["hold"]] = event
            case "hold_sender_closed":
                self.held[event["hold"]]["sender_closed"] = True
            case "hold_ended":
                self.held.pop(event["hold"], None)
            case "round":
                self._place(event)
            case "epoch_answered":
                self._note_answer(event)
        self._history.append(event)
        if len(self._history) > 2 * _HISTORY_EVENTS_MAX:
            del self._history[:_HISTORY_EVENTS_MAX]
            self._forgotten += _HISTORY_EVENTS_MAX
        for listener in list(self._listeners):
            listener(event)
        self._changed.set()

    def _place(self, event: Event) -> None:
        key = (event["follower"], event["topic"], event["partition"])
        before = self.positions.get(key)
        mark = None if before is None else before.high_watermark
        if event["phase"] == "delivered":
            self._note_answer(event)
            mark = mark if event["high_watermark"] is None else event["high_watermark"]
        self.positions[key] = FetchPosition(
            event["leader"], event["leader_epoch"], event["round"], event["fetch_offset"], mark
        )

    def _note_answer(self, event: Event) -> None:
        key = (event["follower"], event["topic"], event["partition"])
        self.answered[key] = event["error"]

    def _check(self) -> None:
        if self._failure is not None:
            raise GateError(self._failure)


async def _open_pipes(
    process: RunningProcess,
) -> tuple[asyncio.StreamReader, asyncio.WriteTransport]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.popen.stdout)
    writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.popen.stdin)
    return reader, writer
