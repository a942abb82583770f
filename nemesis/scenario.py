"""Scenario files: one TOML file, one scenario, as data. Reading one checks all of it.

Every error names the file, the line of the step, and what may be written instead.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.errors import UsageError
from neaptide.clusters.nearest import did_you_mean
from neaptide.clusters.producer import ProducerOptions
from neaptide.clusters.settings import problem_of
from neaptide.nemesis.complaints import complaint
from neaptide.nemesis.conditions import Condition, ConditionError, parse_condition
from neaptide.nemesis.roles import read_anyhow
from neaptide.nemesis.scenario_file import KEYS, UNHELD, File, RoundTable, TopicTable
from neaptide.nemesis.steps import (
    Load,
    Measure,
    Names,
    Produce,
    ScenarioError,
    Send,
    Step,
)
from neaptide.nemesis.steps.document import read_document
from neaptide.nemesis.steps.language import RESERVED, as_text, broker_of, role_of
from neaptide.results.outcomes import PREDICTED

__all__ = [
    "ExpectedRound",
    "ExpectedSight",
    "Scenario",
    "ScenarioError",
    "ScheduledStep",
    "Topic",
    "expected_outcome",
    "lacks",
    "load_scenario",
    "matches",
    "parse_scenario",
    "scenario_of",
    "with_brokers",
]

DEFAULT_WITHIN_S: Final = 20.0
TRANSACTIONS_TOPIC: Final = "__transaction_state"
_KINDS: Final = ("neaptide", "kafka")
_VERSION: Final = r"\d+(\.\d+)*"
# Of nothing, and of a star: any version.
_PATTERN: Final = re.compile(rf"\*?|{_VERSION}(\.\.{_VERSION}|\+)?(-\w+)?\+?")
_HEADER: Final = re.compile(r"^\s*\[\[\s*step\s*\]\]")


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: assigned replicas of each partition in preference order, and its settings."""

    name: str
    assignment: tuple[tuple[str, ...], ...]
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """A step, and what is waited for after it, at most `within_s` seconds."""

    step: Step
    line: int
    until: Condition | None = None
    within_s: float = DEFAULT_WITHIN_S
    why: str = ""
    at_s: float | None = None  # in a random run
    lasts_s: float | None = None


@dataclass(frozen=True, slots=True)
class ExpectedRound:
    """One fetch round that moves something: what the request said, what the response said."""

    follower: str
    fetch_offset: int
    records: bool
    high_watermark: int


@dataclass(frozen=True, slots=True)
class ExpectedSight:
    """A condition that holds, on these systems, once all steps are done."""

    condition: Condition
    systems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    source: tuple[str, ...]
    brokers: Mapping[str, int]
    topic: Topic
    offsets: Topic | None  # `__consumer_offsets`; None: no consumer is of a group
    transactions: Topic | None  # `__transaction_state`; None: where the brokers put it
    settings: Mapping[str, str]
    start_order: tuple[str, ...]
    steps: tuple[ScheduledStep, ...]
    expect: Mapping[str, tuple[str, ...]]  # outcome → systems
    expected_rounds: tuple[ExpectedRound, ...]
    expect_seen: tuple[ExpectedSight, ...]
    controllers: int  # where controllers are nodes of their own
    producer: ProducerOptions
    document: Mapping[str, Any]  # the file as it was read
    teaches: str | None = None
    not_served: Mapping[str, str] = field(default_factory=dict)  # systems → what they lack
    kind: Mapping[str, str] = field(default_factory=dict)  # outcome → bug, by design or client
    run: tuple[str, ...] | None = None  # of a random run: the arguments that say its load

    @property
    def records(self) -> tuple[str, ...]:
        return tuple(
            record
            for scheduled in self.steps
            if isinstance(scheduled.step, Produce | Send)
            for record in scheduled.step.records
        )


def load_scenario(path: Path) -> Scenario:
    """Raises ScenarioError: one sentence, with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: is not UTF-8 text") from None
    return parse_scenario(path.stem, text, str(path))


def parse_scenario(name: str, text: str, where: str) -> Scenario:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{where}: is not valid TOML: {error}") from None
    return _Reader(name, where, text).scenario(document)


def scenario_of(name: str, document: Mapping[str, Any]) -> Scenario:
    """The scenario whose file was read as this; without the lines of its steps.

    Raises ScenarioError.
    """
    return _Reader(name, name, "").scenario(dict(document))


def with_brokers(scenario: Scenario, ids: Sequence[int]) -> Scenario:
    """The same, with these ids for its brokers, in the order in which it names them."""
    read = _Reader(scenario.name, scenario.name, "", ids).scenario(dict(scenario.document))
    lines = [scheduled.line for scheduled in scenario.steps]
    steps = tuple(replace(s, line=line) for s, line in zip(read.steps, lines, strict=True))
    return replace(read, steps=steps)


class _Reader:
    def __init__(self, name: str, where: str, text: str, ids: Sequence[int] = ()) -> None:
        self.name = name
        self.where = where
        self.ids = ids  # of the brokers; 0, 1, … where there are none
        lines = text.splitlines()
        self.step_lines = [n for n, line in enumerate(lines, start=1) if _HEADER.match(line)]
        self.names = Names()

    def complain(self, message: str) -> ScenarioError:
        return ScenarioError(f"{self.where}: {message}")

    # --- the whole -------------------------------------------------------------------------------

    def scenario(self, document: dict[str, Any]) -> Scenario:
        try:
            file = File.model_validate(document)
        except ValidationError as error:
            raise self.complain(complaint(error, document, KEYS)) from None
        cluster = file.cluster
        self._check_patterns("not_served", file.not_served)
        self.names.brokers = dict(zip(cluster.brokers, self.ids or count(), strict=False))
        if len(self.names.brokers) != len(cluster.brokers):
            raise self.complain("cluster.brokers must name each broker once")
        taken = (name for name in cluster.brokers if name in RESERVED or role_of(name))
        reserved = next(taken, None)
        if reserved is not None:
            raise self.complain(f"cluster.brokers: {reserved!r} is what others are called in steps")
        topics = dict(cluster.topics)
        offsets, transactions = (
            self._topic(name, topics.pop(name)) if name in topics else None
            for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
        )
        if len(topics) != 1:
            raise self.complain(
                f"cluster.topics must have exactly one topic, beside {OFFSETS_TOPIC} and"
                f" {TRANSACTIONS_TOPIC}"
            )
        topic = self._topic(*next(iter(topics.items())))
        self.names.has_groups = offsets is not None
        self.names.partitions = len(topic.assignment)
        settings = self._settings(cluster.settings, "cluster.settings")
        order = tuple(cluster.brokers if cluster.start_order is None else cluster.start_order)
        if sorted(order) != sorted(self.names.brokers):
            raise self.complain("cluster.start_order must name every broker once")
        producer = ProducerOptions(**file.clients.model_dump())
        problem = producer.problem()
        if problem is not None:
            raise self.complain(f"clients: {problem}")
        self.names.records = _records_of(file.step)
        self.names.is_timed = file.run is not None
        one_by_one = (self._step(number, raw) for number, raw in enumerate(file.step))
        steps = tuple(one_by_one if file.run is None else self._timed_steps(file.step))
        if producer.idempotence:
            self._check_acks(steps)
        return Scenario(
            name=self.name,
            title=file.title,
            source=tuple(file.source),
            brokers=self.names.brokers,
            topic=topic,
            offsets=offsets,
            transactions=transactions,
            settings=settings,
            start_order=order,
            steps=steps,
            expect=self._expect(file.expect.__pydantic_extra__),
            expected_rounds=tuple(map(self._expected_round, file.expect.rounds)),
            expect_seen=tuple(self._expected_sights(file.expect.seen)),
            controllers=cluster.controllers,
            producer=producer,
            document=document,
            teaches=file.teaches,
            not_served=file.not_served,
            kind=self._kind(file),
            run=None if file.run is None else self._run(file.run),
        )

    def _kind(self, file: File) -> Mapping[str, str]:
        for outcome in file.kind:
            if outcome not in UNHELD:
                near = did_you_mean(outcome, UNHELD)
                raise self.complain(f"kind.{outcome}: must be one of {', '.join(UNHELD)}{near}")
        return file.kind

    def _check_acks(self, steps: tuple[ScheduledStep, ...]) -> None:
        for scheduled in steps:
            step = scheduled.step
            if isinstance(step, Produce | Load) and step.acks != "all":
                raise self.complain(f"line {scheduled.line}: with idempotence, acks must be all")

    def _topic(self, name: str, raw: TopicTable) -> Topic:
        assignment = tuple(
            tuple(self._broker(broker) for broker in replicas) for replicas in raw.assignment
        )
        return Topic(name, assignment, self._settings(raw.settings, f"cluster.topics.{name}"))

    def _broker(self, name: str) -> str:
        try:
            return broker_of(name, self.names)
        except ValueError as error:
            raise self.complain(str(error)) from None

    def _settings(self, raw: Mapping[str, Any], where: str) -> dict[str, str]:
        settings = {name: as_text(value) for name, value in raw.items()}
        problem = problem_of(settings)
        if problem is not None:
            raise self.complain(f"{where}: {problem}")
        return settings

    def _expected_round(self, raw: RoundTable) -> ExpectedRound:
        self._broker(raw.follower)
        return ExpectedRound(**raw.model_dump())

    def _expected_sights(self, raw: Mapping[str, list[str]]) -> Iterator[ExpectedSight]:
        for text, systems in raw.items():
            try:
                condition = self._condition(text)
            except ConditionError as error:
                raise self.complain(f"expect.seen: {error}") from None
            self._check_patterns("expect.seen", systems)
            yield ExpectedSight(condition, tuple(systems))

    def _condition(self, text: str) -> Condition:
        names = self.names
        return parse_condition(
            text,
            names.brokers,
            names.records,
            names.controllers,
            names.groups,
            names.rules,
            names.clients,
        )

    def _expect(self, raw: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
        for outcome, systems in raw.items():
            if outcome not in PREDICTED:
                near = did_you_mean(outcome, PREDICTED)
                raise self.complain(
                    f"expect.{outcome}: must be one of {', '.join(PREDICTED)}{near}"
                )
            self._check_patterns(f"expect.{outcome}", systems)
        return {outcome: tuple(systems) for outcome, systems in raw.items()}

    def _check_patterns(self, where: str, patterns: Iterable[str]) -> None:
        """What matches no system that there can be would be silent."""
        for pattern in patterns:
            kind, _, version = pattern.partition(":")
            if kind not in _KINDS:
                near = did_you_mean(kind, _KINDS)
                raise self.complain(
                    f"{where}: {pattern!r} is no system: it must begin with neaptide: or"
                    f" kafka:{near}"
                )
            if not _PATTERN.fullmatch(version):
                raise self.complain(
                    f"{where}: {pattern!r} is no system: behind {kind}: must be a version, as"
                    " 0.10, 0.11+ or 0.8..3.6"
                )

    def _run(self, text: str) -> tuple[str, ...]:
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise self.complain(f"run cannot be read: {error}") from None
        if not words or words[0].startswith("-"):
            raise self.complain('run must begin with a workload, as in run = "append --rate 500"')
        return words

    # --- steps -----------------------------------------------------------------------------------

    def _timed_steps(self, raws: Sequence[dict[str, Any]]) -> Iterator[ScheduledStep]:
        """Each has an `at`, or is one of those behind a cast; what names it gave ends with it."""
        number = 0
        while number < len(raws):
            first, more = raws[number], takewhile(lambda raw: "at" not in raw, raws[number + 1 :])
            chain = tuple(more)
            if "at" not in first or (chain and "cast" not in first):
                lacking = number + ("at" in first)
                raise self.complain(f"step {lacking + 1}: needs an at, or a cast before it")
            self.names.rules.clear()
            self.names.toxics.clear()
            yield self._step(number, first)
            line = self._line(number)
            try:
                for aimed in read_anyhow(chain):
                    yield ScheduledStep(aimed.step, line, aimed.until, aimed.within_s)
            except UsageError as error:
                raise self.complain(f"step {number + 1}: {error}") from None
            number += 1 + len(chain)

    def _line(self, number: int) -> int:
        return self.step_lines[number] if number < len(self.step_lines) else 0

    # --- one step --------------------------------------------------------------------------------

    def _step(self, number: int, raw: dict[str, Any]) -> ScheduledStep:
        line = self._line(number)

        def complain(message: str) -> ScenarioError:
            return ScenarioError(f"{self.where}:{line}: step {number + 1}: {message}")

        read = read_document(raw, self.names, self._condition, complain)
        if isinstance(read.step, Measure) and read.until is None:
            raise complain("a measure needs an until")
        within_s = DEFAULT_WITHIN_S if read.within_s is None else read.within_s
        times = read.at_s, read.lasts_s
        return ScheduledStep(read.step, line, read.until, within_s, read.why, *times)


_SENDING: Final = ("produce", "send")


def _records_of(steps: list[Any]) -> tuple[str, ...]:
    records: list[str] = []
    said = [step.get(verb) for step in steps if isinstance(step, dict) for verb in _SENDING]
    for produce in said:
        if isinstance(produce, dict):
            records += [str(record) for record in produce.get("records", [])]
            if "record" in produce:
                records.append(str(produce["record"]))
    return tuple(records)


# --- what is expected on which system ------------------------------------------------------------


_ZOOKEEPER: Final = "zookeeper"  # the variant that no system names


def _version(text: str) -> tuple[int, ...]:
    """The numbers; what stands behind a hyphen names a variant: 3.9.1-kraft."""
    return tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdigit())


def matches(pattern: str, system: str) -> bool:
    """`neaptide:0.11+` is that version and later; `kafka:0.10` any version that begins with it;
    `kafka:0.8..3.6` from the one to the other, and any that begins with either.

    Variants are matched too; `kafka:4.1-combined` matches that variant alone, and
    `kafka:0.8..3.9-zookeeper` those without KRaft.
    """
    kind, _, version = pattern.partition(":")
    system_kind, _, system_version = system.partition(":")
    variant = version.rstrip("+").partition("-")[2]
    actual_variant = system_version.partition("-")[2] or _ZOOKEEPER
    if kind != system_kind or variant not in ("", actual_variant):
        return False
    actual = _version(system_version)
    first, dots, last = version.partition("..")
    if dots:
        upper = _version(last)
        return _version(first) <= actual and actual[: len(upper)] <= upper
    wanted = _version(version.rstrip("+"))
    if version.endswith("+"):
        return actual >= wanted
    return actual[: len(wanted)] == wanted


def expected_outcome(scenario: Scenario, system: str) -> str | None:
    """What the documents predict for a system; None where they say nothing."""
    for outcome, systems in scenario.expect.items():
        if any(matches(pattern, system) for pattern in systems):
            return outcome
    return None


def lacks(scenario: Scenario, system: str) -> str | None:
    """What a system does not serve that the scenario needs; None: it serves all."""
    for pattern, what in scenario.not_served.items():
        if matches(pattern, system):
            return what
    return None
