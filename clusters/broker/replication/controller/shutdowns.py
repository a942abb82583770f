"""Answers to brokers in controlled shutdown.

What the controller does for them is in controlled_shutdown, how it decides in leader_election.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller.controller_context import Active
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.effects import RespondControlledShutdown
from neaptide.clusters.broker.replication.model import TopicPartition


def answer_shutdowns(broker: Broker, decided: Collection[TopicPartition] = ()) -> None:
    """These partitions have been decided: answers those who wait for no other."""
    controller = broker.active_controller
    if controller is None or not controller.shutdown_requests:
        return
    requests = [
        replace(one, partitions=one.partitions - set(decided))
        for one in controller.shutdown_requests
    ]
    left = tuple(one for one in requests if one.partitions)
    broker.controller = replace(controller, shutdown_requests=left)
    for one in requests:
        if one.partitions:
            continue
        remaining = led_by(controller, one.broker_id)
        broker.do(RespondControlledShutdown(one.request, Error.NONE, remaining))


def led_by(controller: Active, broker_id: int) -> tuple[TopicPartition, ...]:
    """What a broker leads that others have a replica of."""
    return tuple(
        tp
        for tp in controller.all_partitions()
        if tp in controller.states
        and controller.states[tp].leader == broker_id
        and len(controller.replicas(tp)) > 1
    )


def forget_shutdown(broker: Broker, request: int) -> None:
    """Nobody waits for this answer any more."""
    controller = broker.active_controller
    if controller is not None:
        left = tuple(one for one in controller.shutdown_requests if one.request != request)
        broker.controller = replace(controller, shutdown_requests=left)


def refuse_shutdowns(broker: Broker) -> None:
    """Answers all that wait, before this broker ceases to be the controller."""
    controller = broker.active_controller
    for one in controller.shutdown_requests if controller is not None else ():
        broker.do(RespondControlledShutdown(one.request, Error.STALE_CONTROLLER_EPOCH))
