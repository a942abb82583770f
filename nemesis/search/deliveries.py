"""Searches message by message: what may happen next is that the first message of a link arrives.

Not steps of a scenario file: only the simulation can deliver one message and keep the others up.
Messages take no time here. Time passes only when nothing is on its way: then the next timer may
fire. What passes between a client and a broker arrives at once, for what is not acknowledged proves
nothing; so do other channels, where the target says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple, assert_never

from neaptide.clusters.simulation import faults, producing, transactional
from neaptide.clusters.simulation.clients import TransactionalProducer
from neaptide.clusters.simulation.network import SERVICE, Link
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.gate.model import COORDINATION
from neaptide.nemesis.minimise import fewer, minimise
from neaptide.nemesis.search.canonical import Sections, name_of
from neaptide.nemesis.search.explore import (
    end_and_judge,
    guarded,
    is_bad,
    is_suspect,
    watched_world,
)
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.observed import assigned
from neaptide.nemesis.search.perform import ACKS
from neaptide.nemesis.search.targets import DEPOSE, REPLICAS_MIN, Target


class Deliver(NamedTuple):
    link: Link


class Produce(NamedTuple):
    record: str


class Kill(NamedTuple):
    broker: int


class Stop(NamedTuple):
    """A clean shutdown; counted as a kill is."""

    broker: int


class PowerOff(NamedTuple):
    """A kill after which all that was not flushed is gone; counted as a kill is."""

    broker: int


class Read(NamedTuple):
    """A consumer begins to read a partition from its start."""

    partition: int


class Restart(NamedTuple):
    broker: int


class Expire(NamedTuple):
    """A session ends; its broker does not know it."""

    broker: int


class Register(NamedTuple):
    """A broker learns that its session is over, and has a new one."""

    broker: int


class Reassign(NamedTuple):
    """An operator asks for other replicas of the first partition."""

    replicas: tuple[int, ...]


class Elect(NamedTuple):
    """An operator asks for the preferred leader of the first partition."""


class Depose(NamedTuple):
    """An operator deletes `/controller`: whose it was keeps its session."""


class Open(NamedTuple):
    """A producer with the transactional id begins; one that had it before is fenced."""

    client: str


class Send(NamedTuple):
    """A producer sends a record in a transaction, which may begin with it."""

    client: str
    record: str
    begins: bool


class End(NamedTuple):
    """A producer asks for the end of its transaction."""

    client: str
    commits: bool


class Fire(NamedTuple):
    """The next timer, and time goes there."""


OfOperators = Reassign | Elect | Depose
OfTransactions = Open | Send | End
Move = (
    Deliver
    | Produce
    | Kill
    | Stop
    | PowerOff
    | Read
    | Restart
    | Expire
    | Register
    | OfOperators
    | OfTransactions
    | Fire
)
Path = tuple[Move, ...]


class Counts(NamedTuple):
    """How many of each there may be, or have been."""

    produces: int = 0
    kills: int = 0
    restarts: int = 0
    timers: int = 0
    expiries: int = 0  # of sessions
    reads: int = 0
    operations: int = 0  # what operators ask for
    transactions: int = 0  # what producers of transactions do


NOTHING: Final = Counts()
TRANSACTIONAL_ID: Final = "x"
PRODUCERS_MAX: Final = 2
_COUNTED: Final = {
    Produce: "produces",
    Kill: "kills",
    Stop: "kills",
    PowerOff: "kills",
    Read: "reads",
    Restart: "restarts",
    Fire: "timers",
    Expire: "expiries",
    Reassign: "operations",
    Elect: "operations",
    Depose: "operations",
    Open: "transactions",
    Send: "transactions",
    End: "transactions",
}


@dataclass(slots=True)
class State:
    world: World
    spent: Counts = NOTHING
    sections: Sections = field(default_factory=Sections)  # as far as they were named

    def name(self) -> bytes:
        return name_of(self.world, self.spent, self.sections)


def first_state(target: Target) -> State | Judged:
    """A cluster at rest, where messages take no time from now on."""
    world = watched_world(replace(target, spec=replace(target.spec, latency_us=0)))
    return world if isinstance(world, Judged) else State(world)


def moves(state: State, target: Target, bounds: Counts) -> Iterator[Move]:
    """Deliveries first; in an order that depends on the state alone."""
    world, spent = state.world, state.spent
    heads = world.heads()
    yield from (Deliver(link) for link in heads)
    if spent.kills < bounds.kills:
        for death in deaths(target):
            yield from map(death, may_be(death, world))
    if spent.restarts < bounds.restarts:
        yield from map(Restart, may_be(Restart, world))
    if spent.expiries < bounds.expiries:
        yield from map(Expire, may_be(Expire, world))
    yield from map(Register, may_be(Register, world))
    if spent.produces < bounds.produces:
        yield Produce(f"m{spent.produces + 1}")
    if spent.reads < bounds.reads and world.clients.reading is None:
        yield from map(Read, world.spec.configuration.assignment)
    if spent.operations < bounds.operations:
        yield from operations(world, target)
    if spent.transactions < bounds.transactions:
        yield from transactions(state)
    if not heads and spent.timers < bounds.timers:
        yield Fire()


def do(state: State, move: Move, target: Target) -> bool:
    """Changes the state; False where the move cannot be done in it."""
    is_done = _do_now(state.world, move, target)
    if is_done:
        _deliver_at_once(state.world, target)
        counted = _COUNTED.get(type(move))
        if counted is not None:
            state.spent = state.spent._replace(**{counted: getattr(state.spent, counted) + 1})
    return is_done


def _do_now(world: World, move: Move, target: Target) -> bool:
    match move:
        case Reassign() | Elect() | Depose():
            if move not in operations(world, target):
                return False
            _operate(world, move)
        case Deliver(link):
            entry = world.heads().get(link)
            if entry is None:
                return False
            world.take(entry)
        case (
            Kill(broker)
            | Stop(broker)
            | PowerOff(broker)
            | Restart(broker)
            | Expire(broker)
            | Register(broker)
        ):
            if broker not in may_be(type(move), world):
                return False
            _FAULTS[type(move)](world, broker)
        case Produce(record):
            acks, number = acks_of(record, target), partition_of(record, target)
            producing.produce(world.clients, record, ACKS[acks], number)
        case Read(partition):
            if world.clients.reading is not None:
                return False
            producing.consume(world.clients, partition, "main")
        case Open() | Send() | End():
            return _transact(world, move)
        case Fire():
            return not world.heads() and world.advance()
    return True


def _number(record: str) -> int:
    return int(record.removeprefix("m"))


def partition_of(record: str, target: Target) -> int:
    """In turn, where there are several."""
    return (_number(record) - 1) % len(target.spec.configuration.assignment)


def deaths(target: Target) -> tuple[type[Kill | Stop | PowerOff], ...]:
    """How brokers may die here, by the faults that were named; a kill where none is.

    Where last copies are spared no power fails: message by message nobody looks after them.
    """
    named: dict[str, type[Kill | Stop | PowerOff]] = {
        "kill": Kill,
        "stop": Stop,
        "power_off": PowerOff,
    }
    if target.spares:
        del named["power_off"]
    return tuple(named[fault] for fault in named if fault in target.faults) or (Kill,)


def operations(world: World, target: Target) -> list[OfOperators]:
    """What operators can ask for now, by the faults that were named."""
    found: list[OfOperators] = []
    now, first = assigned(world, world.partition), world.spec.configuration.assignment
    live = set(world.brokers) & world.service.sessions.keys()
    if "reassign" in target.faults and not world.service.reassignments:
        free = sorted(live - set(now))
        wanted = [now[1:] + now[:1], first[world.partition.partition]]
        wanted += [now[1:]] if len(now) > REPLICAS_MIN else []
        wanted += [(*now[1:], free[0])] if free else []
        targets = dict.fromkeys(one for one in wanted if one != now and set(one) <= live)
        found += map(Reassign, targets)
    if "elect" in target.faults and world.service.elections is None:
        found.append(Elect())
    if DEPOSE in target.faults and world.service.controller is not None:
        found.append(Depose())
    return found


def transactions(state: State) -> list[OfTransactions]:
    """What producers of transactions can do now, each one thing at a time. There are two at most
    that live, with one transactional id."""
    clients = state.world.clients
    if state.world.spec.transactions is None:
        return []
    found: list[OfTransactions] = []
    if _has_room(state.world):
        found.append(Open(f"p{len(clients.transactional) + 1}"))
    for one in _idle(state.world):
        begins = one.transaction is None
        if not one.error:
            found.append(Send(one.name, f"x{state.spent.transactions + 1}", begins))
        if not begins:
            found += [End(one.name, commits) for commits in (True, False)]
    return found


def _has_room(world: World) -> bool:
    able = (one for one in world.clients.transactional.values() if not one.is_over)
    return len(list(able)) < PRODUCERS_MAX


def _idle(world: World) -> list[TransactionalProducer]:
    """Those that can do something, and wait for nothing."""
    producers = world.clients.transactional.values()
    return [one for one in producers if not (one.is_over or one.is_busy or one.asked is not None)]


def _transact(world: World, move: OfTransactions) -> bool:
    """Whatever was left out before it: what it is called does not decide whether it can be done."""
    clients = world.clients
    if isinstance(move, Open):
        can_be_done = _has_room(world) and move.client not in clients.transactional
        if can_be_done:
            transactional.open_producer(clients, move.client, TRANSACTIONAL_ID)
        return can_be_done
    one = next((each for each in _idle(world) if each.name == move.client), None)
    if one is None:
        return False
    match move:
        case Send(client, record, begins):
            if begins is not (one.transaction is None) or one.error:
                return False
            if begins:
                transactional.begin(clients, client)
            transactional.send(clients, client, record)
        case End(client, commits):
            if one.transaction is None:
                return False
            transactional.end(clients, client, commits=commits)
    return True


def _operate(world: World, move: OfOperators) -> None:
    number = world.partition.partition
    match move:
        case Reassign(replicas):
            faults.reassign(world, number, replicas)
        case Elect():
            faults.elect(world, number)
        case Depose():
            faults.depose(world)
        case _:
            assert_never(move)


def acks_of(record: str, target: Target) -> str:
    """In turn, where there are several kinds; the last of them first."""
    return target.acks[-_number(record) % len(target.acks)]


def may_be(fault: type, world: World) -> list[int]:
    """The brokers to which this can be done now, in order."""
    live, registered = set(world.brokers), set(world.service.sessions)
    meant: dict[type, set[int]] = {
        Kill: live,
        Stop: live,
        PowerOff: live,
        Restart: set(world.spec.brokers) - live,
        Expire: live & registered - world.coordination.expired,
        Register: set(world.coordination.expired) - registered,
    }
    return sorted(meant[fault])


_FAULTS: Final[Mapping[type, Callable[[World, int], None]]] = {
    Kill: faults.kill,
    Stop: faults.stop,
    PowerOff: lambda world, broker: _power_off(world, broker),
    Restart: faults.restart,
    Expire: faults.expire,
    Register: faults.register,
}


def _power_off(world: World, broker: int) -> None:
    faults.power_off(world, broker, {})


def _deliver_at_once(world: World, target: Target) -> None:
    """What does not wait arrives in the order in which it was sent."""
    while True:
        heads = world.heads().items()
        ready = [entry for link, entry in heads if link.channel in target.at_once]
        if not ready:
            return
        world.take(min(ready, key=lambda entry: entry.sequence))


def judged_at(state: State, target: Target) -> Judged | None:
    """How a run ends that is healed here, where that is worth the while: at rest, or in danger."""
    world = state.world
    if world.heads() and not is_suspect(world):
        return None
    healed = world.copy()
    for broker in sorted(healed.coordination.expired - set(healed.service.sessions)):
        faults.register(healed, broker)
    judged = end_and_judge(healed)
    return judged if is_bad(target, judged) else None


def try_move(state: State, move: Move, target: Target) -> tuple[State | None, Judged | None]:
    """The state after a move; or None where it cannot be done, and what was broken by it."""
    after = State(state.world.copy(), state.spent, state.sections.copy())
    done, broken = guarded(lambda: do(after, move, target))
    return (after if done else None), broken


def replayed(first: State, path: Path, target: Target) -> Judged | None:
    """What is found on a path, at its end."""
    state: State | None = first
    for number, move in enumerate(path, start=1):
        assert state is not None
        state, broken = try_move(state, move, target)
        if broken is not None:
            return broken if number == len(path) else None
        if state is None:
            return None
    return judged_at(state, target) if state else None


def evidence_of(first: State, path: Path, target: Target) -> str:
    """Of a path to a broken invariant: what was seen at its end."""
    judged = replayed(first, path, target)
    return "" if judged is None else judged.evidence


def shortened(
    first: State, path: Path, target: Target, outcome: str, trials_max: int | None = None
) -> Path:
    """A path to the same outcome from which no move can be taken away, if the trials suffice."""

    def comes_to_it(shorter: Path) -> bool:
        found = replayed(first, shorter, target)
        return found is not None and found.outcome == outcome

    smaller = partial(fewer, overlapping=True)
    return minimise(path, smaller, comes_to_it, plays_max=trials_max).smallest


def steps_of(move: Move, target: Target) -> list[steps.Step]:
    """A delivery is no step, nor is a timer: both come by themselves."""
    names = {number: name for name, number in target.names.items()}
    match move:
        case Produce(record):
            acks = acks_of(record, target)
            number = partition_of(record, target)
            return [steps.Produce((record,), acks, number)]  # type: ignore[arg-type]
        case Kill(broker):
            return [steps.Kill(names[broker], "discarded")]
        case Stop(broker):
            return [steps.Stop(names[broker])]
        case PowerOff(broker):
            return [steps.PowerOff(names[broker], None)]
        case Read(partition):
            return [steps.Consume(partition)]
        case Reassign() | Elect() | Depose():
            return [_step_of_operator(move, names)]
        case Open() | Send() | End():
            return _steps_of_producer(move)
        case Restart(broker):
            return [steps.Restart(names[broker])]
        case Expire(broker):
            cut = steps.Cut(names[broker], COORDINATION, "coordination", both=True)
            return [cut, steps.Await()]
        case Register(broker):
            return [steps.Heal(names[broker], COORDINATION)]
    return []


def _step_of_operator(move: OfOperators, names: Mapping[int, str]) -> steps.Step:
    match move:
        case Reassign(replicas):
            return steps.Reassign(tuple(names[one] for one in replicas))
        case Elect():
            return steps.Elect()
        case Depose():
            return steps.MoveController()


def _steps_of_producer(move: OfTransactions) -> list[steps.Step]:
    match move:
        case Open(client):
            return [steps.OpenClient(client, "producer", transactional_id=TRANSACTIONAL_ID)]
        case Send(client, record, begins):
            begun: list[steps.Step] = [steps.Begin(client)] if begins else []
            return [*begun, steps.Send(client, (record,))]
        case End(client, commits):
            return [steps.CommitTransaction(client) if commits else steps.AbortTransaction(client)]


def words(path: Path, target: Target) -> list[str]:
    """A path in lines that people read; deliveries by their link."""
    names = {number: name for name, number in target.names.items()} | {SERVICE: "service"}

    def line(move: Move) -> str:
        match move:
            case Deliver(link):
                return f"{names[link.source]}→{names[link.target]} ({link.channel}) arrives"
            case Expire(broker):
                return f"the session of {names[broker]} ends"
            case Register(broker):
                return f"{names[broker]} has a new session"
            case Fire():
                return "the next timer fires"
        return steps.in_line(steps_of(move, target))

    return [line(move) for move in path]
