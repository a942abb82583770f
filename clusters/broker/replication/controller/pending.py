"""Requests that the controller answers when it knows what became of each of their parts.

A part is a topic or a partition. Whoever learns what became of some says so. What is not known
when a request's time is over, or when this broker ceases to be the controller, is answered with an
error; what was asked for may be done all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller.controller_context import Pending
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.interface.events import DelayedOperationExpired

Kind = TypeVar("Kind", bound=Pending[Any, Any])


def begin(broker: Broker, pending: Pending[Any, Any], timeout_ms: int) -> None:
    """Answers at once where all is known, or where nothing is waited for."""
    _keep(broker, pending)
    if None not in pending.results.values():
        _answer(broker, pending, pending.with_unknown(Error.NONE))
    elif timeout_ms <= 0:
        expire(broker, pending.request)
    else:
        broker.set_timer(DelayedOperationExpired(pending.request), timeout_ms)


def waiting(broker: Broker, kind: type[Kind]) -> tuple[Kind, ...]:
    """In the order in which they came."""
    return tuple(one for one in _all(broker).values() if isinstance(one, kind))


def give(broker: Broker, request: int, part: Hashable, result: object) -> None:
    """The result of one part; an answer is due with `settle` at the earliest."""
    pending = _all(broker)[request]
    _keep(broker, replace(pending, results={**pending.results, part: result}))


def settle(
    broker: Broker,
    kind: type[Kind],
    outcome: Callable[[Kind, Any], object | None] = lambda pending, part: None,
) -> None:
    """Answers the requests of which all is known by now; `outcome`: of a part that has no result.

    Where many parts come to something in their order, the last is the first to look at.
    """
    for pending in waiting(broker, kind):
        found = {}
        for part, known in reversed(tuple(pending.results.items())):
            if known is None:
                found[part] = outcome(pending, part)
                if found[part] is None:
                    break
        else:
            whole = replace(pending, results={**pending.results, **found})
            _answer(broker, pending, whole.with_unknown(Error.NONE))
            broker.cancel_timer(DelayedOperationExpired(pending.request))


def expire(broker: Broker, request: int) -> None:
    """Its time is over: the client has to look."""
    if (pending := _all(broker).get(request)) is not None:
        _answer(broker, pending, pending.with_unknown(Error.REQUEST_TIMED_OUT))


def refuse_all(broker: Broker) -> None:
    """Before this broker ceases to be the controller."""
    for pending in _all(broker).values():
        _answer(broker, pending, pending.refusal())
        broker.cancel_timer(DelayedOperationExpired(pending.request))


def _all(broker: Broker) -> Mapping[int, Pending[Any, Any]]:
    controller = broker.active_controller
    return {} if controller is None else controller.pending


def _answer(broker: Broker, pending: Pending[Any, Any], answer: Effect) -> None:
    broker.do(answer)
    forget(broker, pending.request)


def _keep(broker: Broker, pending: Pending[Any, Any]) -> None:
    controller = broker.active_controller
    assert controller is not None
    broker.controller = replace(
        controller, pending={**controller.pending, pending.request: pending}
    )


def forget(broker: Broker, request: int) -> None:
    """Nobody waits for this answer any more."""
    controller = broker.active_controller
    if controller is not None and request in controller.pending:
        left = {number: one for number, one in controller.pending.items() if number != request}
        broker.controller = replace(controller, pending=left)
