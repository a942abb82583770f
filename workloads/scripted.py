"""Clients that a scenario drives, each in a process of its own, so that one can be killed.

`python -m neaptide.workloads.scripted CONFIG`, CONFIG as JSON, is one of them: a producer or a
consumer of librdkafka. It does what lines on its standard input say, one after the other, and ends
where they do. What comes of it are lines on its standard output; `ScriptedClients`, in the process
of clients that started it, records them. A killed one leaves no row half written.

The rule for groups: all members of a group are one process of the history, and what it has polled
is what they have *handled*. So a record that the group passes over is a skip, and one that two
members handle is there twice, by the same rules as for a single consumer.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from neaptide.results.forgone import forgo

if __name__ == "__main__":
    forgo()

from confluent_kafka import OFFSET_STORED, KafkaException, TopicPartition

from neaptide.clusters.hosts.local import last_line
from neaptide.results.record_texts import record_text, text_of
from neaptide.workloads.definite import completion_type
from neaptide.workloads.kafka_clients import consumer, producer
from neaptide.workloads.libraries.model import NOT_SENT
from neaptide.workloads.process import LogicalProcess
from neaptide.workloads.raw_connection import RawError
from neaptide.workloads.raw_producer import RawProducer
from neaptide.workloads.recorder import Recorder

Say = Callable[[Mapping[str, Any]], None]
_POLL_S: Final = 0.05
_START_S: Final = 20.0  # to be introduced to a transaction's coordinator
_ENDED: Final = "the client has ended"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """What one client is started with."""

    name: str
    kind: str
    bootstrap: str
    topic: str
    clock_origin_ns: int
    group: str | None = None
    transactional_id: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


# --- the process of one client -------------------------------------------------------------------


class _Client:
    """What both kinds have. `notified` is the event of an error, by its name."""

    def __init__(self, config: ClientConfig, say: Say) -> None:
        self.config = config
        self.say = say

    def now_ns(self) -> int:
        return time.monotonic_ns() - self.config.clock_origin_ns

    def notify(self, error: KafkaException | Any) -> None:
        known = error.args[0] if isinstance(error, KafkaException) else error
        self.say({"event": "notified", "error": str(known.name())})

    def serve(self) -> None:
        """Nothing to do between commands."""

    def do_leave(self, deadline_s: float) -> str:
        return ""


class _Producer(_Client):
    def __init__(self, config: ClientConfig, say: Say) -> None:
        super().__init__(config, say)
        given = dict(config.settings)
        if config.transactional_id is not None:
            given |= {"transactional.id": config.transactional_id, "enable.idempotence": "true"}
            given.setdefault("message.send.max.retries", "2147483647")
        self._producer = producer(config.bootstrap, "all", given)
        self._left = 0

    def serve(self) -> None:
        self._producer.poll(0)

    def do_start(self, deadline_s: float) -> str:
        if self.config.transactional_id is None:
            return ""
        return self._try(lambda: self._producer.init_transactions(_START_S))

    def do_begin_transaction(self, deadline_s: float) -> str:
        self.say({"event": "began", "at_ns": self.now_ns()})
        return self._try(self._producer.begin_transaction)

    def do_send(
        self, records: list[str], partition: int, key: str | None, waits: bool, deadline_s: float
    ) -> str:
        for record in records:
            invoked_ns = self.now_ns()
            self._left += 1
            self.say({"event": "sending", "value": record, "partition": partition, "key": key})

            def delivered(
                error: Any, message: Any, record: str = record, invoked_ns: int = invoked_ns
            ) -> None:
                self._left -= 1
                self.say(
                    {
                        "event": "sent",
                        "value": record,
                        "partition": partition,
                        "key": key,
                        "offset": None if error is not None else message.offset(),
                        "error": None if error is None else str(error.name()),
                        "invoked_ns": invoked_ns,
                        "completed_ns": self.now_ns(),
                    }
                )

            try:
                self._producer.produce(
                    self.config.topic,
                    value=record,
                    key=key,
                    partition=partition,
                    on_delivery=delivered,
                )
            except KafkaException as refused:  # such a producer is fenced: nothing left it
                self.notify(refused)
                self._left -= 1
                self.say(
                    {
                        "event": "sent",
                        "value": record,
                        "partition": partition,
                        "key": key,
                        "offset": None,
                        "error": NOT_SENT,
                        "invoked_ns": invoked_ns,
                        "completed_ns": self.now_ns(),
                    }
                )
        self._producer.poll(0)
        deadline = time.monotonic() + deadline_s
        while waits and self._left and time.monotonic() < deadline:
            self._producer.poll(_POLL_S)
        return f"{self._left} sends were not answered" if waits and self._left else ""

    def do_commit_transaction(self, deadline_s: float) -> str:
        return self._end(True, deadline_s)

    def do_abort_transaction(self, deadline_s: float) -> str:
        return self._end(False, deadline_s)

    def _end(self, commits: bool, deadline_s: float) -> str:
        end = self._producer.commit_transaction if commits else self._producer.abort_transaction
        return self._try(lambda: end(deadline_s), ended=commits)

    def _try(self, ask: Callable[[], Any], ended: bool | None = None) -> str:
        """`ended`: whether a transaction is to be committed."""
        error: str | None = None
        try:
            ask()
        except KafkaException as failed:
            error = str(failed.args[0].name())
            self.notify(failed)
        if ended is not None:
            self.say(
                {"event": "ended", "commits": ended, "error": error, "completed_ns": self.now_ns()}
            )
        return ""


class _RawTransactions(_Client):
    """The same for a producer that takes no care of itself."""

    def __init__(self, config: ClientConfig, say: Say) -> None:
        super().__init__(config, say)
        given = dict(config.settings)
        named = str(config.transactional_id)
        self._producer = RawProducer(config.bootstrap, config.topic, named, given)

    def do_start(self, deadline_s: float) -> str:
        self._producer.start()
        return ""

    def do_begin_transaction(self, deadline_s: float) -> str:
        self.say({"event": "began", "at_ns": self.now_ns()})
        self._producer.begin()
        return ""

    def do_send(
        self, records: list[str], partition: int, key: str | None, waits: bool, deadline_s: float
    ) -> str:
        for record in records:
            invoked_ns, error, offset = self.now_ns(), None, None
            self.say({"event": "sending", "value": record, "partition": partition, "key": key})
            try:
                offset = self._producer.send(partition, record, key, waits=waits)
            except RawError as failed:
                error = str(failed)
                self.say({"event": "notified", "error": error})
            if waits:
                ends = {"invoked_ns": invoked_ns, "completed_ns": self.now_ns()}
                said = {"value": record, "partition": partition, "key": key, "offset": offset}
                self.say({"event": "sent", **said, "error": error, **ends})
        return ""

    def do_commit_transaction(self, deadline_s: float) -> str:
        return self._end(True, deadline_s)

    def do_abort_transaction(self, deadline_s: float) -> str:
        return self._end(False, deadline_s)

    def _end(self, commits: bool, deadline_s: float) -> str:
        error = None
        try:
            self._producer.end(commits=commits)
        except RawError as failed:
            error = str(failed)
            self.say({"event": "notified", "error": error})
        self.say(
            {"event": "ended", "commits": commits, "error": error, "completed_ns": self.now_ns()}
        )
        return ""


class Consumer(_Client):
    def __init__(self, config: ClientConfig, say: Say) -> None:
        super().__init__(config, say)
        mine: dict[str, Any] = {"on_commit": self._committed}
        given = {"enable.auto.offset.store": "true", **config.settings, **mine}
        group = config.group or f"neaptide-{config.name}"
        self._consumer = consumer(config.bootstrap, group, given)
        self._cooperates = cooperates(config.settings)
        self._parts: list[TopicPartition] = []
        self._stalled = False
        self._has_erred = False  # and nobody has asked for records since
        self._taken: list[tuple[Any, int]] = []
        self._next: dict[int, int] = {}  # by partition: behind what was taken last

    def serve(self) -> None:
        if not self._stalled:
            self._take(self._consumer.poll(0))

    def do_start(self, deadline_s: float) -> str:
        return ""

    def do_subscribe(self, deadline_s: float) -> str:
        self._consumer.subscribe(
            [self.config.topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )
        deadline = time.monotonic() + deadline_s
        while not self._parts and time.monotonic() < deadline:
            self._take(self._consumer.poll(_POLL_S))
        return "" if self._parts else "it was given no partition"

    def do_assign(self, partition: int, deadline_s: float) -> str:
        start = 0 if self.config.group is None else OFFSET_STORED
        self._assigned(self._consumer, [TopicPartition(self.config.topic, partition, start)])
        return ""

    def do_poll(self, records: int, deadline_s: float) -> str:
        """Until so many have come, or an error."""
        deadline, wanted = time.monotonic() + deadline_s, len(self._taken) + records
        self._consumer.resume(self._parts)
        problem = ""
        while len(self._taken) < wanted and not self._has_erred:
            self._take(self._consumer.poll(_POLL_S))
            if time.monotonic() > deadline:
                came = records - (wanted - len(self._taken))
                problem = f"it took {came} of {records} records"
                break
        self._consumer.pause(self._parts)
        self._has_erred = False
        return problem

    def do_handle(self, deadline_s: float) -> str:
        rows = [
            {
                "value": record_text(message.value(), message.headers()),
                "offset": message.offset(),
                "partition": message.partition(),
                "leader_epoch": message.leader_epoch(),
            }
            for message, _ in self._taken
        ]
        if rows:
            begun_ns = min(at_ns for _, at_ns in self._taken)
            ends = {"invoked_ns": begun_ns, "completed_ns": self.now_ns()}
            self.say({"event": "handled", "rows": rows, **ends})
        self._taken.clear()
        return ""

    def do_commit(self, waits: bool, offset: int | None, deadline_s: float) -> str:
        offsets = [
            TopicPartition(self.config.topic, part.partition, named)
            for part in self._parts or [TopicPartition(self.config.topic, 0)]
            if (named := self._next.get(part.partition) if offset is None else offset) is not None
        ]
        for one in offsets:
            asked = {"partition": one.partition, "offset": one.offset, "at_ns": self.now_ns()}
            self.say({"event": "committing", **asked})
        try:
            if waits:
                for one in self._consumer.commit(offsets=offsets, asynchronous=False):
                    self._commit_ended(one.error, one)
            else:
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as failed:
            for one in offsets:
                self._commit_ended(failed.args[0], one)
        return ""

    def do_stall(self, deadline_s: float) -> str:
        self._stalled = True
        return ""

    def do_wake(self, deadline_s: float) -> str:
        self._stalled = False
        return ""

    def do_leave(self, deadline_s: float) -> str:
        self._consumer.close()
        self._stalled = True
        return ""

    def _take(self, message: Any) -> None:
        """A record, or an error in its place."""
        if message is None:
            return
        if message.error() is not None:
            self.notify(message.error())
            self._has_erred = True
            return
        self._taken.append((message, self.now_ns()))
        self._next[message.partition()] = message.offset() + 1
        value = record_text(message.value(), message.headers())
        self.say({"event": "polled", "value": value, "offset": message.offset()})

    def _assigned(self, of: Any, parts: list[TopicPartition]) -> None:
        """Records come when a step asks for them, and not before."""
        if self._cooperates:  # these come to those that it has
            of.incremental_assign(parts)
            self._parts = [*self._parts, *parts]
        else:
            of.assign(parts)
            self._parts = parts
        of.pause(parts)
        self.say({"event": "assigned", "count": len(self._parts)})

    def _revoked(self, of: Any, parts: list[TopicPartition]) -> None:
        """librdkafka lets go of them itself, all or these."""
        gone = {(part.topic, part.partition) for part in parts} if self._cooperates else None
        self._parts = [
            part for part in self._parts if gone and (part.topic, part.partition) not in gone
        ]
        self.say({"event": "assigned", "count": len(self._parts)})

    def _committed(self, error: Any, parts: list[TopicPartition]) -> None:
        """Of commits that nobody waits for: those that librdkafka makes by itself, too."""
        for part in parts:
            self._commit_ended(error or part.error, part)

    def _commit_ended(self, error: Any, part: TopicPartition) -> None:
        if part.offset < 0:
            return  # nothing was to be committed
        name = None if error is None else str(error.name())
        ended = {"partition": part.partition, "offset": part.offset, "error": name}
        self.say({"event": "commit", **ended, "at_ns": self.now_ns()})
        if error is not None:
            self.notify(error)


def cooperates(settings: Mapping[str, str]) -> bool:
    """Whether a group with these settings takes and gives single partitions (KIP-429, KIP-848):
    librdkafka refuses `assign` there."""
    by_protocol = settings.get("group.protocol") == "consumer"
    return by_protocol or "cooperative" in settings.get("partition.assignment.strategy", "")


_KINDS: Final[Mapping[str, type[_Client]]] = {
    "producer": _Producer,
    "raw_producer": _RawTransactions,
    "consumer": Consumer,
}


def main() -> int:
    config = ClientConfig(**json.loads(sys.argv[1]))

    def say(document: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()

    client = _KINDS[config.kind](config, say)
    commands: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(json.loads(line))
        os._exit(0)  # nobody drives it any more

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            command = commands.get(timeout=_POLL_S)
        except queue.Empty:
            client.serve()
            continue
        number, verb = command.pop("id"), command.pop("do")
        try:
            problem = getattr(client, f"do_{verb}")(**command)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        say({"id": number, "problem": problem})


# --- those that the process of clients has started -----------------------------------------------


@dataclass(slots=True)
class _Running:
    config: ClientConfig
    process: subprocess.Popen[str]
    logical: LogicalProcess  # all members of a group are one
    answers: dict[int, queue.Queue[str]] = field(default_factory=dict)
    reading: threading.Thread = field(default_factory=threading.Thread)
    asked: int = 0
    transaction: list[dict[str, Any]] | None = None  # its sends, while one is open
    began_ns: int = 0
    sending: dict[str, dict[str, Any]] = field(default_factory=dict)  # by record: partition and key
    committing: dict[tuple[int, int], int] = field(default_factory=dict)  # → when it was asked


class ScriptedClients:
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

    def open(self, config: ClientConfig, deadline_s: float) -> str:
        with self._log_of(config).open("w", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "neaptide.workloads.scripted", json.dumps(asdict(config))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        with self._lock:
            logical = LogicalProcess(self._new_process)
            if config.group is not None:
                logical = self._groups.setdefault(config.group, logical)
            running = self._clients[config.name] = _Running(config, process, logical)
        running.reading = threading.Thread(target=self._read, args=(running,), daemon=True)
        running.reading.start()
        return self.do(config.name, "start", deadline_s)

    def do(self, client: str, verb: str, deadline_s: float, **arguments: Any) -> str:
        """What did not come about in time; empty where all did."""
        running = self._clients[client]
        answer: queue.Queue[str] = queue.Queue()
        with self._lock:
            running.asked += 1
            number = running.asked
            running.answers[number] = answer
        if not running.reading.is_alive():
            return self._how_it_ended(running)
        line = json.dumps({"id": number, "do": verb, "deadline_s": deadline_s, **arguments})
        assert running.process.stdin is not None
        try:
            running.process.stdin.write(line + "\n")
            running.process.stdin.flush()
            said = answer.get(timeout=deadline_s + _START_S)
            return self._how_it_ended(running) if said == _ENDED else said
        except (OSError, ValueError):
            return self._how_it_ended(running)
        except queue.Empty:
            return f"it did not answer to {verb}"

    def _how_it_ended(self, running: _Running) -> str:
        log = self._log_of(running.config)
        return f"{_ENDED}; its log {log} says last: {last_line(log)}"

    def _log_of(self, config: ClientConfig) -> Path:
        return self._directory / "logs" / f"client-{config.name}.log"

    def die(self, client: str) -> None:
        """SIGKILL; then all that it had said is recorded."""
        running = self._clients[client]
        running.process.kill()
        running.process.wait()
        running.reading.join()
        with self._lock:
            self._end_sends(running)

    def close(self) -> None:
        for client in self._clients:
            self.die(client)

    def wait_until_silent(self, client: str) -> None:
        """Returns when a client that has ended has said all."""
        self._clients[client].reading.join()

    # --- what they say ---------------------------------------------------------------------------

    def _read(self, running: _Running) -> None:
        assert running.process.stdout is not None
        for line in running.process.stdout:
            if not line.endswith("\n"):
                break  # killed in the middle of it
            row = json.loads(line)
            if "id" in row:
                running.answers[row["id"]].put(row["problem"])
            else:
                with self._lock:
                    self._take(running, row)
        for answer in list(running.answers.values()):
            answer.put(_ENDED)

    def _take(self, running: _Running, row: dict[str, Any]) -> None:
        name = running.config.name
        match row["event"]:
            case "notified":
                self._say({"event": "notified", "client": name, "error": row["error"]})
            case "assigned":
                self._say({"event": "assigned", "client": name, "count": row["count"]})
            case "polled":
                fields = {"value": row["value"], "offset": row["offset"]}
                self._say({"event": "polled", **fields, "client": name})
            case "handled":
                self._handled(running, row)
            case "began":
                running.transaction, running.began_ns = [], row["at_ns"]
            case "sending":
                running.sending[row["value"]] = {"partition": row["partition"], "key": row["key"]}
            case "sent":
                self._sent(running, row)
            case "ended":
                self._ended(running, row)
            case "committing":
                running.committing[row["partition"], row["offset"]] = row["at_ns"]
            case "commit":
                self._commit(running, row)

    def _handled(self, running: _Running, row: dict[str, Any]) -> None:
        operation = self._recorder.new_operation()
        for number, record in enumerate(row["rows"]):
            self._recorder.write(
                operation=operation,
                row=number,
                process=running.logical.number,
                f="poll",
                type="ok",
                invoked_ns=row["invoked_ns"],
                completed_ns=row["completed_ns"],
                topic=running.config.topic,
                **record,
            )
            handled = {"value": record["value"], "client": running.config.name}
            self._say({"event": "handled", **handled})

    def _sent(self, running: _Running, row: dict[str, Any]) -> None:
        running.sending.pop(row["value"], None)
        transacts = running.config.transactional_id is not None
        kind = completion_type(row["error"], has_transactions=transacts)
        if running.transaction is not None:
            running.transaction.append(row)
        else:
            self._write_sends(running, [row], kind, row["invoked_ns"], row["completed_ns"])
        fields = {"value": row["value"], "offset": row["offset"], "error": row["error"]}
        self._say({"event": "sent", "type": kind, **fields})

    def _ended(self, running: _Running, row: dict[str, Any]) -> None:
        """A transaction is one operation: all of it happened, or nothing, or nobody knows."""
        kind = "info" if row["error"] else "ok" if row["commits"] else "fail"
        left = [
            {"value": value, **sent, "offset": None, "error": None}
            for value, sent in running.sending.items()
        ]
        rows = [*(running.transaction or []), *left]
        running.sending = {}
        self._write_sends(running, rows, kind, running.began_ns, row["completed_ns"], row["error"])
        running.transaction = None

    def _end_sends(self, running: _Running) -> None:
        """Its process is over: nobody knows the end of what it had begun."""
        now_ns = self._recorder.now_ns()
        begun = [
            {"value": value, **sent, "offset": None, "error": "_DESTROY"}
            for value, sent in running.sending.items()
        ]
        rows = [*(running.transaction or []), *begun]
        self._write_sends(running, rows, "info", running.began_ns, now_ns, "_DESTROY")
        running.transaction, running.sending = None, {}

    def _write_sends(
        self,
        running: _Running,
        rows: list[dict[str, Any]],
        kind: str,
        invoked_ns: int,
        completed_ns: int,
        error: str | None = None,
    ) -> None:
        operation, logical = self._recorder.new_operation(), running.logical
        is_alone = running.config.group is None
        process = logical.completed(kind) if is_alone else logical.number
        for number, row in enumerate(rows):
            self._recorder.write(
                operation=operation,
                row=number,
                process=process,
                f="send",
                type=kind,
                invoked_ns=invoked_ns,
                completed_ns=completed_ns,
                topic=running.config.topic,
                partition=row["partition"],
                offset=row["offset"],
                value=text_of(row["value"]),
                key=None if row["key"] is None else text_of(row["key"]),
                acks="all",
                error=error or row["error"],
            )

    def _commit(self, running: _Running, row: dict[str, Any]) -> None:
        """One that is refused surely did not happen; of what was not answered nobody knows."""
        key, error = (row["partition"], row["offset"]), row["error"]
        group = running.config.group
        if group is None:
            return
        self._recorder.write(
            operation=self._recorder.new_operation(),
            process=running.logical.number,
            f="commit",
            type="ok" if error is None else "info",
            invoked_ns=running.committing.pop(key, row["at_ns"]),
            completed_ns=row["at_ns"],
            topic=running.config.topic,
            partition=row["partition"],
            offset=row["offset"],
            key=group,
            error=error,
        )
        if error is None:
            fields = {"group": group, "partition": row["partition"], "offset": row["offset"]}
            self._say({"event": "committed", **fields})


if __name__ == "__main__":
    sys.exit(main())
