"""Each field of each class that makes up a world counts in a state's name, or says why not."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from functools import cache
from typing import Any

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation import producing
from neaptide.clusters.simulation.broker_node import BrokerNode
from neaptide.clusters.simulation.client_node import ClientNode
from neaptide.clusters.simulation.clients import GroupOperation, Send
from neaptide.clusters.simulation.coordination_node import CoordinationNode
from neaptide.clusters.simulation.network_node import CallKey, Network
from neaptide.clusters.simulation.parts import Asked as Asking
from neaptide.clusters.simulation.parts import Call
from neaptide.clusters.simulation.service import Service
from neaptide.clusters.simulation.world import World
from neaptide.harness.search.explore import Asked, search_of
from neaptide.nemesis.search import canonical
from neaptide.nemesis.search.canonical import LeftOut, Section, Sections, fields_of, name_of, way_of
from neaptide.nemesis.search.deliveries import Counts, State, first_state, moves, try_move
from neaptide.nemesis.search.invariants.seen import Memory
from neaptide.nemesis.search.targets import Target
from tests.simulation.worlds import A, B

pytestmark = pytest.mark.slow

MANY = Counts(produces=2, kills=1, restarts=1, timers=3, expiries=1, reads=1, operations=1)
TP = TopicPartition("t", 0)
PLAIN = (int, str, bool, bytes, type(None))

# The holders, of which a world has one copy each: where they are.
HOLDERS: Mapping[str, Callable[[World], Any]] = {
    "World": lambda world: world,
    "Network": lambda world: world.network,
    "Shown": lambda world: world.network.shown,
    "CoordinationNode": lambda world: world.coordination,
    "Service": lambda world: world.service,
    "ClientNode": lambda world: world.clients,
    "BrokerNode": lambda world: world.nodes[A],
    "Disk": lambda world: world.nodes[A].own_disk(),
    "SimulatedLog": lambda world: world.nodes[A].own_disk().logs[TP],
    "Broker": lambda world: world.nodes[A].own_core(),
    "Watch": lambda world: world.watch,
    "Memory": lambda world: world.watch.memory,  # type: ignore[union-attr]
}


def _some(world: World) -> dict[tuple[type, str], Any]:
    """What stands in a field that is empty in most worlds."""
    entry = world.network.messages[0]
    fetch = effects.SendOffsetForLeaderEpoch(events.FetcherId(B, 0), 7, ())
    asking = GroupOperation("commit", "g", 0, 1, "main", 1, 1)
    return {
        (Network, "waiting"): [entry],
        (Network, "abandoned"): (entry,),
        (Network, "asked"): {7: Asking(A, B, fetch, 1)},
        (Network, "calls"): {CallKey("alter partition", A, 0): Call(7, B, 1, 1)},
        (Network, "unanswered"): {entry.link: entry},
        (Network, "held_by"): {7: "a rule"},
        (CoordinationNode, "silent_since"): {A: 7},
        (Service, "notifications"): {"isr_change_1": (TP,)},
        (ClientNode, "in_flight"): {7: (A, (Send(1, "m1", -1, 0, 1),))},
        (ClientNode, "asking_too"): {7: asking},
        (Broker, "watchers"): {TP: (7,)},
        (Memory, "asked_in"): {A: 7},
        (Memory, "remotes"): {A: {B: 7}},
    }


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, Enum):
        return next((one for one in type(value) if one is not value), None)
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return f"{value}x"
    if value is None:
        return 7
    if isinstance(value, Mapping):
        return dict(list(value.items())[:-1]) if value else {"x": 7}
    if isinstance(value, frozenset | set):
        return type(value)(sorted(value, key=repr)[:-1]) if value else type(value)({7})
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return value[:-1] if value else type(value)((7,))
    return next(_changes(value), (None, None))[1] or 7


def _changes(value: Any) -> Iterator[tuple[str, Any]]:
    """(field, the value with another one in this field), of the fields that count."""
    for name in fields_of(type(value)):
        if not isinstance(way_of(type(value), name), LeftOut):
            yield name, _with(value, name, changed(getattr(value, name)))


def _with(value: Any, name: str, other: Any) -> Any:
    if hasattr(value, "_replace"):
        return value._replace(**{name: other})
    made = copy.copy(value)
    object.__setattr__(made, name, other)
    return made


def _targets() -> Iterator[Target]:
    for system, idempotence in (
        ("neaptide:0.10", False),
        ("neaptide:2.1", True),
        ("neaptide:4.0", True),
    ):
        faults = ("kill", "stop", "reassign", "elect", "depose")
        asked = Asked(system=system, seed=1, faults=faults, idempotence=idempotence)
        yield replace(search_of(asked), watched=True).target()


def _states(count: int) -> Iterator[State]:
    """Of drawn paths, on each generation."""
    chance = random.Random(1)
    for target in _targets():
        begun = first_state(target)
        assert isinstance(begun, State)
        for _ in range(count):
            state: State | None = begun
            while state is not None:
                yield state
                found = list(moves(state, target, MANY))
                state = try_move(state, chance.choice(found), target)[0] if found else None


@cache
def _reached() -> dict[type, tuple[World, Any, int]]:
    """One value of each class, with the world in which it stood and of which broker it was."""
    found: dict[type, tuple[World, Any, int]] = {}
    worlds = [state.world for state in _states(10)]
    for world in (*worlds, *map(_has_read, _targets())):
        for broker, value in _values(world):
            found.setdefault(type(value), (world, value, broker))
    return found


def _acknowledged(target: Target) -> World:
    state = first_state(target)
    assert isinstance(state, State)
    world = state.world.copy()
    producing.produce(world.clients, "m1", -1)
    while world.clients.unsettled and world.advance():
        pass
    return world


def _has_read(target: Target) -> World:
    world = _acknowledged(target)
    producing.consume(world.clients, 0, "main")
    while world.clients.reading is not None and world.advance():
        pass
    assert world.clients.polls
    return world


def _values(world: World) -> list[tuple[int, Any]]:
    """All that is walked when a world is named."""
    seen: list[tuple[int, Any]] = []

    class Looking(Section):
        def walk(self, value: Any) -> Any:
            if not isinstance(value, PLAIN):
                seen.append((self.broker_id, value))
            return super().walk(value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical, "Section", Looking)
        name_of(world, (), Sections())
    return seen


def _kinds() -> list[type]:
    return [kind for kind in _reached() if fields_of(kind) and kind.__name__ not in HOLDERS]


def test_drawn_paths_reach_most_classes() -> None:
    names = {kind.__name__ for kind in _reached()}
    assert {"LeaderAndIsr", "RemoteReplica", "Batch", "FetchRequested", "Active", "Poll"} <= names
    assert len(_kinds()) > 60


def test_each_field_of_a_value_counts_or_says_why_not() -> None:
    silent = []
    for kind in _kinds():
        world, value, broker = _reached()[kind]
        here = _walked(world, value, broker)
        for name, other in _changes(value):
            if _walked(world, other, broker) == here:
                silent.append(f"{kind.__name__}.{name}")
    assert silent == []


def _walked(world: World, value: Any, broker: int) -> object:
    section = Section(world, world.now_us // 1_000, broker)
    return section.walk(value), section.requests, section.writes


@pytest.mark.parametrize("holder", [name for name in HOLDERS if name != "World"])
def test_each_field_of_a_holder_counts_or_says_why_not(holder: str) -> None:
    world = next(
        state.world for state in _states(1) if state.spent.produces and A in state.world.brokers
    )
    silent = []
    kind = type(HOLDERS[holder](world.copy()))
    for name in fields_of(kind):
        if isinstance(way_of(kind, name), LeftOut):
            continue
        other = world.copy()
        held = HOLDERS[holder](other)
        value = getattr(held, name)
        some = _some(world).get((kind, name))
        setattr(held, name, some if some and not value else changed(value))
        if name_of(other, (), Sections()) == name_of(world, (), Sections()):
            silent.append(name)
    assert silent == []


def test_what_is_left_out_has_a_reason_and_is_a_field() -> None:
    for kind, ways in canonical.OF.items():
        assert set(ways) <= set(fields_of(kind)), kind
        assert all(way.why for way in ways.values() if isinstance(way, LeftOut))


def test_worlds_of_which_one_has_read_a_record_differ() -> None:
    """The reader may see later that what it read is gone."""
    for target in _targets():
        worlds = _acknowledged(target), _has_read(target)
        names = {name_of(world, (), Sections()) for world in worlds}
        assert len(names) == len(worlds)


def test_which_broker_epoch_nobody_knows_counts() -> None:
    world = _reached()[BrokerNode][0]
    section = Section(world, 0)
    assert [canonical.write(section, epoch) for epoch in (None, -1, 9, 8)] == [None, -1, 0, 0]
    assert section.writes == [9, 8]


def test_a_value_that_no_rule_names_is_an_error() -> None:
    class Stranger:
        def __init__(self) -> None:
            self.field = 1

    with pytest.raises(TypeError, match="Stranger counts in a state's name"):
        _walked(_reached()[BrokerNode][0], Stranger(), A)
