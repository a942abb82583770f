"""What the controller sends to brokers: LeaderAndIsr, StopReplica and UpdateMetadata (C4).

Not when: see kafka_controller and partition_state_machine. As Kafka's ControllerChannelManager and
its ControllerBrokerRequestBatch; that requests to one broker keep their order is the shell's duty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
)
from neaptide.clusters.broker.replication.interface.effects import SendControl
from neaptide.clusters.broker.replication.interface.events import (
    LeaderAndIsrRequested,
    PartitionState,
    StopReplicaRequested,
    UpdateMetadataRequested,
)
from neaptide.clusters.broker.replication.model import (
    LEADER_DURING_DELETE,
    LeaderAndIsr,
    TopicPartition,
)
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    INTERNAL_TOPICS,
)

UNSENT = 0  # `request` of a message that this broker sends: the shell gives it a correlation id


def _partition_states(
    controller: Active, partitions: Iterable[TopicPartition]
) -> tuple[PartitionState, ...]:
    return tuple(
        PartitionState(
            topic_partition,
            controller.states[topic_partition],
            controller.replicas(topic_partition),
            controller.topics[topic_partition.topic].settings,
            controller.topics[topic_partition.topic].topic_id,
            offline=tuple(sorted(controller.offline.get(topic_partition, ()))),
        )
        for topic_partition in partitions
        if topic_partition.topic in controller.topics
    )


def send_leader_and_isr(
    broker: Broker,
    partitions: tuple[TopicPartition, ...],
    receivers: Collection[int],
    *,
    new: Collection[TopicPartition] = (),
) -> None:
    """LeaderAndIsr, to each receiver for the partitions of which it holds a replica.

    A broker in controlled shutdown gets those that it led: what it followed it is not to follow
    again. An ISR with replicas that are none any more is sent to nobody: the next state comes at
    once. A replica is new where its partition is, and where it has just been assigned.
    """
    controller = broker.active_controller
    assert controller is not None
    states = tuple(
        one
        for one in _partition_states(controller, partitions)
        if set(one.state.isr) <= set(one.replicas)
    )
    for receiver in sorted(set(receivers) & set(controller.brokers)):
        led = controller.shutting_down.get(receiver)
        held = tuple(
            replace(one, is_new=one.partition in new or _is_added(controller, one, receiver))
            for one in states
            if receiver in one.replicas and (led is None or one.partition in led)
        )
        if not held:
            continue
        leaders = sorted({one.state.leader for one in held} & set(controller.brokers))
        message = LeaderAndIsrRequested(
            UNSENT,
            broker.broker_id,
            controller.controller_epoch,
            held,
            tuple(controller.brokers[leader] for leader in leaders),
            _broker_epoch(broker, controller, receiver),
        )
        broker.do(SendControl(receiver, message))


def _is_added(controller: Active, one: PartitionState, receiver: int) -> bool:
    topic, number = one.partition
    return receiver in controller.topics[topic].adding.get(number, ())


def send_stop_replica(
    broker: Broker,
    partitions: tuple[TopicPartition, ...],
    receivers: Collection[int],
    *,
    delete: bool,
) -> None:
    """StopReplica, of all of these partitions, to each receiver that lives."""
    controller = broker.active_controller
    assert controller is not None
    if not partitions:
        return
    for receiver in sorted(set(receivers) & set(controller.brokers)):
        message = StopReplicaRequested(
            UNSENT,
            broker.broker_id,
            controller.controller_epoch,
            delete,
            partitions,
            _broker_epoch(broker, controller, receiver),
        )
        broker.do(SendControl(receiver, message))


def _partition_counts(controller: Active) -> dict[str, int]:
    known = controller.topics
    return {topic: len(known[topic].assignment) for topic in INTERNAL_TOPICS if topic in known}


def send_update_metadata(
    broker: Broker, partitions: tuple[TopicPartition, ...], receivers: Collection[int]
) -> None:
    """UpdateMetadata: these partitions, and always the whole list of live brokers."""
    controller = broker.active_controller
    assert controller is not None
    _send_update_metadata(broker, _partition_states(controller, partitions), receivers)


def send_deleted(
    broker: Broker, partitions: tuple[TopicPartition, ...], receivers: Collection[int]
) -> None:
    """UpdateMetadata: these partitions are being deleted."""
    controller = broker.active_controller
    assert controller is not None
    deleted = LeaderAndIsr(
        LEADER_DURING_DELETE, LEADER_DURING_DELETE, (), controller.controller_epoch
    )
    states = tuple(
        PartitionState(
            tp, deleted, controller.replicas(tp), {}, controller.topics[tp.topic].topic_id
        )
        for tp in partitions
    )
    _send_update_metadata(broker, states, receivers)


def _send_update_metadata(
    broker: Broker, states: tuple[PartitionState, ...], receivers: Collection[int]
) -> None:
    controller = broker.active_controller
    assert controller is not None
    message = UpdateMetadataRequested(
        UNSENT,
        broker.broker_id,
        controller.controller_epoch,
        states,
        tuple(controller.brokers[b] for b in sorted(controller.brokers)),
        _partition_counts(controller),
    )
    for receiver in sorted(set(receivers) & set(controller.brokers)):
        epoch = _broker_epoch(broker, controller, receiver)
        broker.do(SendControl(receiver, replace(message, broker_epoch=epoch)))


def _broker_epoch(broker: Broker, controller: Active, receiver: int) -> int:
    """Of the registration that a request is for (KIP-380)."""
    return controller.brokers[receiver].epoch if broker.rules.checks_broker_epochs else -1
