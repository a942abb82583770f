"""The table of APIs: a row for each that this broker answers or sends.

The versions are those of the Kafka of each generation where kio can still speak them (its lowest
are the lowest that KIP-896 left, so 0.8 and 0.10 speak as 0.11 does); ApiVersions goes higher so
that newer clients need not ask twice. Each counts from its generation on. Followers and the
controller use the replication listener, on which requests of brokers to brokers are answered too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neaptide.clusters.broker.replication.interface import administration as core_administration
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.server.apis import (
    administration,
    alter_partition,
    altering,
    cluster,
    consumer_group_heartbeat,
    control,
    controlled_shutdown,
    delete_records,
    describing,
    fetch,
    group_administration,
    group_membership,
    groups,
    offsets,
    produce,
    sasl,
    scram_credentials,
    transactions,
)
from neaptide.clusters.broker.server.apis.row import (
    AnsweredByCore,
    AnsweredByServer,
    ApiRow,
    SentToBrokers,
)
from neaptide.clusters.broker.wire.apis import Api, Versions

_ROWS: Final = (
    ApiRow(
        Api.PRODUCE,
        {
            "0.8": Versions(3, 5),
            "2.0": Versions(3, 6),
            "2.1": Versions(3, 7),
            "2.8": Versions(3, 9),  # with a sentence for an error from v8 on (KIP-467)
            "4.0": Versions(3, 11),
        },
        AnsweredByCore(
            events.ProduceRequested,
            produce.decode_produce,
            effects.RespondProduce,
            produce.encode_produce,
            produce.produce_error,
        ),
    ),
    ApiRow(
        Api.FETCH,
        # Sessions (KIP-227) are v7's; Kafka has that from 1.1 on.
        {
            "0.8": Versions(4, 5),
            "2.0": Versions(4, 8),
            "2.1": Versions(4, 10),
            "2.8": Versions(4, 12),
            "4.0": Versions(4, 17),  # by topic ids from v13 on; between brokers it is v15
        },
        AnsweredByCore(
            events.FetchRequested,
            fetch.decode_fetch,
            effects.RespondFetch,
            fetch.encode_fetch,
            fetch.fetch_error,
        ),
        between_brokers={"0.8": Versions(4, 12), "4.0": Versions(4, 17)},
        sent=SentToBrokers(
            effects.SendFetch, fetch.encode_fetch_request, fetch.decode_fetch_response
        ),
    ),
    ApiRow(
        Api.LIST_OFFSETS,
        {
            "0.8": Versions(1, 2),
            "2.0": Versions(1, 3),
            "2.1": Versions(1, 4),
            "2.8": Versions(1, 6),
            "4.0": Versions(1, 9),  # v10 waits for tiered storage, of which there is none
        },
        AnsweredByCore(
            events.ListOffsetsRequested,
            offsets.decode_list_offsets,
            effects.RespondListOffsets,
            offsets.encode_list_offsets,
            offsets.list_offsets_error,
        ),
        sent=SentToBrokers(
            effects.SendListOffsets,
            offsets.encode_list_offsets_request,
            offsets.decode_list_offsets_response,
        ),
    ),
    ApiRow(
        Api.METADATA,
        # librdkafka believes leader epochs from v9 on only (KAFKA-9212). Topic ids are in answers
        # from v10 on; by them topics are found from v12 on (Kafka 3.1).
        {
            "0.8": Versions(0, 5),
            "2.0": Versions(0, 6),
            "2.1": Versions(0, 7),
            "2.8": Versions(0, 11),
            "4.0": Versions(0, 13),
        },
        AnsweredByServer(cluster.answer_metadata),
    ),
    ApiRow(
        Api.LEADER_AND_ISR,
        {},
        AnsweredByCore(
            events.LeaderAndIsrRequested,
            control.decode_leader_and_isr,
            effects.RespondControl,
            control.encode_leader_and_isr,
            control.control_error,
            control.handle_leader_and_isr,
        ),
        between_brokers={"0.8": Versions(1, 1), "2.8": Versions(5, 5)},
        sent=SentToBrokers(events.LeaderAndIsrRequested, control.encode_leader_and_isr_request),
    ),
    ApiRow(
        Api.STOP_REPLICA,
        {},
        AnsweredByCore(
            events.StopReplicaRequested,
            control.decode_stop_replica,
            effects.RespondControl,
            control.encode_stop_replica,
            control.control_error,
            control.handle_stop_replica,
        ),
        between_brokers={"0.8": Versions(0, 0), "2.8": Versions(2, 2)},
        sent=SentToBrokers(events.StopReplicaRequested, control.encode_stop_replica_request),
    ),
    ApiRow(
        Api.UPDATE_METADATA,
        {},
        AnsweredByCore(
            events.UpdateMetadataRequested,
            control.decode_update_metadata,
            effects.RespondControl,
            control.encode_update_metadata,
            control.control_error,
            control.handle_update_metadata,
        ),
        between_brokers={"0.8": Versions(4, 4), "2.8": Versions(7, 7)},
        sent=SentToBrokers(events.UpdateMetadataRequested, control.encode_update_metadata_request),
    ),
    ApiRow(
        Api.ALTER_PARTITION,
        {},
        AnsweredByCore(
            events.AlterPartitionRequested,
            alter_partition.decode_alter_partition,
            effects.RespondAlterPartition,
            alter_partition.encode_alter_partition,
            alter_partition.alter_partition_error,
        ),
        between_brokers={"0.8": Versions(alter_partition.VERSION, alter_partition.VERSION)},
        sent=SentToBrokers(
            effects.SendAlterPartition,
            alter_partition.encode_alter_partition_request,
            alter_partition.decode_alter_partition_response,
        ),
    ),
    ApiRow(
        Api.OFFSET_COMMIT,
        {
            "0.8": Versions(2, 2),
            "0.11": Versions(2, 3),
            "2.0": Versions(2, 4),
            "2.1": Versions(2, 6),
            "2.8": Versions(2, 8),
            "4.0": Versions(2, 9),
        },
        AnsweredByCore(
            events.OffsetCommitRequested,
            groups.decode_offset_commit,
            effects.RespondOffsetCommit,
            groups.encode_offset_commit,
            groups.offset_commit_error,
        ),
    ),
    ApiRow(
        Api.OFFSET_FETCH,
        {
            "0.8": Versions(1, 2),
            "0.11": Versions(1, 3),
            "2.0": Versions(1, 4),
            "2.1": Versions(1, 5),
            "2.8": Versions(1, 7),
            "4.0": Versions(1, 9),
        },
        AnsweredByCore(
            events.OffsetFetchRequested,
            groups.decode_offset_fetch,
            effects.RespondOffsetFetch,
            groups.encode_offset_fetch,
            groups.offset_fetch_error,
        ),
    ),
    ApiRow(
        Api.FIND_COORDINATOR,
        {
            "0.8": Versions(0, 0),
            "0.11": Versions(0, 1),
            "2.0": Versions(0, 2),
            "2.8": Versions(0, 3),
            "4.0": Versions(0, 6),  # v4 from Kafka 3.0 on
        },
        AnsweredByCore(
            events.FindCoordinatorRequested,
            groups.decode_find_coordinator,
            effects.RespondFindCoordinator,
            groups.encode_find_coordinator,
            groups.find_coordinator_error,
        ),
    ),
    ApiRow(
        Api.JOIN_GROUP,
        {
            "0.10": Versions(0, 1),
            "0.11": Versions(0, 2),
            "2.0": Versions(0, 3),
            "2.8": Versions(0, 7),
            "4.0": Versions(0, 9),
        },
        AnsweredByCore(
            events.JoinGroupRequested,
            group_membership.decode_join_group,
            effects.RespondJoinGroup,
            group_membership.encode_join_group,
            group_membership.join_group_error,
        ),
    ),
    ApiRow(
        Api.SYNC_GROUP,
        {
            "0.10": Versions(0, 0),
            "0.11": Versions(0, 1),
            "2.0": Versions(0, 2),
            "2.8": Versions(0, 5),
        },
        AnsweredByCore(
            events.SyncGroupRequested,
            group_membership.decode_sync_group,
            effects.RespondSyncGroup,
            group_membership.encode_sync_group,
            group_membership.sync_group_error,
        ),
    ),
    ApiRow(
        Api.HEARTBEAT,
        {
            "0.10": Versions(0, 0),
            "0.11": Versions(0, 1),
            "2.0": Versions(0, 2),
            "2.8": Versions(0, 4),
        },
        AnsweredByCore(
            events.HeartbeatRequested,
            group_membership.decode_heartbeat,
            effects.RespondHeartbeat,
            group_membership.encode_heartbeat,
            group_membership.heartbeat_error,
        ),
    ),
    ApiRow(
        Api.LEAVE_GROUP,
        {
            "0.10": Versions(0, 0),
            "0.11": Versions(0, 1),
            "2.0": Versions(0, 2),
            "2.8": Versions(0, 4),
            "4.0": Versions(0, 5),
        },
        AnsweredByCore(
            events.LeaveGroupRequested,
            group_membership.decode_leave_group,
            effects.RespondLeaveGroup,
            group_membership.encode_leave_group,
            group_membership.leave_group_error,
        ),
    ),
    ApiRow(
        Api.CONSUMER_GROUP_HEARTBEAT,
        {"4.0": Versions(0, 1)},  # KIP-848
        AnsweredByCore(
            events.ConsumerGroupHeartbeatRequested,
            consumer_group_heartbeat.decode_consumer_group_heartbeat,
            effects.RespondConsumerGroupHeartbeat,
            consumer_group_heartbeat.encode_consumer_group_heartbeat,
            consumer_group_heartbeat.consumer_group_heartbeat_error,
        ),
    ),
    ApiRow(
        Api.CONSUMER_GROUP_DESCRIBE,
        {"4.0": Versions(0, 1)},
        AnsweredByCore(
            events.ConsumerGroupDescribeRequested,
            group_administration.decode_consumer_group_describe,
            effects.RespondConsumerGroupDescribe,
            group_administration.encode_consumer_group_describe,
            group_administration.consumer_group_describe_error,
        ),
    ),
    ApiRow(
        Api.DESCRIBE_GROUPS,
        {
            "0.10": Versions(0, 0),
            "0.11": Versions(0, 1),
            "2.0": Versions(0, 2),
            "2.8": Versions(0, 5),
        },
        AnsweredByCore(
            events.DescribeGroupsRequested,
            group_administration.decode_describe_groups,
            effects.RespondDescribeGroups,
            group_administration.encode_describe_groups,
            group_administration.describe_groups_error,
        ),
    ),
    ApiRow(
        Api.LIST_GROUPS,
        {
            "0.10": Versions(0, 0),
            "0.11": Versions(0, 1),
            "2.0": Versions(0, 2),
            "2.8": Versions(0, 4),
            "4.0": Versions(0, 5),
        },
        AnsweredByCore(
            events.ListGroupsRequested,
            group_administration.decode_list_groups,
            effects.RespondListGroups,
            group_administration.encode_list_groups,
            group_administration.list_groups_error,
        ),
    ),
    ApiRow(
        Api.DELETE_GROUPS,
        {"2.0": Versions(0, 1), "2.8": Versions(0, 2)},
        AnsweredByCore(
            events.DeleteGroupsRequested,
            group_administration.decode_delete_groups,
            effects.RespondDeleteGroups,
            group_administration.encode_delete_groups,
            group_administration.delete_groups_error,
        ),
    ),
    ApiRow(
        Api.OFFSET_DELETE,
        {"2.8": Versions(0, 0)},
        AnsweredByCore(
            events.OffsetDeleteRequested,
            group_administration.decode_offset_delete,
            effects.RespondOffsetDelete,
            group_administration.encode_offset_delete,
            group_administration.offset_delete_error,
        ),
    ),
    ApiRow(
        Api.API_VERSIONS,
        {"0.8": Versions(0, 3)},
        AnsweredByServer(cluster.answer_api_versions),
    ),
    ApiRow(
        Api.SASL_HANDSHAKE,
        {"0.10": Versions(0, 0), "2.0": Versions(0, 1)},
        AnsweredByServer(sasl.answer_sasl_handshake),
    ),
    ApiRow(
        Api.SASL_AUTHENTICATE,
        {"2.0": Versions(0, 0), "2.8": Versions(0, 2)},  # v1 from Kafka 2.2 on (KIP-368)
        AnsweredByServer(sasl.answer_sasl_authenticate),
    ),
    ApiRow(
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
        {"2.8": Versions(0, 0)},  # from Kafka 2.7 on (KIP-554)
        AnsweredByServer(scram_credentials.answer_describe),
    ),
    ApiRow(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        {"2.8": Versions(0, 0)},
        AnsweredByServer(scram_credentials.answer_alter),
    ),
    ApiRow(
        Api.DELETE_RECORDS,
        {"0.11": Versions(0, 0), "2.0": Versions(0, 1), "2.8": Versions(0, 2)},
        AnsweredByCore(
            events.DeleteRecordsRequested,
            delete_records.decode_delete_records,
            effects.RespondDeleteRecords,
            delete_records.encode_delete_records,
            delete_records.delete_records_error,
        ),
    ),
    ApiRow(
        Api.DESCRIBE_CLUSTER,
        {"2.8": Versions(0, 0), "4.0": Versions(0, 1)},
        AnsweredByServer(describing.answer_describe_cluster),
    ),
    ApiRow(
        Api.DESCRIBE_CONFIGS,
        {"0.11": Versions(1, 1), "2.0": Versions(1, 2), "2.8": Versions(1, 4)},
        AnsweredByServer(describing.answer_describe_configs),
    ),
    ApiRow(
        Api.ALTER_CONFIGS,
        {"0.11": Versions(0, 0), "2.0": Versions(0, 1), "2.8": Versions(0, 2)},
        AnsweredByServer(altering.answer_alter_configs),
    ),
    ApiRow(
        Api.INCREMENTAL_ALTER_CONFIGS,
        {"2.8": Versions(0, 1)},
        AnsweredByServer(altering.answer_incremental_alter_configs),
    ),
    ApiRow(
        Api.ALTER_REPLICA_LOG_DIRS,
        {"2.0": Versions(1, 1), "2.8": Versions(1, 2)},
        AnsweredByServer(describing.answer_alter_replica_log_dirs),
    ),
    ApiRow(
        Api.DESCRIBE_LOG_DIRS,
        {"2.0": Versions(1, 1), "2.8": Versions(1, 2), "4.0": Versions(1, 4)},
        AnsweredByServer(describing.answer_describe_log_dirs),
    ),
    ApiRow(
        Api.CREATE_TOPICS,
        {"0.8": Versions(2, 3), "2.8": Versions(2, 7)},  # v7 answers with the id
        AnsweredByCore(
            events.CreateTopicsRequested,
            cluster.decode_create_topics,
            effects.RespondCreateTopics,
            cluster.encode_create_topics,
            cluster.create_topics_error,
        ),
    ),
    ApiRow(
        Api.CREATE_PARTITIONS,
        {"2.0": Versions(0, 1), "2.8": Versions(0, 3)},  # KIP-195
        AnsweredByCore(
            events.CreatePartitionsRequested,
            cluster.decode_create_partitions,
            effects.RespondCreatePartitions,
            cluster.encode_create_partitions,
            cluster.create_partitions_error,
        ),
    ),
    ApiRow(
        Api.DELETE_TOPICS,
        # By topic ids from v6 on. Kafka has it from 0.10.1 on.
        {
            "0.10": Versions(1, 1),
            "2.0": Versions(1, 2),
            "2.1": Versions(1, 3),
            "2.8": Versions(1, 6),
        },
        AnsweredByCore(
            events.DeleteTopicsRequested,
            cluster.decode_delete_topics,
            effects.RespondDeleteTopics,
            cluster.encode_delete_topics,
            cluster.delete_topics_error,
        ),
    ),
    ApiRow(
        Api.CONTROLLED_SHUTDOWN,
        {},
        AnsweredByCore(
            core_administration.ControlledShutdownRequested,
            controlled_shutdown.decode_controlled_shutdown,
            effects.RespondControlledShutdown,
            controlled_shutdown.encode_controlled_shutdown,
            controlled_shutdown.controlled_shutdown_error,
        ),
        between_brokers={"0.8": Versions(1, 2)},
        sent=SentToBrokers(
            effects.SendControlledShutdown,
            controlled_shutdown.encode_controlled_shutdown_request,
            controlled_shutdown.decode_controlled_shutdown_response,
        ),
    ),
    ApiRow(
        Api.ELECT_LEADERS,
        {"2.8": Versions(0, 2)},  # v0 from Kafka 2.2 on, v1 from 2.4 on
        AnsweredByCore(
            core_administration.ElectLeadersRequested,
            administration.decode_elect_leaders,
            effects.RespondElectLeaders,
            administration.encode_elect_leaders,
            administration.elect_leaders_error,
        ),
    ),
    ApiRow(
        Api.ALTER_PARTITION_REASSIGNMENTS,
        {"2.8": Versions(0, 0)},  # from Kafka 2.4 on
        AnsweredByCore(
            core_administration.AlterPartitionReassignmentsRequested,
            administration.decode_alter_partition_reassignments,
            effects.RespondAlterPartitionReassignments,
            administration.encode_alter_partition_reassignments,
            administration.alter_partition_reassignments_error,
        ),
    ),
    ApiRow(
        Api.LIST_PARTITION_REASSIGNMENTS,
        {"2.8": Versions(0, 0)},
        AnsweredByCore(
            core_administration.ListPartitionReassignmentsRequested,
            administration.decode_list_partition_reassignments,
            effects.RespondListPartitionReassignments,
            administration.encode_list_partition_reassignments,
            administration.list_partition_reassignments_error,
        ),
    ),
    ApiRow(
        Api.INIT_PRODUCER_ID,
        # Idempotent and transactional producers (KIP-98). Versions of later features
        # (transaction.version 2, two phase commit) need KRaft.
        {
            "0.11": Versions(0, 0),
            "2.0": Versions(0, 1),
            "2.8": Versions(0, 4),
            "4.0": Versions(0, 5),
        },
        AnsweredByCore(
            events.InitProducerIdRequested,
            transactions.decode_init_producer_id,
            effects.RespondInitProducerId,
            transactions.encode_init_producer_id,
            transactions.init_producer_id_error,
        ),
    ),
    ApiRow(
        Api.ADD_PARTITIONS_TO_TXN,
        # Later versions are for brokers.
        {"0.11": Versions(0, 0), "2.0": Versions(0, 1), "2.8": Versions(0, 3)},
        AnsweredByCore(
            events.AddPartitionsToTxnRequested,
            transactions.decode_add_partitions,
            effects.RespondTransaction,
            transactions.encode_add_partitions,
            transactions.add_partitions_error,
        ),
        between_brokers={"4.0": Versions(0, transactions.VERIFYING_VERSION)},
        sent=SentToBrokers(
            effects.SendAddPartitionsToTxn,
            transactions.encode_verification,
            transactions.decode_verification,
        ),
    ),
    ApiRow(
        Api.ADD_OFFSETS_TO_TXN,
        {
            "0.11": Versions(0, 0),
            "2.0": Versions(0, 1),
            "2.8": Versions(0, 3),
            "4.0": Versions(0, 4),
        },
        AnsweredByCore(
            events.AddOffsetsToTxnRequested,
            transactions.decode_add_offsets,
            effects.RespondTransaction,
            transactions.encode_error,
            transactions.transaction_error,
        ),
    ),
    ApiRow(
        Api.END_TXN,
        {
            "0.11": Versions(0, 0),
            "2.0": Versions(0, 1),
            "2.8": Versions(0, 3),
            "4.0": Versions(0, 4),
        },
        AnsweredByCore(
            events.EndTxnRequested,
            transactions.decode_end_txn,
            effects.RespondTransaction,
            transactions.encode_error,
            transactions.transaction_error,
        ),
    ),
    ApiRow(
        Api.TXN_OFFSET_COMMIT,
        {
            "0.11": Versions(0, 0),
            "2.0": Versions(0, 1),
            "2.1": Versions(0, 2),
            "2.8": Versions(0, 3),
            "4.0": Versions(0, 4),
        },
        AnsweredByCore(
            events.TxnOffsetCommitRequested,
            transactions.decode_txn_offset_commit,
            effects.RespondTxnOffsetCommit,
            groups.encode_offset_commit,
            transactions.txn_offset_commit_error,
        ),
    ),
    ApiRow(
        Api.WRITE_TXN_MARKERS,
        # Of operators, too, who abort a transaction that hangs (KIP-664); that is Kafka's version 0
        # up to 2.7, which kio does not speak.
        {"2.8": Versions(transactions.MARKERS_VERSION, transactions.MARKERS_VERSION)},
        AnsweredByCore(
            events.WriteTxnMarkersRequested,
            transactions.decode_write_txn_markers,
            effects.RespondWriteTxnMarkers,
            transactions.encode_write_txn_markers,
            transactions.write_txn_markers_error,
        ),
        between_brokers={
            "0.11": Versions(0, 0),
            "2.8": Versions(transactions.MARKERS_VERSION, transactions.MARKERS_VERSION),
        },
        sent=SentToBrokers(
            effects.SendWriteTxnMarkers,
            transactions.encode_write_txn_markers_request,
            transactions.decode_write_txn_markers_response,
        ),
    ),
    ApiRow(
        Api.DESCRIBE_PRODUCERS,
        {"2.8": Versions(0, 0)},  # from Kafka 2.8 on
        AnsweredByCore(
            events.DescribeProducersRequested,
            transactions.decode_describe_producers,
            effects.RespondDescribeProducers,
            transactions.encode_describe_producers,
            transactions.describe_producers_error,
        ),
    ),
    ApiRow(
        Api.DESCRIBE_TRANSACTIONS,
        {"4.0": Versions(0, 0)},  # from Kafka 3.0 on
        AnsweredByCore(
            events.DescribeTransactionsRequested,
            transactions.decode_describe_transactions,
            effects.RespondDescribeTransactions,
            transactions.encode_describe_transactions,
            transactions.describe_transactions_error,
        ),
    ),
    ApiRow(
        Api.LIST_TRANSACTIONS,
        {"4.0": Versions(0, 1)},  # from Kafka 3.0 on
        AnsweredByCore(
            events.ListTransactionsRequested,
            transactions.decode_list_transactions,
            effects.RespondListTransactions,
            transactions.encode_list_transactions,
            transactions.list_transactions_error,
        ),
    ),
    ApiRow(
        Api.OFFSET_FOR_LEADER_EPOCH,
        {"2.1": Versions(2, 2), "2.8": Versions(2, 4)},  # leader epochs for clients (KIP-320)
        AnsweredByCore(
            events.OffsetForLeaderEpochRequested,
            offsets.decode_offset_for_leader_epoch,
            effects.RespondOffsetForLeaderEpoch,
            offsets.encode_offset_for_leader_epoch,
            offsets.offset_for_leader_epoch_error,
        ),
        between_brokers={"0.8": Versions(2, 2)},
        sent=SentToBrokers(
            effects.SendOffsetForLeaderEpoch,
            offsets.encode_offset_for_leader_epoch_request,
            offsets.decode_offset_for_leader_epoch_response,
        ),
    ),
)

TABLE: Final[Mapping[Api, ApiRow]] = {row.api: row for row in _ROWS}
# By the event that a request becomes, and by what the core sends.
BY_EVENT: Final[Mapping[type, AnsweredByCore]] = {
    row.answered.event: row.answered for row in _ROWS if isinstance(row.answered, AnsweredByCore)
}
SENT: Final[Mapping[type, SentToBrokers]] = {
    row.sent.message: row.sent for row in _ROWS if row.sent is not None
}


# What a client that has to log in may ask until then.
BEFORE_LOGIN: Final = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})


def client_apis(generation: str) -> Mapping[Api, Versions]:
    """What a broker of this generation answers to clients."""
    offered = {row.api: row.client_versions(generation) for row in _ROWS}
    return {api: versions for api, versions in offered.items() if versions is not None}


def replication_apis(generation: str) -> Mapping[Api, Versions]:
    """What it answers to brokers: the same, and what only brokers ask."""
    asked = {row.api: row.broker_versions(generation) for row in _ROWS}
    between = {api: versions for api, versions in asked.items() if versions is not None}
    return {**client_apis(generation), **between}
