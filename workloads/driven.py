"""Clients that a scenario drives: programs, each in a process of its own, so that it can be killed.

A program does what lines on its standard input say and answers on its standard output, as
docs/clients.md has it (`neaptide.workloads.adapters` has those that ship). Its log is what it
writes to standard error. What it did is recorded here: a killed one leaves no row half written.

The rule for times: an operation begins when it is asked for and ends when its answer is read. Both
make it longer than it was, so no order is claimed that was not.

The rule for groups: all members of a group are one process of the history, and what it has polled
is what they have *handled*. So a record that the group passes over is a skip, and one that two
members handle is there twice, by the same rules as for a single consumer.
"""

from __future__ import annotations

import contextlib
import json
import queue
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

import psutil
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from neaptide.clusters.hosts.local import last_line, last_said
from neaptide.results.record_texts import text_of
from neaptide.workloads.errors import ClientsError
from neaptide.workloads.process import LogicalProcess
from neaptide.workloads.recorder import Recorder

Say = Callable[[Mapping[str, Any]], None]
_ANSWERS_S: Final = 20.0  # beyond the deadline that a program was given
_ENDED: Final = "the client has ended"
_LINE_SHOWN: Final = 200  # characters
_KILLED: Final = "_DESTROY"  # the end of what a killed client had begun
_ENDS_TRANSACTION: Final = {"commit_transaction": True, "abort_transaction": False}
Offset = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """What one client is to be; its program is given all but the name."""

    name: str
    kind: str
    bootstrap: str
    topic: str
    group: str | None = None
    transactional_id: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


# --- what a program says -------------------------------------------------------------------------


class Answer(BaseModel):
    """To the request with this id. `problem`: why it was not done; `error`: what was answered."""

    id: int
    problem: str = ""
    error: str | None = None
    client: str = ""
    version: str = ""
    can: tuple[str, ...] = ()


class Sent(BaseModel):
    """A send has ended. `appended`: false where it surely was not; otherwise nobody knows."""

    event: Literal["sent"]
    value: str
    offset: Offset | None = None
    error: str | None = None
    appended: bool | None = None

    @property
    def type(self) -> str:
        if self.error is None:
            return "ok"
        return "fail" if self.appended is False else "info"


class Polled(BaseModel):
    """A record was taken."""

    event: Literal["polled"]
    value: str | None
    offset: Offset
    partition: Offset = 0
    leader_epoch: int | None = None


class Assigned(BaseModel):
    """These partitions it has now."""

    event: Literal["assigned"]
    partitions: tuple[Offset, ...]


class Committed(BaseModel):
    """A commit has ended, of those too that a client makes by itself."""

    event: Literal["committed"]
    offset: Offset
    partition: Offset = 0
    error: str | None = None


class Notified(BaseModel):
    """Of an error that belongs to no request."""

    event: Literal["notified"]
    error: str


Event = Annotated[Sent | Polled | Assigned | Committed | Notified, Field(discriminator="event")]
_EVENT: Final[TypeAdapter[Event]] = TypeAdapter(Event)


def read_line(line: str) -> Answer | Event:
    """Raises ValueError, in a sentence."""
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    shown = repr(line.strip()[:_LINE_SHOWN])
    if not isinstance(row, dict):
        raise ValueError(f"{shown} is no JSON object with an id or an event")
    try:
        return Answer.model_validate(row) if "id" in row else _EVENT.validate_python(row)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{shown}: {where}: {first['msg']}") from None


def describe(program: Sequence[str], deadline_s: float, shown: str = "") -> Answer:
    """What a program says of itself. Raises ClientsError, in a sentence that names it as `shown`
    (its words, if that is empty)."""
    shown = shown or shlex.join(program)
    lines: queue.Queue[str] = queue.Queue()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            process = _started(program, log)
        except OSError as error:
            raise ClientsError(f"{shown} cannot be started: {error.strerror}.") from None
        reading = threading.Thread(target=lambda: lines.put(_out(process).readline()), daemon=True)
        reading.start()
        try:
            with contextlib.suppress(OSError):  # it has ended: it answers nothing
                _write(process, {"id": 1, "do": "describe"})
            line = lines.get(timeout=deadline_s)
            said = read_line(line) if line else None
        except queue.Empty:
            raise ClientsError(
                f"{shown} did not answer to `describe` within {deadline_s:g} s (docs/clients.md has"
                " what is asked of it)."
            ) from None
        except ValueError as error:
            raise ClientsError(f"{shown}: {error} (docs/clients.md has what it may say).") from None
        finally:
            _kill(process)
            reading.join()
            _close(process)
        if said is None:
            raise ClientsError(f"{shown} has ended; it says last: {_last(log)}.")
    if not isinstance(said, Answer) or not said.client:
        raise ClientsError(f"{shown} answered to `describe` without the name of its `client`.")
    return said


def _started(program: Sequence[str], log: IO[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def _out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def _write(process: subprocess.Popen[str], request: Mapping[str, Any]) -> None:
    """Raises OSError where it has ended."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()


def _last(log: IO[str]) -> str:
    log.seek(0)
    return last_said(log.read()) or "nothing"


# --- those that were started ---------------------------------------------------------------------


@dataclass(slots=True)
class _Begun:
    """A send without an end."""

    partition: int
    key: str | None
    invoked_ns: int


@dataclass(slots=True)
class _Running:
    config: ClientConfig
    process: subprocess.Popen[str]
    logical: LogicalProcess  # all members of a group are one
    answers: dict[int, tuple[str, queue.Queue[Answer | None]]] = field(default_factory=dict)
    reading: threading.Thread = field(default_factory=threading.Thread)
    asked: int = 0
    asked_ns: int = 0
    trouble: str = ""  # why nothing more is read of it
    transaction: list[tuple[str, _Begun, Sent | None]] | None = None  # while one is open
    began_ns: int = 0
    sending: dict[str, _Begun] = field(default_factory=dict)  # by value
    over: set[str] = field(default_factory=set)  # what ended with its transaction, and has no end
    taken: list[tuple[Polled, int]] = field(default_factory=list)  # and not handled
    positions: dict[int, int] = field(default_factory=dict)  # by partition: behind what was taken
    committing: dict[tuple[int, int], int] = field(default_factory=dict)  # → when it was asked


class DrivenClients:
    """Those of one process of clients: starts, drives, records and ends them. For many threads."""

    def __init__(
        self, recorder: Recorder, new_process: Callable[[], int], directory: Path, say: Say
    ) -> None:
        self._recorder = recorder
        self._new_process = new_process
        self._directory = directory
        self._say = say
        self._clients: dict[str, _Running] = {}
        self._groups: dict[str, LogicalProcess] = {}  # their processes in the history
        self._lock = threading.Lock()

    def open(self, config: ClientConfig, program: Sequence[str], deadline_s: float) -> str:
        """What did not come about in time; empty where all did."""
        try:
            with self._log_of(config).open("w", encoding="utf-8") as log:
                process = _started(program, log)
        except OSError as error:
            return f"{program[0]} cannot be started: {error.strerror}"
        with self._lock:
            logical = LogicalProcess(self._new_process)
            if config.group is not None:
                logical = self._groups.setdefault(config.group, logical)
            running = self._clients[config.name] = _Running(config, process, logical)
        running.reading = threading.Thread(target=self._read, args=(running,), daemon=True)
        running.reading.start()
        given = {name: value for name, value in asdict(config).items() if name != "name"}
        return self._ask(running, "start", deadline_s, given)

    def is_open(self, client: str) -> bool:
        return client in self._clients

    def do(self, client: str, verb: str, deadline_s: float, **arguments: Any) -> str:
        """What did not come about in time; empty where all did."""
        running = self._clients[client]
        if verb == "handle":
            with self._lock:
                self._handle(running)
            return ""
        if verb == "commit":
            arguments["offsets"] = self._offsets(running, arguments.pop("offset"))
            if not arguments["offsets"]:
                return ""  # nothing was taken: there is nothing to be committed
        return self._ask(running, verb, deadline_s, arguments)

    def _offsets(self, running: _Running, named: int | None) -> list[dict[str, int]]:
        """Behind what was taken, of each partition, or the one that a step names."""
        behind = running.positions if named is None else dict.fromkeys(running.positions, named)
        if named is not None and not behind:
            behind = {0: named}
        return [{"partition": number, "offset": offset} for number, offset in behind.items()]

    def _ask(
        self, running: _Running, verb: str, deadline_s: float, arguments: Mapping[str, Any]
    ) -> str:
        answer: queue.Queue[Answer | None] = queue.Queue()
        with self._lock:
            running.asked += 1
            number = running.asked
            running.answers[number] = verb, answer
            running.asked_ns = self._recorder.now_ns()
            self._begin(running, verb, arguments)
        if not running.reading.is_alive():
            return self._how_it_ended(running)
        request = {"id": number, "do": verb, "deadline_s": deadline_s, **arguments}
        try:
            _write(running.process, request)
            said = answer.get(timeout=deadline_s + _ANSWERS_S)
        except (OSError, ValueError):
            return self._how_it_ended(running)
        except queue.Empty:
            return f"it did not answer to {verb}"
        return self._how_it_ended(running) if said is None else said.problem

    def _begin(self, running: _Running, verb: str, arguments: Mapping[str, Any]) -> None:
        """What may be done from now on."""
        match verb:
            case "begin_transaction":
                running.transaction, running.began_ns = [], running.asked_ns
            case "send":
                begun = _Begun(arguments["partition"], arguments["key"], running.asked_ns)
                running.sending |= dict.fromkeys(arguments["records"], begun)
            case "commit":
                asked = ((one["partition"], one["offset"]) for one in arguments["offsets"])
                running.committing |= dict.fromkeys(asked, running.asked_ns)

    def _how_it_ended(self, running: _Running) -> str:
        log = self._log_of(running.config)
        return f"{running.trouble or _ENDED}; its log {log} says last: {last_line(log)}"

    def _log_of(self, config: ClientConfig) -> Path:
        return self._directory / "logs" / f"client-{config.name}.log"

    def die(self, client: str) -> None:
        """SIGKILL; then all that it had said is recorded."""
        running = self._clients[client]
        _kill(running.process)
        running.reading.join()
        with self._lock:
            self._end_sends(running)

    def close(self) -> None:
        for client, running in self._clients.items():
            self.die(client)
            _close(running.process)

    def wait_until_silent(self, client: str) -> None:
        """Returns when a client that has ended has said all."""
        self._clients[client].reading.join()

    # --- what they say ---------------------------------------------------------------------------

    def _read(self, running: _Running) -> None:
        for line in _out(running.process):
            if not line.endswith("\n"):
                break  # killed in the middle of it
            try:
                self._take_line(running, read_line(line))
            except ValueError as error:
                running.trouble = f"what the client said cannot be understood ({error})"
                break
        for _, answer in list(running.answers.values()):
            answer.put(None)

    def _take_line(self, running: _Running, said: Answer | Event) -> None:
        if not isinstance(said, Answer):
            with self._lock:
                self._take(running, said)
            return
        if said.id not in running.answers:
            raise ValueError(f"nobody asked {said.id}")
        verb, answer = running.answers[said.id]
        if said.error is not None:
            self._notify(running, said.error)
        if verb in _ENDS_TRANSACTION:
            with self._lock:
                self._end_transaction(running, _ENDS_TRANSACTION[verb], said)
        answer.put(said)

    def _notify(self, running: _Running, error: str) -> None:
        self._say({"event": "notified", "client": running.config.name, "error": error})

    def _take(self, running: _Running, said: Event) -> None:
        name = running.config.name
        match said:
            case Notified():
                self._notify(running, said.error)
            case Assigned():
                count = len(said.partitions)
                self._say({"event": "assigned", "client": name, "count": count})
            case Polled():
                running.taken.append((said, running.asked_ns))
                running.positions[said.partition] = said.offset + 1
                fields = {"value": said.value, "offset": said.offset}
                self._say({"event": "polled", **fields, "client": name})
            case Sent():
                self._sent(running, said)
            case Committed():
                self._commit(running, said)

    def _handle(self, running: _Running) -> None:
        taken, running.taken = running.taken, []
        if not taken:
            return
        operation, now_ns = self._recorder.new_operation(), self._recorder.now_ns()
        for number, (record, _) in enumerate(taken):
            self._recorder.write(
                operation=operation,
                row=number,
                process=running.logical.number,
                f="poll",
                type="ok",
                invoked_ns=min(asked_ns for _, asked_ns in taken),
                completed_ns=now_ns,
                topic=running.config.topic,
                partition=record.partition,
                offset=record.offset,
                value=record.value,
                leader_epoch=record.leader_epoch,
            )
            self._say({"event": "handled", "value": record.value, "client": running.config.name})

    def _sent(self, running: _Running, said: Sent) -> None:
        begun = running.sending.pop(said.value, None)
        if begun is None and said.value in running.over:
            return  # its transaction has ended, and said what became of it
        if begun is None:
            raise ValueError(f"nobody asked it to send {said.value!r}")
        if running.transaction is not None:
            running.transaction.append((said.value, begun, said))
        else:
            self._write_sends(running, [(said.value, begun, said)], said.type, begun.invoked_ns)
        fields = {"value": said.value, "offset": said.offset, "error": said.error}
        self._say({"event": "sent", "type": said.type, **fields})

    def _end_transaction(self, running: _Running, commits: bool, said: Answer) -> None:
        """It is one operation: all of it happened, or nothing, or nobody knows."""
        kind = "info" if said.error or said.problem else "ok" if commits else "fail"
        self._write_sends(running, self._unended(running), kind, running.began_ns, said.error)
        running.transaction = None

    def _end_sends(self, running: _Running) -> None:
        """Its process is over: nobody knows the end of what it had begun."""
        if running.transaction is not None:
            rows = self._unended(running)
            self._write_sends(running, rows, "info", running.began_ns, _KILLED)
            running.transaction = None
        for row in self._unended(running):
            self._write_sends(running, [row], "info", row[1].invoked_ns, _KILLED)

    def _unended(self, running: _Running) -> list[tuple[str, _Begun, Sent | None]]:
        left = [(value, begun, None) for value, begun in running.sending.items()]
        running.over |= running.sending.keys()
        running.sending = {}
        return [*(running.transaction or []), *left]

    def _write_sends(
        self,
        running: _Running,
        rows: Sequence[tuple[str, _Begun, Sent | None]],
        kind: str,
        invoked_ns: int,
        error: str | None = None,
    ) -> None:
        operation, logical = self._recorder.new_operation(), running.logical
        is_alone = running.config.group is None
        process = logical.completed(kind) if is_alone else logical.number
        now_ns = self._recorder.now_ns()
        acks = running.config.settings.get("acks", "all")
        for number, (value, begun, said) in enumerate(rows):
            self._recorder.write(
                operation=operation,
                row=number,
                process=process,
                f="send",
                type=kind,
                invoked_ns=invoked_ns,
                completed_ns=now_ns,
                topic=running.config.topic,
                partition=begun.partition,
                # With acks=0 no broker sent an offset, whatever the client says.
                offset=None if said is None or acks == "0" else said.offset,
                value=text_of(value),
                key=None if begun.key is None else text_of(begun.key),
                acks=acks,
                error=error or (None if said is None else said.error),
            )

    def _commit(self, running: _Running, said: Committed) -> None:
        """One that is refused surely did not happen; of what was not answered nobody knows."""
        now_ns, group = self._recorder.now_ns(), running.config.group
        if said.error is not None:
            self._notify(running, said.error)
        if group is None:
            return
        self._recorder.write(
            operation=self._recorder.new_operation(),
            process=running.logical.number,
            f="commit",
            type="ok" if said.error is None else "info",
            invoked_ns=running.committing.pop((said.partition, said.offset), now_ns),
            completed_ns=now_ns,
            topic=running.config.topic,
            partition=said.partition,
            offset=said.offset,
            key=group,
            error=said.error,
        )
        if said.error is None:
            fields = {"group": group, "partition": said.partition, "offset": said.offset}
            self._say({"event": "committed", **fields})


def _kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL, also for what the program has started itself."""
    if process.poll() is not None:
        return
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    process.kill()
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()


def _close(process: subprocess.Popen[str]) -> None:
    """Its pipes, when it is dead."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # what it did not read
        process.stdin.close()
    _out(process).close()
