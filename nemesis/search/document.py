"""A found schedule as a scenario file, which any system can play.

What the simulation came to after each step is what the file waits for after it: acknowledgements,
holds that took something, who leads, where the followers' logs and high watermarks are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clusters.broker.replication.committed import OFFSETS_TOPIC
from clusters.simulation.world import World
from nemesis import steps
from nemesis.search.explore import play_moves
from nemesis.search.observed import WorldObserved, assigned
from nemesis.search.targets import Target

_VERBS: Mapping[type, str] = {steps.PowerOff: "power_off"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The `[cluster]` of the file."""

    settings: Mapping[str, str]
    topic_settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Marks:
    """Where logs and high watermarks were before a step."""

    log_ends: Mapping[int, int]
    high_watermarks: Mapping[int, int]
    registered: frozenset[int]

    @classmethod
    def of(cls, world: World) -> _Marks:
        observed = WorldObserved(world)
        numbers = assigned(world, world.partition)
        return cls(
            {number: observed.log_end_offset_on_disk(number) or 0 for number in numbers},
            {number: observed.high_watermark(number) or 0 for number in numbers},
            frozenset(number for number in numbers if observed.registered(number)),
        )


def document_of(
    target: Target,
    ready: World,
    schedule: tuple[steps.Step, ...],
    cluster: Cluster,
    *,
    title: str,
    source: str,
    expect: Mapping[str, str],
) -> str:
    """The text of the file. `expect`: system → outcome."""
    lines = [f"title  = {_quoted(title)}", f"source = [{_quoted(source)}]", ""]
    lines += _cluster_lines(target, cluster)
    lines += _clients_lines(target)
    world = ready.copy()
    for step in schedule:
        before = _Marks.of(world)
        play_moves(world, target.names, (step,))
        lines += ["", "[[step]]", *_step_lines(target, world, step, before)]
    lines += ["", "[expect]"]
    for outcome in dict.fromkeys(expect.values()):
        systems = [system for system, one in expect.items() if one == outcome]
        lines.append(f"{outcome} = [{', '.join(_quoted(system) for system in systems)}]")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _value(text: str) -> str:
    """A setting's value as TOML has it."""
    return text if text in ("true", "false") or text.lstrip("-").isdigit() else _quoted(text)


def _cluster_lines(target: Target, cluster: Cluster) -> Iterator[str]:
    names = {number: name for name, number in target.names.items()}
    spec = target.spec
    assignment = [names[number] for number in spec.configuration.assignment[0]]
    yield "[cluster]"
    yield f"brokers = [{', '.join(_quoted(name) for name in target.names)}]"
    order = ", ".join(_quoted(names[number]) for number in spec.brokers)
    yield f"start_order = [{order}]"
    settings = ", ".join(
        f"{_quoted(name)} = {_value(value)}" for name, value in cluster.topic_settings.items()
    )
    replicas = ", ".join(_quoted(name) for name in assignment)
    topics = (spec.topic,) if spec.offsets is None else (spec.topic, OFFSETS_TOPIC)
    for topic in topics:
        yield f"topics.{topic} = {{ assignment = [[{replicas}]], settings = {{ {settings} }} }}"
    yield ""
    yield "[cluster.settings]"
    for name, value in cluster.settings.items():
        yield f"{_quoted(name)} = {_value(value)}"


def _clients_lines(target: Target) -> Iterator[str]:
    options = target.spec.producer
    if options.idempotence:
        yield ""
        yield "[clients]"
        yield "idempotence = true"
        yield f"max_in_flight = {options.max_in_flight}"


def _step_lines(target: Target, world: World, step: steps.Step, before: _Marks) -> Iterator[str]:
    verb = _VERBS.get(type(step), type(step).__name__.lower())
    if not isinstance(step, steps.Await):
        yield f"{verb} = {{ {', '.join(_fields(step))} }}".replace("{  }", "{}")
    if isinstance(step, steps.Hold):
        return
    conditions = list(_conditions(target, world, before))
    if getattr(step, "group", None) is not None and WorldObserved(world).commits_level():
        conditions.append("commits_level")
    yield f"until = {_quoted(' and '.join(conditions))}"
    if isinstance(step, steps.Await):
        waits_s = 3 * world.spec.settings.replica_lag_time_max_ms // 1_000
        yield f"within = {max(20, waits_s)}"


def _fields(step: steps.Step) -> Iterator[str]:
    match step:
        case steps.Produce(records, acks):
            yield f"record = {_quoted(records[0])}"
            yield f"acks = {_quoted(acks)}"
            if step.to is not None:
                yield f"to = {_quoted(step.to)}"
        case steps.Hold():
            yield from _fields_of_hold(step)
        case steps.Consume(_, str(group)):
            yield f"group = {_quoted(group)}"
        case steps.Release(rule):
            yield f"rule = {_quoted(rule)}"
        case steps.Kill(broker, in_flight):
            yield f"broker = {_quoted(str(broker))}"
            yield f"in_flight = {_quoted(in_flight)}"
        case steps.PowerOff(broker, survives):
            yield f"broker = {_quoted(broker)}"
            if survives is not None:
                yield f"survives = {_quoted(survives)}"
        case steps.Cut():
            yield f"from = {_quoted(step.source)}"
            yield f"to = {_quoted(step.destination)}"
            yield f"purpose = {_quoted(step.purpose or 'replication')}"
            if step.both:
                yield "both = true"
        case steps.Stop() | steps.Restart() | steps.Pause() | steps.Resume():
            yield f"broker = {_quoted(str(step.broker))}"


def _fields_of_hold(step: steps.Hold) -> Iterator[str]:
    yield f"{step.message} = {_quoted(step.api)}"
    yield f"from = {_quoted(step.source)}"
    yield f"to = {_quoted(step.destination)}"
    yield f"rule = {_quoted(step.name)}"
    if step.where:
        yield f"where = {_quoted(step.where)}"
    if step.topic is not None:
        yield f"topic = {_quoted(step.topic)}"


def _conditions(target: Target, world: World, before: _Marks) -> Iterator[str]:
    """What a step is for: what came of it here, and is waited for elsewhere.

    That logs and high watermarks have grown; never that a log was cut, for where it is not cut the
    schedule is to be played to its end all the same.
    """
    observed = WorldObserved(world)
    names = {number: name for name, number in target.names.items()}
    for value in world.clients.acked:
        yield f"acked({value})"
    for (group, _), offset in world.clients.committed.items():
        yield f"committed({group}) >= {offset}"
    for rule in world.holds.values():
        if observed.held(rule.source, rule.target):
            yield f"held({names[rule.source]}, {names[rule.target]})"
    for number in sorted(world.brokers):
        if not observed.registered(number):
            yield f"not registered({names[number]})"  # a zombie: it lives, its session is over
        elif number not in before.registered:
            yield f"registered({names[number]})"
    leader = observed.leader()
    yield f"leader is {'nobody' if leader is None else names[leader]}"
    isr = ", ".join(names[number] for number in observed.isr())
    yield f"isr is {{{isr}}}"
    for number in assigned(world, world.partition):
        end = observed.log_end_offset_on_disk(number) or 0
        if number in world.brokers and end > before.log_ends.get(number, 0):
            yield f"log_end_offset({names[number]}) >= {end}"
        if number == leader or not observed.is_reachable(number):
            continue
        mark = observed.high_watermark(number) or 0
        if mark > before.high_watermarks.get(number, 0):
            yield f"HW({names[number]}) >= {mark}"
