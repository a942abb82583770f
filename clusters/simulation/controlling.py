"""A controller's requests to brokers: in order, one at a time where an answer is kept up.

What is not answered is sent again: after the broker died, after a lost message, after the time that
a controller waits. Live, this is `ControlChannel` (clusters/broker/server/peer.py). An answer that
no rule is about arrives at once; only a refusal, and that replicas are deleted, is a message.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.interface.coordination_service import SessionStarted
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation.broker_node import BrokerNode
from neaptide.clusters.simulation.network import (
    CONTROL,
    CONTROL_ANSWERS,
    CONTROL_APIS,
    ControlAnswered,
    Entry,
    Link,
)
from neaptide.clusters.simulation.network_node import Network

RETRY_US: Final = 100_000


class ControlRetry(NamedTuple):
    """A controller sends again what was lost on this link."""

    link: Link


class ControlUnanswered(NamedTuple):
    """A controller has waited for an answer for as long as it does."""

    link: Link
    sequence: int  # of the request


def answered_by(node: BrokerNode, entry: Entry, link: Link) -> tuple[Entry, ...]:
    """The controllers' requests that a broker may answer when it receives this.

    One that came before its broker's own registration is answered after that.
    """
    if link.channel == CONTROL:
        return (entry,) if type(entry.body) in CONTROL_APIS else ()
    if not isinstance(entry.body, SessionStarted):
        return ()
    return tuple(
        entry._replace(link=Link(early.controller_id, link.target, CONTROL), body=early)
        for early in node.core.early_requests
    )


def answer(network: Network, entry: Entry, error: Error, marked: Collection[str]) -> None:
    """A broker has done what a controller's request says, or has refused it.

    `marked`: the topics that are being deleted, of whose replicas the controller counts the rest.
    """
    link, body = entry.link, entry.body
    assert link is not None
    if error is Error.NONE:
        network.shown.obeyed |= {link.source}
    else:
        network.shown.refused |= {link.source}
    epoch = getattr(body, "controller_epoch", 0)
    said = events.ControlResponded(link.target, epoch, error, _deleted(body, error, marked))
    answered = ControlAnswered(CONTROL_APIS[type(body)], entry, said)
    back = Link(link.target, link.source, CONTROL_ANSWERS)
    is_alive = link.target in network.listening
    if is_alive and any(rule.matches(back, answered) for rule in network.holds.values()):
        network.unanswered = {**network.unanswered, link: entry}
        network.send(*back, answered)
        timeout_us = network.spec.socket_timeout_ms * 1_000
        network.later(timeout_us, ControlUnanswered(link, entry.sequence))
    elif said.error is not Error.NONE or said.deleted:
        network.send(link.target, link.source, CONTROL, said)


def _deleted(body: object, error: Error, marked: Collection[str]) -> tuple[TopicPartition, ...]:
    is_deletion = isinstance(body, events.StopReplicaRequested) and body.delete_partitions
    if not is_deletion or error is not Error.NONE:
        return ()
    assert isinstance(body, events.StopReplicaRequested)
    return tuple(tp for tp in body.partitions if tp.topic in marked)


def take_answer(network: Network, answered: ControlAnswered) -> None:
    """It has arrived: the next request may go when the controller has taken it."""
    _forget(network, answered.request.link)


def lose(network: Network, entry: Entry) -> None:
    """A request, or its answer, is lost: the connection breaks, and soon it is sent again."""
    if network.recorder is not None:
        network.recorder.dropped(entry)
    request = entry
    if isinstance(entry.body, ControlAnswered):
        request = entry.body.request
        _forget(network, request.link)
    link = request.link
    assert link is not None
    network.keep_up(request, link)
    retry = ControlRetry(link)
    if all(due.body != retry for due in network.own):
        network.later(RETRY_US, retry)


def take(network: Network, due: ControlRetry | ControlUnanswered, due_us: int) -> bool:
    """False: it was answered, or the broker died, or nobody sends it any more."""
    if isinstance(due, ControlUnanswered):
        request = network.unanswered.get(due.link)
        if request is None or request.sequence != due.sequence:
            return False
        _forget(network, due.link)
        network.remove(lambda entry: _answers(entry, request))
        network.waiting.append(request)
    network.reach(due_us)
    network.unblock()
    return True


def forget_answers(network: Network, died: int) -> None:
    """A broker died: what it had not answered will be sent to the process after it, as a new
    message."""
    if network.held_by:
        again = {
            e.sequence for e in network.waiting if e.link is not None and e.link.target == died
        }
        network.held_by = {n: name for n, name in network.held_by.items() if n not in again}
    for link, request in network.unanswered.items():
        if died in (link.source, link.target):
            _forget(network, link)
        if died == link.target != link.source:
            network.waiting.append(request)


def stop_sending(network: Network, source: int, targets: tuple[int, ...] | None) -> None:
    """A controller closes its connections to these brokers, or to all."""

    def is_meant(link: Link) -> bool:
        return (
            link.source == source
            and link.channel == CONTROL
            and (targets is None or link.target in targets)
        )

    def is_stopped(entry: Entry) -> bool:
        if isinstance(entry.body, ControlAnswered):
            return entry.body.request.link is not None and is_meant(entry.body.request.link)
        is_answer = isinstance(entry.body, events.ControlResponded)
        return entry.link is not None and not is_answer and is_meant(entry.link)

    network.remove(is_stopped)
    for link in network.unanswered:
        if is_meant(link):
            _forget(network, link)


def _answers(entry: Entry, request: Entry) -> bool:
    return isinstance(entry.body, ControlAnswered) and entry.body.request is request


def _forget(network: Network, link: Link | None) -> None:
    network.unanswered = {one: entry for one, entry in network.unanswered.items() if one != link}
