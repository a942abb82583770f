"""What brokers ask their controller, and the answers: AlterPartition and ControlledShutdown.

Each broker has one request of an API under way (`Network.calls`). It fails when its connection
breaks: the controller dies, a message is lost, its time is over. Then the core asks again, perhaps
another controller. An API is a row of `APIS`. Live, this is `AlterPartitionChannel` and its like
(clusters/broker/server/peer_effects.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from neaptide.clusters.broker.replication.interface import administration, effects, events
from neaptide.clusters.simulation.network import ALTER, SHUTDOWN, Entry, Link
from neaptide.clusters.simulation.network_node import Network
from neaptide.clusters.simulation.parts import Call


class CallTimedOut(NamedTuple):
    """A broker has waited for its controller for replica.socket.timeout.ms."""

    channel: str
    broker: int
    number: int


class Api(NamedTuple):
    """`request`: of its number, the broker, and the effect. `answer`: of the sequence and the
    effect. Both are known by their types."""

    request: Callable[[int, int, Any], Any]
    answer: Callable[[int, Any], Any]
    failed: Callable[[int], object]
    types: tuple[Any, Any]


APIS: Final[Mapping[str, Api]] = {
    ALTER: Api(
        lambda number, broker_id, effect: events.AlterPartitionRequested(
            number, broker_id, effect.broker_epoch, effect.partitions
        ),
        lambda sequence, effect: events.AlterPartitionResponded(
            sequence, effect.error, effect.results
        ),
        events.AlterPartitionFailed,
        (events.AlterPartitionRequested, events.AlterPartitionResponded),
    ),
    SHUTDOWN: Api(
        lambda number, broker_id, effect: administration.ControlledShutdownRequested(
            number, broker_id, effect.broker_epoch
        ),
        lambda sequence, effect: administration.ControlledShutdownResponded(
            sequence, effect.error, effect.remaining
        ),
        administration.ControlledShutdownFailed,
        (administration.ControlledShutdownRequested, administration.ControlledShutdownResponded),
    ),
}
_CHANNELS: Final = {effects.SendAlterPartition: ALTER, effects.SendControlledShutdown: SHUTDOWN}


def ask(
    network: Network,
    broker_id: int,
    effect: effects.SendAlterPartition | effects.SendControlledShutdown,
) -> None:
    number, channel = network.number(), _CHANNELS[type(effect)]
    call = Call(number, effect.controller, effect.sequence, network.now_us)
    network.calls = {**network.calls, (channel, broker_id): call}
    if effect.controller not in network.listening:
        _fail(network, channel, broker_id)
        return
    request = APIS[channel].request(number, broker_id, effect)
    network.send(broker_id, effect.controller, channel, request)
    timeout_us = network.spec.socket_timeout_ms * 1_000
    network.later(timeout_us, CallTimedOut(channel, broker_id, number))


def respond(
    network: Network,
    broker_id: int,
    effect: effects.RespondAlterPartition | effects.RespondControlledShutdown,
) -> None:
    """A controller answers; nobody waits for an answer whose connection is gone."""
    for (channel, asker), call in network.calls.items():
        if call.number == effect.request:
            answer = APIS[channel].answer(call.sequence, effect)
            network.send(broker_id, asker, channel, answer)


def arrived(network: Network, broker_id: int, channel: str, body: Any) -> None:
    """A message has reached a broker: its request is under way no longer if this is the answer."""
    call = network.calls.get((channel, broker_id))
    is_answer = isinstance(body, APIS[channel].types[1])
    if call is not None and is_answer and call.sequence == body.sequence:
        _forget(network, channel, broker_id)


def time_out(network: Network, due: CallTimedOut, due_us: int) -> bool:
    """False: it was answered."""
    if not is_under_way(network, due):
        return False
    network.reach(due_us)
    _fail(network, due.channel, due.broker)
    network.unblock()
    return True


def is_under_way(network: Network, due: CallTimedOut) -> bool:
    call = network.calls.get((due.channel, due.broker))
    return call is not None and call.number == due.number


def lose(network: Network, entry: Entry) -> None:
    """A request, or its answer, is lost: the connection breaks."""
    assert entry.link is not None
    if network.recorder is not None:
        network.recorder.dropped(entry)
    source, target, channel = entry.link
    asker = source if isinstance(entry.body, APIS[channel].types[0]) else target
    if (channel, asker) in network.calls:
        _fail(network, channel, asker)


def die(network: Network, died: int) -> None:
    """What a dead broker asked, or was asked, gets no answer."""
    for (channel, broker_id), call in network.calls.items():
        if died in (broker_id, call.controller):
            _fail(network, channel, broker_id)


def _fail(network: Network, channel: str, broker_id: int) -> None:
    """A broker's connection to its controller is broken."""
    call = network.calls[channel, broker_id]
    _forget(network, channel, broker_id)
    network.remove(lambda entry: _is_exchange(entry, channel, broker_id, call))
    if broker_id in network.listening:
        failed = APIS[channel].failed(call.sequence)
        network.send(broker_id, broker_id, channel, failed)


def _is_exchange(entry: Entry, channel: str, broker_id: int, call: Call) -> bool:
    """Whether a message belongs to this request: the request itself, or its answer."""
    requested, responded = APIS[channel].types
    body: Any = entry.body
    if isinstance(body, requested):
        return bool(body.request == call.number)
    return (
        isinstance(body, responded)
        and entry.link == Link(call.controller, broker_id, channel)
        and body.sequence == call.sequence
    )


def _forget(network: Network, channel: str, broker_id: int) -> None:
    network.calls = {
        key: call for key, call in network.calls.items() if key != (channel, broker_id)
    }
