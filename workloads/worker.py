"""`python -m neaptide.workloads.worker <config.json>`: a process of clients.

It does the commands of the harness on standard input and answers on standard output; the end of
standard input is the end of the process. What it records it writes itself, into the run directory.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neaptide.results.forgone import forgo

if __name__ == "__main__":
    forgo()

from neaptide.results.errors import NeaptideError, StoreError
from neaptide.results.record_texts import record_text
from neaptide.results.tables import file_seconds
from neaptide.workloads.adapters.table import ADAPTERS, CONFLUENT
from neaptide.workloads.groups import GroupConsumer
from neaptide.workloads.journal import Journal
from neaptide.workloads.libraries.model import Library
from neaptide.workloads.libraries.table import DEFAULT, LIBRARIES
from neaptide.workloads.polling import Poller, read_to_end
from neaptide.workloads.protocol import SECRET_SETTINGS, ClientsConfig
from neaptide.workloads.recorder import Recorder
from neaptide.workloads.roles.role import Desk, Role, Task
from neaptide.workloads.roles.table import find_role
from neaptide.workloads.sending import Sender

if TYPE_CHECKING:
    from neaptide.workloads.driven import DrivenClients

# So that failures are noticed quickly, and a run is not spent waiting.
PROGRAM_PRODUCER: Final = {
    "linger.ms": "5",
    "request.timeout.ms": "5000",
    "delivery.timeout.ms": "10000",
}
_DRAIN_TIMEOUT_S = 30.0
_BURST = 50
PROCESSES_PER_WORKER = 4_000_000  # each send without an answer takes one
WORKERS_MAX = 500  # so that the numbers of processes stay below 2^31
_ROLE_ENDS_S = 5.0
# It asks nobody else who leads, unless it is refused.
_KNOWS_ONE_BROKER = {"topic.metadata.refresh.interval.ms": "-1"}


class Worker:
    def __init__(self, config: ClientsConfig) -> None:
        self._config = config
        self._recorder = Recorder(config.directory, config.number, config.clock_origin_ns)
        self._output = threading.Lock()
        self._senders: dict[tuple[str, str], Sender] = {}  # by bootstrap and acks
        self._processes = itertools.count((config.number - 1) * PROCESSES_PER_WORKER + 1)
        self._said = self._recorder.written
        self._loads: list[_Load] = []
        self._roles: list[Role] = []
        self._journal = Journal(config.directory, config.number) if config.journal else None
        self._library: Library | None = None
        self._driven: DrivenClients | None = None
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep_flushing, daemon=True)
        self._keeper.start()

    # --- lines -----------------------------------------------------------------------------------

    def say(self, document: Mapping[str, Any]) -> None:
        with self._output:
            sys.stdout.write(json.dumps(document) + "\n")
            sys.stdout.flush()

    def serve(self) -> None:
        for line in sys.stdin:
            command = json.loads(line)
            number, verb = command.pop("id"), command.pop("do")
            # Commands that take long must not hold up those behind them.
            threading.Thread(
                target=self._run, args=(number, getattr(self, f"do_{verb}"), command), daemon=True
            ).start()
        self.close()

    def _run(self, number: int, verb: Callable[..., Any], arguments: dict[str, Any]) -> None:
        try:
            self.say({"id": number, "ok": True, "result": verb(**arguments)})
        except Exception as error:
            self.say({"id": number, "ok": False, "error": f"{type(error).__name__}: {error}"})

    def _process(self) -> int:
        return next(self._processes)

    # --- commands --------------------------------------------------------------------------------

    def do_produce(
        self,
        topic: str,
        partition: int,
        acks: str,
        values: list[str],
        to: str | None = None,
        key: str | None = None,
        deadline_s: float = 0.0,
    ) -> str:
        """What did not come about in time; the ends of sends are events."""
        if self._config.program and to is None:
            return self._produce_by_program(topic, partition, acks, values, key, deadline_s)
        of = (to or self._config.bootstrap, acks)
        sender = self._senders.get(of)
        if sender is None:
            believes = {} if to is None else _KNOWS_ONE_BROKER
            sender = self._senders[of] = self._sender(acks, self._say_sent, of[0], believes)
        for value in values:
            sender.send(topic, partition, value, key)
        return ""

    def _produce_by_program(
        self,
        topic: str,
        partition: int,
        acks: str,
        values: list[str],
        key: str | None,
        deadline_s: float,
    ) -> str:
        """By one client for each acks, which is open from then on."""
        name = f"producer-acks-{acks}"
        if self._driven is None or not self._driven.is_open(name):
            settings = {**PROGRAM_PRODUCER, "acks": acks, **self._config.producer}
            of: dict[str, Any] = {"name": name, "kind": "producer", "topic": topic}
            problem = self.do_open(deadline_s, **of, settings=settings)
            if problem:
                return problem
        sent = {"records": values, "partition": partition, "key": key, "waits": False}
        return self.do_drive(name, "send", deadline_s, sent)

    def _sender(
        self,
        acks: str,
        on_completed: Callable[..., None],
        bootstrap: str,
        settings: Mapping[str, str],
    ) -> Sender:
        return Sender(
            self._recorder,
            self._process,
            bootstrap,
            acks,
            {**self._config.settings, **self._config.producer, **settings},
            on_completed,
        )

    def _say_sent(self, value: str, kind: str, offset: int | None, error: str | None) -> None:
        self.say({"event": "sent", "value": value, "type": kind, "offset": offset, "error": error})

    def do_consume(
        self, topic: str, partition: int, phase: str, end: int | None, deadline_s: float
    ) -> dict[str, Any]:
        read = read_to_end(
            self._recorder,
            self._process(),
            self._config.bootstrap,
            self._config.settings,
            topic=topic,
            partition=partition,
            phase=phase,
            end=end,
            deadline_s=deadline_s,
            on_record=self._say_polled if phase == "main" else lambda _: None,
        )
        return {"start": read.start, "end": read.end, "reached": read.reached}

    def _say_polled(self, message: Any) -> None:
        value = record_text(message.value(), message.headers())
        self.say({"event": "polled", "value": value, "offset": message.offset()})

    def do_consume_as(
        self, group: str, topic: str, partition: int, deadline_s: float
    ) -> dict[str, str]:
        """`problem`: what did not come about in time; empty where all did."""
        consumer = self._group_consumer(group, topic, partition, "main", deadline_s)
        try:
            is_known, position = consumer.position()
            if not is_known:
                return {"problem": f"nobody reported where the group {group} goes on"}
            end = consumer.read(position, self._say_polled)
            if end is None:
                return {"problem": "the consumer did not come to the high watermark"}
            if end > (position or 0):
                if not consumer.commit(end):
                    return {"problem": f"the commit of the group {group} was not acknowledged"}
                committed = {"group": group, "partition": partition, "offset": end}
                self.say({"event": "committed", **committed})
            return {"problem": ""}
        finally:
            consumer.close()

    def do_position(
        self, group: str, topic: str, partition: int, deadline_s: float
    ) -> dict[str, bool]:
        consumer = self._group_consumer(group, topic, partition, "final", deadline_s)
        try:
            return {"known": consumer.position()[0]}
        finally:
            consumer.close()

    def _group_consumer(
        self, group: str, topic: str, partition: int, phase: str, deadline_s: float
    ) -> GroupConsumer:
        return GroupConsumer(
            self._recorder,
            self._process(),
            group,
            topic,
            partition,
            phase,
            time.monotonic() + deadline_s,
            self._config.bootstrap,
            self._config.settings,
        )

    def do_load(self, topic: str, partitions: int, acks: str, rate: float, senders: int) -> None:
        for _ in range(senders):
            sender = self._sender(acks, lambda *_: None, self._config.bootstrap, {})
            self._loads.append(_Load(sender, topic, partitions, rate / senders, self._process()))
        self._poller = Poller(
            self._recorder,
            self._process(),
            self._config.bootstrap,
            self._config.settings,
            topic,
            partitions,
        )

    def do_stop_load(self) -> dict[str, int]:
        for load in self._loads:
            load.stop()
        left = sum(load.sender.drain(_DRAIN_TIMEOUT_S) for load in self._loads)
        self._poller.close()
        return {**self.do_progress(), "left": left}

    def do_progress(self) -> dict[str, int]:
        totals = {"ok": 0, "fail": 0, "info": 0, "polled": 0}
        for counts in (
            *(load.sender.counts for load in self._loads),
            *(role.counts for role in self._roles),
        ):
            for kind, count in counts.items():
                totals[kind] += count
        totals["polled"] += self._poller.count if self._loads else 0
        return {**totals, "busy": sum(not role.is_idle for role in self._roles)}

    # --- clients of workloads --------------------------------------------------------------------

    def do_begin(self, **task: Any) -> None:
        if self._library is None:
            self._library = LIBRARIES[self._config.library]()
        wanted = Task(**task)
        is_first = self._config.library == DEFAULT
        desk = Desk(
            self._recorder,
            self._journal,
            self._process,
            self._library,
            self._config.bootstrap,
            self._config.settings if is_first else {},
            self._config.producer if is_first else {},
        )
        made = self._library.roles.get(wanted.role) or find_role(wanted.role)
        role = made(desk, wanted)
        self._roles.append(role)
        role.start()

    def do_stop(self, senders: bool) -> None:
        for role in self._roles:
            if role.sends == senders:
                role.stop()

    def do_finish(self, deadline_s: float) -> dict[str, int]:
        """Of those that were asked to stop: how many have not, and the sends without an answer."""
        deadline = time.monotonic() + deadline_s
        asked = [role for role in self._roles if role.stopping.is_set()]
        late = sum(not role.wait(max(0.0, deadline - time.monotonic())) for role in asked)
        if late:  # into the log of this process: where each stands
            faulthandler.dump_traceback(sys.stderr)
        return {"late": late, "left": sum(role.left for role in asked)}

    def do_open(self, deadline_s: float, **config: Any) -> str:
        """A client that a scenario drives; what did not come about in time."""
        from neaptide.workloads.driven import ClientConfig, DrivenClients  # few runs need them

        own = self._config
        if self._driven is None:
            self._driven = DrivenClients(self._recorder, self._process, own.directory, self.say)
        config["settings"] = {**own.settings, **config["settings"]}
        shipped = config["kind"] == "raw_producer" or not own.program
        program = ADAPTERS[CONFLUENT]() if shipped else own.program
        return self._driven.open(
            ClientConfig(bootstrap=own.bootstrap, **config), program, deadline_s
        )

    def do_drive(self, client: str, act: str, deadline_s: float, arguments: dict[str, Any]) -> str:
        assert self._driven is not None
        if act == "die":
            self._driven.die(client)
            return ""
        return self._driven.do(client, act, deadline_s, **arguments)

    def do_flush(self) -> None:
        self._recorder.flush()
        self._say_written()

    # --- ends ------------------------------------------------------------------------------------

    def _keep_flushing(self) -> None:
        """So that a run that is cut short can still be checked up to its last seconds."""
        while not self._closing.wait(file_seconds(self._recorder.now_ns() / 1e9)):
            try:
                finished = [] if self._journal is None else self._journal.turn()
                self._recorder.flush()
                if self._journal is not None:
                    self._journal.delete(finished)
            except StoreError as error:
                self._say_failed(error)
                return
            self._say_written()
            self._say_failures()

    def _say_failures(self) -> None:
        for role in self._roles:
            if role.failure is not None:
                self.say({"event": "client_failed", "why": role.failure})

    def _say_failed(self, error: StoreError) -> None:
        self.say({"event": "recorder_failed", "why": str(error)})

    def _say_written(self) -> None:
        written = self._recorder.written
        if written != self._said:
            self._said = written
            self.say({"event": "written", **asdict(written)})

    def close(self) -> None:
        """Raises StoreError."""
        self._closing.set()
        self._keeper.join()
        for load in self._loads:
            load.stop()
        for role in self._roles:
            role.stop()
        for role in self._roles:
            role.wait(_ROLE_ENDS_S)
        self._say_failures()
        if self._driven is not None:
            self._driven.close()
        for sender in [*self._senders.values(), *(load.sender for load in self._loads)]:
            sender.close()
        try:
            self._recorder.close()
            if self._journal is not None:
                self._journal.close()
        except StoreError as error:
            self._say_failed(error)
            raise
        finally:
            self._say_written()


class _Load:
    """Unique values, round robin over the partitions, at a rate; in bursts of a few."""

    def __init__(
        self, sender: Sender, topic: str, partitions: int, rate: float, process: int
    ) -> None:
        self.sender = sender
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._send, args=(topic, partitions, rate, process), daemon=True
        )
        self._thread.start()

    def _send(self, topic: str, partitions: int, rate: float, process: int) -> None:
        number = 0
        due = time.monotonic()
        while not self._stopping.is_set():
            for _ in range(_BURST):
                self.sender.send(topic, number % partitions, f"{process}-{number}")
                number += 1
            due = max(due + _BURST / rate, time.monotonic() - 1.0)
            self._stopping.wait(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def main() -> int:
    config = ClientsConfig(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    secret = json.loads(os.environ.pop(SECRET_SETTINGS, "{}"))
    config = replace(config, settings={**config.settings, **secret})
    try:
        Worker(config).serve()
    except NeaptideError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
