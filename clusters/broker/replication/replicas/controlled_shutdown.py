"""A broker that stops: it asks the controller to hand over what it leads, and then ends.

As Kafka's KafkaServer: controlled.shutdown.max.retries attempts, with
controlled.shutdown.retry.backoff.ms between them; when they are used up it ends all the same.
Until then it serves as before. What the controller does is in controller/controlled_shutdown.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker, ControlledShutdown
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.administration import (
    ControlledShutdownFailed,
    ControlledShutdownResponded,
    ControlledShutdownRetry,
    ShutdownRequested,
)
from neaptide.clusters.broker.replication.interface.effects import SendControlledShutdown, Shutdown
from neaptide.clusters.broker.replication.model import NO_LEADER


def on_shutdown_requested(broker: Broker, event: ShutdownRequested, now_ms: int) -> None:
    """A broker that has never registered has nothing that another could take over."""
    settings = broker.settings
    if broker.shutdown is not None:
        return
    broker.shutdown = ControlledShutdown(settings.controlled_shutdown_max_retries)
    if settings.controlled_shutdown_enable and broker.broker_epoch is not None:
        _attempt(broker, broker.shutdown)
    else:
        broker.do(Shutdown())


def _attempt(broker: Broker, shutdown: ControlledShutdown) -> None:
    if shutdown.attempts_left <= 0:
        broker.note("ending although this broker may lead: no attempt at it has succeeded")
        broker.do(Shutdown())
        return
    shutdown = replace(shutdown, attempts_left=shutdown.attempts_left - 1)
    controller = broker.metadata.controller_id
    if controller == NO_LEADER or broker.broker_epoch is None:
        broker.note("no controller is known that could take over what this broker leads")
        _try_again(broker, shutdown)
        return
    broker.shutdown = replace(shutdown, in_flight=broker.next_sequence)
    broker.next_sequence += 1
    epoch = broker.broker_epoch
    broker.do(SendControlledShutdown(controller, broker.next_sequence - 1, epoch))


def _try_again(broker: Broker, shutdown: ControlledShutdown) -> None:
    broker.shutdown = replace(shutdown, in_flight=None)
    if shutdown.attempts_left == 0:
        _attempt(broker, shutdown)
    else:
        backoff_ms = broker.settings.controlled_shutdown_retry_backoff_ms
        broker.set_timer(ControlledShutdownRetry(), backoff_ms)


def on_controlled_shutdown_responded(
    broker: Broker, event: ControlledShutdownResponded, now_ms: int
) -> None:
    shutdown = broker.shutdown
    if shutdown is None or shutdown.in_flight != event.sequence:
        return
    if event.error is Error.NONE and not event.remaining:
        broker.shutdown = replace(shutdown, in_flight=None)
        broker.note("this broker leads nothing any more: it ends")
        broker.do(Shutdown())
        return
    why = event.error.name if event.error is not Error.NONE else _named(event)
    broker.note(f"this broker cannot end yet: {why}")
    _try_again(broker, shutdown)


def _named(event: ControlledShutdownResponded) -> str:
    return f"it leads {', '.join(map(str, event.remaining))}"


def on_controlled_shutdown_failed(
    broker: Broker, event: ControlledShutdownFailed, now_ms: int
) -> None:
    shutdown = broker.shutdown
    if shutdown is not None and shutdown.in_flight == event.sequence:
        _try_again(broker, shutdown)


def on_controlled_shutdown_retry(
    broker: Broker, timer: ControlledShutdownRetry, now_ms: int
) -> None:
    if broker.shutdown is not None and broker.shutdown.in_flight is None:
        _attempt(broker, broker.shutdown)
