"""A found schedule as a scenario file, which any system can play.

What the simulation came to after each step is what the file waits for after it: acknowledgements,
holds that took something, who leads, where the followers' logs and high watermarks are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import tomlkit

from neaptide.clusters.simulation.asking import leaders_known, newest_leader
from neaptide.clusters.simulation.network import CONTROL_APIS, CONTROLLER
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.gate.model import CLIENT
from neaptide.nemesis.search.explore import play_moves
from neaptide.nemesis.search.observed import WorldObserved, assigned
from neaptide.nemesis.search.targets import Target


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
    acked: frozenset[str]
    leader_to_name: int | None  # who leads, where a client may learn something else
    replicas: tuple[int, ...]
    doubtful: frozenset[str]  # records that were acknowledged here, and not where all are fenced

    @classmethod
    def of(cls, world: World, doubtful: frozenset[str] = frozenset()) -> _Marks:
        observed = WorldObserved(world)
        numbers = assigned(world, world.partition)
        return cls(
            {number: observed.log_end_offset_on_disk(number) or 0 for number in numbers},
            {number: observed.high_watermark(number) or 0 for number in numbers},
            frozenset(number for number in numbers if observed.registered(number)),
            frozenset(world.clients.acked),
            _leader_to_name(world),
            tuple(numbers),
            doubtful,
        )


def _doubtful(world: World, before: _Marks) -> frozenset[str]:
    """What was acknowledged in the last step, if a zombie in the ISR had part in it."""
    return frozenset(world.clients.acked) - before.acked if _fenced(world) else frozenset()


def _leader_to_name(world: World) -> int | None:
    """Who leads, where a broker that clients reach believes in another: theirs may ask that one."""
    leader = newest_leader(world.clients, world.partition)
    believed = leaders_known(world.clients, world.partition).values()
    return None if all(state.leader == leader for state in believed) else leader


def _fenced(world: World) -> tuple[int, ...]:
    """Zombies that came back into the ISR, and are not in its leader's epoch.

    Where leader epochs are asked for (KIP-320) they are fenced, and it goes on without them.
    """
    state = world.service.states.get(world.partition)
    observed = WorldObserved(world)

    def is_fenced(number: int) -> bool:
        broker = world.brokers.get(number)
        held = None if broker is None else broker.partitions.get(world.partition)
        return (
            state is not None
            and held is not None
            and not observed.registered(number)
            and held.leader_epoch < state.leader_epoch
        )

    return tuple(number for number in observed.isr() if is_fenced(number))


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
    before = _Marks.of(world)
    for step in schedule:
        before = _Marks.of(world, before.doubtful | _doubtful(world, before))
        released = _released_controller(world, step)
        play_moves(world, target.names, (step,))
        lines += ["", "[[step]]", *_step_lines(target, world, step, before, released)]
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
    assigned_to = spec.configuration.assignment.values()
    assignment = [[names[number] for number in replicas] for replicas in assigned_to]
    yield "[cluster]"
    yield f"brokers = [{', '.join(_quoted(name) for name in target.names)}]"
    order = ", ".join(_quoted(names[number]) for number in spec.brokers)
    yield f"start_order = [{order}]"
    settings = ", ".join(
        f"{_quoted(name)} = {_value(value)}" for name, value in cluster.topic_settings.items()
    )
    replicas = [f"[{', '.join(_quoted(name) for name in one)}]" for one in assignment]
    of = f"[{', '.join(replicas)}]"
    yield f"topics.{spec.topic} = {{ assignment = {of}, settings = {{ {settings} }} }}"
    for topic, internal in spec.internal_topics.items():
        [numbers] = internal.assignment.values()
        of_internal = ", ".join(
            f"{_quoted(name)} = {_value(value)}" for name, value in internal.settings.items()
        )
        named = ", ".join(_quoted(names[number]) for number in numbers)
        yield f"topics.{topic} = {{ assignment = [[{named}]], settings = {{ {of_internal} }} }}"
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


def _released_controller(world: World, step: steps.Step) -> int | None:
    """Whose order goes on to its broker in this step."""
    rule = world.network.holds.get(step.rule) if isinstance(step, steps.Release) else None
    return rule.source if rule is not None and rule.api in CONTROL_APIS.values() else None


def _step_lines(
    target: Target, world: World, step: steps.Step, before: _Marks, released: int | None
) -> Iterator[str]:
    if not isinstance(step, steps.Await):
        table = tomlkit.inline_table()
        table.update(steps.table_of(_to_the_leader(target, step, before)))
        keys = table.as_string()[1:-1]
        yield f"{step.verb} = {{ {keys} }}" if keys else f"{step.verb} = {{}}"
    if isinstance(step, steps.Hold | steps.Begin):
        return
    conditions = list(_conditions(target, world, before))
    conditions += _operated(target, world, step, before)
    if getattr(step, "group", None) is not None and WorldObserved(world).commits_level():
        conditions.append("commits_level")
    if released is not None:
        conditions += _obeyed(target, world, before, released)
    yield f"until = {_quoted(' and '.join(conditions))}"
    if isinstance(step, steps.Await):
        waits_s = 3 * world.spec.settings.replica_lag_time_max_ms // 1_000
        yield f"within = {max(20, waits_s)}"


def _to_the_leader(target: Target, step: steps.Step, before: _Marks) -> steps.Step:
    """A client of the simulation asks all brokers who leads, others one: it may be a zombie.

    An idempotent producer is one and the same throughout.
    """
    if not isinstance(step, steps.Produce) or step.to is not None:
        return step
    if before.leader_to_name is None or target.spec.producer.idempotence:
        return step
    names = {number: name for name, number in target.names.items()}
    return replace(step, to=names[before.leader_to_name])


def _conditions(target: Target, world: World, before: _Marks) -> Iterator[str]:
    """What a step is for: what came of it here, and is waited for elsewhere.

    Where a zombie that is not in its leader's epoch is in the ISR, as only before KIP-320, the step
    is over as well when it was fenced.
    """
    observed = WorldObserved(world)
    names = {number: name for name, number in target.names.items()}
    fenced = _fenced(world)
    new = tuple(value for value in world.clients.acked if value not in before.acked)
    for value in world.clients.acked:
        if value in before.doubtful:
            yield _answered(value)
        elif not fenced or value not in new:
            yield f"acked({value})"
    for (group, _), offset in world.clients.committed.items():
        yield f"committed({group}) >= {offset}"
    for rule in world.network.holds.values():
        to = world.service.controller if rule.target == CONTROLLER else rule.target
        if to is not None and observed.held(rule.source, to):
            yield f"held({names.get(rule.source, CLIENT)}, {names.get(to, CLIENT)})"
        if rule.name.isidentifier() and observed.sender_gone(rule.name):
            yield f"sender_gone({rule.name})"
    for number in sorted(world.brokers):
        if not observed.registered(number):
            yield f"not registered({names[number]})"  # a zombie: it lives, its session is over
        elif number not in before.registered:
            yield f"registered({names[number]})"
    leader = observed.leader()
    yield f"leader is {'nobody' if leader is None else names[leader]}"
    moved = list(_moved(names, world, before))
    if not fenced:
        yield from (f"isr is {_set(names, observed.isr())}", *moved)
        return
    here = [*(f"acked({value})" for value in new), f"isr is {_set(names, observed.isr())}", *moved]
    there = [f"isr is {_set(names, [one for one in observed.isr() if one not in fenced])}"]
    there += [f"fenced({names[number]})" for number in fenced]
    there += [_answered(value) for value in new]
    yield f"({' and '.join(here)} or {' and '.join(there)})"


def _obeyed(target: Target, world: World, before: _Marks, controller: int) -> list[str]:
    """What an order did to logs, where it came to a process that it was not for.

    Where brokers know which process is meant (KIP-380), they refuse it.
    """
    names = {number: name for name, number in target.names.items()}
    observed = WorldObserved(world)
    ends = {number: observed.log_end_offset_on_disk(number) or 0 for number in before.log_ends}
    cut = [n for n, end in ends.items() if n in world.brokers and end < before.log_ends[n]]
    if not cut:
        return []
    done = " and ".join(f"log_end_offset({names[number]}) == {ends[number]}" for number in cut)
    return [f"({done} or refused({names[controller]}))"]


def _operated(target: Target, world: World, step: steps.Step, before: _Marks) -> Iterator[str]:
    """What came of what operators ask for: other replicas, another controller."""
    names = {number: name for name, number in target.names.items()}
    replicas = assigned(world, world.partition)
    if replicas != before.replicas:
        yield f"replicas is {_set(names, replicas)}"
        yield f"preferred is {names[replicas[0]]}"
    if isinstance(step, steps.MoveController) and world.service.controller is not None:
        yield f"controller_epoch >= {world.service.controller_epoch}"


def _answered(record: str) -> str:
    """Acknowledged or refused, definitely or not."""
    return f"(acked({record}) or error({record}) is not nobody)"


def _set(names: Mapping[int, str], numbers: Collection[int]) -> str:
    return f"{{{', '.join(names[number] for number in numbers)}}}"


def _moved(names: Mapping[int, str], world: World, before: _Marks) -> Iterator[str]:
    """That logs and high watermarks have grown; never that a log was cut.

    Where it is not cut the schedule is to be played to its end all the same.
    """
    observed = WorldObserved(world)
    leader = observed.leader()
    for number in assigned(world, world.partition):
        end = observed.log_end_offset_on_disk(number) or 0
        if number in world.brokers and end > before.log_ends.get(number, 0):
            yield f"log_end_offset({names[number]}) >= {end}"
        if number == leader or not observed.is_reachable(number):
            continue
        mark = observed.high_watermark(number) or 0
        if mark > before.high_watermarks.get(number, 0):
            yield f"HW({names[number]}) >= {mark}"
