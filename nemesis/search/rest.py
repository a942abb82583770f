"""When a world is at rest: nothing is on its way but what is held, and the replicas are level.

Between two steps of a search the world comes to rest, so that what a schedule does depends on its
steps and holds alone, and a live system that is given the same time does the same.
"""

from __future__ import annotations

from typing import Final

from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.observed import WorldObserved

REST_US: Final = 700_000  # who waits for a fetch, or for a second try, has had it by then


def rest(world: World, within_us: int = REST_US) -> None:
    """Lets events happen until there is rest, or the time is over."""
    deadline_us = world.now_us + within_us
    while True:
        if not world.network.messages and is_at_rest(world):
            return
        if not world.advance(deadline_us):
            return


def sessions_end(world: World) -> None:
    """Lets time pass until the sessions of all that the service receives nothing from are over."""
    deadline_us = world.now_us + world.spec.session_timeout_ms * 1_000
    while any(broker in world.service.sessions for broker in world.coordination.silent_since):
        if not world.advance(deadline_us):
            return


def is_at_rest(world: World) -> bool:
    clients = world.clients
    if clients.in_flight or clients.asking or world.network.messages:
        return False
    if any(one.asked is not None for one in clients.transactional.values()):
        return False
    observed = WorldObserved(world)
    return observed.settled_at(0) and observed.commits_settled() and observed.others_settled()


def retention_looks(world: World) -> None:
    """Lets time pass until every broker has looked what it may delete, where that is ever done."""
    interval_ms = world.spec.retention_check_ms
    if interval_ms is not None:
        deadline_us = world.now_us + interval_ms * 1_000 + 1
        while world.advance(deadline_us):
            pass
