"""What a search spares, because it loses by design and not by a rule that is broken: the last copy
of what was acknowledged or read, in a power failure or in what follows one.

The same for what is drawn and for what is left when steps are taken away.
"""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.search.looking import each, promised, read


def loses_by_design(
    step: steps.Step, world: World, so_far: tuple[steps.Step, ...], names: Mapping[str, int]
) -> bool:
    """Whether a step is to be spared in a world that the steps `so_far` have led to."""
    if _is_unnoticed_after_failure(step, so_far):
        return True
    match step:
        case steps.PowerOff(str(broker)):
            takes_last_copies = True
        case steps.Kill(str(broker)) | steps.Stop(str(broker)):
            takes_last_copies = is_torn_one_trusted(world, so_far)
        case steps.Reassign(replicas):
            chosen = {names[one] for one in replicas}
            return is_torn_one_trusted(world, so_far) and not _has_all_each(world, chosen)
        case steps.Elect():
            return is_torn_one_trusted(world, so_far) and not _has_all_each(world, None)
        case _:
            return False
    is_up = names[broker] in world.brokers
    return takes_last_copies and is_up and not is_safe_without(world, names[broker], seen=True)


def is_torn_one_trusted(world: World, so_far: tuple[steps.Step, ...]) -> bool:
    """Whether somebody may lead by an election who came back without its log: after a power
    failure, but not from 4.0 on (KIP-966)."""
    has_failed = any(isinstance(step, steps.PowerOff) for step in so_far)
    return has_failed and not world.spec.rules.eligible_leader_replicas


def is_safe_without(world: World, broker_id: int, *, seen: bool = False) -> bool:
    """Whether another member of the ISR lives and has all that was acknowledged, or read.

    `seen`: it is healthy too, and so is the controller. Otherwise a broker that comes back without
    its log may be taken for one in sync before anybody notices that it was away.
    """
    if not seen:
        return all(_is_safe_here(one, broker_id, set(world.brokers)) for one in each(world))
    able, controller = _healthy(world), world.service.controller
    is_noticed = controller is None or controller in {broker_id, *able}
    return is_noticed and all(_is_safe_here(one, broker_id, able) for one in each(world))


def _healthy(world: World) -> set[int]:
    """The brokers that live, are not paused, and that the coordination service can reach."""
    return set(world.brokers) - world.network.paused - set(world.coordination.silent_since)


def _is_unnoticed_after_failure(step: steps.Step, so_far: tuple[steps.Step, ...]) -> bool:
    """Whether somebody ceases to work unseen after a power failure: the torn one may lead then."""
    unseen = isinstance(step, steps.Pause) or (
        isinstance(step, steps.Cut) and step.purpose == "coordination"
    )
    return unseen and any(isinstance(one, steps.PowerOff) for one in so_far)


def _has_all_each(world: World, chosen: set[int] | None) -> bool:
    """Whether all of the ISR (of these brokers alone, who are some) have what was acknowledged or
    read: whoever of them leads next."""
    return all(_has_all(one, chosen) for one in each(world))


def _has_all(world: World, chosen: set[int] | None) -> bool:
    state = world.service.states.get(world.partition)
    isr = set() if state is None else set(state.isr)
    members = isr if chosen is None else isr & chosen
    return bool(members) and all(_holds(world, member) for member in members)


def _holds(world: World, broker_id: int) -> bool:
    """All that was acknowledged or read."""
    log = world.disks[broker_id].logs.get(world.partition)
    wanted = {*promised(world), *(value for _, value in read(world))}
    return log is not None and wanted <= {value for _, _, value in log.values()}


def _is_safe_here(world: World, broker_id: int, able: set[int]) -> bool:
    state = world.service.states.get(world.partition)
    others = () if state is None else set(state.isr) & able - {broker_id}
    return any(_holds(world, other) for other in others)
