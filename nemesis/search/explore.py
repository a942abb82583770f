"""One episode of the search: from a cluster at rest, many schedules, each a step longer than one
that was worth keeping.

Kept are worlds that look like none before (coverage), and drawn first those nearest to a loss:
where an acknowledged record has the fewest copies in the ISR, or logs contradict each other. Every
schedule that may have lost something is played to its end on a copy and judged. All chance is one
seed's; nothing else decides.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Final, TypeVar

from neaptide.clusters.broker.replication.generation import FetchOfOthers
from neaptide.clusters.broker.replication.interface.events import AlterPartitionRequested
from neaptide.clusters.broker.replication.model import NO_LEADER, LeaderAndIsr
from neaptide.clusters.broker.replication.partition.partition_rules import Follower, Leader
from neaptide.clusters.simulation.broker_calls import ONE_AT_A_TIME
from neaptide.clusters.simulation.network import ALTER, CONTROL_APIS, FETCH, Hold
from neaptide.clusters.simulation.network_node import CallKey
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.player import MissedError
from neaptide.nemesis.search import commits, transactions
from neaptide.nemesis.search.ending import end
from neaptide.nemesis.search.invariants import (
    CORE_ERRORS,
    CORE_RAISES,
    RECOVERS,
    BrokenError,
    Watch,
    allowed_to_break,
)
from neaptide.nemesis.search.judge import Judged, judge
from neaptide.nemesis.search.looking import deleted_before, each, promised, read
from neaptide.nemesis.search.moves import BOUNCE, FAULTS, HELD, OF_MARKERS, Drawing, draw_moves
from neaptide.nemesis.search.observed import assigned
from neaptide.nemesis.search.perform import Performer
from neaptide.nemesis.search.rest import rest, retention_looks, sessions_end
from neaptide.nemesis.search.targets import BAD, COMMITS, DEPOSE, TRANSACT, Target
from neaptide.nemesis.search.worlds import ready_world

T = TypeVar("T")
DEPTH_MAX: Final = 16
DRAWN_OF_SHELF: Final = 3
LOOK_EVERY: Final = 100  # schedules: whether the time is over
SAMPLE_EVERY: Final = 64  # of the schedules that nothing speaks against
SAMPLE_WATCHED: Final = 8  # … where mistakes are looked for that lose nothing
_ALWAYS: Final = ("kill", COMMITS, TRANSACT, "control")  # faults that no episode leaves out
RETENTION_WEIGHT: Final = 1.5  # of waiting, where retention deletes meanwhile
BROKEN: Final = "broken: "  # an outcome of a watched search: an invariant, by its name


@dataclass(frozen=True, slots=True)
class Found:
    seed: int
    schedule: tuple[steps.Step, ...]
    judged: Judged
    schedules: int  # how many had been tried in this episode by then


@dataclass(slots=True)
class Node:
    world: World
    schedule: tuple[steps.Step, ...]


@dataclass(slots=True)
class Episode:
    """`explore` until something is found or the schedules are used up."""

    target: Target
    seed: int
    schedules: int = 0
    states: set[Hashable] = field(default_factory=set)
    shelves: dict[int, list[Node]] = field(default_factory=dict)  # by danger

    def explore(
        self, schedules_max: int, is_over: Callable[[], bool] = lambda: False
    ) -> Found | None:
        rng = Random(self.seed)
        drawing = _swarm(rng, self.target)
        sample_every = SAMPLE_WATCHED if self.target.watched else SAMPLE_EVERY
        ready = watched_world(self.target)
        if isinstance(ready, Judged):
            return Found(self.seed, (), ready, 0)
        self._keep(ready, ())
        while self.schedules < schedules_max:
            node = self._choose(rng)
            moves = draw_moves(rng, node.world, node.schedule, drawing)
            if not moves:
                continue
            self.schedules += 1
            if self.schedules % LOOK_EVERY == 0 and is_over():
                return None
            world = node.world.copy()
            schedule = node.schedule + moves
            try:
                broken = played(world, self.target.names, moves)
            except MissedError:
                continue
            if broken is not None:
                return Found(self.seed, schedule, broken, self.schedules)
            is_new = self._keep(world, schedule)
            if is_suspect(world) or (is_new and self.schedules % sample_every == 0):
                judged = end_and_judge(world.copy())
                if is_bad(self.target, judged):
                    return Found(self.seed, schedule, judged, self.schedules)
        return None

    def _keep(self, world: World, schedule: tuple[steps.Step, ...]) -> bool:
        state = abstract(world)
        if state in self.states:
            return False
        self.states.add(state)
        if _length(schedule) < DEPTH_MAX:
            self.shelves.setdefault(danger(world), []).append(Node(world, schedule))
        return True

    def _choose(self, rng: Random) -> Node:
        """Each shelf half as often as the one in more danger; of a shelf, shorter ones rather."""
        ordered = sorted(self.shelves)
        chosen = next((copies for copies in ordered if rng.random() < 0.5), ordered[-1])
        shelf = self.shelves[chosen]
        drawn = [shelf[rng.randrange(len(shelf))] for _ in range(DRAWN_OF_SHELF)]
        return min(drawn, key=lambda node: _length(node.schedule))


def _length(schedule: tuple[steps.Step, ...]) -> int:
    """A transaction is as near as a record: that it begins counts nothing."""
    return sum(not isinstance(step, steps.OpenClient | steps.Begin) for step in schedule)


def _swarm(rng: Random, target: Target) -> Drawing:
    """Each episode leaves out some kinds of faults: what is rare in all is common in some.

    Where its seed has drawn them already, none.
    """
    faults = [
        fault for fault in target.faults if target.spares or fault in _ALWAYS or rng.random() < 0.6
    ]
    weights: dict[str, float] = {"produce": 3.0}
    for fault in faults:
        for move, weight in FAULTS[fault].items():
            weights[move] = weights.get(move, 0.0) + weight
    if target.spec.retention_check_ms is not None:
        weights["wait"] = weights.get("wait", 0.0) + RETENTION_WEIGHT
    if target.spec.rules.alters_partitions and {"control", "power_off"} <= set(faults):
        weights[BOUNCE] = 1.0
    held = tuple(HELD[fault] for fault in faults if fault in HELD)
    if target.spec.transactions is not None and FETCH in held:
        held += OF_MARKERS
    return Drawing(target.names, target.acks, weights, held, target.spares)


def play_moves(world: World, names: Mapping[str, int], moves: tuple[steps.Step, ...]) -> None:
    """Holds are set at once; after any other step the world comes to rest."""
    performer = Performer(world, names)
    for step in moves:
        performer.do(step)
        if isinstance(step, steps.Await):
            sessions_end(world)
            rest(world, 2_000 * world.spec.settings.replica_lag_time_max_ms)
            retention_looks(world)
        elif not isinstance(step, steps.Hold):
            rest(world)


def watched_world(target: Target) -> World | Judged:
    """A cluster at rest, under watch where that is asked; or what broke before anything was done.

    What a generation, or losing page caches, may break is not asked.
    """
    try:
        world = ready_world(target.spec)
    except CORE_ERRORS as raised:
        return _broken(CORE_RAISES, _in_words(raised))
    if target.watched:
        loses_pages = "power_off" in target.faults
        deposes = DEPOSE in target.faults
        allowed = allowed_to_break(target.spec, loses_pages=loses_pages, deposes=deposes)
        watch = Watch(frozenset() if target.strict else allowed)
        watch.begin(world)
        world.watch = watch
    return world


def guarded(act: Callable[[], T]) -> tuple[T | None, Judged | None]:
    """Does something under watch: what it came to, or which invariant broke."""
    try:
        return act(), None
    except BrokenError as broken:
        return None, _broken(broken.name, broken.evidence)
    except CORE_ERRORS as raised:
        return None, _broken(CORE_RAISES, _in_words(raised))


def played(world: World, names: Mapping[str, int], moves: tuple[steps.Step, ...]) -> Judged | None:
    """Plays moves; says which invariant broke, if one is asked and did. Raises MissedError.

    That the core raises where its own rules forbid to be is a find of every search.
    """
    return guarded(lambda: play_moves(world, names, moves))[1]


def end_and_judge(world: World) -> Judged:
    ended, broken = guarded(lambda: end(world))
    if ended is None:
        assert broken is not None
        return broken
    judged = judge(world, ended)
    if world.watch is None or judged.outcome in BAD or (ended.level and ended.final is not None):
        return judged
    if _is_held_up_by_a_stranger(world):
        return judged
    state = world.service.states.get(world.partition)
    what = "the replicas are not level" if not ended.level else "nobody could read to the end"
    return _broken(RECOVERS, f"{what}, long after all was healed: {state}")


def _is_held_up_by_a_stranger(world: World) -> bool:
    """Whether a broker fetches what it is no replica of, so that all that it fetches fails
    (KAFKA-5758): it lived when its replica was taken away, and does not know that."""
    return world.spec.rules.fetch_of_others is FetchOfOthers.ALL_FAILS and any(
        isinstance(held.role, Follower) and broker_id not in assigned(world, partition)
        for broker_id, broker in world.brokers.items()
        for partition, held in broker.partitions.items()
    )


def _broken(invariant: str, evidence: str) -> Judged:
    return Judged(f"{BROKEN}{invariant}", ((invariant, 1),), evidence)


def _in_words(raised: Exception) -> str:
    return f"{type(raised).__name__}: {raised}"


def is_bad(target: Target, judged: Judged) -> bool:
    """By its outcome, by a broken invariant, or by an anomaly that is looked for by its name."""
    return (
        judged.outcome in target.outcomes
        or judged.outcome.startswith(BROKEN)
        or any(name in target.anomalies for name, _ in judged.anomalies)
    )


# --- what is seen of a world without ending it ---------------------------------------------------


def is_suspect(world: World) -> bool:
    """An acknowledged record or commit, or what a consumer has read, is not where its leader has
    its log, or two replicas contradict each other."""
    if commits.is_lost(world) or transactions.is_lost(world):
        return True
    return any(_is_suspect_here(one) for one in each(world))


def _is_suspect_here(world: World) -> bool:
    state = world.service.states.get(world.partition)
    if state is None:
        return False
    if state.leader == NO_LEADER:
        return _nobody_has_all(world, state)
    held = _contents(world, state.leader)
    if world.spec.producer.idempotence and _is_out_of_sequence(world, held):
        return True
    start_offset = deleted_before(world, state.leader)
    if any(held.get(at) != value and at >= start_offset for at, value in read(world)):
        return True
    for value, offset in promised(world).items():
        if offset is None:
            if value not in held.values():
                return True
        elif held.get(offset) != value and offset >= start_offset:
            return True
    return any(
        held.get(offset, value) != value
        for broker_id in state.isr
        if broker_id != state.leader
        for offset, value in _contents(world, broker_id).items()
    )


def _nobody_has_all(world: World, state: LeaderAndIsr) -> bool:
    """Whether every member of the ISR, of whom one is to lead, lacks something acknowledged."""
    acked = set(promised(world))
    logs = (set(_contents(world, member).values()) for member in state.isr)
    return bool(acked) and not any(acked <= log for log in logs)


def _is_out_of_sequence(world: World, held: Mapping[int, object]) -> bool:
    """A record is there twice, or before one that was sent before it."""
    numbers = {value: send.number for value, (send, _) in world.clients.sends.items()}
    found = [numbers[str(held[offset])] for offset in sorted(held) if held[offset] in numbers]
    return any(later <= earlier for earlier, later in pairwise(found))


def _contents(world: World, broker_id: int) -> dict[int, object]:
    log = world.disks[broker_id].logs.get(world.partition)
    return {} if log is None else {offset: value for offset, _, value in log.values()}


def danger(world: World) -> int:
    """That of the partition that is nearest to a loss."""
    return min(_danger_here(one) for one in each(world)) - transactions.nearer(world)


def _danger_here(world: World) -> int:
    """How near to a loss: in how many logs of ISR members the worst off of the acknowledged
    records (or commits) is; two less where two logs hold different records at one offset, one less
    where one that lives holds what its leader lacks, where a follower does not know of its epoch,
    and where an order of a controller that sees nothing is held; see also `_by_isr_change`."""
    state = world.service.states.get(world.partition)
    logs = {broker_id: _contents(world, broker_id) for broker_id in world.spec.brokers}
    contradicts = any(len(set(values)) > 1 for values in _by_offset(logs.values()).values())
    if state is None:
        return len(logs) + 1 - contradicts
    nearer = 2 * contradicts + _is_stray(world, logs, state.leader) + _is_stale(world, state)
    nearer += _is_on_its_way(world) + _by_isr_change(world, state, logs)
    of_commits = commits.copies(world)
    acked = promised(world)
    if not acked:
        return len(logs) + 1 - nearer
    members = [set(logs[broker_id].values()) for broker_id in state.isr]
    copies = min(sum(value in log for log in members) for value in acked)
    return (copies if of_commits is None else min(copies, of_commits)) - nearer


def _is_stray(world: World, logs: Mapping[int, dict[int, object]], leader: int) -> bool:
    """Whether one that lives holds a record that the leader, who lives too, has not."""
    if leader not in world.brokers:
        return False
    led = logs[leader]
    return any(not logs[broker_id].keys() <= led.keys() for broker_id in world.brokers)


def _is_stale(world: World, state: LeaderAndIsr) -> bool:
    """Whether one that lives follows in an earlier epoch, and is not paused."""
    for broker_id, broker in world.brokers.items():
        partition = broker.partitions.get(world.partition)
        if partition is None or broker_id in world.network.paused:
            continue
        if partition.leader_epoch < state.leader_epoch and isinstance(partition.role, Follower):
            return True
    return False


def _is_on_its_way(world: World) -> bool:
    """Whether what a controller sent is held, and it cannot know what became of its receiver."""
    return any(
        rule.api in CONTROL_APIS.values() and rule.source in world.coordination.silent_since
        for rule in world.network.holds.values()
    )


def _by_isr_change(world: World, state: LeaderAndIsr, logs: Mapping[int, dict[int, object]]) -> int:
    """Where the controller changes ISRs: two nearer if such a change is held, four if somebody who
    is to join has been away since, or is in the ISR without what was acknowledged."""
    if not world.spec.rules.alters_partitions:
        return 0
    asked = [e.body for e in world.network.waiting if isinstance(e.body, AlterPartitionRequested)]
    held = [body for body in asked if _alteration(body) in world.network.calls]
    is_outdated = any(
        (world.nodes[member.broker_id].started_us or 0)
        > world.network.calls[_alteration(body)].sent_us
        for body in held
        for change in body.partitions
        for member in change.isr
    )
    live = (set(logs[member].values()) for member in state.isr if member in world.brokers)
    is_torn = any(not world.clients.acked.keys() <= values for values in live)
    return 4 if is_outdated or is_torn else 2 * bool(held)


def _alteration(body: AlterPartitionRequested) -> CallKey:
    return CallKey(ALTER, body.broker_id, ONE_AT_A_TIME)


def _by_offset(logs: Iterable[Mapping[int, object]]) -> dict[int, list[object]]:
    held: dict[int, list[object]] = {}
    for log in logs:
        for offset, value in log.items():
            held.setdefault(offset, []).append(value)
    return held


def abstract(world: World) -> Hashable:
    """What two worlds have in common that are not worth a distinction."""
    others = tuple(_here(one) for one in each(world) if one.partition.partition)
    return (
        _here(world),
        others,
        min(len(world.clients.sends) - len(world.clients.acked), 2),
        frozenset(_rule(hold) for hold in world.network.holds.values()),
        world.network.cuts,
        world.network.paused,
        world.service.controller,
        _asked_for(world),
        commits.abstract(world),
        transactions.abstract(world),
    )


def _asked_for(world: World) -> Hashable:
    """By operators, and not over yet."""
    service = world.service
    return service.elections, frozenset(service.reassignments.items())


def _here(world: World) -> Hashable:
    state = world.service.states.get(world.partition)
    end = max((o + 1 for o in promised(world).values() if o is not None), default=0)
    replicas = tuple(
        _replica(world, broker_id, end) for broker_id in assigned(world, world.partition)
    )
    return (
        replicas,
        assigned(world, world.partition),
        (state.leader, state.isr) if state else None,
        min(end, 3),
    )


def _rule(hold: Hold) -> Hashable:
    rule = (hold.source, hold.target, hold.message, hold.topic)
    return (*rule, hold.api) if hold.api in CONTROL_APIS.values() else rule


def _replica(world: World, broker_id: int, end: int) -> Hashable:
    """Up or down, its role, and where its log and its high watermark are, from the last ack."""
    disk = world.disks[broker_id]
    log = disk.logs.get(world.partition)
    log_end = (log.end_offset if log else 0) - end
    broker = world.brokers.get(broker_id)
    partition = broker.partitions.get(world.partition) if broker else None
    if partition is None:
        return (broker is None, log_end, disk.high_watermarks.get(world.partition, 0) - end)
    role = partition.role
    match role:
        case Leader():
            what: Hashable = ("leader", role.isr.isr)
        case Follower(leader):
            what = ("follower", leader)
        case _:
            what = "unassigned"
    epochs = min(len(partition.log.epochs), 3)
    return (log_end, partition.high_watermark - end, what, epochs)
