"""Scenario files: one TOML file, one scenario, as data. Reading one checks all of it.

Every error names the file, the line of the step, and what may be written instead.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from clusters.errors import UsageError
from nemesis.conditions import Condition, ConditionError, parse_condition
from nemesis.gate.where import parse_where
from nemesis.steps import (
    Acks,
    ActiveController,
    Api,
    Await,
    Consume,
    Cut,
    Discard,
    Drop,
    Heal,
    Hold,
    InFlight,
    Kill,
    Load,
    Measure,
    Message,
    NamedController,
    Node,
    Pause,
    PowerOff,
    Produce,
    Purpose,
    Release,
    Restart,
    Resume,
    Slow,
    Step,
    Stop,
    StopLoad,
)

OUTCOMES: Final = (
    "diverged",
    "lost",
    "duplicated",
    "reordered",
    "skipped",
    "unavailable",
    "held",
)
DEFAULT_WITHIN_S: Final = 20.0
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
    settings: Mapping[str, str]
    start_order: tuple[str, ...]
    steps: tuple[ScheduledStep, ...]
    expect: Mapping[str, tuple[str, ...]]  # outcome → systems
    expected_rounds: tuple[ExpectedRound, ...]
    expect_seen: tuple[ExpectedSight, ...]
    controllers: int  # where controllers are nodes of their own
    document: Mapping[str, Any]  # the file as it was read

    @property
    def records(self) -> tuple[str, ...]:
        return tuple(
            record
            for scheduled in self.steps
            if isinstance(scheduled.step, Produce)
            for record in scheduled.step.records
        )


class ScenarioError(UsageError):
    """A scenario file that says something that cannot be."""


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


@dataclass(slots=True)
class _Fields:
    """The keys of one table; what is left over at the end is a mistake."""

    values: dict[str, Any]
    complain: Callable[[str], ScenarioError]

    def take(self, key: str, kind: type, default: Any = ...) -> Any:
        if key not in self.values:
            if default is ...:
                raise self.complain(f"{key!r} is missing")
            return default
        value = self.values.pop(key)
        good = isinstance(value, kind) and (kind is not int or not isinstance(value, bool))
        if kind is float and isinstance(value, int):
            return float(value)
        if not good:
            raise self.complain(f"{key!r} must be {_kind_name(kind)}, not {value!r}")
        return value

    def choose(self, key: str, allowed: tuple[str, ...], default: Any = ...) -> Any:
        value = self.take(key, str, default)
        if value is not None and value not in allowed:
            raise self.complain(f"{key} = {value!r} must be one of {', '.join(allowed)}")
        return value

    def done(self) -> None:
        if self.values:
            raise self.complain(f"{next(iter(self.values))!r} is not known here")


def _kind_name(kind: type) -> str:
    return {str: "a text", int: "a whole number", dict: "a table", list: "a list"}.get(
        kind, kind.__name__
    )


class _Reader:
    def __init__(self, name: str, where: str, text: str) -> None:
        self.name = name
        self.where = where
        lines = text.splitlines()
        self.step_lines = [n for n, line in enumerate(lines, start=1) if _HEADER.match(line)]
        self.brokers: dict[str, int] = {}
        self.records: tuple[str, ...] = ()
        self.rules: set[str] = set()
        self.controllers: set[str] = set()  # names that steps gave to the active controller

    def complain(self, message: str) -> ScenarioError:
        return ScenarioError(f"{self.where}: {message}")

    # --- the whole -------------------------------------------------------------------------------

    def scenario(self, document: dict[str, Any]) -> Scenario:
        top = _Fields(dict(document), self.complain)
        title = top.take("title", str)
        source = top.take("source", list, [])
        cluster = _Fields(dict(top.take("cluster", dict)), self.complain)
        raw_steps = top.take("step", list)
        expect = dict(top.take("expect", dict, {}))
        top.done()
        names = cluster.take("brokers", list)
        self.brokers = {str(broker): number for number, broker in enumerate(names)}
        if not names or len(self.brokers) != len(names):
            raise self.complain("cluster.brokers must name each broker once")
        topic = self._topic(cluster.take("topics", dict))
        settings = _as_settings(cluster.take("settings", dict, {}))
        order = tuple(cluster.take("start_order", list, list(self.brokers)))
        if sorted(order) != sorted(self.brokers):
            raise self.complain("cluster.start_order must name every broker once")
        controllers = cluster.take("controllers", int, 1)
        if controllers < 1:
            raise self.complain("cluster.controllers must be 1 or more")
        cluster.done()
        self.records = _records_of(raw_steps)
        rounds = tuple(self._expected_round(raw) for raw in expect.pop("rounds", []))
        seen = self._expected_sights(expect.pop("seen", {}))
        return Scenario(
            name=self.name,
            title=title,
            source=tuple(str(item) for item in source),
            brokers=self.brokers,
            topic=topic,
            settings=settings,
            start_order=order,
            steps=tuple(self._step(n, raw) for n, raw in enumerate(raw_steps)),
            expect=self._expect(expect),
            expected_rounds=rounds,
            expect_seen=seen,
            controllers=controllers,
            document=document,
        )

    def _topic(self, topics: dict[str, Any]) -> Topic:
        if len(topics) != 1:
            raise self.complain("cluster.topics must have exactly one topic")
        name, raw = next(iter(topics.items()))
        fields = _Fields(dict(raw), lambda m: self.complain(f"cluster.topics.{name}: {m}"))
        assignment = tuple(
            tuple(self._broker(str(b), self.complain) for b in replicas)
            for replicas in fields.take("assignment", list)
        )
        if not assignment or not all(assignment):
            raise self.complain(f"cluster.topics.{name}.assignment has a partition without replica")
        settings = _as_settings(fields.take("settings", dict, {}))
        fields.done()
        return Topic(name, assignment, settings)

    def _expected_round(self, raw: Any) -> ExpectedRound:
        fields = _Fields(dict(raw), lambda m: self.complain(f"expect.rounds: {m}"))
        expected = ExpectedRound(
            self._broker(fields.take("follower", str), self.complain),
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
                condition = parse_condition(text, self.brokers, self.records)
            except ConditionError as error:
                raise self.complain(f"expect.seen: {error}") from None
            sights.append(ExpectedSight(condition, tuple(str(system) for system in systems)))
        return tuple(sights)

    def _expect(self, raw: dict[str, Any]) -> dict[str, tuple[str, ...]]:
        for outcome, systems in raw.items():
            if outcome not in OUTCOMES:
                raise self.complain(f"expect.{outcome}: must be one of {', '.join(OUTCOMES)}")
            if not isinstance(systems, list):
                raise self.complain(f"expect.{outcome} must be a list of systems")
        return {outcome: tuple(systems) for outcome, systems in raw.items()}

    def _broker(self, name: str, complain: Callable[[str], ScenarioError]) -> str:
        if name not in self.brokers:
            raise complain(f"{name!r} is no broker; there are {', '.join(self.brokers)}")
        return name

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
            raise complain(f"does nothing; a step is one of {', '.join(_VERBS)}, or an until")
        until = None
        if "until" in raw:
            try:
                until = parse_condition(
                    str(raw["until"]), self.brokers, self.records, self.controllers
                )
            except ConditionError as error:
                raise complain(str(error)) from None
        if isinstance(step, Measure) and until is None:
            raise complain("a measure needs an until")
        within = raw.get("within", DEFAULT_WITHIN_S)
        if not isinstance(within, int | float) or within <= 0:
            raise complain(f"within = {within!r} must be a number of seconds")
        return ScheduledStep(step, line, until, float(within), str(raw.get("why", "")))

    def _verb(self, verb: str, raw: Any, complain: Callable[[str], ScenarioError]) -> Step:
        if verb not in _VERBS:
            raise complain(f"{verb!r} is no step; must be one of {', '.join(_VERBS)}")
        if not isinstance(raw, dict):
            raise complain(f"{verb} must be a table, as in {verb} = {{ … }}")
        fields = _Fields(dict(raw), lambda message: complain(f"{verb}: {message}"))
        step = _VERBS[verb](self, fields)
        fields.done()
        return step

    def broker_of(self, fields: _Fields, key: str = "broker") -> str:
        return self._broker(fields.take(key, str), fields.complain)

    def node_of(self, fields: _Fields) -> Node:
        """A broker by name, or a controller: the active one, or one that a step has named."""
        if "controller" not in fields.values:
            return self.broker_of(fields)
        name = str(fields.take("controller", str))
        if name != "active":
            if name not in self.controllers:
                known = ", ".join(("active", *sorted(self.controllers)))
                raise fields.complain(f"controller = {name!r} must be one of {known}")
            return NamedController(name)
        called = fields.take("as", str, None)
        if called is not None:
            if called in self.brokers or not called.isidentifier():
                raise fields.complain(f"as = {called!r} must be a word that names no broker")
            self.controllers.add(called)
        return ActiveController(called)

    def rule_of(self, fields: _Fields) -> str:
        rule = str(fields.take("rule", str))
        if rule not in self.rules:
            known = ", ".join(sorted(self.rules)) or "none yet"
            raise fields.complain(f"no earlier step has the rule {rule!r}; there are {known}")
        return rule


def _as_settings(raw: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in raw.items()
    }


def _records_of(steps: list[Any]) -> tuple[str, ...]:
    records: list[str] = []
    for step in steps:
        produce = step.get("produce", {}) if isinstance(step, dict) else {}
        if isinstance(produce, dict):
            records += [str(record) for record in produce.get("records", [])]
            if "record" in produce:
                records.append(str(produce["record"]))
    return tuple(records)


def _produce(reader: _Reader, fields: _Fields) -> Produce:
    records = tuple(str(record) for record in fields.take("records", list, []))
    one = fields.take("record", str, None)
    if (one is None) == (not records):
        raise fields.complain('needs a record = "m1", or a list of records')
    return Produce(
        records or (one,),
        fields.choose("acks", get_args(Acks), "all"),
        fields.take("partition", int, 0),
        reader.broker_of(fields, "to") if "to" in fields.values else None,
    )


def _load(reader: _Reader, fields: _Fields) -> Load:
    rate = fields.take("rate", float)
    if rate <= 0:
        raise fields.complain(f"rate = {rate:g} must be more than 0 records a second")
    return Load(rate, fields.choose("acks", get_args(Acks), "all"))


def _message_rule(reader: _Reader, fields: _Fields) -> dict[str, Any]:
    kinds = [kind for kind in get_args(Message) if kind in fields.values]
    if len(kinds) != 1:
        raise fields.complain('needs either request = "fetch" or response = "fetch"')
    api = fields.choose(kinds[0], get_args(Api))
    source, destination = reader.broker_of(fields, "from"), reader.broker_of(fields, "to")
    where = fields.take("where", str, "")
    try:
        parse_where(where)
    except UsageError as error:
        raise fields.complain(str(error)) from None
    name = fields.take("rule", str, f"{kinds[0]} {source}→{destination}")
    if name in reader.rules:
        raise fields.complain(f"the rule {name!r} exists already; give this one another name")
    reader.rules.add(name)
    return {
        "name": name,
        "message": kinds[0],
        "api": api,
        "source": source,
        "destination": destination,
        "where": where,
        "times": fields.take("times", int, None),
    }


def _power_off(reader: _Reader, fields: _Fields) -> PowerOff:
    survives = fields.take("survives", str, None)
    if survives is not None and survives not in reader.records:
        raise fields.complain(f"survives = {survives!r}: no step produces that record")
    return PowerOff(reader.broker_of(fields), survives)


def _cut(reader: _Reader, fields: _Fields) -> Cut:
    return Cut(
        _end(reader, fields, "from"),
        _end(reader, fields, "to"),
        fields.choose("purpose", get_args(Purpose), None),
        fields.take("both", bool, False),
    )


def _slow(reader: _Reader, fields: _Fields) -> Slow:
    delay_ms = fields.take("delay_ms", int)
    if delay_ms < 0:
        raise fields.complain(f"delay_ms = {delay_ms} is less than nothing")
    return Slow(
        _end(reader, fields, "from"),
        _end(reader, fields, "to"),
        delay_ms,
        fields.choose("purpose", get_args(Purpose), None),
    )


def _end(reader: _Reader, fields: _Fields, key: str) -> str:
    name = str(fields.take(key, str))
    if name not in reader.brokers and name not in ("client", "coordination"):
        raise fields.complain(
            f"{name!r} is no end of a link; there are"
            f" {', '.join(reader.brokers)}, client, coordination"
        )
    return name


def _heal(reader: _Reader, fields: _Fields) -> Heal:
    if not fields.values:
        return Heal()
    return Heal(_end(reader, fields, "from"), _end(reader, fields, "to"))


def _measure(reader: _Reader, fields: _Fields) -> Measure:
    return Measure(
        reader.broker_of(fields, "since_last_fetch_of"),
        fields.take("unit", str),
        fields.take("above", float),
        fields.take("at_most", float),
        fields.take("slack_ms", int, 0),
    )


_VERBS: Final[Mapping[str, Callable[[_Reader, _Fields], Step]]] = {
    "produce": _produce,
    "consume": lambda reader, fields: Consume(fields.take("partition", int, 0)),
    "load": _load,
    "stop_load": lambda reader, fields: StopLoad(),
    "hold": lambda reader, fields: Hold(**_message_rule(reader, fields)),
    "drop": lambda reader, fields: Drop(**_message_rule(reader, fields)),
    "release": lambda reader, fields: Release(reader.rule_of(fields)),
    "discard": lambda reader, fields: Discard(reader.rule_of(fields)),
    "kill": lambda reader, fields: Kill(
        reader.node_of(fields), fields.choose("in_flight", get_args(InFlight))
    ),
    "power_off": _power_off,
    "stop": lambda reader, fields: Stop(reader.node_of(fields)),
    "restart": lambda reader, fields: Restart(reader.node_of(fields)),
    "pause": lambda reader, fields: Pause(reader.node_of(fields)),
    "resume": lambda reader, fields: Resume(reader.node_of(fields)),
    "cut": _cut,
    "slow": _slow,
    "heal": _heal,
    "measure": _measure,
}

# --- what is expected on which system ------------------------------------------------------------


def _version(text: str) -> tuple[int, ...]:
    """The numbers; what stands behind a hyphen names a variant: 3.9.1-kraft."""
    return tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdigit())


def matches(pattern: str, system: str) -> bool:
    """`neaptide:0.11+` is that version and later; `kafka:0.10` any version that begins with it;
    `kafka:0.8..3.6` from the one to the other, and any that begins with either.

    Variants are matched too; `kafka:4.1-combined` matches that variant alone.
    """
    kind, _, version = pattern.partition(":")
    system_kind, _, system_version = system.partition(":")
    variant = version.rstrip("+").partition("-")[2]
    if kind != system_kind or variant not in ("", system_version.partition("-")[2]):
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
