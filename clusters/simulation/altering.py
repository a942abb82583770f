"""A leader's ISR changes on their way to its controller (AlterPartition), and the answers.

Each broker has one such request under way. It fails when its connection breaks: the controller
dies, a message is lost, its time is over. Then the core sends it again, perhaps to another
controller. Live, this is `AlterPartitionChannel` (clusters/broker/server/peer_effects.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.simulation.network import ALTER, Entry, Link

if TYPE_CHECKING:
    from neaptide.clusters.simulation.world import World


class Altering(NamedTuple):
    """A leader's request that waits for its answer. `number`: as `request` in the message."""

    number: int
    controller: int
    sequence: int
    sent_us: int


class AlterationTimedOut(NamedTuple):
    """A leader has waited for its controller for replica.socket.timeout.ms."""

    broker: int
    number: int


def ask(world: World, broker_id: int, effect: effects.SendAlterPartition) -> None:
    world.sequence += 1
    number = world.sequence
    altering = Altering(number, effect.controller, effect.sequence, world.now_us)
    world.altering = {**world.altering, broker_id: altering}
    if effect.controller not in world.brokers:
        fail(world, broker_id)
        return
    request = events.AlterPartitionRequested(
        number, broker_id, effect.broker_epoch, effect.partitions
    )
    world.send(broker_id, effect.controller, ALTER, request)
    timeout_us = world.spec.socket_timeout_ms * 1_000
    world.later(timeout_us, AlterationTimedOut(broker_id, number))


def respond(world: World, broker_id: int, effect: effects.RespondAlterPartition) -> None:
    """A controller answers; nobody waits for an answer whose connection is gone."""
    for asker, altering in world.altering.items():
        if altering.number == effect.request:
            answer = events.AlterPartitionResponded(altering.sequence, effect.error, effect.results)
            world.send(broker_id, asker, ALTER, answer)


def arrived(world: World, broker_id: int, body: events.AlterPartitionResponded) -> None:
    altering = world.altering.get(broker_id)
    if altering is not None and altering.sequence == body.sequence:
        _forget(world, broker_id)


def time_out(world: World, due: AlterationTimedOut, due_us: int) -> bool:
    """False: it was answered."""
    altering = world.altering.get(due.broker)
    if altering is None or altering.number != due.number:
        return False
    world.now_us = max(world.now_us, due_us)
    fail(world, due.broker)
    world.unblock()
    return True


def lose(world: World, entry: Entry) -> None:
    """A request, or its answer, is lost: the connection breaks."""
    assert entry.link is not None
    if world.recorder is not None:
        world.recorder.dropped(world, entry)
    is_request = isinstance(entry.body, events.AlterPartitionRequested)
    asker = entry.link.source if is_request else entry.link.target
    if asker in world.altering:
        fail(world, asker)


def fail(world: World, broker_id: int) -> None:
    """A leader's connection to its controller is broken."""
    altering = world.altering[broker_id]
    _forget(world, broker_id)
    world.remove(lambda entry: _is_exchange(entry, broker_id, altering))
    if broker_id in world.brokers:
        failed = events.AlterPartitionFailed(altering.sequence)
        world.send(broker_id, broker_id, ALTER, failed)


def die(world: World, died: int) -> None:
    """What a dead broker asked, or was asked, gets no answer."""
    for broker_id, altering in tuple(world.altering.items()):
        if died in (broker_id, altering.controller):
            fail(world, broker_id)


def _is_exchange(entry: Entry, broker_id: int, altering: Altering) -> bool:
    """Whether a message belongs to this request: the request itself, or its answer."""
    body = entry.body
    if isinstance(body, events.AlterPartitionRequested):
        return body.request == altering.number
    return (
        isinstance(body, events.AlterPartitionResponded)
        and entry.link == Link(altering.controller, broker_id, ALTER)
        and body.sequence == altering.sequence
    )


def _forget(world: World, broker_id: int) -> None:
    world.altering = {one: asked for one, asked in world.altering.items() if one != broker_id}
