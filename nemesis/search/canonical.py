"""One name for all worlds that will behave the same: what makes a state differ from another.

Left out is what no rule looks at: when something was (only how long ago counts), and which numbers
requests, sessions and writes have (only which are the same, and which came first). What is kept is
kept as it is: two worlds that differ here may still be alike, two that it takes for one are.
A broker that a move did not touch is not looked at again.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.model import BrokerRegistration
from neaptide.clusters.broker.replication.partition.remote_replica import NEVER_MS
from neaptide.clusters.simulation.altering import AlterationTimedOut
from neaptide.clusters.simulation.disk import Disk
from neaptide.clusters.simulation.parts import TimerDue
from neaptide.clusters.simulation.stopping import ShutdownTimedOut
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.invariants import Watch

MARSHAL: Final = 2  # the last format that does not depend on who else holds a value
DIGEST_BYTES: Final = 16
_REQUESTS: Final = frozenset({"request", "number"})
_WRITES: Final = frozenset({"broker_epoch", "written_at"})  # the service's numbers
_AGES: Final = frozenset(
    {
        "last_fetch_time_ms",
        "last_caught_up_time_ms",
        "last_change_ms",
        "last_propagation_ms",
        "until_ms",
    }
)
# The same in all states of one search, or said elsewhere.
_LEFT_OUT: Final = frozenset(
    {
        "rules",
        "settings",
        "effects",
        "next_sequence",
        "delayed",
        "watchers",
        "endpoints",
        "replicas",
        "assigned",
    }
)


@dataclass(slots=True)
class Section:
    """A part of a world: its tree, with 0 for every number, and the numbers in their order."""

    now_ms: int
    broker_id: int = 0  # whose sequence numbers these are
    requests: list[object] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    tree: Any = ()

    def walk(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        how = _HOW.get(kind)
        if how is None:
            how = _HOW[kind] = _how(value)
        return how(self, value)

    def request(self, number: object) -> int:
        self.requests.append(number)
        return 0

    def sequence(self, number: int) -> int:
        self.requests.append((self.broker_id, number))
        return 0

    def write(self, number: int | None) -> int | None:
        """None: that of a broker that has not registered yet."""
        if number is None:
            return None
        self.writes.append(number)
        return 0

    def age(self, at_ms: int | None) -> int | None:
        return None if at_ms is None or at_ms == NEVER_MS else self.now_ms - at_ms


class Known(NamedTuple):
    """A broker's section, and what it was made of: the same objects mean the same section."""

    broker: Broker | None
    disk: Disk
    section: Section


Sections = dict[int, Known]


def name_of(world: World, spent: tuple[int, ...], known: Sections) -> bytes:
    """The name of a state, with what has been spent of the bounds. Brings `known` up to date."""
    now_ms = world.now_us // 1_000
    parts = [_broker_section(world, broker_id, known, now_ms) for broker_id in world.spec.brokers]
    rest = Section(now_ms)
    rest.tree = (
        tuple(spent),
        _service(rest, world),
        _links(rest, world),
        _due(rest, world),
        _clients(rest, world),
        _watched(world),
        tuple(sorted(world.coordination.expired)),
        tuple(sorted(world.coordination.silent_since)),
    )
    parts.append(rest)
    writes = [number for part in parts for number in part.writes]
    ranks = {number: rank for rank, number in enumerate(sorted(set(writes)))}
    first: dict[object, int] = {}
    whole: Any = (
        tuple(part.tree for part in parts),
        tuple(ranks[number] for number in writes),
        tuple(first.setdefault(n, len(first)) for part in parts for n in part.requests),
    )
    return blake2b(marshal.dumps(whole, MARSHAL), digest_size=DIGEST_BYTES).digest()


# --- the parts of a world ------------------------------------------------------------------------


def _broker_section(world: World, broker_id: int, known: Sections, now_ms: int) -> Section:
    broker, disk = world.brokers.get(broker_id), world.disks[broker_id]
    before = known.get(broker_id)
    if (
        before is not None
        and before.broker is broker
        and before.disk is disk
        and before.section.now_ms == now_ms
    ):
        return before.section
    section = Section(now_ms, broker_id)
    logs = tuple(section.walk(log) for log in disk.logs.values())
    on_disk = (logs, tuple(disk.high_watermarks.values()), disk.was_clean)
    live = () if broker is None else (_parked(section, broker), section.walk(broker))
    section.tree = (on_disk, live)
    known[broker_id] = Known(broker, disk, section)
    return section


def _parked(section: Section, broker: Broker) -> object:
    """In the order in which they came."""
    order = dict.fromkeys(r for requests in broker.watchers.values() for r in requests)
    return tuple(section.walk(broker.delayed[r]) for r in order if r in broker.delayed)


def _service(section: Section, world: World) -> object:
    service = world.service
    return (
        section.walk(service.sessions),
        service.controller,
        service.controller_epoch,
        section.walk(service.states),
        section.walk(tuple(service.notifications.values())),
        section.walk(service.topics),
        section.walk(service.reassignments),
        section.walk(service.elections),
        section.walk(service.watched),
        section.walk(service.assignment_writes),
    )


def _links(section: Section, world: World) -> object:
    """Who waits for which answer, then what is on its way, in order, link by link."""
    asked = []
    in_order = sorted(
        world.network.asked.items(), key=lambda a: (a[1].broker, a[1].effect.sequence)
    )
    for number, one in in_order:
        section.broker_id = one.broker
        section.request(number)
        asked.append((one.broker, one.leader, section.walk(one.effect)))
    on_their_way = []
    for entry in sorted(
        (*world.network.messages, *world.network.waiting), key=lambda e: (e.link or (), e[1])
    ):
        section.broker_id = entry.link.target if entry.link else 0
        on_their_way.append((tuple(entry.link or ()), section.walk(entry.body)))
    altering = []
    for broker_id, waiting in sorted(world.network.altering.items()):
        section.broker_id = broker_id
        section.request(waiting.number)
        section.sequence(waiting.sequence)
        altering.append((broker_id, waiting.controller))
    stopping = []
    for broker_id, waiting in sorted(world.network.stopping.items()):
        section.broker_id = broker_id
        section.request(waiting.number)
        section.sequence(waiting.sequence)
        stopping.append((broker_id, waiting.controller))
    return (tuple(asked), tuple(altering), tuple(stopping), tuple(on_their_way))


def _due(section: Section, world: World) -> object:
    """Timers that are still meant, and other things of nodes' own, by how long they take."""
    due = []
    for entry in sorted(world.network.own):
        body = entry.body
        if isinstance(body, TimerDue):
            if world.nodes[body.broker].timers.get(body.timer) != entry.sequence:
                continue
            section.broker_id = body.broker
        if isinstance(body, AlterationTimedOut):
            waiting = world.network.altering.get(body.broker)
            if waiting is None or waiting.number != body.number:
                continue
        if isinstance(body, ShutdownTimedOut):
            waiting = world.network.stopping.get(body.broker)
            if waiting is None or waiting.number != body.number:
                continue
        due.append((entry.due_us - world.now_us, section.walk(body)))
    return tuple(due)


def _clients(section: Section, world: World) -> object:
    clients = world.clients
    in_flight = sorted(
        (sends[0].value, broker, number) for number, (broker, sends) in clients.in_flight.items()
    )
    for _, _, number in in_flight:
        section.request(number)
    return (
        tuple(sorted(clients.acked.items())),
        tuple(send.value for send in clients.waiting),
        tuple((value, broker) for value, broker, _ in in_flight),
        tuple(sorted(clients.leaders.values())),
        tuple(sorted((value, end.kind) for value, (_, end) in clients.sends.items())),
        clients.is_retrying,
        tuple(sorted(map(tuple, clients.sequences.values()))),
    )


def _watched(world: World) -> object:
    """What the invariants remember is a part of the state: it decides what breaks one later."""
    watch = world.watch
    if not isinstance(watch, Watch):
        return None
    memory = watch.memory
    return (
        tuple(sorted((o, r.epoch, str(r.value)) for o, r in memory.committed.items())),
        tuple(sorted(memory.leaders.items())),
    )


# --- values --------------------------------------------------------------------------------------

How = Callable[[Section, Any], Any]
_PLAIN: Final = frozenset({int, str, bool, type(None), bytes})
_HOW: dict[type, How] = {
    tuple: lambda section, value: tuple(section.walk(one) for one in value),
    list: lambda section, value: tuple(section.walk(one) for one in value),
    dict: lambda section, value: tuple(
        (section.walk(key), section.walk(value[key])) for key in sorted(value)
    ),
    frozenset: lambda section, value: tuple(sorted(section.walk(one) for one in value)),
    BrokerRegistration: lambda section, value: (
        value.broker_id,
        section.write(value.epoch),
        value.unclean_shutdown,
    ),
}


def _how(value: Any) -> How:
    """How values of this type are walked: found out once."""
    kind = type(value)
    name = kind.__name__
    if isinstance(value, Enum):
        return lambda section, one: one.value
    if isinstance(value, Mapping):
        return _HOW[dict]
    names = (
        [one.name for one in fields(value)]
        if is_dataclass(value) and not isinstance(value, type)
        else list(getattr(value, "_fields", ()))
    )
    ways = [(one, _way(one)) for one in names if one not in _LEFT_OUT]

    def walk(section: Section, one: Any) -> Any:
        return (name, *[way(section, getattr(one, field_name)) for field_name, way in ways])

    return walk


def _way(name: str) -> How:
    if name in _AGES:
        return Section.age
    if name in _REQUESTS:
        return Section.request
    if name in _WRITES:
        return Section.write
    if name == "sequence":
        return Section.sequence
    return Section.walk
