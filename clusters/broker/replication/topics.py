"""Creating topics: checks a request, has it written, answers when the partitions have leaders."""

from __future__ import annotations

from dataclasses import replace

from clusters.broker.replication.assignment import assign_replicas
from clusters.broker.replication.broker import Broker
from clusters.broker.replication.controller_state import Active, TopicCreation
from clusters.broker.replication.coordination import CreateTopic, TopicCreated
from clusters.broker.replication.effects import Coordinate, RespondCreateTopics, TopicResult
from clusters.broker.replication.errors import Error
from clusters.broker.replication.messages import (
    CreateTopicsRequested,
    NewTopic,
    TopicWanted,
)
from clusters.broker.replication.model import TopicConfiguration, TopicPartition
from clusters.broker.replication.settings import InvalidSettingError, topic_settings

NOBODY = 0  # `request` of a topic that was created because Metadata asked for it
PENDING = None
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class _InvalidTopicError(Exception):
    def __init__(self, error: Error, message: str) -> None:
        super().__init__(message)
        self.error = error


def on_create_topics(broker: Broker, event: CreateTopicsRequested, now_ms: int) -> None:
    controller = broker.controller
    if not isinstance(controller, Active):
        results = [TopicResult(new.topic, Error.NOT_CONTROLLER) for new in event.topics]
        broker.do(RespondCreateTopics(event.request, tuple(results)))
        return
    outcomes: dict[str, str | None] = {}
    refused: list[TopicResult] = []
    wanted: list[tuple[str, TopicConfiguration]] = []
    for new in event.topics:
        try:
            if new.topic in controller.topics:
                raise _InvalidTopicError(Error.TOPIC_ALREADY_EXISTS, f"{new.topic} exists already")
            wanted.append((new.topic, _configuration(broker, new, tuple(controller.brokers))))
        except _InvalidTopicError as invalid:
            refused.append(TopicResult(new.topic, invalid.error, str(invalid)))
    if refused or event.validate_only:
        accepted = [TopicResult(topic, Error.NONE) for topic, _ in wanted]
        if refused and not event.validate_only:
            # One answer for the whole request: nothing is created where anything is wrong.
            accepted = [
                TopicResult(topic, Error.INVALID_REQUEST, "another topic of the request is invalid")
                for topic, _ in wanted
            ]
        broker.do(RespondCreateTopics(event.request, tuple(refused + accepted)))
        return
    for topic, configuration in wanted:
        outcomes[topic] = PENDING
        broker.do(Coordinate(CreateTopic(event.request, topic, configuration)))
    creation = TopicCreation(event.request, outcomes)
    broker.controller = replace(
        controller, creations={**controller.creations, event.request: creation}
    )


def on_topic_wanted(broker: Broker, event: TopicWanted, now_ms: int) -> None:
    """Auto-creation, by any broker, with the default number of partitions and replicas."""
    live = tuple(broker.metadata.brokers)
    if not broker.settings.auto_create_topics_enable or not live:
        return
    try:
        configuration = _configuration(broker, NewTopic(event.topic, -1, -1, {}, {}), live)
    except _InvalidTopicError as invalid:
        broker.note(f"not creating {event.topic!r}: {invalid}")
        return
    broker.do(Coordinate(CreateTopic(NOBODY, event.topic, configuration)))


def on_topic_created(broker: Broker, event: TopicCreated, now_ms: int) -> None:
    controller = broker.controller
    if not isinstance(controller, Active) or event.request not in controller.creations:
        return
    if event.error is not None:
        creation = controller.creations[event.request]
        creation = replace(creation, topics={**creation.topics, event.topic: event.error})
        broker.controller = replace(
            controller, creations={**controller.creations, event.request: creation}
        )
    complete_creations(broker)


def complete_creations(broker: Broker) -> None:
    """Answers the CreateTopics requests whose topics all have leaders, or an error."""
    controller = broker.controller
    if not isinstance(controller, Active):
        return
    for request, creation in tuple(controller.creations.items()):
        if not all(
            error is not None or _has_leaders(controller, topic)
            for topic, error in creation.topics.items()
        ):
            continue
        results = [
            TopicResult(topic, Error[error] if error else Error.NONE)
            for topic, error in creation.topics.items()
        ]
        broker.do(RespondCreateTopics(request, tuple(results)))
        left = {key: value for key, value in controller.creations.items() if key != request}
        controller = replace(controller, creations=left)
        broker.controller = controller


def _has_leaders(controller: Active, topic: str) -> bool:
    configuration = controller.topics.get(topic)
    return configuration is not None and all(
        TopicPartition(topic, partition) in controller.states
        for partition in configuration.assignment
    )


def _configuration(broker: Broker, new: NewTopic, live: tuple[int, ...]) -> TopicConfiguration:
    """The topic's assignment and settings; raises _InvalidTopicError with Kafka's error."""
    if not new.topic or len(new.topic) > 249 or new.topic in (".", ".."):
        raise _InvalidTopicError(Error.INVALID_TOPIC_EXCEPTION, "a topic's name has 1 to 249 signs")
    if not _LEGAL.issuperset(new.topic):
        raise _InvalidTopicError(
            Error.INVALID_TOPIC_EXCEPTION, "a topic's name has letters, digits, . _ and - only"
        )
    try:
        topic_settings(new.settings, broker.settings)
    except InvalidSettingError as invalid:
        raise _InvalidTopicError(Error.INVALID_REQUEST, str(invalid)) from None
    if new.assignment:
        return TopicConfiguration(_checked(new.assignment), dict(new.settings))
    partitions = broker.settings.num_partitions if new.num_partitions == -1 else new.num_partitions
    replicas = (
        broker.settings.default_replication_factor
        if new.replication_factor == -1
        else new.replication_factor
    )
    if partitions < 1:
        raise _InvalidTopicError(Error.INVALID_PARTITIONS, "a topic has at least one partition")
    if not 1 <= replicas <= len(live):
        raise _InvalidTopicError(
            Error.INVALID_REPLICATION_FACTOR,
            f"replication factor {replicas}, but {len(live)} brokers live",
        )
    return TopicConfiguration(
        assign_replicas(new.topic, live, partitions, replicas), dict(new.settings)
    )


def _checked(assignment: object) -> dict[int, tuple[int, ...]]:
    assert isinstance(assignment, dict)
    complete = sorted(assignment) == list(range(len(assignment)))
    distinct = all(
        replicas and len(set(replicas)) == len(replicas) for replicas in assignment.values()
    )
    if not complete or not distinct:
        raise _InvalidTopicError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            "partitions are numbered from 0, and the replicas of one are different brokers",
        )
    return {partition: tuple(replicas) for partition, replicas in assignment.items()}
