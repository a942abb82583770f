"""Kafka's own clients, in Java: its VerifiableProducer and VerifiableConsumer, as processes.

They take no orders: a producer sends `prefix.0`, `prefix.1` and so on to one topic and prints what
became of each; a consumer prints what it is given. So these are roles of their own.

The rule: a producer is started for a block of values, which are noted before it is. What it did not
print when it ended is of unknown end. It does not print partitions of what failed, so a topic has
one.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.kafka.artifacts import class_path
from neaptide.results.record_texts import text_of
from neaptide.workloads.libraries.model import Library, Polled, Record
from neaptide.workloads.roles.role import Role

COORDINATES: Final = ("org.apache.kafka:kafka-tools:3.9.1", "org.slf4j:slf4j-nop:1.7.36")
_BLOCK_S: Final = 10.0
_STOP_S: Final = 20.0
_LOOK_S: Final = 0.2
_OPTIONS: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# By the last part of the class of the exception.
DEFINITE: Final[Mapping[str, str]] = {
    "RecordTooLargeException": "refused: larger than max.request.size or max.message.bytes",
    "InvalidTopicException": "refused: no such name",
    "InvalidRequiredAcksException": "refused: no such acks",
}
_PRODUCER: Final = {
    "max.block.ms": "10000",
    "request.timeout.ms": "5000",
    "delivery.timeout.ms": "10000",
    "linger.ms": "5",
    "reconnect.backoff.max.ms": "200",
    "metadata.max.age.ms": "2000",
}


def prepare() -> None:
    """Fetches the jars. Raises MissingPartError."""
    find_java()
    class_path(*COORDINATES)


@contextmanager
def _started(
    tool: str, config: Mapping[str, str], *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """Has ended, or is ended, at the end."""
    kind = tool.removeprefix("Verifiable").lower()
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.writelines(f"{name}={value}\n" for name, value in config.items())
        file.flush()
        process = subprocess.Popen(
            [
                str(find_java()), *_OPTIONS, "-cp", class_path(*COORDINATES),
                f"org.apache.kafka.tools.{tool}", f"--{kind}.config", file.name, *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            _end(process)


def _lines(stream: IO[str] | None) -> Iterator[dict[str, Any]]:
    """What it prints that is JSON; the rest is what its logging says."""
    for line in stream or ():
        try:
            said = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(said, dict):
            yield said


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_when_asked(process: subprocess.Popen[str], stopping: threading.Event) -> None:
    def watch() -> None:
        while process.poll() is None:
            if stopping.wait(_LOOK_S):
                _end(process)

    threading.Thread(target=watch, daemon=True).start()


class JavaProducer(Role):
    """One producer for each topic, one block of values after the other."""

    sends = True

    def work(self) -> None:
        threads = [
            threading.Thread(target=self._serve, args=(topic,), daemon=True)
            for topic in self.task.topics
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _serve(self, topic: str) -> None:
        while not self.stopping.is_set():
            self._send_block(topic)

    def _send_block(self, topic: str) -> None:
        desk, acks = self.desk, self.task.acks
        rate = max(1, int(self.task.rate / len(self.task.topics)))
        count, prefix = int(rate * _BLOCK_S), desk.new_process()
        first, invoked_ns = desk.recorder.new_operations(count), desk.recorder.now_ns()
        segment = desk.note(
            [
                (
                    first + n, 0, prefix, "send", "invoke", invoked_ns, None, topic, 0, None, None,
                    f"{prefix}.{n}", acks, None,
                )
                for n in range(count)
            ],
            1,
        )  # fmt: skip
        config = {**_PRODUCER, "bootstrap.servers": desk.bootstrap}
        config |= (
            {"enable.idempotence": "true", "retries": "2147483647"}
            if self.task.idempotence
            else {"enable.idempotence": "false", "max.in.flight.requests.per.connection": "1"}
        )
        open_ones = set(range(count))
        sent = count  # how many it has handed to its producer, as far as it says
        with _started(
            "VerifiableProducer", config, "--bootstrap-server", desk.bootstrap, "--topic", topic,
            "--max-messages", str(count), "--throughput", str(rate),
            "--acks", "-1" if acks == "all" else acks, "--value-prefix", str(prefix),
        ) as process:  # fmt: skip
            _end_when_asked(process, self.stopping)
            for said in _lines(process.stdout):
                match said.get("name"):
                    case "producer_send_success" | "producer_send_error":
                        number = int(str(said["value"]).rpartition(".")[2])
                        open_ones.discard(number)
                        self._complete(said, first + number, prefix, invoked_ns, topic)
                    case "tool_data":
                        sent = int(said["sent"])
            ended_well = process.wait() == 0
        for number in sorted(n for n in open_ones if n < sent or not ended_well):
            self._write(first + number, prefix, "info", invoked_ns, topic, f"{prefix}.{number}")
        desk.done(segment)

    def _complete(
        self, said: Mapping[str, Any], operation: int, process: int, invoked_ns: int, topic: str
    ) -> None:
        if said["name"] == "producer_send_success":
            kind, error = "ok", None
            offset = int(said["offset"])
        else:
            error, offset = str(said["exception"]).rpartition(".")[2], -1
            kind = JAVA.completion_type(error)
        self._write(
            operation, process, kind, invoked_ns, topic, str(said["value"]),
            offset=None if offset < 0 or self.task.acks == "0" else offset, error=error,
        )  # fmt: skip

    def _write(
        self,
        operation: int,
        process: int,
        kind: str,
        invoked_ns: int,
        topic: str,
        value: str,
        *,
        offset: int | None = None,
        error: str | None = None,
    ) -> None:
        self.counts[kind] += 1
        self.desk.recorder.write(
            operation=operation,
            # What is not known may come at any time: it is a process of its own.
            process=process if kind == "ok" else self.desk.new_process(),
            f="send",
            type=kind,
            invoked_ns=invoked_ns,
            completed_ns=self.desk.recorder.now_ns(),
            topic=topic,
            partition=0,
            offset=offset,
            value=value,
            acks=self.task.acks,
            error=error,
        )


class JavaConsumer(Role):
    """The only member of a group of its own, for each topic."""

    def work(self) -> None:
        threads = [
            threading.Thread(target=self._serve, args=(topic,), daemon=True)
            for topic in self.task.topics
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _serve(self, topic: str) -> None:
        config = {"isolation.level": "read_committed", "fetch.max.wait.ms": "100"}
        while not self.stopping.is_set():
            with _started(
                "VerifiableConsumer", config, "--bootstrap-server", self.desk.bootstrap,
                "--topic", topic, "--group-id", f"neaptide-{self.desk.new_process()}", "--verbose",
            ) as process:  # fmt: skip
                _end_when_asked(process, self.stopping)
                self._record(process.stdout)
            if not self.stopping.is_set():
                time.sleep(0.5)  # nothing reports that the brokers are there again

    def _record(self, stream: IO[str] | None) -> None:
        """Records are printed one by one, and behind them that they were one poll."""
        self.logical.renew()
        records: list[Record] = []
        invoked_ns = self.desk.recorder.now_ns()
        for said in _lines(stream):
            match said.get("name"):
                case "record_data":
                    records.append(
                        Record(
                            said["topic"], int(said["partition"]), int(said["offset"]),
                            text_of(said.get("key")), text_of(said.get("value")),
                        )
                    )  # fmt: skip
                case "records_consumed":
                    self.record_poll(Polled(records, []), invoked_ns)
                    records = []
                    invoked_ns = self.desk.recorder.now_ns()


def _problem(workload: str, partitions: int, topics: int, acks: str) -> str | None:
    if workload != "append":
        return f"has tools for the workload append only, not {workload}"
    if partitions != 1:
        return (
            "does not say to which partition a record went that failed, and so needs"
            " --partitions 1 (and may have several --topics)"
        )
    return None


def _no_client(_: Any) -> Any:
    raise NotImplementedError


JAVA: Final = Library(
    "java",
    _no_client,
    _no_client,
    DEFINITE,
    frozenset(),
    since=(0, 11),
    problem=_problem,
    prepare=prepare,
    roles={"producer": JavaProducer, "consumer": JavaConsumer},
)
