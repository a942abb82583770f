"""A broker that stops asks its controller (ControlledShutdown), and the answers.

Each broker has one such request under way. It fails when its connection breaks: the controller
dies, or its time is over. Then the core asks again, as often as it may, and ends.
"""

from __future__ import annotations

from typing import NamedTuple

from neaptide.clusters.broker.replication.interface import administration, effects
from neaptide.clusters.simulation.network import SHUTDOWN, Entry
from neaptide.clusters.simulation.network_node import Network
from neaptide.clusters.simulation.parts import Altering


class ShutdownTimedOut(NamedTuple):
    """A broker has waited for its controller for replica.socket.timeout.ms."""

    broker: int
    number: int


def ask(network: Network, broker_id: int, effect: effects.SendControlledShutdown) -> None:
    number = network.number()
    asked = Altering(number, effect.controller, effect.sequence, network.now_us)
    network.stopping = {**network.stopping, broker_id: asked}
    if effect.controller not in network.listening:
        _fail(network, broker_id)
        return
    request = administration.ControlledShutdownRequested(number, broker_id, effect.broker_epoch)
    network.send(broker_id, effect.controller, SHUTDOWN, request)
    network.later(network.spec.socket_timeout_ms * 1_000, ShutdownTimedOut(broker_id, number))


def respond(network: Network, broker_id: int, effect: effects.RespondControlledShutdown) -> None:
    """Nobody waits for an answer whose connection is gone."""
    for asker, asked in network.stopping.items():
        if asked.number == effect.request:
            answer = administration.ControlledShutdownResponded(
                asked.sequence, effect.error, effect.remaining
            )
            network.send(broker_id, asker, SHUTDOWN, answer)


def arrived(network: Network, broker_id: int) -> None:
    _forget(network, broker_id)


def time_out(network: Network, due: ShutdownTimedOut, due_us: int) -> bool:
    """False: it was answered."""
    asked = network.stopping.get(due.broker)
    if asked is None or asked.number != due.number:
        return False
    network.reach(due_us)
    _fail(network, due.broker)
    network.unblock()
    return True


def die(network: Network, died: int) -> None:
    """What a dead broker asked, or was asked, gets no answer."""
    for broker_id, asked in tuple(network.stopping.items()):
        if died in (broker_id, asked.controller):
            _fail(network, broker_id)


def _fail(network: Network, broker_id: int) -> None:
    asked = network.stopping[broker_id]
    _forget(network, broker_id)
    network.remove(lambda entry: _is_exchange(entry, asked))
    if broker_id in network.listening:
        failed = administration.ControlledShutdownFailed(asked.sequence)
        network.send(broker_id, broker_id, SHUTDOWN, failed)


def _is_exchange(entry: Entry, asked: Altering) -> bool:
    """Whether a message belongs to this request: the request itself, or its answer."""
    body = entry.body
    if isinstance(body, administration.ControlledShutdownRequested):
        return body.request == asked.number
    return (
        isinstance(body, administration.ControlledShutdownResponded)
        and body.sequence == asked.sequence
        and entry.link is not None
        and entry.link.source == asked.controller
    )


def _forget(network: Network, broker_id: int) -> None:
    network.stopping = {one: asked for one, asked in network.stopping.items() if one != broker_id}
