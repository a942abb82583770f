"""Scenario files: one TOML file, one scenario, as data. Reading one checks all of it.

Every error names the file, the line of the step, and what may be written instead.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.nearest import did_you_mean
from neaptide.clusters.producer import ProducerOptions
from neaptide.clusters.settings import problem_of
from neaptide.nemesis.conditions import Condition, ConditionError, parse_condition
from neaptide.nemesis.fields import Fields, ScenarioError
from neaptide.nemesis.steps import (
    Await,
    Load,
    Measure,
    Produce,
    Send,
    Step,
)
from neaptide.nemesis.verbs import VERBS, Names
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
SUBJECTS: Final = (
    "replication",
    "durability",
    "epochs",
    "producers",
    "groups",
    "transactions",
    "operations",
)
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
        top = Fields(dict(document), self.complain)
        title = top.take("title", str)
        source = top.take("source", list, [])
        cluster = Fields(dict(top.take("cluster", dict)), self.complain)
        raw_steps = top.take("step", list)
        expect = dict(top.take("expect", dict, {}))
        producer = self._producer(top.take("clients", dict, {}))
        teaches = top.choose("teaches", SUBJECTS, None)
        not_served = {str(k): str(v) for k, v in top.take("not_served", dict, {}).items()}
        top.done()
        self._check_patterns("not_served", not_served)
        names = cluster.take("brokers", list)
        self.names.brokers = dict(zip(map(str, names), self.ids or range(len(names)), strict=False))
        if not names or len(self.names.brokers) != len(names):
            raise self.complain("cluster.brokers must name each broker once")
        topics = dict(cluster.take("topics", dict))
        internal = {name: topics.pop(name, None) for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)}
        topic = self._topic(topics)
        offsets, transactions = (
            None if raw is None else self._topic({name: raw}) for name, raw in internal.items()
        )
        self.names.has_groups = offsets is not None
        self.names.partitions = len(topic.assignment)
        settings = self._settings(cluster, "cluster.settings")
        order = tuple(cluster.take("start_order", list, list(self.names.brokers)))
        if sorted(order) != sorted(self.names.brokers):
            raise self.complain("cluster.start_order must name every broker once")
        controllers = cluster.take("controllers", int, 1)
        if controllers < 1:
            raise self.complain("cluster.controllers must be 1 or more")
        cluster.done()
        self.names.records = _records_of(raw_steps)
        rounds = tuple(self._expected_round(raw) for raw in expect.pop("rounds", []))
        sights = expect.pop("seen", {})
        steps = tuple(self._step(n, raw) for n, raw in enumerate(raw_steps))
        if producer.idempotence:
            self._check_acks(steps)
        return Scenario(
            name=self.name,
            title=title,
            source=tuple(str(item) for item in source),
            brokers=self.names.brokers,
            topic=topic,
            offsets=offsets,
            transactions=transactions,
            settings=settings,
            start_order=order,
            steps=steps,
            expect=self._expect(expect),
            expected_rounds=rounds,
            expect_seen=self._expected_sights(sights),
            controllers=controllers,
            producer=producer,
            document=document,
            teaches=teaches,
            not_served=not_served,
        )

    def _producer(self, raw: dict[str, Any]) -> ProducerOptions:
        fields = Fields(dict(raw), lambda m: self.complain(f"clients: {m}"))
        options = ProducerOptions(
            fields.take("idempotence", bool, False),
            fields.take("max_in_flight", int, 1),
            fields.take("retries", int, 0),
            fields.take("retry_backoff_ms", int, 50),
        )
        fields.done()
        problem = options.problem()
        if problem is not None:
            raise self.complain(f"clients: {problem}")
        return options

    def _check_acks(self, steps: tuple[ScheduledStep, ...]) -> None:
        for scheduled in steps:
            step = scheduled.step
            if isinstance(step, Produce | Load) and step.acks != "all":
                raise self.complain(f"line {scheduled.line}: with idempotence, acks must be all")

    def _topic(self, topics: dict[str, Any]) -> Topic:
        if len(topics) != 1:
            raise self.complain(
                f"cluster.topics must have exactly one topic, beside {OFFSETS_TOPIC} and"
                f" {TRANSACTIONS_TOPIC}"
            )
        name, raw = next(iter(topics.items()))
        fields = Fields(dict(raw), lambda m: self.complain(f"cluster.topics.{name}: {m}"))
        assignment = tuple(
            tuple(self.names.broker(str(b), self.complain) for b in replicas)
            for replicas in fields.take("assignment", list)
        )
        if not assignment or not all(assignment):
            raise self.complain(f"cluster.topics.{name}.assignment has a partition without replica")
        settings = self._settings(fields, f"cluster.topics.{name}.settings")
        fields.done()
        return Topic(name, assignment, settings)

    def _settings(self, fields: Fields, where: str) -> dict[str, str]:
        settings = _as_settings(fields.take("settings", dict, {}))
        problem = problem_of(settings)
        if problem is not None:
            raise self.complain(f"{where}: {problem}")
        return settings

    def _expected_round(self, raw: Any) -> ExpectedRound:
        fields = Fields(dict(raw), lambda m: self.complain(f"expect.rounds: {m}"))
        expected = ExpectedRound(
            self.names.broker(fields.take("follower", str), self.complain),
            fields.take("fetch_offset", int),
            fields.take("records", bool),
            fields.take("high_watermark", int),
        )
        fields.done()
        return expected

    def _expected_sights(self, raw: Any) -> tuple[ExpectedSight, ...]:
        if not isinstance(raw, dict):
            raise self.complain("expect.seen must be a table, condition = [systems]")
        sights = []
        for text, systems in raw.items():
            if not isinstance(systems, list):
                raise self.complain(f"expect.seen: {text!r} must have a list of systems")
            try:
                condition = self._condition(text)
            except ConditionError as error:
                raise self.complain(f"expect.seen: {error}") from None
            self._check_patterns("expect.seen", systems)
            sights.append(ExpectedSight(condition, tuple(str(system) for system in systems)))
        return tuple(sights)

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

    def _expect(self, raw: dict[str, Any]) -> dict[str, tuple[str, ...]]:
        for outcome, systems in raw.items():
            if outcome not in PREDICTED:
                near = did_you_mean(outcome, PREDICTED)
                raise self.complain(
                    f"expect.{outcome}: must be one of {', '.join(PREDICTED)}{near}"
                )
            if not isinstance(systems, list):
                raise self.complain(f"expect.{outcome} must be a list of systems")
            self._check_patterns(f"expect.{outcome}", systems)
        return {outcome: tuple(systems) for outcome, systems in raw.items()}

    def _check_patterns(self, where: str, patterns: Iterable[Any]) -> None:
        """What matches no system that there can be would be silent."""
        for pattern in map(str, patterns):
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

    # --- one step --------------------------------------------------------------------------------

    def _step(self, number: int, raw: dict[str, Any]) -> ScheduledStep:
        line = self.step_lines[number] if number < len(self.step_lines) else 0

        def complain(message: str) -> ScenarioError:
            return ScenarioError(f"{self.where}:{line}: step {number + 1}: {message}")

        common = ("until", "within", "why")
        verbs = [key for key in raw if key not in common]
        if len(verbs) > 1:
            raise complain(f"has {' and '.join(verbs)}; a step does one thing")
        step: Step = Await()
        if verbs:
            step = self._verb(verbs[0], raw[verbs[0]], complain)
        elif "until" not in raw:
            raise complain(f"does nothing; a step is one of {', '.join(VERBS)}, or an until")
        until = None
        if "until" in raw:
            try:
                until = self._condition(str(raw["until"]))
            except ConditionError as error:
                raise complain(str(error)) from None
        if isinstance(step, Measure) and until is None:
            raise complain("a measure needs an until")
        within = raw.get("within", DEFAULT_WITHIN_S)
        if not isinstance(within, int | float) or within <= 0:
            raise complain(f"within = {within!r} must be a number of seconds")
        return ScheduledStep(step, line, until, float(within), str(raw.get("why", "")))

    def _verb(self, verb: str, raw: Any, complain: Callable[[str], ScenarioError]) -> Step:
        if verb not in VERBS:
            near = did_you_mean(verb, VERBS)
            raise complain(f"{verb!r} is no step; must be one of {', '.join(VERBS)}{near}")
        if not isinstance(raw, dict):
            raise complain(f"{verb} must be a table, as in {verb} = {{ … }}")
        fields = Fields(dict(raw), lambda message: complain(f"{verb}: {message}"))
        step = VERBS[verb](self.names, fields)
        fields.done()
        return step


_SENDING: Final = ("produce", "send")


def _as_settings(raw: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in raw.items()
    }


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
