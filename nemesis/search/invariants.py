"""What must be so after every event of a world: named invariants, each a sentence and a look.

Not a judge of how a run ends (see judge): an invariant is broken at the very event that breaks it,
also where nobody would notice for a long time. Rule: the names and the meaning of the two ISR
properties are those of the TLA+ models of Kafka's replication (docs/simulation.md); the first
partition of the topic is looked at. Off unless a watch is set on the world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from clusters.broker.replication import effects as do
from clusters.broker.replication.broker import Broker
from clusters.broker.replication.errors import IllegalReplicaStateError
from clusters.broker.replication.generation import Truncation
from clusters.broker.replication.model import NO_LEADER
from clusters.broker.replication.partition import Leader, Partition
from clusters.simulation.world import World, WorldSpec
from nemesis.search import promises

# What the core raises where it is led where no rule leads: a find of its own.
CORE_ERRORS: Final = (IllegalReplicaStateError, AssertionError, LookupError, ValueError)
CORE_RAISES: Final = "core-raises"
RECOVERS: Final = "recovers"
_RESPONSES: Final = (
    do.RespondProduce,
    do.RespondFetch,
    do.RespondOffsetForLeaderEpoch,
    do.RespondListOffsets,
)


class BrokenError(Exception):
    """An invariant does not hold: which, and what was seen."""

    def __init__(self, name: str, evidence: str) -> None:
        super().__init__(f"{name}: {evidence}")
        self.name = name


class Record(NamedTuple):
    epoch: int
    value: object


Committed = Mapping[int, Record]  # by offset


class Epochs(NamedTuple):
    leader: int
    controller: int


NO_EPOCHS: Final = Epochs(-1, -1)


@dataclass(slots=True)
class Memory:
    """What was so before the event: values only, replaced and never changed in place."""

    leaders: Mapping[int, int] = field(default_factory=dict)  # leader epoch → who leads in it
    brokers: Mapping[int, Epochs] = field(default_factory=dict)  # of those that run
    service: Epochs = NO_EPOCHS
    high_watermarks: Mapping[int, int] = field(default_factory=dict)  # of those that run
    committed: Committed = field(default_factory=dict)
    parked: Mapping[int, frozenset[int]] = field(default_factory=dict)
    written: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # ISRs, by their version


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a broker: what it was told, what it did, and its partition, if it has it."""

    world: World
    memory: Memory
    broker_id: int
    broker: Broker
    partition: Partition | None
    event: object
    effects: tuple[do.Effect, ...]


OfStep = Callable[[Step], str | None]
OfService = Callable[[World, Memory], str | None]


@dataclass(frozen=True, slots=True)
class Invariant:
    """`of_step` is asked after a broker's step, `of_service` after one of the service.

    Each answers with what it saw, where the invariant is broken.
    """

    name: str
    sentence: str
    of_step: OfStep | None = None
    of_service: OfService | None = None


# --- logs ----------------------------------------------------------------------------------------


def records_of(world: World, broker_id: int) -> dict[int, Record]:
    """What a broker's disk holds of the partition, by offset."""
    log = world.disks[broker_id].logs.get(world.partition)
    if log is None:
        return {}
    return {offset: Record(epoch, value) for offset, epoch, value in log.values()}


def _differs(
    world: World, broker_id: int, committed: Committed, end_offset: int
) -> tuple[int, Record | None] | None:
    """The first committed offset where a broker's log has something else, or nothing."""
    log = world.disks[broker_id].logs.get(world.partition)
    start_offset = log.start_offset if log else 0
    held = records_of(world, broker_id)
    for offset, record in committed.items():
        if start_offset <= offset < end_offset and held.get(offset) != record:
            return offset, held.get(offset)
    return None


def _moves_log(step: Step) -> bool:
    return any(
        isinstance(
            effect,
            do.AppendToLog | do.TruncateLog | do.TruncateFullyAndStartAt | do.AdvanceLogStartOffset,
        )
        for effect in step.effects
    )


# --- of a broker's step --------------------------------------------------------------------------


def _single_leader(step: Step) -> str | None:
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    other = step.memory.leaders.get(partition.leader_epoch, step.broker_id)
    if other == step.broker_id:
        return None
    return f"{other} and {step.broker_id} lead in epoch {partition.leader_epoch}"


def _epochs_of(step: Step) -> Epochs:
    leader_epoch = step.partition.leader_epoch if step.partition else -1
    return Epochs(leader_epoch, step.broker.controller_epoch)


def _monotonic_leader_epoch(step: Step) -> str | None:
    before, now = step.memory.brokers.get(step.broker_id, NO_EPOCHS), _epochs_of(step)
    if now.leader >= before.leader:
        return None
    return f"broker {step.broker_id} went back from epoch {before.leader} to {now.leader}"


def _monotonic_controller_epoch(step: Step) -> str | None:
    before, now = step.memory.brokers.get(step.broker_id, NO_EPOCHS), _epochs_of(step)
    if now.controller >= before.controller:
        return None
    return f"broker {step.broker_id} went back from epoch {before.controller} to {now.controller}"


def _monotonic_high_watermark(step: Step) -> str | None:
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    before = step.memory.high_watermarks.get(step.broker_id, 0)
    if partition.high_watermark >= before:
        return None
    return f"leader {step.broker_id}'s went back from {before} to {partition.high_watermark}"


def _high_watermark_in_log(step: Step) -> str | None:
    partition = step.partition
    if partition is None or 0 <= partition.high_watermark <= partition.log.end_offset:
        return None
    end_offset = partition.log.end_offset
    return f"broker {step.broker_id} has HW {partition.high_watermark}, LEO {end_offset}"


def _log_start_below_high_watermark(step: Step) -> str | None:
    partition = step.partition
    if partition is None or partition.log.start_offset <= partition.high_watermark:
        return None
    start_offset = partition.log.start_offset
    return f"broker {step.broker_id} starts at {start_offset}, HW {partition.high_watermark}"


def _leader_in_isr(step: Step) -> str | None:
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    if step.broker_id in partition.role.isr.isr:
        return None
    return f"leader {step.broker_id} is not in its ISR {partition.role.isr.isr}"


def _weak_isr(step: Step) -> str | None:
    """Every one of the ISR in which this leader believes has what lies below its HW."""
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    own = records_of(step.world, step.broker_id)
    for member in partition.role.isr.isr:
        found = _differs(step.world, member, own, partition.high_watermark)
        if found is not None:
            return f"leader {step.broker_id} has committed offset {found[0]}; {member} has not"
    return None


def _strong_isr(step: Step) -> str | None:
    if not _moves_log(step) and not _has_committed(step):
        return None
    return _strong_isr_of_service(step.world, _with_committed(step))


def _has_committed(step: Step) -> bool:
    partition = step.partition
    return (
        partition is not None
        and isinstance(partition.role, Leader)
        and partition.high_watermark > step.memory.high_watermarks.get(step.broker_id, 0)
    )


def _core_and_disk_agree(step: Step) -> str | None:
    partition = step.partition
    if partition is None:
        return None
    log = step.world.disks[step.broker_id].logs.get(step.world.partition)
    if log is None:
        return f"broker {step.broker_id} has the partition, and no log of it"
    held, on_disk = partition.log, (log.start_offset, log.end_offset, log.epochs)
    if (held.start_offset, held.end_offset, held.epochs) == on_disk:
        return None
    return f"broker {step.broker_id} believes in {held}, its disk has {on_disk}"


def _parked_is_watched(step: Step) -> str | None:
    watched = {request for requests in step.broker.watchers.values() for request in requests}
    if watched == set(step.broker.delayed):
        return None
    odd = sorted(watched ^ set(step.broker.delayed))
    return f"broker {step.broker_id}: nobody wakes, or somebody would wake, {odd}"


def _answered_once(step: Step) -> str | None:
    """Only what was parked, or has just come, may be answered; not again, and not parked still."""
    asked = {getattr(step.event, "request", None)}
    open_requests = asked | step.memory.parked.get(step.broker_id, frozenset())
    answered = [effect.request for effect in step.effects if isinstance(effect, _RESPONSES)]
    for request in answered:
        if request not in open_requests or answered.count(request) > 1:
            return f"broker {step.broker_id} answers {request}, for which nobody waits"
        if request in step.broker.delayed:
            return f"broker {step.broker_id} answers {request} and keeps it waiting"
    return None


# --- of the service ------------------------------------------------------------------------------


def _service_epochs(world: World) -> Epochs:
    state = world.service.states.get(world.partition)
    return Epochs(state.leader_epoch, state.controller_epoch) if state else NO_EPOCHS


def _monotonic_leader_epoch_of_service(world: World, memory: Memory) -> str | None:
    now = _service_epochs(world).leader
    return None if now >= memory.service.leader else f"the state went back to leader epoch {now}"


def _monotonic_controller_epoch_of_service(world: World, memory: Memory) -> str | None:
    now = _service_epochs(world).controller
    if now >= memory.service.controller:
        return None
    return f"the state went back to controller epoch {now}"


def _leader_in_isr_of_service(world: World, memory: Memory) -> str | None:
    state = world.service.states.get(world.partition)
    if state is None or state.leader == NO_LEADER or state.leader in state.isr:
        return None
    return f"the state has leader {state.leader} and ISR {state.isr}"


def _strong_isr_of_service(world: World, memory: Memory) -> str | None:
    state = world.service.states.get(world.partition)
    if state is None or not memory.committed:
        return None
    end_offset = max(memory.committed) + 1
    for member in state.isr:
        found = _differs(world, member, memory.committed, end_offset)
        if found is not None:
            offset, held = found
            return (
                f"offset {offset} is committed as {memory.committed[offset].value};"
                f" {member} of the ISR has {held.value if held else 'nothing'} there"
            )
    return None


INVARIANTS: Final = (
    Invariant(
        "single-leader-per-epoch",
        "In a leader epoch there is one leader at most.",
        _single_leader,
    ),
    Invariant(
        "monotonic-leader-epoch",
        "The leader epoch never goes back, neither on a broker that runs nor in the service.",
        _monotonic_leader_epoch,
        _monotonic_leader_epoch_of_service,
    ),
    Invariant(
        "monotonic-controller-epoch",
        "The controller epoch never goes back, neither on a broker that runs nor in the service.",
        _monotonic_controller_epoch,
        _monotonic_controller_epoch_of_service,
    ),
    Invariant(
        "monotonic-high-watermark",
        "A leader's high watermark never goes back, nor does it when a follower takes the lead.",
        _monotonic_high_watermark,
    ),
    Invariant(
        "high-watermark-in-log",
        "A high watermark is not negative, and not past the log end offset.",
        _high_watermark_in_log,
    ),
    Invariant(
        "log-start-below-high-watermark",
        "A log does not start above the high watermark.",
        _log_start_below_high_watermark,
    ),
    Invariant(
        "leader-in-isr",
        "The ISR contains the leader.",
        _leader_in_isr,
        _leader_in_isr_of_service,
    ),
    Invariant(
        "weak-isr",
        "What a leader believes to be committed is on all of the ISR in which it believes.",
        _weak_isr,
    ),
    Invariant(
        "strong-isr",
        "What any leader ever told to be committed is the same on all of the service's ISR.",
        _strong_isr,
        _strong_isr_of_service,
    ),
    Invariant(
        "acked-is-committed",
        "What is acknowledged to acks=all lies below the high watermark.",
        promises.acked_is_committed,
    ),
    Invariant(
        "reads-below-high-watermark",
        "A consumer is sent nothing that is not below the high watermark.",
        promises.reads_below_high_watermark,
    ),
    Invariant(
        "high-watermark-waits",
        "The high watermark moves only where all have got that may be in the ISR.",
        promises.high_watermark_waits,
    ),
    Invariant(
        "isr-as-written",
        "An ISR in which a leader believes as written was written, with that version.",
        promises.isr_as_written,
    ),
    Invariant(
        "core-and-disk-agree",
        "What the core believes of its log (start, end, epochs) is what the disk holds.",
        _core_and_disk_agree,
    ),
    Invariant(
        "parked-is-watched",
        "Every parked request is watched by a partition, and none is watched that is not parked.",
        _parked_is_watched,
    ),
    Invariant(
        "answered-once",
        "A request is answered once, while somebody waits for the answer.",
        _answered_once,
    ),
)
SENTENCES: Final[Mapping[str, str]] = {
    **{one.name: one.sentence for one in INVARIANTS},
    CORE_RAISES: "The core never comes to where its own rules forbid to be.",
    RECOVERS: "Once all is healed, every replica is level and in the ISR, and all can be read.",
}

# --- what a generation is known to break ---------------------------------------------------------

_ISR_PROPERTIES: Final = frozenset({"weak-isr", "strong-isr"})


def allowed_to_break(spec: WorldSpec, *, loses_pages: bool) -> frozenset[str]:
    """What breaks by design here: what a search for mistakes must not be held up by.

    Where page caches are lost or unclean leaders elected, committed records go. Before KIP-320
    nobody names the epoch in which a request is meant.
    """
    unclean = spec.settings.unclean_leader_election_enable
    rules = spec.rules
    truncates_blindly = rules.truncation is Truncation.TO_HIGH_WATERMARK
    if unclean or loses_pages or truncates_blindly or not rules.fences_leader_epochs:
        return _ISR_PROPERTIES
    return frozenset()


# --- the watch -----------------------------------------------------------------------------------


class Watch:
    """Asks the invariants after every event; raises BrokenError for those that may not break."""

    __slots__ = ("allowed", "memory")

    def __init__(self, allowed: frozenset[str] = frozenset()) -> None:
        self.allowed = allowed
        self.memory = Memory()

    def copy(self) -> Watch:
        other = Watch(self.allowed)
        memory = self.memory
        other.memory = Memory(
            memory.leaders,
            memory.brokers,
            memory.service,
            memory.high_watermarks,
            memory.committed,
            memory.parked,
            memory.written,
        )
        return other

    def begin(self, world: World) -> None:
        """Remembers a world that is going on already."""
        for broker_id, broker in world.brokers.items():
            partition = broker.partitions.get(world.partition)
            step = Step(world, self.memory, broker_id, broker, partition, None, ())
            self.memory = _remember(step)
        self.memory.service = _service_epochs(world)
        self._note_written(world)

    def _note_written(self, world: World) -> None:
        state = world.service.states.get(world.partition)
        if state is not None and state.version not in self.memory.written:
            self.memory.written = {**self.memory.written, state.version: state.isr}

    def started(self, world: World, broker_id: int) -> None:
        """A new process knows no epoch, and nobody waits for it.

        Where all brokers died together, the last leader leads on in its old epoch, from the high
        watermark that it last checkpointed: so a leader is a process here.
        """
        memory = self.memory
        memory.brokers = {b: e for b, e in memory.brokers.items() if b != broker_id}
        memory.parked = {b: p for b, p in memory.parked.items() if b != broker_id}
        memory.high_watermarks = {
            b: mark for b, mark in memory.high_watermarks.items() if b != broker_id
        }

    def told(
        self, world: World, broker_id: int, event: object, effects: tuple[do.Effect, ...]
    ) -> None:
        broker = world.brokers[broker_id]
        partition = broker.partitions.get(world.partition)
        step = Step(world, self.memory, broker_id, broker, partition, event, effects)
        for invariant in self._asked():
            seen = invariant.of_step(step) if invariant.of_step else None
            if seen is not None:
                raise BrokenError(invariant.name, seen)
        self.memory = _remember(step)

    def served(self, world: World) -> None:
        for invariant in self._asked():
            seen = invariant.of_service(world, self.memory) if invariant.of_service else None
            if seen is not None:
                raise BrokenError(invariant.name, seen)
        self.memory.service = _service_epochs(world)
        self._note_written(world)

    def _asked(self) -> Iterator[Invariant]:
        return (one for one in INVARIANTS if one.name not in self.allowed)


def _remember(step: Step) -> Memory:
    memory, partition = _with_committed(step), step.partition
    memory.brokers = {**memory.brokers, step.broker_id: _epochs_of(step)}
    memory.parked = {**memory.parked, step.broker_id: frozenset(step.broker.delayed)}
    if partition is not None and isinstance(partition.role, Leader):
        memory.leaders = {**memory.leaders, partition.leader_epoch: step.broker_id}
    if partition is not None:
        marks = {**memory.high_watermarks, step.broker_id: partition.high_watermark}
        memory.high_watermarks = marks
    return memory


def _with_committed(step: Step) -> Memory:
    """With what this step's leader has committed that nobody had before."""
    memory, partition = step.memory, step.partition
    committed = memory.committed
    if partition is not None and isinstance(partition.role, Leader):
        first = max(committed, default=-1) + 1
        if partition.high_watermark > first:
            held = records_of(step.world, step.broker_id)
            new = {o: r for o, r in held.items() if first <= o < partition.high_watermark}
            committed = {**committed, **new}
    return Memory(
        memory.leaders,
        memory.brokers,
        memory.service,
        memory.high_watermarks,
        committed,
        memory.parked,
        memory.written,
    )
