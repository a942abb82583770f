"""Kafka's own command-line tools on a cluster: what is called, and what its output has to say.

The commands are played in order, on topics of their own: each finds what those before it have left.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neaptide.clusters.kafka.artifacts import class_path

VERSION: Final = "3.9.1"
_JARS: Final = (f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")
_TIMEOUT_S: Final = 60.0
# What a tool prints of a request that failed; many end with 0 all the same.
_FAILED: Final = re.compile(r"^Error|Exception: |ERROR|\bfailed\b(?!\.)", re.MULTILINE)

_GROUP: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
_CONFIGS: Final = "kafka.admin.ConfigCommand"
_REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_TRANSACTIONS: Final = "org.apache.kafka.tools.TransactionsCommand"
_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@dataclass(frozen=True)
class Command:
    """`options`: `{file}` is a file with `given` in it; `says`: a regular expression of the output.

    `bootstrap` is the option that names the brokers.
    """

    name: str
    tool: str
    options: str
    says: str
    given: object = None  # as JSON, or text
    bootstrap: str = "--bootstrap-server"


def _reset(name: str, to: str, offsets: str) -> Command:
    """The new position of partition 0, which has all of the thousand records."""
    return Command(
        f"kafka-consumer-groups --reset-offsets {name}",
        _GROUP,
        f"--group readers --topic moved:0 --reset-offsets {to} --execute",
        rf"readers\s+moved\s+0\s+{offsets}\b",
    )


def _read(topic: str, count: int, *options: str) -> Command:
    more = " ".join(options)
    return Command(
        f"kafka-console-consumer {more}".rstrip(),
        _CONSUMER,
        f"--topic {topic} --from-beginning --max-messages {count} --timeout-ms 20000 {more}",
        f"Processed a total of {count} messages",
    )


def _moves(partition: int, replicas: list[int]) -> object:
    moved = {"topic": "moved", "partition": partition, "replicas": replicas}
    return {"version": 1, "partitions": [moved]}


_CONSUMER_PROTOCOL: Final = "--consumer-property group.protocol=consumer"
# The names of what asks for KIP-848 begin so.
OF_CONSUMER_PROTOCOL: Final = "kafka-consumer-groups of the consumer protocol"
READ_BY_CONSUMER_PROTOCOL: Final = "kafka-console-consumer --group assigned"
# A month in which the records of `moved` were not written yet; none is that old.
_LONG_AGO: Final = "2000-01-01T00:00:00.000"
COMMANDS: Final = (
    Command(
        "kafka-topics --create",
        _TOPICS,
        "--create --topic moved --partitions 1 --replication-factor 3"
        " --config min.insync.replicas=1",
        "Created topic moved",
    ),
    Command("kafka-topics --list", _TOPICS, "--list", "^moved$"),
    Command(
        "kafka-topics --describe",
        _TOPICS,
        "--describe --topic moved",
        r"PartitionCount: 1\s+ReplicationFactor: 3\s+Configs: .*min.insync.replicas=1",
    ),
    Command(
        "kafka-topics --describe --under-replicated-partitions",
        _TOPICS,
        "--describe --under-replicated-partitions",
        r"\A\s*\Z",
    ),
    Command(
        "kafka-configs --alter topics",
        _CONFIGS,
        "--alter --entity-type topics --entity-name moved --add-config retention.ms=3600000",
        "Completed updating config for topic moved",
    ),
    Command(
        "kafka-configs --describe topics",
        _CONFIGS,
        "--describe --entity-type topics --entity-name moved",
        "retention.ms=3600000",
    ),
    Command(
        "kafka-configs --describe brokers",
        _CONFIGS,
        "--describe --entity-type brokers --entity-name 0 --all",
        r"num\.partitions=4 ",
    ),
    Command(
        "kafka-configs --alter brokers",
        _CONFIGS,
        "--alter --entity-type brokers --entity-name 0 --add-config log.cleaner.backoff.ms=20000",
        "Completed updating config for broker 0",
    ),
    Command(
        "kafka-configs --alter brokers --entity-default",
        _CONFIGS,
        "--alter --entity-type brokers --entity-default --add-config log.cleaner.backoff.ms=9000",
        "Completed updating default config for brokers in the cluster",
    ),
    Command(
        "kafka-configs --describe brokers --entity-default",
        _CONFIGS,
        "--describe --entity-type brokers --entity-default",
        "log.cleaner.backoff.ms=9000",
    ),
    Command(
        "kafka-producer-perf-test",
        "org.apache.kafka.tools.ProducerPerformance",
        "--topic moved --num-records 900 --record-size 100 --throughput -1"
        " --producer-props acks=all bootstrap.servers={bootstrap}",
        "900 records sent",
        bootstrap="",
    ),
    Command(
        "kafka-console-producer",
        "kafka.tools.ConsoleProducer",
        "--topic moved --producer-property acks=all",
        r"\A[>\s]*\Z",
        given="\n".join(f"line {number}" for number in range(100)),
    ),
    Command(
        "kafka-topics --alter --partitions",
        _TOPICS,
        "--alter --topic moved --partitions 3",
        r"\A\s*\Z",
    ),
    _read("moved", 1000),
    _read("moved", 1000, "--isolation-level read_committed"),
    _read("moved", 1000, "--group readers"),
    _read("moved", 1000, "--group assigned", _CONSUMER_PROTOCOL),
    Command(
        f"{OF_CONSUMER_PROTOCOL} --list",
        _GROUP,
        "--list --type consumer",
        r"^assigned\s+Consumer\s*$",
    ),
    Command(
        f"{OF_CONSUMER_PROTOCOL} --describe",
        _GROUP,
        "--describe --group assigned",
        r"assigned\s+moved\s+0\s+1000\s+1000\s+0\b",
    ),
    Command(
        f"{OF_CONSUMER_PROTOCOL} --state",
        _GROUP,
        "--describe --state --group assigned",
        r"^assigned\s.*\bEmpty\b",
    ),
    Command(
        f"{OF_CONSUMER_PROTOCOL} --reset-offsets",
        _GROUP,
        "--group assigned --topic moved:0 --reset-offsets --to-earliest --execute",
        r"assigned\s+moved\s+0\s+0\b",
    ),
    Command(
        f"{OF_CONSUMER_PROTOCOL} --delete",
        _GROUP,
        "--delete --group assigned",
        "Deletion of requested consumer groups .* was successful",
    ),
    Command(
        "kafka-consumer-perf-test",
        "org.apache.kafka.tools.ConsumerPerformance",
        "--topic moved --messages 1000 --timeout 20000",
        r",\s*1000,",
    ),
    Command(
        "kafka-get-offsets latest",
        "org.apache.kafka.tools.GetOffsetShell",
        "--topic moved --time latest",
        r"moved:0:1000\s+moved:1:0\s+moved:2:0",
    ),
    Command(
        "kafka-get-offsets earliest",
        "org.apache.kafka.tools.GetOffsetShell",
        "--topic moved --time earliest",
        r"moved:0:0\s+moved:1:0\s+moved:2:0",
    ),
    Command(
        "kafka-get-offsets max-timestamp",
        "org.apache.kafka.tools.GetOffsetShell",
        "--topic moved --time max-timestamp",
        r"moved:0:9\d\d",
    ),
    Command("kafka-consumer-groups --list", _GROUP, "--list", "^readers$"),
    Command(
        "kafka-consumer-groups --describe",
        _GROUP,
        "--describe --group readers",
        r"readers\s+moved\s+0\s+1000\s+1000\s+0\b",
    ),
    Command(
        "kafka-consumer-groups --describe --members",
        _GROUP,
        "--describe --group readers --members",
        "has no active members",
    ),
    Command(
        "kafka-consumer-groups --describe --state",
        _GROUP,
        "--describe --group readers --state",
        r"readers\s+.*Empty\s+0",
    ),
    _reset("--to-earliest", "--to-earliest", "0"),
    _reset("--to-offset", "--to-offset 3", "3"),
    _reset("--shift-by", "--shift-by 2", "5"),
    _reset("--to-datetime", f"--to-datetime {_LONG_AGO}", "0"),
    _reset("--by-duration", "--by-duration P1D", "0"),
    _reset("--to-latest", "--to-latest", "1000"),
    _reset("--to-current", "--to-current", "1000"),
    _reset("--to-offset 1", "--to-offset 1", "1"),
    Command(
        "kafka-consumer-groups --describe (lag)",
        _GROUP,
        "--describe --group readers",
        r"readers\s+moved\s+0\s+1\s+1000\s+999\b",
    ),
    Command(
        "kafka-consumer-groups --delete-offsets",
        _GROUP,
        "--delete-offsets --group readers --topic moved:0",
        r"moved\s+0\s+Successful",
    ),
    Command(
        "kafka-consumer-groups --delete",
        _GROUP,
        "--delete --group readers",
        r"Deletion of requested consumer groups \('readers'\) was successful",
    ),
    Command(
        "kafka-delete-records",
        "org.apache.kafka.tools.DeleteRecordsCommand",
        "--offset-json-file {file}",
        r"moved-0\s+low_watermark: 3",
        given={"partitions": [{"topic": "moved", "partition": 0, "offset": 3}], "version": 1},
    ),
    Command(
        "kafka-log-dirs --describe",
        "org.apache.kafka.tools.LogDirsCommand",
        "--describe --topic-list moved",
        r'"partition":"moved-0","size":\d+',
    ),
    Command(
        "kafka-leader-election preferred",
        "org.apache.kafka.tools.LeaderElectionCommand",
        "--election-type preferred --topic moved --partition 0",
        "Valid replica already elected for partitions moved-0",
    ),
    Command(
        "kafka-reassign-partitions --generate",
        _REASSIGN,
        "--generate --topics-to-move-json-file {file} --broker-list 0,1,2",
        "Proposed partition reassignment configuration",
        given={"topics": [{"topic": "moved"}], "version": 1},
    ),
    Command(
        "kafka-reassign-partitions --execute",
        _REASSIGN,
        "--execute --reassignment-json-file {file}",
        "Successfully started partition reassignment for moved-0",
        given=_moves(0, [2, 1]),
    ),
    Command(
        "kafka-reassign-partitions --verify",
        _REASSIGN,
        "--verify --reassignment-json-file {file}",
        "Reassignment of partition moved-0 is completed",
        given=_moves(0, [2, 1]),
    ),
    Command(
        "kafka-reassign-partitions --execute --throttle",
        _REASSIGN,
        "--execute --throttle 10000000 --reassignment-json-file {file}",
        "Successfully started partition reassignment for moved-1",
        given=_moves(1, [2, 0]),
    ),
    Command(
        "kafka-reassign-partitions --verify (throttle)",
        _REASSIGN,
        "--verify --reassignment-json-file {file}",
        "Reassignment of partition moved-1 is completed(.|\n)*Clearing topic-level throttles",
        given=_moves(1, [2, 0]),
    ),
    Command(
        "kafka-reassign-partitions --list",
        _REASSIGN,
        "--list",
        "No partition reassignments found",
    ),
    Command(
        "kafka-transactions list",
        _TRANSACTIONS,
        "list",
        r"TransactionalId\s+Coordinator\s+ProducerId",
    ),
    Command(
        "kafka-transactions describe-producers",
        _TRANSACTIONS,
        "describe-producers --topic moved --partition 0",
        r"ProducerId\s+ProducerEpoch",
    ),
    Command(
        "kafka-transactions find-hanging",
        _TRANSACTIONS,
        "find-hanging --broker-id 0",
        r"Topic\s+Partition\s+ProducerId",
    ),
    Command(
        "kafka-verifiable-producer",
        "org.apache.kafka.tools.VerifiableProducer",
        "--topic verified --max-messages 50 --acks -1",
        '"sent":50,"acked":50',
    ),
    Command(
        "kafka-verifiable-consumer",
        "org.apache.kafka.tools.VerifiableConsumer",
        "--topic verified --group-id verifiers --max-messages 50 --reset-policy earliest",
        '"name":"offsets_committed".*"success":true',
    ),
    Command(
        "kafka-e2e-latency",
        "org.apache.kafka.tools.EndToEndLatency",
        "{bootstrap} measured 20 all 100",
        r"Avg latency: \d",
        bootstrap="",
    ),
    Command(
        "kafka-replica-verification",
        "org.apache.kafka.tools.ReplicaVerificationTool",
        "--broker-list {bootstrap} --topics-include verified --report-interval-ms 500",
        r"max lag is 0 for partition",
        bootstrap="",
    ),
    Command(
        "kafka-broker-api-versions",
        "kafka.admin.BrokerApiVersionsCommand",
        "",
        r"id: 0 rack: .* -> \((.|\n)*Fetch\(1\)",
    ),
    Command(
        "kafka-cluster cluster-id",
        "org.apache.kafka.tools.ClusterTool",
        "cluster-id --bootstrap-server {bootstrap}",
        "Cluster ID: ",
        bootstrap="",
    ),
    Command(
        "kafka-features describe",
        "org.apache.kafka.tools.FeatureCommand",
        "describe",
        r"\A((?!rror).)*\Z",
    ),
    Command(
        "kafka-streams-application-reset",
        "org.apache.kafka.tools.StreamsResetter",
        "--application-id none --input-topics verified --force",
        "Reset-offsets for input topics",
    ),
    Command("kafka-topics --delete", _TOPICS, "--delete --topic moved", r"\A\s*\Z"),
)
# Tools that go on until somebody ends them.
_ENDLESS: Final = {"kafka-replica-verification"}


@dataclass(frozen=True)
class Played:
    command: Command
    is_well: bool
    output: str

    @property
    def complaint(self) -> str:
        """The line that says what went wrong, or the last."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        wrong = [line for line in lines if _FAILED.search(line)]
        return (wrong or lines or ["nothing is printed"])[0]


def play(
    bootstrap: str, directory: Path, commands: Sequence[Command] = COMMANDS
) -> Iterator[Played]:
    """The commands in their order, in files of this directory."""
    jars = class_path(*_JARS)
    for number, command in enumerate(commands):
        file = directory / f"{number}.json"
        text = command.given if isinstance(command.given, str) else json.dumps(command.given)
        file.write_text(text, encoding="utf-8")
        yield _play(command, jars, {"bootstrap": bootstrap, "file": str(file)})


def _play(command: Command, jars: str, named: Mapping[str, str]) -> Played:
    where = [command.bootstrap, named["bootstrap"]] if command.bootstrap else []
    options = [one.format(**named) for one in command.options.split()]
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", jars, command.tool]
    typed = command.given if isinstance(command.given, str) else ""
    timeout_s = 10.0 if command.name in _ENDLESS else _TIMEOUT_S
    try:
        done = subprocess.run(
            [*java, *where, *options],
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout.decode() if isinstance(expired.stdout, bytes) else ""
        status = 0 if command.name in _ENDLESS else 1
    lines = [line for line in output.splitlines() if not line.startswith(("SLF4J", "log4j"))]
    output = "\n".join(lines)
    says = re.search(command.says, output, re.MULTILINE) is not None
    return Played(command, says and status == 0 and not _FAILED.search(output), output)
