"""Sessions of brokers with the coordination service: who reaches it, whose ends, who is back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neaptide.clusters.broker.replication.interface import coordination_service
from neaptide.clusters.simulation.network import COORDINATION, SERVICE, Entry, Link
from neaptide.clusters.simulation.parts import Register, SessionTimedOut

if TYPE_CHECKING:
    from neaptide.clusters.simulation.world import World


def reaches_service(world: World, broker_id: int) -> bool:
    """Whether a broker and the service reach each other."""
    if broker_id not in world.brokers or broker_id in world.paused:
        return False
    there = Link(broker_id, SERVICE, COORDINATION)
    back = Link(SERVICE, broker_id, COORDINATION)
    return not any(cut.covers(there) or cut.covers(back) for cut in world.cuts)


def look_at_sessions(world: World) -> None:
    """After something was cut, healed, paused or resumed: whose heartbeats come through?"""
    for broker_id in world.brokers:
        if reaches_service(world, broker_id):
            if world.silent_since.pop(broker_id, None) is not None:
                come_back(world, broker_id)
        elif broker_id not in world.silent_since:
            world.silent_since[broker_id] = world.now_us
            timeout_us = world.spec.session_timeout_ms * 1_000
            world.later(timeout_us, SessionTimedOut(broker_id, world.now_us))


def end_session(world: World, broker_id: int) -> None:
    """What the session had asked, and what it was to be sent, is gone with it."""
    if broker_id not in world.service.sessions:
        return
    world.expired |= {broker_id}
    world.remove(lambda entry: _is_coordination(entry, broker_id))
    world.send_all(world.service.expire(broker_id))


def come_back(world: World, broker_id: int) -> None:
    if broker_id in world.expired:
        world.remove(lambda entry: _is_coordination(entry, broker_id))
        world.send(SERVICE, broker_id, COORDINATION, coordination_service.SessionExpired())
        world.send_all(world.service.register(broker_id))


def _is_coordination(entry: Entry, broker_id: int) -> bool:
    link = entry.link
    return (
        link is not None
        and link.channel == COORDINATION
        and broker_id in (link.source, link.target)
        and not isinstance(entry.body, Register)
    )
