"""Invariants of leadership: who leads, in which epochs, by the word of which controller.

Each looks at one step of a broker, or at the service, and answers with what it saw where it is
broken. Their names and sentences are in the table.
"""

from __future__ import annotations

from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import NO_LEADER
from neaptide.clusters.broker.replication.partition.partition_rules import Leader
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.invariants.seen import NO_EPOCHS, Epochs, Memory, Step


def single_leader(step: Step) -> str | None:
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    other = step.memory.leaders.get(partition.leader_epoch, step.broker_id)
    if other == step.broker_id:
        return None
    return f"{other} and {step.broker_id} lead in epoch {partition.leader_epoch}"


def epochs_of(step: Step) -> Epochs:
    leader_epoch = step.partition.leader_epoch if step.partition else -1
    return Epochs(leader_epoch, step.broker.controller_epoch)


def monotonic_leader_epoch(step: Step) -> str | None:
    """A broker whose replica is deleted knows no epoch any more."""
    before, now = step.memory.brokers.get(step.broker_id, NO_EPOCHS), epochs_of(step)
    if now.leader >= before.leader or step.partition is None:
        return None
    return f"broker {step.broker_id} went back from epoch {before.leader} to {now.leader}"


def monotonic_controller_epoch(step: Step) -> str | None:
    before, now = step.memory.brokers.get(step.broker_id, NO_EPOCHS), epochs_of(step)
    if now.controller >= before.controller:
        return None
    return f"broker {step.broker_id} went back from epoch {before.controller} to {now.controller}"


def leader_in_isr(step: Step) -> str | None:
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    if step.broker_id in partition.role.isr.isr:
        return None
    return f"leader {step.broker_id} is not in its ISR {partition.role.isr.isr}"


def isr_of_replicas(step: Step) -> str | None:
    """Also of those whom a leader has asked to be let in."""
    partition = step.partition
    if partition is None or not isinstance(partition.role, Leader):
        return None
    strangers = sorted(set(partition.role.isr.maximal) - set(partition.assigned))
    if not strangers:
        return None
    return f"leader {step.broker_id} counts {strangers}, assigned are {partition.assigned}"


# --- of the service ------------------------------------------------------------------------------


def service_epochs(world: World) -> Epochs:
    state = world.service.states.get(world.partition)
    return Epochs(state.leader_epoch, state.controller_epoch) if state else NO_EPOCHS


def monotonic_leader_epoch_of_service(world: World, memory: Memory) -> str | None:
    now = service_epochs(world).leader
    return None if now >= memory.service.leader else f"the state went back to leader epoch {now}"


def monotonic_controller_epoch_of_service(world: World, memory: Memory) -> str | None:
    now = service_epochs(world).controller
    if now >= memory.service.controller:
        return None
    return f"the state went back to controller epoch {now}"


def leader_epoch_of_its_controller(world: World, memory: Memory) -> str | None:
    """A leader that writes its ISR stays in its epoch, and names the controller that it knows."""
    now, elected = service_epochs(world), world.service.controller_epoch
    if now.leader == memory.service.leader or now.controller == elected:
        return None
    return (
        f"epoch {now.leader} begins by controller epoch {now.controller}, which is over: {elected}"
    )


def leader_in_isr_of_service(world: World, memory: Memory) -> str | None:
    state = world.service.states.get(world.partition)
    if state is None or state.leader == NO_LEADER or state.leader in state.isr:
        return None
    return f"the state has leader {state.leader} and ISR {state.isr}"


def fallen_leaders(step: Step) -> frozenset[tuple[int, int]]:
    """The epoch of a leader that this controller, in this step, learns to have fallen."""
    now, before = step.broker.active_controller, step.memory.controllers.get(step.broker_id)
    if now is None or before is None or now.controller_epoch != before.controller_epoch:
        return frozenset()
    state = before.states.get(step.world.partition)
    if state is None or state.leader not in before.brokers:
        return frozenset()
    if now.brokers.get(state.leader) == before.brokers[state.leader]:
        return frozenset()
    return frozenset({(now.controller_epoch, state.leader_epoch)})


def fallen_leader_stays_fallen(step: Step) -> str | None:
    """It may be back, without what it had: it is to lead in a later epoch, if at all."""
    fallen = step.memory.fallen | fallen_leaders(step)
    for effect in step.effects if fallen else ():
        message = effect.message if isinstance(effect, effects.SendControl) else None
        if not isinstance(message, events.LeaderAndIsrRequested):
            continue
        for one in message.partitions:
            epochs = (message.controller_epoch, one.state.leader_epoch)
            if one.partition == step.world.partition and epochs in fallen:
                leader = one.state.leader
                return f"{leader} fell while it led in epoch {epochs[1]}, and is named its leader"
    return None
