"""What a search may do next to a world: the verbs of schedules, drawn by chance.

A hold is aimed: the step that is to come is tried on a copy of the world, and one of the messages
that passed between brokers is chosen to be held when it comes: one of replicas (`hold`), or one of
the controller (`control`). So every move is a step that a scenario file can say, on any system.
Which faults may be drawn, and how often, is a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal

from neaptide.clusters.broker.replication.group.committed_offsets import (
    OFFSETS_TOPIC,
    partition_for,
)
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TRANSACTIONS_TOPIC,
)
from neaptide.clusters.simulation.asking import newest_leader
from neaptide.clusters.simulation.network import (
    ALTER,
    CONTROL,
    FETCH,
    MARKERS,
    VERIFICATION,
)
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.gate.model import CLIENT, COORDINATION
from neaptide.nemesis.player import MissedError
from neaptide.nemesis.search.invariants import CORE_ERRORS
from neaptide.nemesis.search.looking import all_partitions
from neaptide.nemesis.search.observed import assigned
from neaptide.nemesis.search.passed import Passed, Trace, conditions_of, ends_of
from neaptide.nemesis.search.perform import Performer
from neaptide.nemesis.search.rest import rest
from neaptide.nemesis.search.spared import is_safe_without, is_torn_one_trusted, loses_by_design
from neaptide.nemesis.search.targets import COMMITS, DEPOSE, LATE, REPLICAS_MIN, TRANSACT

GROUP: Final = "g"
TRANSACTIONAL_IDS: Final = ("x", "x", "y")  # mostly the same: then producers are fenced
LATE_RULE: Final = "late"
POWER_OFFS_MAX: Final = 1  # losing every page cache at once loses records everywhere


@dataclass(frozen=True, slots=True)
class Drawing:
    """What the moves are drawn with. `weights`: how often each fault, by its name."""

    names: Mapping[str, int]  # of brokers
    acks: tuple[str, ...]
    weights: Mapping[str, float]
    held: tuple[str, ...]  # the channels of which messages are held
    spares: bool = False  # a power failure takes no last copy

    @property
    def hold_probability(self) -> float:
        return HOLD_PROBABILITY if self.held else 0.0


def draw_moves(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> tuple[steps.Step, ...]:
    """One step, perhaps with a hold before it. Empty: what was drawn cannot be done now."""
    kinds = tuple(drawing.weights)
    kind = rng.choices(kinds, tuple(drawing.weights.values()))[0]
    several = _SEVERAL.get(kind)
    if several is not None:
        moves = several(rng, world, so_far, drawing)
        is_held = kind == TRANSACT and len(moves) == 1 and rng.random() < drawing.hold_probability
        hold = _aim(rng, world, so_far, moves[0], drawing) if is_held else None
        return moves if hold is None else (hold, *moves)
    step = _DRAWS[kind](rng, world, so_far, drawing)
    if step is None or (drawing.spares and loses_by_design(step, world, so_far, drawing.names)):
        return ()
    if kind == "zombie":
        return (step, steps.Await())
    if not _is_aimed(step) or rng.random() >= drawing.hold_probability:
        return (step,)
    hold = _aim(rng, world, so_far, step, drawing)
    return (step,) if hold is None else (hold, step)


_AIMED: Final = (
    steps.Produce,
    steps.Kill,
    steps.Stop,
    steps.Restart,
    steps.Resume,
    steps.PowerOff,
    steps.Heal,
    steps.Reassign,
    steps.Elect,
    steps.MoveController,
)


def _is_aimed(step: steps.Step) -> bool:
    """Whether it makes brokers say something to each other, of which a message may be held."""
    return isinstance(step, _AIMED) or (isinstance(step, steps.Consume) and step.group is not None)


def _aim(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], step: steps.Step, drawing: Drawing
) -> steps.Hold | None:
    """A hold of one of the messages that the step would cause."""
    trial = world.copy()
    # A commit writes to one topic alone: the numbers of the other do not change.
    is_commit = isinstance(step, steps.Consume)
    topic = OFFSETS_TOPIC if is_commit else None
    partition = TopicPartition(OFFSETS_TOPIC, 0) if is_commit else world.partition
    trace = Trace(partition, topic, drawing.held)
    trial.network.recorder = trace
    trial.watch = None
    try:
        Performer(trial, drawing.names).do(step)
        rest(trial)
    except MissedError:
        return None  # a commit that nobody can acknowledge
    except CORE_ERRORS:
        return None  # the step itself will show it
    if not trace.passed:
        return None
    chosen = _choose(rng, trace.passed)
    source, destination = ends_of(chosen, drawing.names)
    count = 1 + sum(isinstance(done, steps.Hold) for done in so_far)
    where = rng.choice(conditions_of(chosen))
    return steps.Hold.of(
        chosen.message,
        chosen.api,
        source,
        destination,
        where,
        topic=chosen.topic if where else None,
        rule=f"hold {count}: {chosen.message} {source}→{destination}",
    )


def _choose(rng: Random, passed: list[Passed]) -> Passed:
    """A controller sends little: where it sends something, that is half of what is chosen. Where a
    leader asks it for another ISR, that is a third."""
    of_changes = [one for one in passed if one.link.channel == ALTER]
    if of_changes and rng.random() < 1 / 3:
        return rng.choice(of_changes)
    of_control = [one for one in passed if one.link.channel == CONTROL]
    of_replicas = [one for one in passed if one.link.channel == FETCH]
    if of_control and of_replicas:
        return rng.choice(of_control if rng.random() < 0.5 else of_replicas)
    return rng.choice(passed)


# --- one draw per kind -------------------------------------------------------------------------


def _produce(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Produce:
    count = 1 + sum(len(step.records) for step in so_far if isinstance(step, steps.Produce))
    acks = rng.choice(drawing.acks)
    numbers = tuple(world.spec.configuration.assignment)
    number = rng.choice(numbers) if len(numbers) > 1 else 0
    return steps.Produce((f"m{count}",), acks, number)  # type: ignore[arg-type]


def _produce_to_stale(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    """A client does not know that another leads: it sends to one who does not know it either."""
    state = world.service.states.get(world.partition)

    def leads_no_more(number: int) -> bool:
        broker = world.brokers.get(number)
        is_leading = broker is not None and broker.led(world.partition) is not None
        return is_leading and (state is None or state.leader != number)

    believed = _brokers(drawing, world, leads_no_more)
    step = _produce(rng, world, so_far, drawing)
    return replace(step, to=rng.choice(believed)) if believed else None


def _brokers(drawing: Drawing, world: World, is_meant: Callable[[int], bool]) -> list[str]:
    return [name for name, number in drawing.names.items() if is_meant(number)]


def _kill(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    """Half of the time the leader: what its death decides is what replication is about."""
    state = world.service.states.get(world.partition)
    live = _brokers(drawing, world, lambda number: number in world.brokers)
    live = _spared(live, world, drawing, last_copies=is_torn_one_trusted(world, so_far))
    if not live:
        return None
    leading = [name for name in live if state and drawing.names[name] == state.leader]
    chosen = leading if leading and rng.random() < 0.5 else live
    return steps.Kill(rng.choice(chosen), "discarded")


def _power_off(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    live = _brokers(drawing, world, lambda number: number in world.brokers)
    live = _spared(live, world, drawing, last_copies=True)
    done = sum(isinstance(step, steps.PowerOff) for step in so_far)
    if not live or done >= POWER_OFFS_MAX:
        return None
    known = sorted(name for name, at in world.clients.acked.items() if at is not None)
    survives = rng.choice([None, *known])
    return steps.PowerOff(rng.choice(live), survives)


def _spared(live: list[str], world: World, drawing: Drawing, *, last_copies: bool) -> list[str]:
    """Beside `control` no power failure takes the last copy, nor does a death after one: what is
    lost is to be the controller's doing. The controller lives: which broker is the next one is a
    race between real brokers."""
    if CONTROL not in drawing.held and not drawing.spares:
        return live
    others = live
    if CONTROL in drawing.held:
        others = [name for name in live if drawing.names[name] != world.service.controller]
    if not last_copies:
        return others
    seen = drawing.spares
    return [name for name in others if is_safe_without(world, drawing.names[name], seen=seen)]


def _stop(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    """A clean shutdown: whoever comes back from it has all that it had. But who is stopped last is
    not there when a member of the ISR comes back without its log."""
    running = _brokers(
        drawing, world, lambda n: n in world.brokers and n not in world.network.paused
    )
    running = _spared(running, world, drawing, last_copies=is_torn_one_trusted(world, so_far))
    return steps.Stop(rng.choice(running)) if running else None


def _restart(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    dead = _brokers(drawing, world, lambda number: number not in world.brokers)
    return steps.Restart(rng.choice(dead)) if dead else None


def _pause(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    running = _brokers(
        drawing, world, lambda n: n in world.brokers and n not in world.network.paused
    )
    return steps.Pause(rng.choice(running)) if running else None


def _resume(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    paused = _brokers(drawing, world, lambda number: number in world.network.paused)
    return steps.Resume(rng.choice(paused)) if paused else None


def _cut(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    names = list(drawing.names)
    source = rng.choice(names)
    if rng.random() < 0.3:
        return steps.Cut(source, COORDINATION, "coordination", both=True)
    target = rng.choice([name for name in names if name != source])
    return steps.Cut(source, target, "replication", both=rng.random() < 0.5)


def _zombie(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    """One lives on, and goes on fetching or leading, when its session is over."""
    known = _brokers(
        drawing, world, lambda n: n in world.brokers and n not in world.coordination.silent_since
    )
    if len(known) < 2:
        return None
    return steps.Cut(rng.choice(known), COORDINATION, "coordination", both=True)


def _blind(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    """The controller does not learn who dies or comes back; what it sent is still on its way."""
    seen = world.service.controller
    active = _brokers(
        drawing, world, lambda n: n == seen and n not in world.coordination.silent_since
    )
    return steps.Cut(active[0], COORDINATION, "coordination", both=True) if active else None


def _bounce(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> tuple[steps.Step, ...]:
    """Whom a held ISR change is to let in loses its power, and comes back without what it had: its
    fetches are held, so that it does not catch up."""
    if any(isinstance(step, steps.PowerOff) for step in so_far):
        return ()
    state = world.service.states.get(world.partition)
    isr = () if state is None else state.isr
    asked = [
        e.body for e in world.network.waiting if isinstance(e.body, events.AlterPartitionRequested)
    ]
    joining = {
        member.broker_id: body.broker_id
        for body in asked
        for change in body.partitions
        for member in change.isr
        if member.broker_id not in isr and member.broker_id in world.brokers
    }
    names = [name for name, number in drawing.names.items() if number in joining]
    names = _spared(names, world, drawing, last_copies=True)
    if not names:
        return ()
    name = rng.choice(names)
    by_number = {number: each for each, number in drawing.names.items()}
    leader = by_number[joining[drawing.names[name]]]
    count = 1 + sum(isinstance(done, steps.Hold) for done in so_far)
    rule = f"hold {count}: request {name}→{leader}"
    hold = steps.Hold(name, leader, request="fetch", rule=rule)
    return hold, steps.PowerOff(name), steps.Restart(name)


def _heal(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    return steps.Heal() if world.network.cuts else None


def _release(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    return steps.Release(rng.choice(sorted(world.network.holds))) if world.network.holds else None


def _consume(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    """What a consumer has seen must stay. It reads to its end at once, so somebody must lead."""
    numbers = tuple(world.spec.configuration.assignment)
    number = rng.choice(numbers) if len(numbers) > 1 else 0
    state = world.service.states.get(world.partition._replace(partition=number))
    can_be_read = state is not None and state.leader in world.brokers
    return steps.Consume(number) if can_be_read and world.clients.sends else None


def _commit(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    """A group reads on and commits: somebody must lead, and there must be something to read."""
    offsets = world.spec.offsets
    if offsets is None or _consume(rng, world, so_far, drawing) is None:
        return None
    groups_partition = partition_for(GROUP, len(offsets.assignment))
    state = world.service.states.get(groups_partition)
    acked = [offset for offset in world.clients.acked.values() if offset is not None]
    committed = world.clients.committed.get((GROUP, world.partition.partition), 0)
    if state is None or state.leader not in world.brokers or max(acked, default=-1) < committed:
        return None
    return steps.Consume(world.partition.partition, GROUP)


def _wait(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    """Until who has fallen behind has left the ISR: only where there is something to wait for."""
    is_due = world.spec.retention_check_ms is not None
    return (
        steps.Await()
        if is_due or world.network.holds or world.network.cuts or world.network.paused
        else None
    )


def _cut_client(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    """Requests or answers of clients do not pass; mostly those of a leader."""
    leading = {state.leader for state in world.service.states.values()}
    live = _brokers(drawing, world, lambda number: number in world.brokers)
    chosen = [name for name in live if drawing.names[name] in leading] or live
    if not chosen:
        return None
    ends = (CLIENT, rng.choice(chosen))
    source, destination = ends if rng.random() < 0.3 else ends[::-1]
    return steps.Cut(source, destination, "client", both=rng.random() < 0.3)


# --- what operators do ---------------------------------------------------------------------------


def _reassign(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    """One replica moves to a broker that has none, or goes; the order changes; or all is as it was.

    Two are left at least, and all of them live: else some generations refuse it.
    """
    if world.service.reassignments:
        return None
    partition = rng.choice(all_partitions(world))
    now = assigned(world, partition)
    first = world.spec.configuration.assignment[partition.partition]
    live = set(world.brokers) & world.service.sessions.keys()
    free = sorted(live - set(now))
    leaves = rng.choice(now)
    targets = [now[1:] + now[:1], first]
    if free:
        comes = rng.choice(free)
        targets += [tuple(comes if one == leaves else one for one in now)] * 2
    if len(now) > REPLICAS_MIN:
        targets.append(tuple(one for one in now if one != leaves))
    possible = [one for one in targets if one != now and set(one) <= live]
    if not possible:
        return None
    by_number = {number: name for name, number in drawing.names.items()}
    target = rng.choice(possible)
    return steps.Reassign(tuple(by_number[one] for one in target), partition.partition)


def _elect(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    """Where the preferred replica does not lead, be it in the ISR or not."""
    if world.service.elections is not None:
        return None
    led = [
        one.partition
        for one in all_partitions(world)
        if one in world.service.states
        and world.service.states[one].leader != assigned(world, one)[0]
    ]
    return steps.Elect(rng.choice(led)) if led else None


def _move_controller(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> steps.Step | None:
    return None if world.service.controller is None else steps.MoveController()


# --- several steps at once ---------------------------------------------------------------------


def _alone(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> tuple[steps.Step, ...]:
    """A leader that no follower reaches, until it is alone in its ISR; or a follower apart."""
    state = world.service.states.get(world.partition)
    leading = _brokers(drawing, world, lambda n: state is not None and n == state.leader)
    following = _brokers(drawing, world, lambda n: n in world.brokers)
    is_leader = rng.random() < 0.5
    apart = [name for name in following if (name in leading) is is_leader]
    if not apart:
        return ()
    name = rng.choice(apart)
    others = (other for other in drawing.names if other != name)
    cuts = tuple(steps.Cut(other, name, "replication", both=True) for other in others)
    return (*cuts, steps.Await()) if is_leader else cuts


def _transact(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> tuple[steps.Step, ...]:
    """A producer begins a transaction, goes on with it, or ends it; or another one comes with its
    transactional id."""
    if not _can_transact(world):
        return ()
    able = [one for one in world.clients.transactional.values() if not one.is_over]
    if not able or rng.random() < 0.15:
        opened = _opened(rng, so_far, "producer")
        return (opened, steps.Begin(opened.name), _send(rng, world, so_far, opened.name))
    one = rng.choice(able)
    if one.transaction is None:
        return (steps.Begin(one.name), _send(rng, world, so_far, one.name))
    ends = (steps.CommitTransaction(one.name), steps.AbortTransaction(one.name))
    if one.error:
        return ends[1:]
    going_on = (_send(rng, world, so_far, one.name), *ends, steps.Die(one.name))
    return tuple(rng.choices(going_on, (3.0, 3.0, 2.0, 0.5)))


def _can_transact(world: World) -> bool:
    """Whether the coordinator lives, and enough replicas for what it writes: else its producers
    wait in vain."""
    topic = world.spec.transactions
    if topic is None:
        return False
    state = world.service.states.get(TopicPartition(TRANSACTIONS_TOPIC, 0))
    able = set(world.brokers) - world.network.paused
    least = int(topic.settings.get("min.insync.replicas", "1"))
    return state is not None and state.leader in able and len(able & set(state.isr)) >= least


def _late(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> tuple[steps.Step, ...]:
    """A write of a transaction that has ended meanwhile arrives after all. Where leaders do not ask
    the coordinator first (KIP-890), only one of a producer that has a successor."""
    by_number = {number: name for name, number in drawing.names.items()}
    able = [one for one in world.clients.transactional.values() if one.written and not one.is_over]
    leader = newest_leader(world.clients, world.partition)
    if leader is None or not _can_transact(world):
        return ()
    if not able:
        opened = _opened(rng, so_far, "raw_producer")
        return (opened, steps.Begin(opened.name), _send(rng, world, so_far, opened.name, 0))
    one = rng.choice(able)
    number = 1 + sum(isinstance(step, steps.Deliver) for step in so_far)
    rule, where = f"{LATE_RULE}{number}", f"transactional_id == {one.transactional_id}"
    hold = steps.Hold.of("request", "produce", CLIENT, by_number[leader], where, rule=rule)
    late = replace(_send(rng, world, so_far, one.name, 0), waits=False)
    if one.is_raw and world.spec.rules.verifies_transactions:
        return (hold, late, steps.AbortTransaction(one.name), steps.Deliver(rule))
    successor = _opened(rng, so_far, "producer", one.transactional_id)
    return (hold, late, steps.Die(one.name), successor, steps.Deliver(rule))


def _opened(
    rng: Random,
    so_far: tuple[steps.Step, ...],
    kind: Literal["producer", "raw_producer"],
    transactional_id: str | None = None,
) -> steps.OpenClient:
    """`transactional_id` None: any."""
    transactional_id = transactional_id or rng.choice(TRANSACTIONAL_IDS)
    count = 1 + sum(isinstance(step, steps.OpenClient) for step in so_far)
    return steps.OpenClient(f"p{count}", kind, transactional_id=transactional_id)


def _send(
    rng: Random,
    world: World,
    so_far: tuple[steps.Step, ...],
    client: str,
    partition: int | None = None,
) -> steps.Send:
    count = 1 + sum(isinstance(step, steps.Send) for step in so_far)
    numbers = tuple(world.spec.configuration.assignment)
    chosen = rng.choice(numbers) if partition is None else partition
    return steps.Send(client, (f"x{count}",), chosen)


def _unplug(
    rng: Random, world: World, so_far: tuple[steps.Step, ...], drawing: Drawing
) -> tuple[steps.Step, ...]:
    """A power failure of a broker that was stopped cleanly: what it flushed then is there."""
    stopped = _brokers(
        drawing, world, lambda n: n not in world.brokers and world.disks[n].was_clean
    )
    return (steps.PowerOff(rng.choice(stopped), None),) if stopped else ()


Draw = Callable[[Random, World, tuple[steps.Step, ...], Drawing], steps.Step | None]
_DRAWS: Final[Mapping[str, Draw]] = {
    "produce": _produce,
    "produce_to_stale": _produce_to_stale,
    "kill": _kill,
    "power_off": _power_off,
    "stop": _stop,
    "restart": _restart,
    "pause": _pause,
    "resume": _resume,
    "cut": _cut,
    "zombie": _zombie,
    "blind": _blind,
    "heal": _heal,
    "release": _release,
    "wait": _wait,
    "consume": _consume,
    "commit": _commit,
    "cut_client": _cut_client,
    "reassign": _reassign,
    "elect": _elect,
    "move_controller": _move_controller,
}
BOUNCE: Final = "bounce"  # a move of `control` where ISRs are changed by the controller
_SEVERAL: Final[
    Mapping[str, Callable[[Random, World, tuple[steps.Step, ...], Drawing], tuple[steps.Step, ...]]]
] = {"alone": _alone, "unplug": _unplug, BOUNCE: _bounce, TRANSACT: _transact, LATE: _late}
# Fault → the moves that it brings, and how often they are drawn.
FAULTS: Final[Mapping[str, Mapping[str, float]]] = {
    "kill": {"kill": 3.0, "restart": 2.0},
    "power_off": {"power_off": 1.0, "restart": 1.0},
    "stop": {"stop": 1.5, "restart": 1.0},
    "pause": {"pause": 0.6, "resume": 0.6},
    "cut": {"cut": 0.6, "heal": 0.6},
    "zombie": {"zombie": 1.0, "heal": 0.3},
    "stale": {"produce_to_stale": 1.0},
    "hold": {"release": 0.5},
    "control": {"blind": 1.0, "release": 1.0},
    "wait": {"wait": 0.3},
    "consume": {"consume": 1.0},
    "client": {"cut_client": 0.6, "heal": 0.6},
    "alone": {"alone": 0.6, "heal": 0.6, "produce": 1.0},
    "unplug": {"stop": 1.5, "unplug": 1.0, "restart": 0.6},
    COMMITS: {"commit": 2.0},
    TRANSACT: {TRANSACT: 5.0},
    LATE: {LATE: 1.0},
    "reassign": {"reassign": 1.5},
    "elect": {"elect": 1.0},
    DEPOSE: {"move_controller": 1.0},
}
HELD: Final[Mapping[str, str]] = {"hold": FETCH, "control": CONTROL}  # of which channel
OF_MARKERS: Final = (MARKERS, VERIFICATION)  # … and where there are transactions
HOLD_PROBABILITY: Final = 0.5
