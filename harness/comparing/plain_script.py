"""A scenario as a shell script for Kafka's own tools, where they can do and see all of it.

For maintainers who have Apache Kafka and no neaptide. What needs a proxy, a client of its own or a
sight of what travels is refused with the reason: a script that does something else proves nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from neaptide.clusters.kafka.kraft_properties import KRAFT_DEFAULTS, kraft_settings
from neaptide.nemesis import steps
from neaptide.nemesis.scenario import Scenario, ScheduledStep

_CONTROLLER: Final = 3000
_WAIT_S: Final = 180  # at least: to start one of the tools takes seconds, on a busy machine many
_FLUSHES: Final = ("flush.", "log.flush.")


class _RefusedError(Exception):
    """Why Kafka's tools cannot play it."""


def why_no_script(scenario: Scenario) -> str | None:
    """None: `script_of` writes one."""
    try:
        script_of(scenario)
    except _RefusedError as refused:
        return str(refused)
    return None


def script_of(scenario: Scenario) -> str:
    """Of a scenario of which `why_no_script` says None."""
    _check(scenario)
    writer = _Writer(scenario)
    body = [line for scheduled in scenario.steps for line in writer.step(scheduled)]
    brokers = scenario.brokers.values()
    ports = ",".join(f"127.0.0.1:$((base_port + {broker}))" for broker in brokers)
    [replicas] = scenario.topic.assignment
    return _TEMPLATE.format(
        title=_comment(scenario.title),
        source=_comment(", ".join(scenario.source) or scenario.name),
        ports=ports,
        topic=shlex.quote(scenario.topic.name),
        controller=_CONTROLLER,
        settings="\n".join(f"{n}={v}" for n, v in sorted(_settings(scenario).items())),
        starts=" ".join(str(scenario.brokers[name]) for name in scenario.start_order),
        assignment=":".join(str(scenario.brokers[name]) for name in replicas),
        configs=" ".join(
            f"--config {shlex.quote(f'{name}={value}')}"
            for name, value in sorted(scenario.topic.settings.items())
        ),
        replicas=_ids(scenario, replicas),
        body="\n".join(body),
        heal="\n".join(writer.heal()),
        wait_s=_WAIT_S,
    )


def _check(scenario: Scenario) -> None:
    if scenario.run is not None:
        raise _RefusedError("its steps come at times, under a load")
    if len(scenario.topic.assignment) != 1:
        raise _RefusedError("its topic has several partitions")
    if scenario.offsets is not None or scenario.transactions is not None:
        raise _RefusedError("it places partitions of an internal topic")
    if scenario.producer.idempotence or scenario.producer.retries:
        raise _RefusedError("its producers send again")
    if not scenario.expect or not set(scenario.expect) <= {"lost", "held"}:
        raise _RefusedError("what it shows is more than a record that is gone")


def _settings(scenario: Scenario) -> dict[str, str]:
    return {**KRAFT_DEFAULTS, **kraft_settings(scenario.settings)}


def _ids(scenario: Scenario, names: Iterator[str] | tuple[str, ...] | list[str]) -> str:
    return ",".join(str(one) for one in sorted(scenario.brokers[name] for name in names))


def _comment(text: str) -> str:
    return text.replace("\n", " ")


@dataclass
class _Writer:
    """Who is up, step by step: `level` is a question about those."""

    scenario: Scenario
    down: set[str] = field(default_factory=set)
    asleep: set[str] = field(default_factory=set)
    flushed: set[str] = field(default_factory=set)  # those whose logs may have reached the disk

    def step(self, scheduled: ScheduledStep) -> Iterator[str]:
        step = scheduled.step
        yield ""
        if scheduled.why:
            yield f"# {_comment(scheduled.why)}"
        yield f"echo {shlex.quote(step.words())}"
        yield from self._done(step)
        if scheduled.until is not None:
            seconds = max(scheduled.within_s, _WAIT_S)
            for part in map(str.strip, scheduled.until.text.split(" and ")):
                yield f"wait_until {seconds:g} {shlex.quote(part)} {self._check(part)}"
        if isinstance(step, steps.Produce):
            yield f"note_sizes {shlex.quote(step.records[-1])}"

    def _done(self, step: steps.Step) -> Iterator[str]:
        match step:
            case steps.Produce(records=records, acks=acks, to=None, size_bytes=None, key=None):
                yield from (f"send {shlex.quote(record)} {acks}" for record in records)
            case steps.Kill():
                for name in self._running(step.broker):
                    yield f"end KILL {self._id(name)}"
            case steps.Stop():
                for name in self._running(step.broker):
                    self.flushed.add(name)
                    yield f"end TERM {self._id(name)}"
            case steps.PowerOff():
                names = self._running(step.broker)
                yield from (f"end KILL {self._id(name)}" for name in names)
                yield from (self._forget(name, step.survives) for name in names)
            case steps.Restart():
                [name] = self._named(step.broker)
                self.down.discard(name)
                self.flushed.add(name)
                yield f"start {self._id(name)}"
            case steps.Pause():
                [name] = self._named(step.broker)
                self.asleep.add(name)
                yield f'kill -STOP "${{pid[{self._id(name)}]}}"'
            case steps.Resume():
                [name] = self._named(step.broker)
                self.asleep.discard(name)
                yield f'kill -CONT "${{pid[{self._id(name)}]}}"'
            case steps.Elect():
                yield f"elect {step.election}"
            case _:
                raise _RefusedError(f"it {step.words()}")

    def _named(self, broker: object) -> tuple[str, ...]:
        names = broker if isinstance(broker, tuple) else (broker,)
        if not all(isinstance(name, str) and name in self.scenario.brokers for name in names):
            raise _RefusedError(f"it is about {broker}")
        return tuple(str(name) for name in names)

    def _running(self, broker: object) -> tuple[str, ...]:
        names = self._named(broker)
        self.down.update(names)
        return names

    def _forget(self, name: str, survives: str | None) -> str:
        sets = (*self.scenario.settings, *self.scenario.topic.settings)
        if name in self.flushed or any(setting.startswith(_FLUSHES) for setting in sets):
            raise _RefusedError(f"it cuts the power of {name}, which has flushed a part of its log")
        return f"forget {self._id(name)} {shlex.quote(survives or '')}"

    def _id(self, name: str) -> int:
        return self.scenario.brokers[name]

    def _check(self, text: str) -> str:
        for pattern, check in _CHECKS.items():
            found = re.fullmatch(pattern, text)
            if found is not None:
                return check(self, found)
        raise _RefusedError(f"it waits until {text}, which they do not show")

    def _of(self, name: str) -> int:
        if name not in self.scenario.brokers:
            raise _RefusedError(f"it is about {name}")
        return self._id(name)

    def _up(self) -> str:
        [replicas] = self.scenario.topic.assignment
        return _ids(self.scenario, [n for n in replicas if n not in self.down | self.asleep])

    def heal(self) -> Iterator[str]:
        yield from (f'kill -CONT "${{pid[{self._id(name)}]}}"' for name in sorted(self.asleep))
        yield from (f"start {self._id(name)}" for name in sorted(self.down))


_Check = Callable[[_Writer, re.Match[str]], str]
# What a condition is as a function of the script: what the controller's log and a broker's
# checkpoints show, and Kafka's tools see no more.
_CHECKS: Final[Mapping[str, _Check]] = {
    r"acked\((\w+)\)": lambda _, found: f"was_acked {shlex.quote(found[1])}",
    r"level": lambda writer, _: f"isr_is {writer._up()}",
    r"leader is nobody": lambda *_: "leader_is -1",
    r"not leader is nobody": lambda *_: "not leader_is -1",
    r"leader is (\w+)": lambda writer, found: f"leader_is {writer._of(found[1])}",
    r"isr is \{([\w, ]+)\}": lambda writer, found: (
        "isr_is " + ",".join(str(n) for n in sorted(map(writer._of, found[1].split(", "))))
    ),
    r"(\w+) in isr": lambda writer, found: f"is_in_isr {writer._of(found[1])}",
    r"(\w+) not in isr": lambda writer, found: f"not is_in_isr {writer._of(found[1])}",
    r"registered\((\w+)\)": lambda writer, found: f"is_registered {writer._of(found[1])}",
    r"not registered\((\w+)\)": lambda writer, found: f"not is_registered {writer._of(found[1])}",
    r"checkpointed\((\w+)\) >= (\d+)": lambda writer, found: (
        f"has_checkpointed {writer._of(found[1])} {found[2]}"
    ),
}

_TEMPLATE: Final = r"""#!/usr/bin/env bash
# {title}
# Described in: {source}
#
#   KAFKA_HOME=/path/to/kafka_2.13-4.1.0 ./reproduce.sh
#
# Starts brokers and a controller of that Apache Kafka (KRaft: 3.9 or later) on 127.0.0.1, does the
# steps with Kafka's own tools, starts everybody again and reads the topic.
# Exit status: 1 an acknowledged record is gone, 0 all are there, 2 a step did not come about.
set -u -o pipefail
: "${{KAFKA_HOME:?set it to the directory of an unpacked Apache Kafka}}"
base_port=${{BASE_PORT:-26090}}  # no port of these may be one that connections are given
brokers="{ports}"
topic={topic}
replicas="{replicas}"
work=$(mktemp -d)
declare -A pid size
acked=()
export KAFKA_HEAP_OPTS=${{KAFKA_HEAP_OPTS:--Xmx256m}}

tool() {{ "$KAFKA_HOME/bin/$1.sh" "${{@:2}}"; }}
not() {{ ! "$@"; }}
missed() {{ echo "did not come about: $1 (logs: $work)" >&2; keep=1; exit 2; }}
finish() {{
  for node in "${{!pid[@]}}"; do kill -KILL "${{pid[$node]}}" 2>/dev/null; done
  wait 2>/dev/null
  [ -n "${{keep:-}}" ] || rm -rf "$work"
}}
trap finish EXIT
trap 'exit 2' INT TERM

wait_until() {{  # SECONDS WORDS CHECK…
  local node deadline=$((SECONDS + ${{1%.*}} + 1))
  until "${{@:3}}"; do
    for node in "${{!pid[@]}}"; do
      kill -0 "${{pid[$node]}}" 2>/dev/null || missed "node $node runs: see $work/$node.out"
    done
    [ "$SECONDS" -lt "$deadline" ] || missed "$2"
    sleep 0.5
  done
}}
start() {{
  "$KAFKA_HOME/bin/kafka-server-start.sh" "$work/$1.properties" >>"$work/$1.out" 2>&1 &
  pid[$1]=$!
}}
end() {{ kill -"$1" "${{pid[$2]}}"; wait "${{pid[$2]}}" 2>/dev/null; unset "pid[$2]"; }}
log_of() {{ echo "$work/$1/$topic-0/00000000000000000000.log"; }}
note_sizes() {{  # RECORD
  for node in ${{replicas//,/ }}; do size["$1/$node"]=$(stat -c %s "$(log_of "$node")"); done
}}
forget() {{  # NODE [RECORD]: a power failure; nothing of the log was flushed but up to the record
  truncate -s "${{size["${{2:-}}/$1"]:-0}}" "$(log_of "$1")"
  find "$work/$1/$topic-0" -type f ! -name '*.log' ! -name partition.metadata -delete
  rm -f "$work/$1/.kafka_cleanshutdown"
}}
metadata() {{  # what the controller has written, a JSON document a line
  tool kafka-dump-log --cluster-metadata-decoder \
    --files "$work/{controller}/__cluster_metadata-0/00000000000000000000.log" 2>/dev/null |
    sed -n 's/.*payload: *{{/{{/p'
}}
of_topic() {{ metadata | grep "\"topicId\":\"$topic_id\""; }}
leader_is() {{ [ "$(of_topic | grep -o '"leader":-\?[0-9]*' | tail -1)" = "\"leader\":$1" ]; }}
isr() {{
  of_topic | grep -o '"isr":\[[0-9,]*\]' | tail -1 | tr -dc '0-9,' | tr , '\n' | sort -n
}}
isr_is() {{ [ "$(isr | paste -sd, -)" = "$1" ]; }}
is_in_isr() {{ isr | grep -qx "$1"; }}
is_registered() {{
  metadata | grep "\"brokerId\":$1[,}}]" | grep -o '"fenced":\(true\|false\|-1\|1\)' | tail -1 |
    grep -q 'false\|-1'
}}
has_checkpointed() {{
  awk -v topic="$topic" -v least="$2" '$1 == topic && $2 == 0 && $3 >= least {{ found = 1 }}
    END {{ exit !found }}' "$work/$1/replication-offset-checkpoint"
}}
send() {{  # RECORD ACKS
  if printf '%s\n' "$1" | tool kafka-console-producer --bootstrap-server "$brokers" --sync \
    --topic "$topic" --request-required-acks "$2" >"$work/send.out" 2>&1 &&
    ! grep -q 'ERROR\|Exception' "$work/send.out"
  then acked+=("$1")
  else echo "$1 was not acknowledged"; fi
}}
was_acked() {{ printf '%s\n' "${{acked[@]}}" | grep -qx "$1"; }}
elect() {{
  tool kafka-leader-election --bootstrap-server "$brokers" --election-type "$1" --topic "$topic" \
    --partition 0 >/dev/null
}}

write_properties() {{  # NODE ROLE LISTENER
  cat >"$work/$1.properties" <<END
{settings}
node.id=$1
process.roles=$2
log.dirs=$work/$1
listeners=$3://127.0.0.1:$((base_port + ($1 == {controller} ? 100 : $1)))
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters={controller}@127.0.0.1:$((base_port + 100))
END
  [ "$2" = controller ] || echo inter.broker.listener.name=CLIENT >>"$work/$1.properties"
  tool kafka-storage format --cluster-id "$cluster" --config "$work/$1.properties" \
    >"$work/$1.format" 2>&1 || missed "node $1 is formatted"
}}
cluster=$(tool kafka-storage random-uuid 2>/dev/null)
write_properties {controller} controller CONTROLLER
start {controller}
for node in {starts}; do
  write_properties "$node" broker CLIENT
  start "$node"
done
for node in {starts}; do
  wait_until {wait_s} "broker $node is registered" is_registered "$node"
done
tool kafka-topics --bootstrap-server "$brokers" --create --topic "$topic" \
  --replica-assignment {assignment} {configs} >"$work/create.out" 2>&1 ||
  missed "the topic is created"
topic_id=$(metadata | grep '"TOPIC_RECORD"' | grep "\"name\":\"$topic\"" |
  sed 's/.*"topicId":"\([^"]*\)".*/\1/')
wait_until {wait_s} "all replicas are in sync" isr_is "$replicas"
{body}

echo "starts everybody again, and reads the topic"
{heal}
wait_until {wait_s} "somebody leads" not leader_is -1
tool kafka-console-consumer --bootstrap-server "$brokers" --topic "$topic" --from-beginning \
  --timeout-ms 15000 >"$work/read" 2>/dev/null
gone=0
for record in "${{acked[@]}}"; do
  grep -qx "$record" "$work/read" || {{ echo "$record was acknowledged, and is gone"; gone=1; }}
done
echo "acknowledged: ${{acked[*]}}; read: $(paste -sd' ' "$work/read")"
exit "$gone"
"""
