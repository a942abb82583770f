"""The purgatory: requests that wait for a log end, a high watermark, an ISR or a role to move.

Not what each of them waits for: see produce, fetch and group_coordinator. Whoever moves something
calls `complete_delayed` for the partition; a timer ends what waits too long.
"""

from __future__ import annotations

from neaptide.clusters.broker.replication.broker import Broker, DelayedOperation
from neaptide.clusters.broker.replication.interface.events import (
    DelayedOperationExpired,
    RequestAbandoned,
)
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.rule import rule


@rule
def park(broker: Broker, operation: DelayedOperation, timeout_ms: int) -> None:
    broker.delayed[operation.request] = operation
    for topic_partition in operation.watched:
        broker.watchers[topic_partition] = (
            *broker.watchers.get(topic_partition, ()),
            operation.request,
        )
    broker.set_timer(DelayedOperationExpired(operation.request), timeout_ms)


def complete_or_park(broker: Broker, operation: DelayedOperation, timeout_ms: int) -> None:
    """Answers a request at once where its outcome is known, as Kafka's tryCompleteElseWatch."""
    operation = operation.updated(broker)
    if operation.is_complete(broker):
        operation.complete(broker)
    else:
        park(broker, operation, timeout_ms)


@rule
def unpark(broker: Broker, operation: DelayedOperation) -> None:
    del broker.delayed[operation.request]
    for topic_partition in operation.watched:
        left = tuple(r for r in broker.watchers[topic_partition] if r != operation.request)
        if left:
            broker.watchers[topic_partition] = left
        else:
            del broker.watchers[topic_partition]


@rule
def complete_delayed(broker: Broker, topic_partition: TopicPartition, now_ms: int) -> None:
    """Answers the requests that watch a partition and need wait no longer."""
    for request in broker.watchers.get(topic_partition, ()):
        operation = broker.delayed[request] = broker.delayed[request].updated(broker)
        if operation.is_complete(broker):
            operation.complete(broker)
            unpark(broker, operation)
            broker.cancel_timer(DelayedOperationExpired(request))


def on_delayed_operation_expired(
    broker: Broker, timer: DelayedOperationExpired, now_ms: int
) -> None:
    operation = broker.delayed.get(timer.request)
    if operation is not None:
        operation.complete(broker)
        unpark(broker, operation)


def on_request_abandoned(broker: Broker, event: RequestAbandoned, now_ms: int) -> None:
    """Nobody waits for the answer any more. What was appended stays appended."""
    operation = broker.delayed.get(event.request)
    if operation is not None:
        unpark(broker, operation)
        broker.cancel_timer(DelayedOperationExpired(event.request))
