"""What a broker does as the controller requests: LeaderAndIsr, StopReplica, UpdateMetadata (C4).

Requests of a controller with an older epoch are refused; a partition's state with an older, or the
same, leader epoch is left alone, but for an ISR that has shrunk in it (KAFKA-15021). From 2.2 on
requests for an earlier registration of this broker are refused too (KIP-380): a process that has
started again must not obey what was meant for the one before. Also the high watermark checkpoint.
As Kafka's ReplicaManager, without append and fetch: see leader/produce and leader/fetch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.follower.replica_fetcher_manager import (
    advance_all,
    begin_following,
    close_idle_fetchers,
    stop_following,
)
from neaptide.clusters.broker.replication.generation import SameLeader
from neaptide.clusters.broker.replication.group import (
    consumer_group_heartbeat,
    group_membership,
    group_metadata_manager,
)
from neaptide.clusters.broker.replication.interface.coordination_service import (
    NotifyLogDirEvent,
    SessionStarted,
)
from neaptide.clusters.broker.replication.interface.effects import (
    AssignTopicId,
    ControlRequest,
    CreateLog,
    DeleteLog,
    RespondControl,
    WriteHighWatermarkCheckpoint,
)
from neaptide.clusters.broker.replication.interface.events import (
    BrokerSettingsChanged,
    HighWatermarkCheckpoint,
    LeaderAndIsrRequested,
    LogDirectoryFailed,
    PartitionState,
    StopReplicaRequested,
    TopicSettingsChanged,
    UpdateMetadataRequested,
)
from neaptide.clusters.broker.replication.leader import alter_partition_manager
from neaptide.clusters.broker.replication.leader.purgatory import complete_delayed
from neaptide.clusters.broker.replication.model import (
    NO_LEADER,
    UNKNOWN_BROKER_EPOCH,
    BrokerRegistration,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition import partition_rules
from neaptide.clusters.broker.replication.partition.partition_rules import (
    Follower,
    Leader,
    Partition,
)
from neaptide.clusters.broker.replication.partition.unified_log import UnifiedLog
from neaptide.clusters.broker.replication.replicas.metadata_cache import with_partitions
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.settings import topic_settings
from neaptide.clusters.broker.replication.transaction import transaction_state_manager


@rule
def is_stale(broker: Broker, controller_epoch: int) -> bool:
    """Notes the newest controller epoch; true where this one is older: a controller of old."""
    if controller_epoch < broker.controller_epoch:
        broker.note(
            f"refusing a request of controller epoch {controller_epoch}:"
            f" {broker.controller_epoch} is known"
        )
        return True
    broker.controller_epoch = controller_epoch
    return False


def _is_refused(broker: Broker, event: ControlRequest) -> bool:
    """Answers a request that must not be obeyed, and keeps one that came too early."""
    if broker.rules.checks_broker_epochs and event.broker_epoch != UNKNOWN_BROKER_EPOCH:
        if broker.broker_epoch is None:
            broker.early_requests = (*broker.early_requests, event)
            return True
        if event.broker_epoch < broker.broker_epoch:
            broker.note(
                f"refusing a request for broker epoch {event.broker_epoch}:"
                f" this broker has registered again, in {broker.broker_epoch}"
            )
            broker.do(RespondControl(event.request, Error.STALE_BROKER_EPOCH))
            return True
    if is_stale(broker, event.controller_epoch):
        broker.do(RespondControl(event.request, Error.STALE_CONTROLLER_EPOCH))
        return True
    return False


def on_session_started(broker: Broker, event: SessionStarted, now_ms: int) -> None:
    """Only now does this broker know which requests are meant for it."""
    broker.broker_epoch = event.broker_epoch
    early, broker.early_requests = broker.early_requests, ()
    for request in early:
        match request:
            case LeaderAndIsrRequested():
                on_leader_and_isr(broker, request, now_ms)
            case StopReplicaRequested():
                on_stop_replica(broker, request, now_ms)
            case UpdateMetadataRequested():
                on_update_metadata(broker, request, now_ms)


def on_leader_and_isr(broker: Broker, event: LeaderAndIsrRequested, now_ms: int) -> None:
    """Makes this broker leader or follower of each partition named."""
    if _is_refused(broker, event):
        return
    # The metadata know a broker with all its listeners, a leader's entry here has only one.
    leaders = {leader.broker_id: leader for leader in event.live_leaders}
    _know_brokers(broker, {**leaders, **broker.metadata.brokers}, now_ms)
    outcomes = tuple((sent.partition, become(broker, sent, now_ms)) for sent in event.partitions)
    close_idle_fetchers(broker)
    if not broker.checkpoints_high_watermarks:
        # Only now are all partitions known: an earlier checkpoint would forget some (C7).
        broker.checkpoints_high_watermarks = True
        _schedule_checkpoint(broker)
    broker.do(RespondControl(event.request, Error.NONE, outcomes))
    advance_all(broker, now_ms)


@rule
def become(broker: Broker, sent: PartitionState, now_ms: int) -> Error:
    if broker.broker_id not in sent.replicas:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    if _is_offline(broker, sent):
        broker.offline |= {sent.partition}
        return Error.KAFKA_STORAGE_ERROR
    partition = get_or_create(broker, sent)
    if not _is_of_topic(partition, sent):
        broker.note(
            f"{sent.partition}: its log is of topic {partition.topic_id},"
            f" the controller speaks of {sent.topic_id}"
        )
        return Error.INCONSISTENT_TOPIC_ID
    learns_topic_id = partition.topic_id is None and sent.topic_id is not None
    if learns_topic_id:
        partition = _assign_topic_id(broker, partition, sent)
    if _is_newer_isr(broker, partition, sent):
        _take_isr(broker, partition, sent, now_ms)
        return Error.NONE
    if sent.state.leader_epoch <= partition.leader_epoch:
        is_known = learns_topic_id and sent.state.leader_epoch == partition.leader_epoch
        return Error.NONE if is_known else Error.STALE_CONTROLLER_EPOCH
    alter_partition_manager.forget(broker, sent.partition)
    if sent.state.leader == broker.broker_id:
        become_leader(broker, partition, sent, now_ms)
    else:
        become_follower(broker, partition, sent, now_ms)
    complete_delayed(broker, sent.partition, now_ms)
    return Error.NONE


def _is_newer_isr(broker: Broker, partition: Partition, sent: PartitionState) -> bool:
    return (
        not broker.rules.shrinks_in_new_epoch
        and isinstance(partition.role, Leader)
        and sent.state.leader == broker.broker_id
        and sent.state.leader_epoch == partition.leader_epoch
        and sent.state.version > partition.version
    )


def _take_isr(broker: Broker, partition: Partition, sent: PartitionState, now_ms: int) -> None:
    """The controller has changed it; what this leader has asked for itself is void."""
    alter_partition_manager.forget(broker, sent.partition)
    partition = broker.put(partition_rules.commit_isr(partition, sent.state))
    broker.note(f"{sent.partition}: ISR {list(sent.state.isr)} in epoch {sent.state.leader_epoch}")
    broker.increment_high_watermark(partition, now_ms)
    complete_delayed(broker, sent.partition, now_ms)


def _is_offline(broker: Broker, sent: PartitionState) -> bool:
    """A replica that is missing while a log directory is offline may be in that one: it is not made
    anew in another."""
    tp = sent.partition
    if tp in broker.offline:
        return True
    is_missing = tp not in broker.partitions and tp not in broker.stored
    return is_missing and broker.has_offline_log_directory and not sent.is_new


def _is_of_topic(partition: Partition, sent: PartitionState) -> bool:
    """A log is of the topic of which it was made: another one of the same name is not continued in
    it (KIP-516). Where one side has no id, nothing is known against it."""
    return None in (partition.topic_id, sent.topic_id) or partition.topic_id == sent.topic_id


def _assign_topic_id(broker: Broker, partition: Partition, sent: PartitionState) -> Partition:
    """To a log of before there were ids: a controller gives them without a new leader epoch."""
    assert sent.topic_id is not None
    broker.do(AssignTopicId(sent.partition, sent.topic_id))
    return broker.put(replace(partition, topic_id=sent.topic_id))


def get_or_create(broker: Broker, sent: PartitionState) -> Partition:
    partition = broker.partitions.get(sent.partition)
    settings = topic_settings(sent.settings, broker.settings)
    if partition is not None:
        return replace(partition, settings=settings)
    stored = broker.stored.pop(sent.partition, None)
    if stored is None:
        broker.do(CreateLog(sent.partition, sent.settings, sent.topic_id))
        log, high_watermark, topic_id = UnifiedLog(), 0, sent.topic_id
    else:
        log, topic_id = stored.log, stored.topic_id
        high_watermark = max(log.start_offset, min(stored.high_watermark, log.end_offset))
    return broker.put(Partition(sent.partition, settings, log, high_watermark, topic_id=topic_id))


def become_leader(broker: Broker, partition: Partition, sent: PartitionState, now_ms: int) -> None:
    stop_following(broker, sent.partition)
    before = partition.log.epochs
    partition = broker.put(
        partition_rules.make_leader(
            partition, sent, broker_id=broker.broker_id, now_ms=now_ms, rules=broker.rules
        )
    )
    broker.write_epochs(partition, before)
    broker.note(
        f"{sent.partition}: leader in epoch {sent.state.leader_epoch}, ISR {list(sent.state.isr)},"
        f" from offset {partition.log.end_offset}, high watermark {partition.high_watermark}"
    )
    broker.increment_high_watermark(partition, now_ms)
    group_metadata_manager.on_election(broker, sent.partition)
    transaction_state_manager.on_election(broker, sent.partition)


def become_follower(
    broker: Broker, partition: Partition, sent: PartitionState, now_ms: int
) -> None:
    """A new leader means truncation; the same leader in a newer epoch, by the generation's rule.

    A leader that is dead does not, as Kafka's followers have it: with nobody to fetch from,
    what was truncated could be lost for good. It is followed when it is known to live again.
    """
    before = partition
    _resign(broker, sent.partition)
    partition = broker.put(partition_rules.make_follower(partition, sent))
    leader = sent.state.leader
    if _may_fetch_on(broker, before, sent) and _is_followed(broker, sent.partition):
        return
    stop_following(broker, sent.partition)
    broker.note(f"{sent.partition}: follower of {leader} in epoch {sent.state.leader_epoch}")
    if leader in broker.metadata.brokers:
        begin_following(broker, partition, leader, now_ms)


def _may_fetch_on(broker: Broker, before: Partition, sent: PartitionState) -> bool:
    """Whether a follower needs no truncation: its leader stays, and the rule is content with that.

    Who missed an epoch may have missed a truncation with it (KAFKA-7164).
    """
    if not isinstance(before.role, Follower) or before.role.leader != sent.state.leader:
        return False
    match broker.rules.same_leader:
        case SameLeader.FETCHES_ON:
            return True
        case SameLeader.TRUNCATES_WHERE_AN_EPOCH_WAS_MISSED:
            return sent.state.leader_epoch == before.leader_epoch + 1
        case SameLeader.TRUNCATES:
            return False


def _know_brokers(broker: Broker, known: Mapping[int, BrokerRegistration], now_ms: int) -> None:
    """Takes the list of live brokers, and follows those leaders that were dead when named."""
    returned = known.keys() - broker.metadata.brokers.keys()
    broker.metadata = replace(broker.metadata, brokers=known)
    for topic_partition, partition in tuple(broker.partitions.items()):
        role = partition.role
        if (
            isinstance(role, Follower)
            and role.leader in returned
            and not _is_followed(broker, topic_partition)
        ):
            begin_following(broker, partition, role.leader, now_ms)


def _is_followed(broker: Broker, topic_partition: TopicPartition) -> bool:
    return any(topic_partition in fetcher.followed for fetcher in broker.fetchers.values())


def on_broker_settings_changed(broker: Broker, event: BrokerSettingsChanged, now_ms: int) -> None:
    """What topics do not set for themselves is resolved again topic by topic."""
    broker.settings = event.settings


def on_topic_settings_changed(broker: Broker, event: TopicSettingsChanged, now_ms: int) -> None:
    """They hold for what comes; who waits for the old ones is looked at again."""
    settings = topic_settings(event.settings, broker.settings)
    for topic_partition, partition in tuple(broker.partitions.items()):
        if topic_partition.topic == event.topic and partition.settings != settings:
            partition = broker.put(replace(partition, settings=settings))
            if isinstance(partition.role, Leader):
                broker.increment_high_watermark(partition, now_ms)
                complete_delayed(broker, topic_partition, now_ms)


def _resign(broker: Broker, topic_partition: TopicPartition) -> None:
    """Whoever leads the partition now coordinates its groups, or its transactional ids."""
    if topic_partition in broker.committed_offsets:
        group_membership.on_resignation(broker, topic_partition)
        consumer_group_heartbeat.on_resignation(broker, topic_partition)
    group_metadata_manager.on_resignation(broker, topic_partition)
    transaction_state_manager.on_resignation(broker, topic_partition)


def on_stop_replica(broker: Broker, event: StopReplicaRequested, now_ms: int) -> None:
    """Stops replicas, and deletes their logs only where that is said."""
    if _is_refused(broker, event):
        return
    for topic_partition in event.partitions:
        _stop(broker, topic_partition)
        partition = broker.partitions.get(topic_partition)
        if partition is not None:
            broker.put(replace(partition, role=Follower(NO_LEADER)))
            complete_delayed(broker, topic_partition, now_ms)
        if event.delete_partitions:
            held = broker.partitions.pop(topic_partition, None)
            stored = broker.stored.pop(topic_partition, None)
            if held or stored:
                broker.do(DeleteLog(topic_partition))
    close_idle_fetchers(broker)
    outcomes = tuple(
        (tp, Error.KAFKA_STORAGE_ERROR if tp in broker.offline else Error.NONE)
        for tp in event.partitions
    )
    broker.do(RespondControl(event.request, Error.NONE, outcomes))
    advance_all(broker, now_ms)


def _stop(broker: Broker, topic_partition: TopicPartition) -> None:
    stop_following(broker, topic_partition)
    _resign(broker, topic_partition)
    alter_partition_manager.forget(broker, topic_partition)


@rule
def on_log_directory_failed(broker: Broker, event: LogDirectoryFailed, now_ms: int) -> None:
    """Its replicas are offline until the next start; the controller has others lead (KIP-112)."""
    broker.has_offline_log_directory = True
    broker.offline |= set(event.partitions)
    for topic_partition in event.partitions:
        _stop(broker, topic_partition)
        broker.stored.pop(topic_partition, None)
        if broker.partitions.pop(topic_partition, None) is not None:
            complete_delayed(broker, topic_partition, now_ms)
    close_idle_fetchers(broker)
    broker.coordinate(NotifyLogDirEvent())


def on_update_metadata(broker: Broker, event: UpdateMetadataRequested, now_ms: int) -> None:
    if _is_refused(broker, event):
        return
    metadata = with_partitions(broker.metadata, event.partitions)
    broker.metadata = replace(
        metadata,
        controller_id=event.controller_id,
        partition_counts={**metadata.partition_counts, **event.partition_counts},
    )
    _know_brokers(broker, {known.broker_id: known for known in event.live_brokers}, now_ms)
    broker.do(RespondControl(event.request, Error.NONE))
    advance_all(broker, now_ms)


# --- the high watermark checkpoint (C7) ----------------------------------------------------------


def _schedule_checkpoint(broker: Broker) -> None:
    broker.set_timer(
        HighWatermarkCheckpoint(), broker.settings.replica_high_watermark_checkpoint_interval_ms
    )


def checkpoint_high_watermarks(broker: Broker) -> None:
    """All partitions of this broker, those too that no controller has named yet."""
    high_watermarks = {tp: replica.high_watermark for tp, replica in broker.stored.items()}
    for topic_partition, partition in broker.partitions.items():
        high_watermarks[topic_partition] = partition.high_watermark
    broker.do(WriteHighWatermarkCheckpoint(tuple(sorted(high_watermarks.items()))))


def on_high_watermark_checkpoint(
    broker: Broker, timer: HighWatermarkCheckpoint, now_ms: int
) -> None:
    checkpoint_high_watermarks(broker)
    _schedule_checkpoint(broker)
