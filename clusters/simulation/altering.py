"""A leader's ISR changes on their way to its controller (AlterPartition), and the answers.

Each broker has one such request under way. It fails when its connection breaks: the controller
dies, a message is lost, its time is over. Then the core sends it again, perhaps to another
controller. Live, this is `AlterPartitionChannel` (clusters/broker/server/peer_effects.py).
"""

from __future__ import annotations

from typing import NamedTuple

from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.simulation.network import ALTER, Entry, Link
from neaptide.clusters.simulation.network_node import Network
from neaptide.clusters.simulation.parts import Altering


class AlterationTimedOut(NamedTuple):
    """A leader has waited for its controller for replica.socket.timeout.ms."""

    broker: int
    number: int


def ask(network: Network, broker_id: int, effect: effects.SendAlterPartition) -> None:
    number = network.number()
    altering = Altering(number, effect.controller, effect.sequence, network.now_us)
    network.altering = {**network.altering, broker_id: altering}
    if effect.controller not in network.listening:
        fail(network, broker_id)
        return
    request = events.AlterPartitionRequested(
        number, broker_id, effect.broker_epoch, effect.partitions
    )
    network.send(broker_id, effect.controller, ALTER, request)
    timeout_us = network.spec.socket_timeout_ms * 1_000
    network.later(timeout_us, AlterationTimedOut(broker_id, number))


def respond(network: Network, broker_id: int, effect: effects.RespondAlterPartition) -> None:
    """A controller answers; nobody waits for an answer whose connection is gone."""
    for asker, altering in network.altering.items():
        if altering.number == effect.request:
            answer = events.AlterPartitionResponded(altering.sequence, effect.error, effect.results)
            network.send(broker_id, asker, ALTER, answer)


def arrived(network: Network, broker_id: int, body: events.AlterPartitionResponded) -> None:
    altering = network.altering.get(broker_id)
    if altering is not None and altering.sequence == body.sequence:
        _forget(network, broker_id)


def time_out(network: Network, due: AlterationTimedOut, due_us: int) -> bool:
    """False: it was answered."""
    altering = network.altering.get(due.broker)
    if altering is None or altering.number != due.number:
        return False
    network.reach(due_us)
    fail(network, due.broker)
    network.unblock()
    return True


def lose(network: Network, entry: Entry) -> None:
    """A request, or its answer, is lost: the connection breaks."""
    assert entry.link is not None
    if network.recorder is not None:
        network.recorder.dropped(entry)
    is_request = isinstance(entry.body, events.AlterPartitionRequested)
    asker = entry.link.source if is_request else entry.link.target
    if asker in network.altering:
        fail(network, asker)


def fail(network: Network, broker_id: int) -> None:
    """A leader's connection to its controller is broken."""
    altering = network.altering[broker_id]
    _forget(network, broker_id)
    network.remove(lambda entry: _is_exchange(entry, broker_id, altering))
    if broker_id in network.listening:
        failed = events.AlterPartitionFailed(altering.sequence)
        network.send(broker_id, broker_id, ALTER, failed)


def die(network: Network, died: int) -> None:
    """What a dead broker asked, or was asked, gets no answer."""
    for broker_id, altering in tuple(network.altering.items()):
        if died in (broker_id, altering.controller):
            fail(network, broker_id)


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


def _forget(network: Network, broker_id: int) -> None:
    network.altering = {one: asked for one, asked in network.altering.items() if one != broker_id}
