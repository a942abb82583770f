"""How a broker's process ends: by a fault, or by itself (`Halt`). Nothing on its disk changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.simulation import altering, controlling, fetching, producing
from neaptide.clusters.simulation.network import CONTROL, Entry

if TYPE_CHECKING:
    from neaptide.clusters.simulation.world import World


def die(world: World, broker_id: int) -> None:
    del world.brokers[broker_id]
    del world.started_us[broker_id]
    world.paused -= {broker_id}
    world.expired -= {broker_id}
    world.silent_since.pop(broker_id, None)
    world.positions.pop(broker_id, None)
    world.fenced -= {broker_id}
    world.timers = {due: n for due, n in world.timers.items() if due.broker != broker_id}
    for number, asked in tuple(world.asked.items()):
        if broker_id in (asked.broker, asked.leader):
            fetching.fail_request(world, number)
    altering.die(world, broker_id)
    gone = world.remove(lambda entry: _dies_with(entry, broker_id))
    controlling.forget_answers(world, broker_id)
    if world.recorder is not None:
        for entry in gone:
            world.recorder.dropped(world, entry)
    producing.broken(world, broker_id)
    world.send_all(world.service.expire(broker_id))
    world.unblock()


def _dies_with(entry: Entry, broker_id: int) -> bool:
    """All messages from it and to it, but what a controller that lives goes on sending to it."""
    link = entry.link
    if link is None or broker_id not in (link.source, link.target):
        return False
    is_tried_again = link.channel == CONTROL and link.source != broker_id
    return not is_tried_again or isinstance(entry.body, events.ControlResponded)
