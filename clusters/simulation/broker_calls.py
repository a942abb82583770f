"""What brokers ask of each other beside replication, and the answers: a row of `APIS` each.

Of its controller a broker asks AlterPartition and ControlledShutdown, one of each at a time; as a
transaction coordinator it asks leaders to write markers, one request a leader at a time; as a
leader it asks a coordinator whether there is a transaction (`Network.calls`). A call fails when its
connection breaks: who is asked dies, a message is lost, its time is over. Then the core asks again.
A request that a rule holds may arrive all the same, when its sender has given it up (`deliver`).
Live, this is `AlterPartitionChannel` and its like (clusters/broker/server/peer_effects.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from neaptide.clusters.broker.replication.interface import administration, effects, events
from neaptide.clusters.simulation.blocking import is_held
from neaptide.clusters.simulation.network import (
    ALTER,
    MARKERS,
    SHUTDOWN,
    VERIFICATION,
    Entry,
    Link,
)
from neaptide.clusters.simulation.network_node import CallKey, Network
from neaptide.clusters.simulation.parts import Call

ONE_AT_A_TIME: Final = 0


class CallTimedOut(NamedTuple):
    """A broker has waited for an answer for as long as it waits at all."""

    key: CallKey
    number: int


class Api(NamedTuple):
    """`request`: of its number, the broker, and the effect. `answer` and `failed`: what the asker's
    core is given. Requests and answers are known by their types."""

    target: Callable[[Any], int]
    request: Callable[[int, int, Any], Any]
    answer: Callable[[Call, Any], Any]
    failed: Callable[[Call], object]
    types: tuple[Any, Any]
    # Which of the calls of a broker it is, where there may be several: by the effect.
    which: Callable[[Any], int] = lambda effect: ONE_AT_A_TIME
    is_of_clients: bool = False  # it waits for request.timeout.ms, and not as replicas do


APIS: Final[Mapping[str, Api]] = {
    ALTER: Api(
        lambda effect: effect.controller,
        lambda number, broker_id, effect: events.AlterPartitionRequested(
            number, broker_id, effect.broker_epoch, effect.partitions
        ),
        lambda call, effect: events.AlterPartitionResponded(
            call.sequence, effect.error, effect.results
        ),
        lambda call: events.AlterPartitionFailed(call.sequence),
        (events.AlterPartitionRequested, events.AlterPartitionResponded),
    ),
    SHUTDOWN: Api(
        lambda effect: effect.controller,
        lambda number, broker_id, effect: administration.ControlledShutdownRequested(
            number, broker_id, effect.broker_epoch
        ),
        lambda call, effect: administration.ControlledShutdownResponded(
            call.sequence, effect.error, effect.remaining
        ),
        lambda call: administration.ControlledShutdownFailed(call.sequence),
        (administration.ControlledShutdownRequested, administration.ControlledShutdownResponded),
    ),
    MARKERS: Api(
        lambda effect: effect.leader,
        lambda number, broker_id, effect: events.WriteTxnMarkersRequested(number, effect.markers),
        lambda call, effect: events.WriteTxnMarkersResponded(
            call.target, call.sequence, effect.results
        ),
        lambda call: events.WriteTxnMarkersFailed(call.target, call.sequence),
        (events.WriteTxnMarkersRequested, events.WriteTxnMarkersResponded),
        which=lambda effect: effect.leader,
        is_of_clients=True,
    ),
    VERIFICATION: Api(
        lambda effect: effect.coordinator,
        lambda number, broker_id, effect: events.AddPartitionsToTxnRequested(
            number,
            effect.transactional_id,
            effect.producer_id,
            effect.producer_epoch,
            effect.partitions,
            verifies=True,
        ),
        lambda call, effect: events.AddPartitionsToTxnResponded(call.sequence, effect.partitions),
        lambda call: events.AddPartitionsToTxnFailed(call.sequence),
        (events.AddPartitionsToTxnRequested, events.AddPartitionsToTxnResponded),
        which=lambda effect: effect.sequence,
        is_of_clients=True,
    ),
}
_CHANNELS: Final[Mapping[type, str]] = {
    effects.SendAlterPartition: ALTER,
    effects.SendControlledShutdown: SHUTDOWN,
    effects.SendWriteTxnMarkers: MARKERS,
    effects.SendAddPartitionsToTxn: VERIFICATION,
}


def ask(network: Network, broker_id: int, effect: Any) -> None:
    channel = _CHANNELS[type(effect)]
    api, number = APIS[channel], network.number()
    target = api.target(effect)
    key = CallKey(channel, broker_id, api.which(effect))
    network.calls = {**network.calls, key: Call(number, target, effect.sequence, network.now_us)}
    if target not in network.listening:
        _fail(network, key)
        return
    network.send(broker_id, target, channel, api.request(number, broker_id, effect))
    spec = network.spec
    waits_ms = spec.settings.request_timeout_ms if api.is_of_clients else spec.socket_timeout_ms
    network.later(waits_ms * 1_000, CallTimedOut(key, number))


def is_asked(network: Network, request: int) -> bool:
    """Whether a broker waits for the answer to it."""
    return any(call.number == request for call in network.calls.values())


def respond(network: Network, broker_id: int, effect: Any) -> None:
    """Nobody waits for an answer whose connection is gone."""
    for key, call in network.calls.items():
        if call.number == effect.request:
            answer = APIS[key.channel].answer(call, effect)
            network.send(broker_id, key.asker, key.channel, answer)


def arrived(network: Network, broker_id: int, channel: str, body: Any) -> None:
    """A message has reached a broker: its request is under way no longer if this is the answer."""
    if not isinstance(body, APIS[channel].types[1]):
        return
    key = _asked_by(network, broker_id, channel, body.sequence)
    if key is not None:
        _forget(network, key)


def _asked_by(network: Network, broker_id: int, channel: str, sequence: int) -> CallKey | None:
    """By the number that the core has given it."""
    for key, call in network.calls.items():
        if (key.channel, key.asker, call.sequence) == (channel, broker_id, sequence):
            return key
    return None


def time_out(network: Network, due: CallTimedOut, due_us: int) -> bool:
    """False: it was answered."""
    if not is_under_way(network, due):
        return False
    network.reach(due_us)
    _fail(network, due.key)
    network.unblock()
    return True


def is_under_way(network: Network, due: CallTimedOut) -> bool:
    call = network.calls.get(due.key)
    return call is not None and call.number == due.number


def lose(network: Network, entry: Entry) -> None:
    """A request, or its answer, is lost: the connection breaks."""
    assert entry.link is not None
    if network.recorder is not None:
        network.recorder.dropped(entry)
    body: Any = entry.body
    _, target, channel = entry.link
    for key, call in network.calls.items():
        if key.channel != channel:
            continue
        is_request = isinstance(body, APIS[channel].types[0]) and body.request == call.number
        is_answer = key.asker == target and getattr(body, "sequence", None) == call.sequence
        if is_request or is_answer:
            _fail(network, key)
            return


def die(network: Network, died: int) -> None:
    """What a dead broker asked, or was asked, gets no answer."""
    for key, call in network.calls.items():
        if died in (key.asker, call.target):
            _fail(network, key)


def _fail(network: Network, key: CallKey) -> None:
    """A connection is broken. What a rule holds of it may still arrive."""
    call = network.calls[key]
    _forget(network, key)
    gone = network.remove(lambda entry: _is_exchange(entry, key, call))
    network.abandon(entry for entry in gone if is_held(network, entry))
    if key.asker in network.listening:
        network.send(key.asker, key.asker, key.channel, APIS[key.channel].failed(call))


def _is_exchange(entry: Entry, key: CallKey, call: Call) -> bool:
    """Whether a message belongs to this request: the request itself, or its answer."""
    requested, responded = APIS[key.channel].types
    body: Any = entry.body
    if isinstance(body, requested):
        return bool(body.request == call.number)
    return (
        isinstance(body, responded)
        and entry.link == Link(call.target, key.asker, key.channel)
        and body.sequence == call.sequence
    )


def _forget(network: Network, key: CallKey) -> None:
    network.calls = {one: call for one, call in network.calls.items() if one != key}
