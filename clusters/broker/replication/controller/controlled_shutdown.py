"""A broker is about to stop: others lead what it leads, and wait for it no longer.

As in Kafka's KafkaController (doControlledShutdown): it stops following first, so that it cannot
join an ISR again; then its partitions are reconsidered. It is answered with what it leads still.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller.controller_channel_manager import (
    send_stop_replica,
)
from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
    ShutdownRequest,
)
from neaptide.clusters.broker.replication.controller.partition_state_machine import reconsider
from neaptide.clusters.broker.replication.controller.shutdowns import answer_shutdowns, led_by
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.administration import (
    ControlledShutdownRequested,
)
from neaptide.clusters.broker.replication.interface.effects import RespondControlledShutdown
from neaptide.clusters.broker.replication.model import UNKNOWN_BROKER_EPOCH


def on_controlled_shutdown(broker: Broker, event: ControlledShutdownRequested, now_ms: int) -> None:
    controller = broker.active_controller
    error = Error.STALE_CONTROLLER_EPOCH if controller is None else _refusal(controller, event)
    if controller is None or error is not Error.NONE:
        broker.do(RespondControlledShutdown(event.request, error))
        return
    stopping = event.broker_id
    broker.note(f"broker {stopping} is shutting down")
    led = led_by(controller, stopping)
    followed = tuple(
        tp
        for tp in controller.all_partitions()
        if tp in controller.states
        and stopping in controller.replicas(tp)
        and len(controller.replicas(tp)) > 1
        and controller.states[tp].leader != stopping
    )
    led_before = controller.shutting_down.get(stopping, frozenset())
    concerned = (*led, *followed)
    waiting = ShutdownRequest(event.request, stopping, frozenset(concerned))
    broker.controller = replace(
        controller,
        shutting_down={**controller.shutting_down, stopping: led_before | frozenset(led)},
        shutdown_requests=(*controller.shutdown_requests, waiting),
    )
    send_stop_replica(broker, followed, (stopping,), delete=False)
    if concerned:
        reconsider(broker, concerned)
    answer_shutdowns(broker)


def _refusal(controller: Active, event: ControlledShutdownRequested) -> Error:
    registration = controller.brokers.get(event.broker_id)
    if registration is None:
        return Error.BROKER_NOT_AVAILABLE
    if UNKNOWN_BROKER_EPOCH != event.broker_epoch < registration.epoch:
        return Error.STALE_BROKER_EPOCH
    return Error.NONE
