"""The one entrance: an event goes in, the broker changes, effects come out in order.

Here is which handler each event has, and for those that concern several rooms, in which order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import (
    controlled_shutdown as controllers_shutdown,
)
from neaptide.clusters.broker.replication.controller import (
    kafka_controller,
    partition_creation,
    partition_reassignment,
    partition_state_machine,
    pending,
    reassignments,
    replica_leader_election,
    shutdowns,
    topic_creation,
    topic_deletion,
)
from neaptide.clusters.broker.replication.errors import IllegalReplicaStateError
from neaptide.clusters.broker.replication.follower import replica_fetcher_manager
from neaptide.clusters.broker.replication.group import (
    classic_member,
    consumer_group_change,
    consumer_group_heartbeat,
    group_administration,
    group_coordinator,
    group_membership,
    group_metadata_manager,
)
from neaptide.clusters.broker.replication.interface import (
    administration,
    coordination_service,
    events,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.leader import (
    alter_partition_manager,
    delete_records,
    fetch,
    in_sync_replicas,
    log_offsets,
    purgatory,
    transaction_markers,
    transaction_verification,
)
from neaptide.clusters.broker.replication.model import LEADER_DURING_DELETE
from neaptide.clusters.broker.replication.replicas import (
    controlled_shutdown,
    log_manager,
    replica_manager,
)
from neaptide.clusters.broker.replication.transaction import (
    producer_id_manager,
    transaction_administration,
    transaction_coordinator,
)

Handler = Callable[[Broker, Any, int], None]


def _on_written(
    broker: Broker, event: coordination_service.LeaderAndIsrWritten, now_ms: int
) -> None:
    if event.by_controller:
        partition_state_machine.on_state_written(broker, event, now_ms)
    elif in_sync_replicas.on_isr_written(broker, event, now_ms):
        purgatory.complete_delayed(broker, event.partition, now_ms)


def _on_conflict(
    broker: Broker, event: coordination_service.LeaderAndIsrConflict, now_ms: int
) -> None:
    if event.by_controller:
        partition_state_machine.on_state_conflict(broker, event, now_ms)
    else:
        in_sync_replicas.on_isr_conflict(broker, event, now_ms)


def _on_read(broker: Broker, event: coordination_service.LeaderAndIsrRead, now_ms: int) -> None:
    """Asked by the controller, or by a leader that does not know what became of its ISR change."""
    for topic_partition, state in event.states.items():
        if in_sync_replicas.on_state_read(broker, topic_partition, state, now_ms):
            purgatory.complete_delayed(broker, topic_partition, now_ms)
    partition_state_machine.on_leader_and_isr_read(broker, event, now_ms)


def _on_assignment_written(
    broker: Broker, event: coordination_service.AssignmentWritten, now_ms: int
) -> None:
    """Of a partition that is created, or reassigned."""
    if partition_creation.on_assignment_written(broker, event):
        partition_state_machine.reconsider(broker, (event.partition,))
    else:
        partition_reassignment.on_assignment_written(broker, event, now_ms)
        topic_deletion.begin_deletions(broker)


def _on_update_metadata(broker: Broker, event: events.UpdateMetadataRequested, now_ms: int) -> None:
    replica_manager.on_update_metadata(broker, event, now_ms)
    topic_creation.complete_creations(broker)
    partition_creation.complete_growths(broker)
    deleted = {
        one.partition for one in event.partitions if one.state.leader == LEADER_DURING_DELETE
    }
    if deleted:
        group_administration.on_partitions_deleted(broker, deleted, now_ms)
        topic_deletion.complete_deletions(broker)


def _on_groups_read(broker: Broker, event: events.CommittedOffsetsRead, now_ms: int) -> None:
    group_metadata_manager.on_committed_offsets_read(broker, event, now_ms)
    group_membership.on_groups_read(broker, event, now_ms)
    consumer_group_heartbeat.on_groups_read(broker, event, now_ms)


def _on_altered(broker: Broker, event: events.AlterPartitionResponded, now_ms: int) -> None:
    for topic_partition in in_sync_replicas.on_alter_partition_responded(broker, event, now_ms):
        purgatory.complete_delayed(broker, topic_partition, now_ms)


def _on_session_started(
    broker: Broker, event: coordination_service.SessionStarted, now_ms: int
) -> None:
    kafka_controller.on_session_started(broker, event, now_ms)
    replica_manager.on_session_started(broker, event, now_ms)
    in_sync_replicas.on_session_started(broker)
    transaction_coordinator.on_session_started(broker, now_ms)


def _on_session_expired(
    broker: Broker, event: coordination_service.SessionExpired, now_ms: int
) -> None:
    kafka_controller.on_session_expired(broker, event, now_ms)
    in_sync_replicas.on_session_expired(broker)
    producer_id_manager.on_session_expired(broker)


def _on_request_abandoned(broker: Broker, event: events.RequestAbandoned, now_ms: int) -> None:
    purgatory.on_request_abandoned(broker, event, now_ms)
    pending.forget(broker, event.request)
    shutdowns.forget_shutdown(broker, event.request)
    reassignments.forget_postponed(broker, event.request)
    transaction_coordinator.forget_request(broker, event.request)
    transaction_verification.forget_request(broker, event.request)


def _on_expired(broker: Broker, timer: events.DelayedOperationExpired, now_ms: int) -> None:
    purgatory.on_delayed_operation_expired(broker, timer, now_ms)
    pending.expire(broker, timer.request)


def _on_member_expired(broker: Broker, timer: events.MemberExpiration, now_ms: int) -> None:
    if timer.group in broker.consumer_groups:
        consumer_group_heartbeat.on_member_expiration(broker, timer, now_ms)
    else:
        group_membership.on_member_expiration(broker, timer, now_ms)


def _on_timer(broker: Broker, event: events.TimerFired, now_ms: int) -> None:
    handler = _TIMERS.get(type(event.timer))
    if handler is None:
        raise IllegalReplicaStateError(f"no broker ever sets {type(event.timer).__name__}")
    handler(broker, event.timer, now_ms)


_TIMERS: Final[Mapping[type, Handler]] = {
    events.IsrExpiration: in_sync_replicas.on_isr_expiration,
    events.AlterPartitionRetry: alter_partition_manager.on_retry,
    events.IsrChangePropagation: in_sync_replicas.on_isr_change_propagation,
    events.HighWatermarkCheckpoint: replica_manager.on_high_watermark_checkpoint,
    events.DelayedOperationExpired: _on_expired,
    events.MemberExpiration: _on_member_expired,
    events.RevocationExpiration: consumer_group_heartbeat.on_revocation_expiration,
    events.ClassicMemberExpiration: consumer_group_heartbeat.on_classic_member_expiration,
    events.RebalanceExpiration: group_membership.on_rebalance_expiration,
    events.TransactionExpiration: transaction_coordinator.on_transaction_expiration,
    events.MarkerRetry: transaction_coordinator.on_marker_retry,
    events.FetcherBackoffOver: replica_fetcher_manager.on_backoff_over,
    administration.ReassignmentRetry: partition_reassignment.on_reassignment_retry,
    administration.ControlledShutdownRetry: controlled_shutdown.on_controlled_shutdown_retry,
    administration.AutoPreferredReplicaLeaderElection: (
        replica_leader_election.on_auto_preferred_replica_leader_election
    ),
}

_HANDLERS: Final[Mapping[type, Handler]] = {
    events.TimerFired: _on_timer,
    # clients and followers
    events.ProduceRequested: transaction_verification.on_produce,
    events.InitProducerIdRequested: transaction_coordinator.on_init_producer_id,
    events.AddPartitionsToTxnRequested: transaction_coordinator.on_add_partitions,
    events.AddOffsetsToTxnRequested: transaction_coordinator.on_add_offsets,
    events.EndTxnRequested: transaction_coordinator.on_end_txn,
    events.DescribeTransactionsRequested: transaction_administration.on_describe_transactions,
    events.ListTransactionsRequested: transaction_administration.on_list_transactions,
    events.WriteTxnMarkersRequested: transaction_markers.on_write_txn_markers,
    events.DescribeProducersRequested: transaction_markers.on_describe_producers,
    events.DeleteRecordsRequested: delete_records.on_delete_records,
    events.FetchRequested: fetch.on_fetch,
    events.FindCoordinatorRequested: group_coordinator.on_find_coordinator,
    events.OffsetCommitRequested: group_coordinator.on_offset_commit,
    events.TxnOffsetCommitRequested: group_coordinator.on_txn_offset_commit,
    events.OffsetFetchRequested: group_coordinator.on_offset_fetch,
    events.JoinGroupRequested: classic_member.on_join_group,
    events.SyncGroupRequested: classic_member.on_sync_group,
    events.HeartbeatRequested: classic_member.on_heartbeat,
    events.LeaveGroupRequested: classic_member.on_leave_group,
    events.ConsumerGroupHeartbeatRequested: (consumer_group_heartbeat.on_consumer_group_heartbeat),
    events.ConsumerGroupDescribeRequested: group_administration.on_consumer_group_describe,
    events.DescribeGroupsRequested: group_administration.on_describe_groups,
    events.ListGroupsRequested: group_administration.on_list_groups,
    events.DeleteGroupsRequested: group_administration.on_delete_groups,
    events.OffsetDeleteRequested: group_administration.on_offset_delete,
    events.OffsetForLeaderEpochRequested: log_offsets.on_offset_for_leader_epoch,
    events.ListOffsetsRequested: log_offsets.on_list_offsets,
    events.RequestAbandoned: _on_request_abandoned,
    events.CreateTopicsRequested: topic_creation.on_create_topics,
    events.CreatePartitionsRequested: partition_creation.on_create_partitions,
    events.DeleteTopicsRequested: topic_deletion.on_delete_topics,
    events.TopicWanted: topic_creation.on_topic_wanted,
    # the leader that this broker follows
    events.FetchResponded: replica_fetcher_manager.on_fetch_responded,
    events.OffsetForLeaderEpochResponded: replica_fetcher_manager.on_epochs_responded,
    events.ListOffsetsResponded: replica_fetcher_manager.on_offsets_responded,
    events.FetcherRequestFailed: replica_fetcher_manager.on_request_failed,
    events.LogTruncated: log_manager.on_log_truncated,
    events.ProducersRead: log_manager.on_producers_read,
    events.CommittedOffsetsRead: _on_groups_read,
    events.TransactionsRead: transaction_coordinator.on_transactions_read,
    # leaders that a coordinator has end transactions, and a coordinator that a leader asks
    events.WriteTxnMarkersResponded: transaction_coordinator.on_markers_responded,
    events.WriteTxnMarkersFailed: transaction_coordinator.on_markers_failed,
    events.AddPartitionsToTxnResponded: transaction_verification.on_verified,
    events.AddPartitionsToTxnFailed: transaction_verification.on_not_verified,
    # retention
    events.LogStartAdvanced: log_manager.on_log_start_advanced,
    events.ProducerExpiration: log_manager.on_producer_expiration,
    # the controller
    events.LeaderAndIsrRequested: replica_manager.on_leader_and_isr,
    events.StopReplicaRequested: replica_manager.on_stop_replica,
    events.UpdateMetadataRequested: _on_update_metadata,
    events.LogDirectoryFailed: replica_manager.on_log_directory_failed,
    events.BrokerSettingsChanged: replica_manager.on_broker_settings_changed,
    events.GroupSettingsChanged: consumer_group_change.on_group_settings_changed,
    events.TopicSettingsChanged: replica_manager.on_topic_settings_changed,
    events.AlterPartitionResponded: _on_altered,
    events.AlterPartitionFailed: alter_partition_manager.on_failed,
    # of operators, to this controller
    administration.ElectLeadersRequested: replica_leader_election.on_elect_leaders,
    administration.AlterPartitionReassignmentsRequested: (
        partition_reassignment.on_alter_partition_reassignments
    ),
    administration.ListPartitionReassignmentsRequested: (
        partition_reassignment.on_list_partition_reassignments
    ),
    # this broker is to stop
    administration.ShutdownRequested: controlled_shutdown.on_shutdown_requested,
    administration.ControlledShutdownResponded: (
        controlled_shutdown.on_controlled_shutdown_responded
    ),
    administration.ControlledShutdownFailed: controlled_shutdown.on_controlled_shutdown_failed,
    # of brokers that stop, to this controller
    administration.ControlledShutdownRequested: controllers_shutdown.on_controlled_shutdown,
    # of leaders, to this controller
    events.AlterPartitionRequested: partition_state_machine.on_alter_partition,
    events.ControlResponded: kafka_controller.on_control_responded,
    # the coordination service
    coordination_service.SessionStarted: _on_session_started,
    coordination_service.SessionExpired: _on_session_expired,
    coordination_service.ControllerElected: kafka_controller.on_controller_elected,
    coordination_service.ControllerChanged: kafka_controller.on_controller_changed,
    coordination_service.ClusterLoaded: kafka_controller.on_cluster_loaded,
    coordination_service.BrokersChanged: kafka_controller.on_brokers_changed,
    coordination_service.TopicsChanged: kafka_controller.on_topics_changed,
    coordination_service.LeaderAndIsrRead: _on_read,
    coordination_service.LeaderAndIsrWritten: _on_written,
    coordination_service.LeaderAndIsrConflict: _on_conflict,
    coordination_service.IsrChangeNotified: kafka_controller.on_isr_change_notified,
    coordination_service.LogDirEventNotified: kafka_controller.on_log_dir_event,
    coordination_service.PreferredReplicaElectionFound: (
        replica_leader_election.on_preferred_replica_election_found
    ),
    coordination_service.PartitionReassignmentFound: (
        partition_reassignment.on_partition_reassignment_found
    ),
    coordination_service.AssignmentWritten: _on_assignment_written,
    coordination_service.LeaderAndIsrChanged: partition_reassignment.on_leader_and_isr_changed,
    coordination_service.TopicCreated: topic_creation.on_topic_created,
    coordination_service.TopicsMarkedForDeletion: topic_deletion.on_topics_marked,
    coordination_service.TopicDeleted: topic_deletion.on_topic_deleted,
    coordination_service.ProducerIdsAllocated: transaction_coordinator.on_producer_ids_allocated,
}


def step(broker: Broker, event: object, now_ms: int) -> tuple[Effect, ...]:
    """Changes the broker by one event; returns what must be done now, in order.

    `now_ms` never goes back. Raises IllegalReplicaStateError where the event cannot be.
    """
    handler = _HANDLERS.get(type(event))
    if handler is None:
        raise IllegalReplicaStateError(f"no broker ever receives {type(event).__name__}")
    try:
        handler(broker, event, now_ms)
        return tuple(broker.effects)
    finally:
        broker.effects.clear()


def begin(broker: Broker) -> tuple[Effect, ...]:
    """The first effects of a broker that has just started: its periodic timers."""
    broker.set_timer(events.IsrExpiration(), in_sync_replicas.isr_check_interval_ms(broker))
    if broker.rules.reports_isr_changes:
        broker.set_timer(events.IsrChangePropagation(), in_sync_replicas.PROPAGATION_INTERVAL_MS)
    effects = tuple(broker.effects)
    broker.effects.clear()
    return effects


def shut_down(broker: Broker) -> tuple[Effect, ...]:
    """The last effects of a broker that stops cleanly: its high watermarks are checkpointed."""
    replica_manager.checkpoint_high_watermarks(broker)
    effects = tuple(broker.effects)
    broker.effects.clear()
    return effects
