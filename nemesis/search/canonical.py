"""One name for all worlds that will behave the same: what makes a state differ from another.

Every field of every class that makes up a world counts. What it holds is taken as it is, unless
`NAMED` or `OF` say otherwise: that it is an age (only how long ago counts), a number given in order
(only which are the same counts, or which came first), or left out, with the reason. Whoever adds a
field to a world has it counted; whoever wants it left out says here why. Two worlds that differ
here may still behave alike; two that have one name behave alike. A broker that a move did not
touch, and a message that is still on its way, are not looked at again.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple
from zlib import crc32

from neaptide.clusters.broker.replication.broker import Broker, IsrChanges
from neaptide.clusters.broker.replication.follower.replica_fetcher import Delayed
from neaptide.clusters.broker.replication.interface import coordination_service
from neaptide.clusters.broker.replication.model import BrokerRegistration, TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import Leader
from neaptide.clusters.broker.replication.partition.producer_state_manager import (
    ProducerStateEntry,
)
from neaptide.clusters.broker.replication.partition.remote_replica import NEVER_MS, RemoteReplica
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TransactionMetadata,
)
from neaptide.clusters.simulation import parts
from neaptide.clusters.simulation.broker_calls import CallTimedOut, is_under_way
from neaptide.clusters.simulation.broker_node import BrokerNode
from neaptide.clusters.simulation.client_node import ClientNode
from neaptide.clusters.simulation.clients import GroupOperation, Outcome, Read, Send
from neaptide.clusters.simulation.coordination_node import CoordinationNode
from neaptide.clusters.simulation.disk import Disk
from neaptide.clusters.simulation.network import Entry, Hold
from neaptide.clusters.simulation.network_node import CallKey, Network, Shown
from neaptide.clusters.simulation.service import Service
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.invariants import Watch
from neaptide.nemesis.search.invariants.seen import Memory

MARSHAL: Final = 2  # the last format that does not depend on who else holds a value
DIGEST_BYTES: Final = 16


class LeftOut(NamedTuple):
    """A field that decides nothing about what will happen, or is said elsewhere in the name."""

    why: str


class Walked(NamedTuple):
    """A part of a world: its tree, with 0 for every number given in order, and these numbers."""

    tree: Any
    requests: list[object]
    writes: list[int]


class Known(NamedTuple):
    """A broker, and what it was made of: the same objects at the same time mean the same."""

    broker: Broker | None
    disk: Disk
    now_ms: int
    walked: Walked


@dataclass(slots=True)
class Sections:
    """What was found out when the state before was named: of brokers, and of messages' bodies,
    which hold no ages, by their numbers."""

    brokers: dict[int, Known] = field(default_factory=dict)
    bodies: Mapping[int, Walked] = field(default_factory=dict)

    def copy(self) -> Sections:
        return Sections(self.brokers.copy(), self.bodies)


@dataclass(slots=True)
class Section:
    """A walk through a part of a world."""

    world: World
    now_ms: int  # on the clock of whom it is about
    broker_id: int = 0  # whose sequence numbers these are
    requests: list[object] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    before: Mapping[int, Walked] = field(default_factory=dict)
    bodies: dict[int, Walked] = field(default_factory=dict)

    def walk(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        how = _HOW.get(kind)
        if how is None:
            how = _HOW[kind] = _how(kind)
        return how(self, value)


How = Callable[[Section, Any], Any]


def name_of(world: World, spent: tuple[int, ...], known: Sections) -> bytes:
    """The name of a state, with what has been spent of the bounds. Brings `known` up to date."""
    rest = Section(world, world.now_us // 1_000, before=known.bodies)
    tree = (tuple(spent), rest.walk(world))
    known.bodies = rest.bodies
    sections = [_broker(world, node, known) for node in world.nodes.values()]
    sections.append(Walked(tree, rest.requests, rest.writes))
    writes = [number for section in sections for number in section.writes]
    ranks = {number: rank for rank, number in enumerate(sorted(set(writes)))}
    first: dict[object, int] = {}
    whole: Any = (
        tuple(section.tree for section in sections),
        tuple(ranks[number] for number in writes),
        tuple(first.setdefault(n, len(first)) for section in sections for n in section.requests),
    )
    return blake2b(marshal.dumps(whole, MARSHAL), digest_size=DIGEST_BYTES).digest()


def _broker(world: World, node: BrokerNode, known: Sections) -> Walked:
    broker, disk, now_ms = node.process, node.disk, node.now_ms()
    before = known.brokers.get(node.broker_id)
    if before and before.broker is broker and before.disk is disk and before.now_ms == now_ms:
        return before.walked
    section = Section(world, now_ms, node.broker_id)
    tree = (section.walk(disk), section.walk(broker))
    walked = Walked(tree, section.requests, section.writes)
    known.brokers[node.broker_id] = Known(broker, disk, now_ms, walked)
    return walked


# --- numbers that are given in order, and ages ---------------------------------------------------


def request(section: Section, number: Any) -> Any:
    """Of a request: only which are the same counts."""
    if type(number) is not int:
        return section.walk(number)
    section.requests.append(number)
    return 0


def sequence(section: Section, number: Any) -> Any:
    """Of what a broker asks others: its own count."""
    if type(number) is not int:
        return section.walk(number)
    section.requests.append((section.broker_id, number))
    return 0


def names(section: Section, given: tuple[str, ...]) -> int:
    """Of sequential znodes."""
    section.requests.extend(given)
    return len(given)


def write(section: Section, number: int | None) -> int | None:
    """The coordination service's number of a write: which came first counts. None, or below 0:
    a broker that has not registered yet, or whose epoch nobody knows."""
    if number is None or number < 0:
        return number
    section.writes.append(number)
    return 0


def age_ms(section: Section, at_ms: int | None) -> int | None:
    return at_ms if at_ms is None or at_ms == NEVER_MS else section.now_ms - at_ms


def _since_ms(section: Section, at_ms: int) -> int:
    """Below 0: it has not begun."""
    return at_ms if at_ms < 0 else section.now_ms - at_ms


def age_us(section: Section, at_us: int | None) -> int | None:
    return at_us if at_us is None else section.world.now_us - at_us


# --- what has an order or a context of its own ---------------------------------------------------


def _parked(section: Section, watchers: Mapping[Any, tuple[int, ...]]) -> Any:
    """What waits in a purgatory, in the order in which it came. One that is not there any more is
    not looked for."""
    delayed = section.world.nodes[section.broker_id].core.delayed
    watched = tuple(
        (section.walk(tp), tuple(request(section, r) for r in requests if r in delayed))
        for tp, requests in watchers.items()
    )
    in_order = dict.fromkeys((*(r for requests in watchers.values() for r in requests), *delayed))
    parked = ((request(section, r), section.walk(delayed[r])) for r in in_order if r in delayed)
    return watched, tuple(parked)


def _messages(section: Section, messages: Iterable[Entry]) -> Any:
    """Link by link. In which order what is on different links was sent is left out: the search
    itself chooses whose message arrives first."""
    walked = []
    for entry in sorted(messages, key=lambda e: (e.link or (), e.sequence)):
        body = section.before.get(entry.sequence) or _body(section, entry)
        section.bodies[entry.sequence] = body
        section.requests += body.requests
        section.writes += body.writes
        due_us = max(0, entry.due_us - section.world.now_us)
        walked.append((tuple(entry.link or ()), due_us, body.tree))
    return tuple(walked)


def _body(section: Section, entry: Entry) -> Walked:
    """Its sequence numbers are those of who receives it."""
    apart = Section(section.world, section.now_ms, entry.link.target if entry.link else 0)
    return Walked(apart.walk(entry.body), apart.requests, apart.writes)


def _own(section: Section, entries: Iterable[Entry]) -> Any:
    """What nodes have put off, and is still meant, by how long it takes."""
    world, due = section.world, []
    for entry in sorted(entries):
        if _is_meant(world, entry):
            section.broker_id = getattr(entry.body, "broker", 0)
            due.append((entry.due_us - world.now_us, section.walk(entry.body)))
    return tuple(due)


def _is_meant(world: World, entry: Entry) -> bool:
    match entry.body:
        case parts.TimerDue(broker, timer):
            return world.nodes[broker].timers.get(timer) == entry.sequence
        case CallTimedOut() as due:
            return is_under_way(world.network, due)
        case parts.RequestTimedOut(number):
            return number in world.network.asked
        case parts.SessionTimedOut(broker, silent_since_us):
            return world.coordination.silent_since.get(broker) == silent_since_us
        case parts.RetentionDue(broker, started_us):
            return world.nodes[broker].started_us == started_us
    return True


def _asked(section: Section, asked: Mapping[int, parts.Asked]) -> Any:
    """Followers' requests that wait, broker by broker."""
    walked = []
    for number, one in sorted(asked.items(), key=lambda a: (a[1].broker, a[0])):
        section.broker_id = one.broker
        walked.append((request(section, number), section.walk(one)))
    return tuple(walked)


def _by_broker(section: Section, of_brokers: Mapping[int, Any]) -> Any:
    walked = []
    for broker_id, one in sorted(of_brokers.items()):
        section.broker_id = broker_id
        walked.append((broker_id, section.walk(one)))
    return tuple(walked)


def _calls(section: Section, calls: Mapping[CallKey, parts.Call]) -> Any:
    walked = []
    for key, one in sorted(calls.items()):
        section.broker_id = key.asker
        walked.append((tuple(key), section.walk(one)))
    return tuple(walked)


def _by_link(section: Section, of_links: Mapping[Any, Entry]) -> Any:
    return tuple((tuple(link), _messages(section, (of_links[link],))) for link in sorted(of_links))


def _by_request(section: Section, of_requests: Mapping[int, Any]) -> Any:
    return tuple((request(section, n), section.walk(one)) for n, one in sorted(of_requests.items()))


def _ages_us(section: Section, since: Mapping[int, int]) -> Any:
    return tuple((broker, age_us(section, at_us)) for broker, at_us in sorted(since.items()))


def _of_running(
    look: Callable[[Broker], Iterable[Any]] = lambda broker: (), way: How = Section.walk
) -> How:
    """What the invariants remember of each broker. They look at it when that broker takes a step,
    and forget it when its process starts. Mostly it is what the broker holds still (`look`)."""

    def walk(section: Section, remembered: Mapping[int, Any]) -> Any:
        walked = []
        for broker_id in section.world.network.listening:
            if broker_id in remembered:
                one, section.broker_id = remembered[broker_id], broker_id
                held = look(section.world.nodes[broker_id].core)
                place = next((n for n, other in enumerate(held) if _is_same(one, other)), None)
                left = way(section, one) if place is None else None
                walked.append((broker_id, place, left))
        return tuple(sorted(walked, key=itemgetter(0)))

    return walk


def _is_same(one: Any, other: Any) -> bool:
    """Without looking far: the same object, or a copy of the same dictionary."""
    return one is other or (type(one) is dict and type(other) is dict and one == other)


def _remotes_of(broker: Broker) -> Iterable[Any]:
    roles = (partition.role for partition in broker.partitions.values())
    return [role.remotes if isinstance(role, Leader) else None for role in roles]


# --- the fields of which not all counts ----------------------------------------------------------

_SAME: Final = LeftOut("the same in all states of a search")
_BACK: Final = LeftOut("a node's way back to the others, which are named where they stand")
_ITS_SECTION: Final = LeftOut("has a section of its own")
_OF_STEPS: Final = LeftOut("only conditions of steps look at it; moves have none")

# In every class; what is no number is taken as it is.
NAMED: Final[Mapping[str, How]] = {
    "request": request,
    "sequence": sequence,
    "broker_epoch": write,
    "written_at": write,
}
OF: Final[Mapping[type, Mapping[str, How | LeftOut]]] = {
    # A broker: its process.
    Broker: {
        "rules": _SAME,
        "settings": _SAME,
        "effects": LeftOut("carried out before an event is over"),
        "next_sequence": LeftOut("the next of its sequence numbers"),
        "delayed": LeftOut("said with its watchers"),
        "watchers": _parked,
    },
    BrokerRegistration: {"epoch": write},
    RemoteReplica: {"last_fetch_time_ms": age_ms, "last_caught_up_time_ms": age_ms},
    IsrChanges: {"last_change_ms": age_ms, "last_propagation_ms": age_ms},
    Delayed: {"until_ms": age_ms},
    ProducerStateEntry: {"seen_ms": age_ms},
    TransactionMetadata: {"started_ms": _since_ms},
    coordination_service.IsrChangeNotified: {"names": names},
    coordination_service.DeleteIsrChangeNotifications: {"names": names},
    coordination_service.LogDirEventNotified: {"names": names},
    coordination_service.DeleteLogDirEventNotifications: {"names": names},
    # The nodes, and the network between them.
    World: {"spec": _SAME, "partition": _SAME, "nodes": _by_broker},
    BrokerNode: {
        "network": _BACK,
        "process": _ITS_SECTION,
        "disk": _ITS_SECTION,
        "timers": LeftOut("said with what is due"),
        "started_us": age_us,
        "_shares_process": LeftOut("who else holds it decides who copies it"),
        "_shares_disk": LeftOut("who else holds it decides who copies it"),
    },
    Network: {
        "spec": _SAME,
        "partition": _SAME,
        "recorder": LeftOut("looks on; a search has none"),
        "now_us": LeftOut("all else says how long ago it was"),
        "sequence": LeftOut("the next of the numbers given in order"),
        "messages": _messages,
        "waiting": _messages,
        "abandoned": _messages,
        "own": _own,
        "asked": _asked,
        "calls": _calls,
        "unanswered": _by_link,
        "held_by": _by_request,
    },
    Hold: {"where": LeftOut("the same in all rules of its name")},
    Shown: {"rounds": _OF_STEPS},
    parts.FetchPosition: {"round": _OF_STEPS, "at_us": _OF_STEPS},
    parts.Asked: {"sent_us": age_us},
    parts.Call: {"number": request, "sent_us": age_us},
    parts.RequestTimedOut: {"number": request},
    parts.SessionTimedOut: {"silent_since_us": age_us},
    parts.RetentionDue: {"started_us": age_us},
    CallTimedOut: {"number": request},
    CoordinationNode: {"network": _BACK, "silent_since": _ages_us},
    Service: {
        "_transactions": LeftOut("the number of the last write"),
        "_sequence": LeftOut("the number of the last notification"),
        "isr_changes": _OF_STEPS,
        "notifications": lambda section, noted: (
            names(section, tuple(noted)),
            section.walk(tuple(noted.values())),
        ),
    },
    ClientNode: {
        "network": _BACK,
        "brokers": _BACK,
        "options": _SAME,
        "in_flight": _by_request,
        "asking_too": _by_request,
    },
    Send: {"invoked_us": age_us},
    Outcome: {"completed_us": age_us},
    Read: {"invoked_us": age_us},
    GroupOperation: {"invoked_us": age_us, "completed_us": age_us},
    # What the invariants remember decides what breaks one later.
    Watch: {"allowed": _SAME},
    Memory: {
        "brokers": _of_running(),
        "registered": _of_running(way=write),
        "high_watermarks": _of_running(),
        "parked": _of_running(lambda broker: [broker.delayed]),
        "asked_in": _of_running(),
        "remotes": _of_running(_remotes_of),
        "controllers": _of_running(lambda broker: [broker.active_controller]),
    },
}

# --- values --------------------------------------------------------------------------------------

_PLAIN: Final = frozenset({int, str, bool, type(None), bytes})


def _tuple(section: Section, value: Iterable[Any]) -> Any:
    return tuple([one if type(one) in _PLAIN else section.walk(one) for one in value])


def _mapping(section: Section, value: Mapping[Any, Any]) -> Any:
    return tuple(
        [
            (key if type(key) in _PLAIN else section.walk(key), section.walk(one))
            for key, one in value.items()
        ]
    )


def _set(section: Section, value: AbstractSet[Any]) -> Any:
    if len(value) < 2:
        return _tuple(section, value)
    return tuple(sorted([section.walk(one) for one in value], key=repr))


def _value(_section: Section, one: Enum) -> Any:
    return one.value


_HOW: dict[type, How] = {
    tuple: _tuple,
    list: _tuple,
    dict: _mapping,
    set: _set,
    frozenset: _set,
    TopicPartition: lambda _section, one: tuple(one),
}
_TAGS: dict[int, type] = {}


def fields_of(kind: type) -> tuple[str, ...]:
    """All fields of a class whose values make up a world."""
    if is_dataclass(kind):
        return tuple(one.name for one in fields(kind))
    if issubclass(kind, tuple):
        return tuple(getattr(kind, "_fields", ()))
    return tuple(name for one in kind.__mro__ for name in getattr(one, "__slots__", ()))


def way_of(kind: type, name: str) -> How | LeftOut:
    """How a field of a class counts."""
    return OF.get(kind, {}).get(name) or NAMED.get(name) or Section.walk


def _how(kind: type) -> How:
    """How values of this type are walked: found out once."""
    if issubclass(kind, Enum):
        return _value
    if issubclass(kind, Mapping):
        return _mapping
    if not is_dataclass(kind) and not hasattr(kind, "_fields") and not hasattr(kind, "__slots__"):
        raise TypeError(f"no rule says how a {kind.__qualname__} counts in a state's name")
    tag = crc32(f"{kind.__module__}.{kind.__qualname__}".encode())
    assert _TAGS.setdefault(tag, kind) is kind, f"two classes have one tag: {kind}"
    ways = [(name, way_of(kind, name)) for name in fields_of(kind)]
    as_they_are = [name for name, way in ways if way is Section.walk]
    others = [
        (name, way)
        for name, way in ways
        if way is not Section.walk and not isinstance(way, LeftOut)
    ]
    get = _getter(as_they_are)

    def walk(section: Section, one: Any) -> Any:
        held = [value if type(value) in _PLAIN else section.walk(value) for value in get(one)]
        for name, way in others:
            held.append(way(section, getattr(one, name)))
        return (tag, *held)

    return walk


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple([getattr(one, name) for name in names])
