"""Deleting topics: from the mark in `/admin/delete_topics` until all of its replicas are gone.

1. A topic is marked, by DeleteTopics or by whoever writes the znode. One of which a partition is
   being reassigned waits for the end of that.
2. It is no topic of this controller's any more: nobody is elected, nothing is reassigned. All
   brokers are informed that nobody leads it; its replicas are stopped, then deleted.
3. When every replica is deleted its znodes go, the mark last. A broker that does not live is waited
   for. Another controller begins again at 2.

As Kafka's TopicDeletionManager, with ZooKeeper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import pending
from neaptide.clusters.broker.replication.controller.controller_channel_manager import (
    send_deleted,
    send_stop_replica,
)
from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
    Deletions,
    TopicDeletion,
)
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import coordination_service
from neaptide.clusters.broker.replication.interface.coordination_service import (
    MarkTopicForDeletion,
    TopicsMarkedForDeletion,
    UnmarkTopics,
)
from neaptide.clusters.broker.replication.interface.effects import (
    RespondDeleteTopics,
    TopicDeletionResult,
)
from neaptide.clusters.broker.replication.interface.events import (
    ControlResponded,
    DeleteTopicsRequested,
    TopicToDelete,
)
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.rule import rule

T = TypeVar("T")


def on_delete_topics(broker: Broker, event: DeleteTopicsRequested, now_ms: int) -> None:
    """Each topic is refused or marked by itself; one answer waits for all of them."""
    controller = broker.active_controller
    if controller is None:
        refused = (TopicDeletionResult(*named, Error.NOT_CONTROLLER) for named in event.topics)
        broker.do(RespondDeleteTopics(event.request, tuple(refused)))
        return
    named = (_with_name_and_id(controller, topic) for topic in event.topics)
    results = {topic: _refusal(broker, controller, topic) for topic in named}
    begun = controller.deletions.marked | controller.deletions.left.keys()
    for (topic, _), refused_one in results.items():
        if refused_one is None and topic is not None and topic not in begun:
            broker.coordinate(MarkTopicForDeletion(topic))
    pending.begin(broker, TopicDeletion(event.request, results), event.timeout_ms)


def _with_name_and_id(controller: Active, named: TopicToDelete) -> TopicToDelete:
    """As far as there is such a topic."""
    for topic, one in controller.topics.items():
        if topic == named.topic or (named.topic is None and one.topic_id == named.topic_id):
            return TopicToDelete(topic, one.topic_id)
    return named


def _refusal(
    broker: Broker, controller: Active, named: TopicToDelete
) -> TopicDeletionResult | None:
    if not broker.settings.delete_topic_enable:
        return TopicDeletionResult(*named, Error.TOPIC_DELETION_DISABLED)
    if named.topic is None:
        return TopicDeletionResult(*named, Error.UNKNOWN_TOPIC_ID)
    if not _is_there(broker, controller, named.topic):
        return TopicDeletionResult(*named, Error.UNKNOWN_TOPIC_OR_PARTITION)
    return None


def _is_there(broker: Broker, controller: Active, topic: str) -> bool:
    if topic in controller.topics:
        return True
    if broker.rules.answers_when_deleted:
        return topic in controller.deletions.left
    return topic in broker.metadata.topics


def on_topics_marked(broker: Broker, event: TopicsMarkedForDeletion, now_ms: int) -> None:
    if broker.active_controller is not None:
        mark(broker, event.topics)


def mark(broker: Broker, topics: Collection[str]) -> None:
    """These are to be deleted, says the coordination service."""
    controller = broker.active_controller
    assert controller is not None
    deletions = controller.deletions
    fresh = [topic for topic in topics if topic not in deletions.left]
    may_be = broker.settings.delete_topic_enable
    doomed = frozenset(topic for topic in fresh if may_be and topic in controller.topics)
    if kept := tuple(topic for topic in fresh if topic not in doomed):
        broker.coordinate(
            UnmarkTopics(kept, controller.controller_epoch, broker.rules.fences_controller_writes)
        )
    _put(broker, replace(deletions, marked=deletions.marked | doomed))
    begin_deletions(broker)


@rule
def begin_deletions(broker: Broker) -> None:
    """Of the marked topics of which nothing is being reassigned."""
    controller = broker.active_controller
    if controller is None or not controller.deletions.marked:
        return
    own = controller.reassignments
    busy = {tp.topic for tp in (*own.ongoing, *own.written)}
    for topic in sorted(controller.deletions.marked - busy):
        _begin(broker, topic)


def _begin(broker: Broker, topic: str) -> None:
    controller = broker.active_controller
    assert controller is not None
    broker.note(f"{topic} is being deleted")
    partitions = tuple(tp for tp in controller.all_partitions() if tp.topic == topic)
    unneeded = controller.reassignments.unneeded
    left = frozenset(
        (tp, replica)
        for tp in partitions
        for replica in (*controller.replicas(tp), *unneeded.get(tp, ()))
    )
    send_deleted(broker, partitions, controller.brokers)
    deletions = controller.deletions
    broker.controller = replace(
        controller,
        topics={name: one for name, one in controller.topics.items() if name != topic},
        states=_of_others(controller.states, topic),
        fallen=_of_others(controller.fallen, topic),
        unclean=_of_others(controller.unclean, topic),
        offline=_of_others(controller.offline, topic),
        reassignments=replace(controller.reassignments, unneeded=_of_others(unneeded, topic)),
        deletions=replace(
            deletions, marked=deletions.marked - {topic}, left={**deletions.left, topic: left}
        ),
    )
    _stop(broker, left, controller.brokers, delete=False)
    _stop(broker, left, controller.brokers, delete=True)
    if not left:  # a topic without partitions, or that somebody else has removed
        _delete_znodes(broker, topic)


def _of_others(by_partition: Mapping[TopicPartition, T], topic: str) -> dict[TopicPartition, T]:
    return {tp: one for tp, one in by_partition.items() if tp.topic != topic}


def _stop(
    broker: Broker,
    replicas: Iterable[tuple[TopicPartition, int]],
    receivers: Collection[int],
    *,
    delete: bool,
) -> None:
    of_broker = defaultdict(list)
    for tp, replica in sorted(replicas):
        of_broker[replica].append(tp)
    for receiver in sorted(of_broker.keys() & set(receivers)):
        send_stop_replica(broker, tuple(of_broker[receiver]), (receiver,), delete=delete)


def delete_on(broker: Broker, come: Collection[int]) -> None:
    """Brokers that have come may hold replicas that are to be deleted."""
    controller = broker.active_controller
    assert controller is not None
    for left in controller.deletions.left.values():
        _stop(broker, left, come, delete=True)


@rule
def on_replicas_deleted(broker: Broker, event: ControlResponded) -> None:
    controller = broker.active_controller
    if controller is None or event.error is not Error.NONE or not event.deleted:
        return
    deletions = controller.deletions
    gone = {(tp, event.broker) for tp in event.deleted}
    touched = sorted({tp.topic for tp in event.deleted} & deletions.left.keys())
    left = {topic: deletions.left[topic] - gone for topic in touched}
    _put(broker, replace(deletions, left={**deletions.left, **left}))
    for topic in touched:
        if deletions.left[topic] and not left[topic]:
            _delete_znodes(broker, topic)


def _delete_znodes(broker: Broker, topic: str) -> None:
    controller = broker.active_controller
    assert controller is not None
    broker.coordinate(
        coordination_service.DeleteTopic(
            topic, controller.controller_epoch, broker.rules.fences_controller_writes
        )
    )


def on_topic_deleted(broker: Broker, event: coordination_service.TopicDeleted, now_ms: int) -> None:
    controller = broker.active_controller
    if controller is None:
        return
    broker.note(f"{event.topic} is deleted")
    left = {topic: one for topic, one in controller.deletions.left.items() if topic != event.topic}
    _put(broker, replace(controller.deletions, left=left))
    complete_deletions(broker)


def _put(broker: Broker, deletions: Deletions) -> None:
    controller = broker.active_controller
    assert controller is not None
    broker.controller = replace(controller, deletions=deletions)


def complete_deletions(broker: Broker) -> None:
    """Answers the requests whose topics are all gone, or have errors."""
    controller = broker.active_controller
    if controller is None:
        return

    def gone(_: TopicDeletion, named: TopicToDelete) -> TopicDeletionResult | None:
        is_there = named.topic is not None and _is_there(broker, controller, named.topic)
        return None if is_there else TopicDeletionResult(*named, Error.NONE)

    pending.settle(broker, TopicDeletion, gone)
