"""ISR changes of this broker's partitions on their way to the controller (KIP-497).

As Kafka's AlterPartitionManager: one request is under way at a time, with all changes that have no
answer yet; what the controller cannot take now is sent again, perhaps to another controller. A
change is forgotten when its partition gets a new leader epoch: its answer means nothing any more.
What an answer does to a partition: see in_sync_replicas.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker, InFlightAlteration
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.effects import SendAlterPartition
from neaptide.clusters.broker.replication.interface.events import (
    AlteredPartition,
    AlteredResult,
    AlterPartitionFailed,
    AlterPartitionResponded,
    AlterPartitionRetry,
)
from neaptide.clusters.broker.replication.model import (
    NO_LEADER,
    UNKNOWN_BROKER_EPOCH,
    TopicPartition,
)

RETRY_MS = 50
# The controller has refused the change for good: nothing was written, and nothing will be.
REJECTED = (Error.INELIGIBLE_REPLICA,)
# This leader does not know the present state: it waits for the controller to send that.
OUTDATED = (
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.UNKNOWN_TOPIC_ID,
    Error.FENCED_LEADER_EPOCH,
    Error.INVALID_UPDATE_VERSION,
    Error.INVALID_REQUEST,
)


def submit(broker: Broker, asked: AlteredPartition) -> None:
    manager = broker.alterations
    unsent = {**manager.unsent, asked.partition: asked}
    broker.alterations = replace(manager, unsent=unsent)
    _maybe_send(broker)


def forget(broker: Broker, topic_partition: TopicPartition) -> None:
    unsent = broker.alterations.unsent
    if topic_partition in unsent:
        left = {tp: asked for tp, asked in unsent.items() if tp != topic_partition}
        broker.alterations = replace(broker.alterations, unsent=left)


def _maybe_send(broker: Broker) -> None:
    manager = broker.alterations
    if manager.in_flight is not None or manager.is_waiting or not manager.unsent:
        return
    controller = broker.metadata.controller_id
    if controller == NO_LEADER:
        _wait(broker)
        return
    sequence = broker.next_sequence
    broker.next_sequence += 1
    broker.alterations = replace(manager, in_flight=InFlightAlteration(sequence, manager.unsent))
    epoch = UNKNOWN_BROKER_EPOCH if broker.broker_epoch is None else broker.broker_epoch
    broker.do(SendAlterPartition(controller, sequence, epoch, tuple(manager.unsent.values())))


def _wait(broker: Broker) -> None:
    broker.alterations = replace(broker.alterations, is_waiting=True)
    broker.set_timer(AlterPartitionRetry(), RETRY_MS)


def on_retry(broker: Broker, timer: AlterPartitionRetry, now_ms: int) -> None:
    broker.alterations = replace(broker.alterations, is_waiting=False)
    _maybe_send(broker)


def on_failed(broker: Broker, event: AlterPartitionFailed, now_ms: int) -> None:
    """The change may have been written: a controller that is asked again says so."""
    if _take_answer(broker, event.sequence) is not None:
        _wait(broker)


def take_response(
    broker: Broker, event: AlterPartitionResponded
) -> tuple[tuple[AlteredPartition, AlteredResult], ...]:
    """What was asked and is answered now; what was forgotten, or is to be sent again, is left out.

    Afterwards `go_on` sends what there is to send.
    """
    sent = _take_answer(broker, event.sequence)
    if sent is None:
        return ()
    if event.error is not Error.NONE:
        broker.note(f"the controller does not take ISR changes: {event.error.name}; trying again")
        _wait(broker)
        return ()
    answered = []
    unsent = dict(broker.alterations.unsent)
    for result in event.results:
        asked = sent.asked.get(result.partition)
        if asked is None or unsent.get(result.partition) != asked:
            continue
        if result.error in (Error.NONE, *REJECTED, *OUTDATED):
            del unsent[result.partition]
            answered.append((asked, result))
    broker.alterations = replace(broker.alterations, unsent=unsent)
    if any(sent.asked.get(tp) == asked for tp, asked in unsent.items()):
        _wait(broker)  # refused for now (NOT_CONTROLLER), or not named in the answer
    return tuple(answered)


def go_on(broker: Broker) -> None:
    _maybe_send(broker)


def _take_answer(broker: Broker, sequence: int) -> InFlightAlteration | None:
    """The request that is answered; None where nobody waits for that answer any more."""
    in_flight = broker.alterations.in_flight
    if in_flight is None or in_flight.sequence != sequence:
        return None
    broker.alterations = replace(broker.alterations, in_flight=None)
    return in_flight
