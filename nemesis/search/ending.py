"""How every run in the simulation ends: heal, wait until the replicas are level, read to the end.

The same ending as a live run's (neaptide.harness.live.ending), in virtual time.
"""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation import committing, faults, producing, transactional
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.looking import all_partitions, deleted_before, looking_at
from neaptide.nemesis.search.observed import WorldObserved, assigned, is_reassigning

LEVEL_WITHIN_US = 60_000_000
# No world that comes to be level takes a tenth of it: each generation was searched for one. A world
# whose brokers ask each other for ever does not get there.
LEVEL_WITHIN_EVENTS = 5_000
READ_WITHIN_US = 120_000_000


@dataclass(frozen=True, slots=True)
class Ended:
    """`final`: what a last read to the end found, (offset, value); None: it did not get there, or
    no answer says where a group goes on.

    What lies before `start_offset` was deleted by retention: it cannot be lost. `deleted_before`:
    the same of the broker that has deleted most, which may be another than who leads at the end.
    """

    level: bool
    final: tuple[tuple[int, str], ...] | None
    end_offset: int | None
    start_offset: int = 0
    deleted_before: int = 0
    others: tuple[Ended, ...] = ()  # of the topic's other partitions, in their order


def heal_all(world: World) -> None:
    """Lets go of all that is held, resumes and restarts what is down, undoes every cut."""
    for name in tuple(world.network.holds):
        faults.release(world, name)
    for broker_id in sorted(world.network.paused):
        faults.resume(world, broker_id)
    faults.heal(world)
    for broker_id in world.spec.brokers:
        if broker_id not in world.brokers:
            faults.restart(world, broker_id)


def converge(world: World) -> bool:
    """Whether every replica comes into the ISR, all are level, and no reassignment goes on, in
    time; then the same where the partitions have the replicas again with which they began."""
    return _is_soon_level(world) and (not _reassign_back(world) or _is_soon_level(world))


def _reassign_back(world: World) -> bool:
    """Whether any replica was reassigned."""
    wanted = {
        one: world.spec.configuration.assignment[one.partition] for one in all_partitions(world)
    }
    moved = {one: target for one, target in wanted.items() if assigned(world, one) != target}
    if moved:
        world.network.notify(world.service.reassign(moved))
    return bool(moved)


def _is_soon_level(world: World) -> bool:
    deadline_us = world.now_us + LEVEL_WITHIN_US
    for _ in range(LEVEL_WITHIN_EVENTS):
        if _is_level(world):
            return True
        if not world.advance(deadline_us):
            break
    return _is_level(world)


def _is_level(world: World) -> bool:
    """Where the followers are is what their last rounds showed: at the leader's end, not before.

    Of other partitions than the first it is what they are.
    """
    if is_reassigning(world) or world.service.elections is not None:
        return False
    state = world.service.states.get(world.partition)
    if state is None or state.leader not in world.brokers or world.clients.unsettled:
        return False
    observed = WorldObserved(world)
    log_end = observed.log_end_offset_on_disk(state.leader) or 0
    led = world.brokers[state.leader].led(world.partition)
    if led is None or led.high_watermark != log_end:
        return False  # what was elected a moment ago does not know yet what is committed
    in_sync = len(state.isr) == len(assigned(world, world.partition))
    return in_sync and observed.settled_at(log_end) and observed.others_settled(in_sync=True)


def read_to_end(world: World, partition: int = 0) -> tuple[tuple[int, str], ...] | None:
    """A consumer reads all that is committed of a partition."""
    clients = world.clients
    done = clients.reads_done
    producing.consume(world.clients, partition, "final")
    deadline_us = world.now_us + READ_WITHIN_US
    while clients.reads_done == done:
        if not world.advance(deadline_us):
            return None
    return clients.found


def ask_groups(world: World) -> bool:
    """Asks where each group that has committed goes on; whether all was answered."""
    deadline_us = world.now_us + READ_WITHIN_US
    for group, partition in committed_groups(world):
        committing.ask_position(world.clients, group, partition, "final")
        while world.clients.asking is not None:
            if not world.advance(deadline_us):
                committing.give_up(world.clients)
                return False
    return True


def committed_groups(world: World) -> list[tuple[str, int]]:
    """(group, partition) of all that was ever acknowledged."""
    return sorted(world.clients.committed)


def end_transactions(world: World) -> None:
    """The producers end, and each transactional id has another one, which aborts what is open."""
    clients = world.clients
    ids = dict.fromkeys(one.transactional_id for one in clients.transactional.values())
    for name in tuple(clients.transactional):
        transactional.die(clients, name)
    for number, transactional_id in enumerate(ids):
        transactional.open_producer(clients, f"last {number}", transactional_id)


def end(world: World) -> Ended:
    heal_all(world)
    end_transactions(world)
    level = converge(world)
    final = read_to_end(world)
    end_offset = world.clients.read_end
    others = tuple(_end_of(world, partition, level) for partition in all_partitions(world)[1:])
    if not ask_groups(world) or final is None:
        return Ended(level, None, None, others=others)
    deleted = world.deleted_before(world.partition)
    return Ended(level, final, end_offset, _start_offset(world), deleted, others)


def _end_of(world: World, partition: TopicPartition, level: bool) -> Ended:
    final = read_to_end(world, partition.partition)
    if final is None:
        return Ended(level, None, None)
    with looking_at(world, partition):
        deleted = world.deleted_before(partition)
        return Ended(level, final, world.clients.read_end, _start_offset(world), deleted)


def _start_offset(world: World) -> int:
    """Before it, retention has deleted: no belief in the leader's log start alone."""
    return deleted_before(world, world.service.states[world.partition].leader)


def log_of(world: World, broker_id: int) -> list[tuple[int, int, object]]:
    """(offset, leader epoch, value) of all that a broker's disk holds of the partition."""
    log = world.disks[broker_id].logs.get(
        TopicPartition(world.spec.topic, world.partition.partition)
    )
    return log.values() if log else []
