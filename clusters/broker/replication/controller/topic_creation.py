"""Creating topics: checks a request, has it written, answers when the partitions have leaders.

CreateTopics is the controller's; topics that a client only names (auto.create.topics.enable), and
internal ones, any broker has written. As Kafka's AdminManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import pending
from neaptide.clusters.broker.replication.controller.controller_context import Active, TopicCreation
from neaptide.clusters.broker.replication.controller.replica_assignment import assign_replicas
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.interface.coordination_service import (
    CreateTopic,
    TopicCreated,
)
from neaptide.clusters.broker.replication.interface.effects import (
    RespondCreateTopics,
    TopicResult,
)
from neaptide.clusters.broker.replication.interface.events import (
    CreateTopicsRequested,
    NewTopic,
    TopicWanted,
)
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    TopicConfiguration,
    why_no_topic_name,
)
from neaptide.clusters.broker.replication.settings import InvalidSettingError, topic_settings
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    INTERNAL_TOPICS,
    TRANSACTIONS_TOPIC,
)

# As Kafka's controller has it (KRaft: POLICY_VIOLATION), for the partitions of all topics together.
PARTITIONS_MAX_PER_REQUEST = 10_000
NOBODY = 0  # `request` of a topic that was created because Metadata asked for it
PENDING = None


class _InvalidTopicError(Exception):
    def __init__(self, error: Error, message: str) -> None:
        super().__init__(message)
        self.error = error


def on_create_topics(broker: Broker, event: CreateTopicsRequested, now_ms: int) -> None:
    """Each topic is refused or asked for by itself; one answer waits for all of them."""
    controller = broker.controller
    if not isinstance(controller, Active):
        results = [TopicResult(new.topic, Error.NOT_CONTROLLER) for new in event.topics]
        broker.do(RespondCreateTopics(event.request, tuple(results)))
        return
    asked = sum(_asked_for(broker, new) for new in event.topics)
    if asked > PARTITIONS_MAX_PER_REQUEST:
        message = f"{asked} partitions in one request, {PARTITIONS_MAX_PER_REQUEST} are allowed"
        names = dict.fromkeys(new.topic for new in event.topics)
        refused = (TopicResult(name, Error.POLICY_VIOLATION, message) for name in names)
        broker.do(RespondCreateTopics(event.request, tuple(refused)))
        return
    named = Counter(new.topic for new in event.topics)
    outcomes: dict[str, TopicResult | None] = {}
    in_metrics = {_in_metrics(topic): topic for topic in controller.topics}
    for new in event.topics:
        is_named_twice = named[new.topic] > 1
        decided = _decide(broker, controller, event, new, in_metrics, is_named_twice=is_named_twice)
        if isinstance(decided, TopicConfiguration):
            in_metrics[_in_metrics(new.topic)] = new.topic
            _create(broker, event.request, new.topic, decided)
        outcomes[new.topic] = decided if isinstance(decided, TopicResult) else PENDING
    pending.begin(broker, TopicCreation(event.request, outcomes), event.timeout_ms)


def _create(broker: Broker, request: int, topic: str, configuration: TopicConfiguration) -> None:
    broker.coordinate(
        CreateTopic(request, topic, configuration, gives_topic_id=broker.rules.topic_ids)
    )


def _asked_for(broker: Broker, new: NewTopic) -> int:
    """How many partitions, whether or not the topic may have them."""
    if new.assignment:
        return len(new.assignment)
    if new.num_partitions == -1:
        return broker.settings.num_partitions
    return max(0, new.num_partitions)


def _decide(
    broker: Broker,
    controller: Active,
    event: CreateTopicsRequested,
    new: NewTopic,
    in_metrics: Mapping[str, str],
    *,
    is_named_twice: bool,
) -> TopicConfiguration | TopicResult:
    """What to create, or the result of a topic for which there is nothing more to do.

    `in_metrics`: topics that there are by then, by their names in metrics.
    """
    try:
        if is_named_twice:
            raise _InvalidTopicError(Error.INVALID_REQUEST, "the request names the topic twice")
        if new.topic in controller.topics:
            raise _InvalidTopicError(Error.TOPIC_ALREADY_EXISTS, f"{new.topic} exists already")
        if (other := in_metrics.get(_in_metrics(new.topic))) is not None:
            raise _InvalidTopicError(
                Error.INVALID_TOPIC_EXCEPTION, f"{new.topic} collides with {other}"
            )
        configuration = _configuration(broker, new, controller.brokers)
    except _InvalidTopicError as invalid:
        return TopicResult(new.topic, invalid.error, str(invalid))
    if event.validate_only:
        return TopicResult(new.topic, Error.NONE, configuration=configuration)
    return configuration


def on_topic_wanted(broker: Broker, event: TopicWanted, now_ms: int) -> None:
    """Auto-creation, by any broker, with the default number of partitions and replicas."""
    live = broker.metadata.brokers
    if not broker.settings.auto_create_topics_enable or not live:
        return
    if event.topic in INTERNAL_TOPICS:
        create_internal_topic(broker, event.topic)
        return
    try:
        configuration = _configuration(broker, NewTopic(event.topic, -1, -1, {}, {}), live)
    except _InvalidTopicError as invalid:
        broker.note(f"not creating {event.topic!r}: {invalid}")
        return
    _create(broker, NOBODY, event.topic, configuration)


def create_internal_topic(broker: Broker, topic: str) -> None:
    """`__consumer_offsets` or `__transaction_state`, by any broker, as its settings have it."""
    new = _offsets_topic(broker) if topic == OFFSETS_TOPIC else _transactions_topic(broker)
    try:
        configuration = _configuration(broker, new, broker.metadata.brokers)
    except _InvalidTopicError as invalid:
        broker.note(f"not creating {topic}: {invalid}")
        return
    _create(broker, NOBODY, topic, configuration)


def _offsets_topic(broker: Broker) -> NewTopic:
    """Before 0.11 with as many replicas as there are brokers, where those are fewer (KIP-115)."""
    settings = broker.settings
    replicas = settings.offsets_topic_replication_factor
    if not broker.rules.insists_on_offsets_replicas:
        replicas = min(replicas, len(broker.metadata.brokers))
    kept = {"cleanup.policy": "compact"}
    return NewTopic(OFFSETS_TOPIC, settings.offsets_topic_num_partitions, replicas, {}, kept)


def _transactions_topic(broker: Broker) -> NewTopic:
    settings = broker.settings
    kept = {
        "cleanup.policy": "compact",
        "min.insync.replicas": str(settings.transaction_state_log_min_isr),
        "segment.bytes": str(settings.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
    partitions = settings.transaction_state_log_num_partitions
    replicas = settings.transaction_state_log_replication_factor
    return NewTopic(TRANSACTIONS_TOPIC, partitions, replicas, {}, kept)


def on_topic_created(broker: Broker, event: TopicCreated, now_ms: int) -> None:
    controller = broker.active_controller
    if event.error is None or controller is None or event.request not in controller.pending:
        return
    pending.give(broker, event.request, event.topic, TopicResult(event.topic, Error[event.error]))
    complete_creations(broker)


def complete_creations(broker: Broker) -> None:
    """Answers the requests whose topics all have leaders, or an error, as far as this broker's own
    metadata know (DelayedCreatePartitions): whoever asks it then sees them."""
    pending.settle(broker, TopicCreation, partial(_created, broker))


def _created(broker: Broker, creation: TopicCreation, topic: str) -> TopicResult | None:
    controller = broker.active_controller
    configuration = controller.topics.get(topic) if controller is not None else None
    if configuration is None or not broker.metadata.have_leaders(topic, configuration.assignment):
        return PENDING
    return TopicResult(topic, Error.NONE, configuration=configuration)


def _configuration(
    broker: Broker, new: NewTopic, live: Mapping[int, BrokerRegistration]
) -> TopicConfiguration:
    """The topic's assignment and settings; raises _InvalidTopicError with Kafka's error."""
    if (reason := why_no_topic_name(new.topic)) is not None:
        raise _InvalidTopicError(Error.INVALID_TOPIC_EXCEPTION, reason)
    if new.refused is not None:
        raise _InvalidTopicError(Error.INVALID_CONFIG, new.refused)
    try:
        topic_settings(new.settings, broker.settings)
    except InvalidSettingError as invalid:
        raise _InvalidTopicError(Error.INVALID_CONFIG, str(invalid)) from None
    if new.assignment and (new.num_partitions, new.replication_factor) != (-1, -1):
        raise _InvalidTopicError(
            Error.INVALID_REQUEST, "an assignment and numbers cannot be given at the same time"
        )
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
    racks = {broker_id: registration.rack for broker_id, registration in live.items()}
    return TopicConfiguration(
        assign_replicas(new.topic, tuple(live), partitions, replicas, racks), dict(new.settings)
    )


def _in_metrics(topic: str) -> str:
    """In the names of metrics a dot is an underscore: two topics must not be one there."""
    return topic.replace(".", "_")


def _checked(assignment: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    complete = sorted(assignment) == list(range(len(assignment)))
    distinct = all(
        replicas and len(set(replicas)) == len(replicas) for replicas in assignment.values()
    )
    even = len({len(replicas) for replicas in assignment.values()}) == 1
    if not complete or not distinct or not even:
        raise _InvalidTopicError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            "partitions are numbered from 0, each with as many replicas, on different brokers",
        )
    return {partition: tuple(replicas) for partition, replicas in assignment.items()}
