"""A controller's requests to brokers: in order, one at a time where an answer is kept up.

What is not answered is sent again: after the broker died, after a lost message, after the time that
a controller waits. Live, this is `ControlChannel` (clusters/broker/server/peer.py). An answer that
no rule is about arrives at once, and only a refusal is a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.interface.coordination_service import SessionStarted
from neaptide.clusters.simulation.network import (
    CONTROL,
    CONTROL_ANSWERS,
    CONTROL_APIS,
    ControlAnswered,
    Entry,
    Link,
)

if TYPE_CHECKING:
    from neaptide.clusters.simulation.world import World

RETRY_US: Final = 100_000


class ControlRetry(NamedTuple):
    """A controller sends again what was lost on this link."""

    link: Link


class ControlUnanswered(NamedTuple):
    """A controller has waited for an answer for as long as it does."""

    link: Link
    sequence: int  # of the request


def answered_by(world: World, entry: Entry, link: Link) -> tuple[Entry, ...]:
    """The controllers' requests that a broker may answer when it receives this.

    One that came before its broker's own registration is answered after that.
    """
    if link.channel == CONTROL:
        return (entry,) if type(entry.body) in CONTROL_APIS else ()
    if not isinstance(entry.body, SessionStarted):
        return ()
    return tuple(
        entry._replace(link=Link(early.controller_id, link.target, CONTROL), body=early)
        for early in world.brokers[link.target].early_requests
    )


def answer(world: World, entry: Entry, error: Error) -> None:
    """A broker has done what a controller's request says, or has refused it."""
    link, body = entry.link, entry.body
    assert link is not None
    if error is Error.NONE:
        world.obeyed |= {link.source}
    else:
        world.refused |= {link.source}
    epoch = getattr(body, "controller_epoch", 0)
    said = events.ControlResponded(link.target, epoch, error)
    answered = ControlAnswered(CONTROL_APIS[type(body)], entry, said)
    back = Link(link.target, link.source, CONTROL_ANSWERS)
    is_alive = link.target in world.brokers
    if is_alive and any(rule.matches(back, answered) for rule in world.holds.values()):
        world.unanswered = {**world.unanswered, link: entry}
        world.send(*back, answered)
        timeout_us = world.spec.socket_timeout_ms * 1_000
        world.later(timeout_us, ControlUnanswered(link, entry.sequence))
    elif error is not Error.NONE:
        world.send(link.target, link.source, CONTROL, said)


def take_answer(world: World, answered: ControlAnswered) -> None:
    """It has arrived: the next request may go."""
    _forget(world, answered.request.link)
    if answered.answer.error is not Error.NONE and answered.request.link is not None:
        world.handle(answered.request.link.source, answered.answer)
    world.unblock()


def lose(world: World, entry: Entry) -> None:
    """A request, or its answer, is lost: the connection breaks, and soon it is sent again."""
    if world.recorder is not None:
        world.recorder.dropped(world, entry)
    request = entry
    if isinstance(entry.body, ControlAnswered):
        request = entry.body.request
        _forget(world, request.link)
    link = request.link
    assert link is not None
    world.waiting.append(request)
    world.blocked_links.add(link)
    retry = ControlRetry(link)
    if all(due.body != retry for due in world.own):
        world.later(RETRY_US, retry)


def take(world: World, due: ControlRetry | ControlUnanswered, due_us: int) -> bool:
    """False: it was answered, or the broker died, or nobody sends it any more."""
    if isinstance(due, ControlUnanswered):
        request = world.unanswered.get(due.link)
        if request is None or request.sequence != due.sequence:
            return False
        _forget(world, due.link)
        world.remove(lambda entry: _answers(entry, request))
        world.waiting.append(request)
    world.now_us = max(world.now_us, due_us)
    world.unblock()
    return True


def forget_answers(world: World, died: int) -> None:
    """A broker died: what it had not answered will be sent to the process after it, as a new
    message."""
    if world.held_by:
        again = {e.sequence for e in world.waiting if e.link is not None and e.link.target == died}
        world.held_by = {n: name for n, name in world.held_by.items() if n not in again}
    for link, request in world.unanswered.items():
        if died in (link.source, link.target):
            _forget(world, link)
        if died == link.target != link.source:
            world.waiting.append(request)


def stop_sending(world: World, source: int, targets: tuple[int, ...] | None) -> None:
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

    world.remove(is_stopped)
    for link in world.unanswered:
        if is_meant(link):
            _forget(world, link)


def _answers(entry: Entry, request: Entry) -> bool:
    return isinstance(entry.body, ControlAnswered) and entry.body.request is request


def _forget(world: World, link: Link | None) -> None:
    world.unanswered = {one: entry for one, entry in world.unanswered.items() if one != link}
