"""What producers, coordinators and operators request about transactions (KIP-98, KIP-664)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from kio.schema.types import ProducerId, TopicName
from kio.serial.readers import tz_aware_from_i64
from kio.static.primitive import i32, i64

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import EndTransactionMarker, TopicPartition
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
)
from neaptide.clusters.broker.server.apis.entities import (
    NO_THROTTLE,
    by_topic,
    code,
    duration,
    error_of,
    in_request,
    in_response,
    milliseconds,
)
from neaptide.clusters.broker.server.apis.groups import committed_offsets
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
    PendingRequest,
    Refused,
    Response,
    SendResponse,
)
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.storage.log import wall_clock_ms
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, request_class, response_class

MARKERS_VERSION: Final = 1  # of WriteTxnMarkers, from Kafka 2.8 on; before it is 0
VERIFYING_VERSION: Final = 4  # of AddPartitionsToTxn, from which on brokers ask (KIP-890)
_NAMES_FENCED: Final = {  # from these versions on (KIP-588); before, the epoch is invalid
    Api.INIT_PRODUCER_ID: 4,
    Api.ADD_PARTITIONS_TO_TXN: 2,
    Api.ADD_OFFSETS_TO_TXN: 2,
    Api.END_TXN: 2,
}


def _code(request: PendingRequest, error: Error) -> Any:
    header = request.header
    if error is Error.PRODUCER_FENCED and header.version < _NAMES_FENCED[header.api]:
        error = Error.INVALID_PRODUCER_EPOCH
    return code(error)


# --- InitProducerId -------------------------------------------------------------------------------


def decode_init_producer_id(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.InitProducerIdRequested:
    given = entity.transactional_id
    return events.InitProducerIdRequested(
        request.id,
        None if given is None else str(given),
        milliseconds(entity.transaction_timeout),
        int(getattr(entity, "producer_id", events.NO_PRODUCER_ID)),
        int(getattr(entity, "producer_epoch", events.NO_PRODUCER_EPOCH)),
    )


def encode_init_producer_id(
    request: PendingRequest, effect: effects.RespondInitProducerId, context: ApiContext
) -> Response:
    return SendResponse(
        make(
            response_class(Api.INIT_PRODUCER_ID, request.header.version),
            throttle_time=NO_THROTTLE,
            error_code=_code(request, effect.error),
            producer_id=ProducerId(effect.producer_id),
            producer_epoch=effect.producer_epoch,
        )
    )


def init_producer_id_error(
    event: events.InitProducerIdRequested, error: Error
) -> effects.RespondInitProducerId:
    return effects.RespondInitProducerId(event.request, error)


# --- AddPartitionsToTxn, AddOffsetsToTxn, EndTxn --------------------------------------------------


def decode_add_partitions(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.AddPartitionsToTxnRequested | Refused:
    """Leaders ask about one transaction at a time: others are refused."""
    if request.header.version >= VERIFYING_VERSION:
        if len(entity.transactions) != 1:
            nothing = events.AddPartitionsToTxnRequested(request.id, "", -1, -1, ())
            return Refused(nothing, Error.INVALID_REQUEST)
        [one] = entity.transactions
        return events.AddPartitionsToTxnRequested(
            request.id,
            str(one.transactional_id),
            int(one.producer_id),
            int(one.producer_epoch),
            _named(one.topics),
            verifies=bool(one.verify_only),
        )
    return events.AddPartitionsToTxnRequested(
        request.id,
        str(entity.v3_and_below_transactional_id),
        int(entity.v3_and_below_producer_id),
        int(entity.v3_and_below_producer_epoch),
        _named(entity.v3_and_below_topics),
    )


def _named(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    named = (
        TopicPartition(str(topic.name), int(partition))
        for topic in topics
        for partition in topic.partitions
    )
    return tuple(dict.fromkeys(named))


def encode_add_partitions(
    request: PendingRequest, effect: effects.RespondTransaction, context: ApiContext
) -> Response:
    version = request.header.version
    topic_class = in_response(Api.ADD_PARTITIONS_TO_TXN, version, "AddPartitionsToTxnTopicResult")
    partition_class = in_response(
        Api.ADD_PARTITIONS_TO_TXN, version, "AddPartitionsToTxnPartitionResult"
    )
    results = by_topic(
        effect.partitions,
        lambda name, partitions: topic_class(name=name, results_by_partition=partitions),
        lambda one: partition_class(
            partition_index=i32(one[0].partition), partition_error_code=_code(request, one[1])
        ),
        lambda one: one[0],
    )
    answer: dict[str, Any] = {"results_by_topic_v3_and_below": results}
    if version >= VERIFYING_VERSION:
        result_class = in_response(Api.ADD_PARTITIONS_TO_TXN, version, "AddPartitionsToTxnResult")
        of_one = result_class(transactional_id=effect.transactional_id, topic_results=results)
        answer = {"error_code": code(effect.error), "results_by_transaction": (of_one,)}
    kind = response_class(Api.ADD_PARTITIONS_TO_TXN, version)
    return SendResponse(make(kind, throttle_time=NO_THROTTLE, **answer))


def add_partitions_error(
    event: events.AddPartitionsToTxnRequested, error: Error
) -> effects.RespondTransaction:
    each = tuple((one, error) for one in event.partitions)
    return effects.RespondTransaction(event.request, error, each)


def encode_verification(effect: effects.SendAddPartitionsToTxn, config: ServerConfig) -> Any:
    transaction_class, topic_class = (
        in_request(Api.ADD_PARTITIONS_TO_TXN, VERIFYING_VERSION, f"AddPartitionsToTxn{part}")
        for part in ("Transaction", "Topic")
    )
    transaction = transaction_class(
        transactional_id=effect.transactional_id,
        producer_id=ProducerId(effect.producer_id),
        producer_epoch=effect.producer_epoch,
        verify_only=True,
        topics=by_topic(
            effect.partitions,
            lambda name, partitions: topic_class(name=name, partitions=partitions),
            lambda place: i32(place.partition),
            lambda place: place,
        ),
    )
    kind = request_class(Api.ADD_PARTITIONS_TO_TXN, VERIFYING_VERSION)
    return make(kind, transactions=(transaction,))


def decode_verification(
    effect: effects.SendAddPartitionsToTxn, response: Any
) -> events.AddPartitionsToTxnResponded:
    results = tuple(
        (
            TopicPartition(str(topic.name), int(one.partition_index)),
            error_of(one.partition_error_code),
        )
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for one in topic.results_by_partition
    )
    return events.AddPartitionsToTxnResponded(effect.sequence, results)


def decode_add_offsets(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.AddOffsetsToTxnRequested:
    return events.AddOffsetsToTxnRequested(
        request.id,
        str(entity.transactional_id),
        int(entity.producer_id),
        int(entity.producer_epoch),
        str(entity.group_id),
    )


def decode_end_txn(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.EndTxnRequested:
    return events.EndTxnRequested(
        request.id,
        str(entity.transactional_id),
        int(entity.producer_id),
        int(entity.producer_epoch),
        bool(entity.committed),
    )


def encode_error(
    request: PendingRequest, effect: effects.RespondTransaction, context: ApiContext
) -> Response:
    """AddOffsetsToTxn and EndTxn."""
    return SendResponse(
        make(
            response_class(request.header.api, request.header.version),
            throttle_time=NO_THROTTLE,
            error_code=_code(request, effect.error),
        )
    )


def transaction_error(
    event: events.AddOffsetsToTxnRequested | events.EndTxnRequested, error: Error
) -> effects.RespondTransaction:
    return effects.RespondTransaction(event.request, error)


# --- TxnOffsetCommit ------------------------------------------------------------------------------


def decode_txn_offset_commit(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.TxnOffsetCommitRequested:
    return events.TxnOffsetCommitRequested(
        request.id,
        str(entity.group_id),
        int(entity.producer_id),
        int(entity.producer_epoch),
        committed_offsets(request, entity, context),
        int(getattr(entity, "generation_id", -1)),
        str(getattr(entity, "member_id", "")),
        getattr(entity, "group_instance_id", None),
    )


def txn_offset_commit_error(
    event: events.TxnOffsetCommitRequested, error: Error
) -> effects.RespondTxnOffsetCommit:
    failed = tuple((one.partition, error) for one in event.committed)
    return effects.RespondTxnOffsetCommit(event.request, failed)


# --- WriteTxnMarkers, between brokers -------------------------------------------------------------


def decode_write_txn_markers(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.WriteTxnMarkersRequested:
    markers = tuple(
        (
            EndTransactionMarker(
                int(one.producer_id),
                int(one.producer_epoch),
                int(one.coordinator_epoch),
                bool(one.transaction_result),
            ),
            tuple(
                TopicPartition(str(topic.name), int(partition))
                for topic in one.topics
                for partition in topic.partition_indexes
            ),
        )
        for one in entity.markers
    )
    return events.WriteTxnMarkersRequested(request.id, markers)


def encode_write_txn_markers(
    request: PendingRequest, effect: effects.RespondWriteTxnMarkers, context: ApiContext
) -> Response:
    version = request.header.version
    marker_class, topic_class, partition_class = (
        in_response(Api.WRITE_TXN_MARKERS, version, f"WritableTxnMarker{part}")
        for part in ("Result", "TopicResult", "PartitionResult")
    )
    by_producer: dict[int, list[events.MarkedPartition]] = {}
    for result in effect.results:
        by_producer.setdefault(result.producer_id, []).append(result)
    return SendResponse(
        make(
            response_class(Api.WRITE_TXN_MARKERS, version),
            markers=tuple(
                marker_class(
                    producer_id=ProducerId(producer_id),
                    topics=by_topic(
                        results,
                        lambda name, partitions: topic_class(name=name, partitions=partitions),
                        lambda one: partition_class(
                            partition_index=i32(one.partition.partition), error_code=code(one.error)
                        ),
                    ),
                )
                for producer_id, results in by_producer.items()
            ),
        )
    )


def write_txn_markers_error(
    event: events.WriteTxnMarkersRequested, error: Error
) -> effects.RespondWriteTxnMarkers:
    failed = tuple(
        events.MarkedPartition(marker.producer_id, place, error)
        for marker, places in event.markers
        for place in places
    )
    return effects.RespondWriteTxnMarkers(event.request, failed)


def encode_write_txn_markers_request(
    effect: effects.SendWriteTxnMarkers, config: ServerConfig
) -> Any:
    version = MARKERS_VERSION if config.generation.topic_ids else 0
    marker_class, topic_class = (
        in_request(Api.WRITE_TXN_MARKERS, version, f"WritableTxnMarker{part}")
        for part in ("", "Topic")
    )
    return make(
        request_class(Api.WRITE_TXN_MARKERS, version),
        markers=tuple(
            marker_class(
                producer_id=ProducerId(marker.producer_id),
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=by_topic(
                    places,
                    lambda name, partitions: topic_class(name=name, partition_indexes=partitions),
                    lambda place: i32(place.partition),
                    lambda place: place,
                ),
                coordinator_epoch=i32(marker.coordinator_epoch),
            )
            for marker, places in effect.markers
        ),
    )


def decode_write_txn_markers_response(
    effect: effects.SendWriteTxnMarkers, response: Any
) -> events.WriteTxnMarkersResponded:
    results = tuple(
        events.MarkedPartition(
            int(marker.producer_id),
            TopicPartition(str(topic.name), int(partition.partition_index)),
            error_of(partition.error_code),
        )
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    )
    return events.WriteTxnMarkersResponded(effect.leader, effect.sequence, results)


# --- of operators ---------------------------------------------------------------------------------


def decode_describe_transactions(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.DescribeTransactionsRequested:
    return events.DescribeTransactionsRequested(
        request.id, tuple(map(str, entity.transactional_ids))
    )


def encode_describe_transactions(
    request: PendingRequest, effect: effects.RespondDescribeTransactions, context: ApiContext
) -> Response:
    version = request.header.version
    return SendResponse(
        make(
            response_class(Api.DESCRIBE_TRANSACTIONS, version),
            throttle_time=NO_THROTTLE,
            transaction_states=tuple(_described(version, *one) for one in effect.results),
        )
    )


def _described(
    version: int, transactional_id: str, error: Error, metadata: TransactionMetadata | None
) -> Any:
    known = metadata or TransactionMetadata(transactional_id, -1, -1, 0)
    return make(
        in_response(Api.DESCRIBE_TRANSACTIONS, version, "TransactionState"),
        error_code=code(error),
        transactional_id=transactional_id,
        transaction_state="" if metadata is None else known.state.label,
        transaction_timeout=duration(known.timeout_ms),
        transaction_start_time=tz_aware_from_i64(i64(_started_ms(known))),
        producer_id=ProducerId(known.producer_id),
        producer_epoch=known.producer_epoch,
        topics=_topics(known.partitions, version),
    )


def _started_ms(metadata: TransactionMetadata) -> int:
    """By the wall clock; -1: none is under way."""
    if metadata.started_ms < 0:
        return -1
    clock_ms = int(asyncio.get_running_loop().time() * 1000)  # that of the core
    return wall_clock_ms() - (clock_ms - metadata.started_ms)


def _topics(partitions: Iterable[TopicPartition], version: int) -> tuple[Any, ...]:
    topic_class = in_response(Api.DESCRIBE_TRANSACTIONS, version, "TopicData")
    return tuple(
        topic_class(topic=TopicName(name), partitions=tuple(i32(one.partition) for one in of))
        for name, of in groupby(partitions, lambda one: one.topic)
    )


def describe_transactions_error(
    event: events.DescribeTransactionsRequested, error: Error
) -> effects.RespondDescribeTransactions:
    failed = tuple((one, error, None) for one in event.transactional_ids)
    return effects.RespondDescribeTransactions(event.request, failed)


def decode_list_transactions(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.ListTransactionsRequested:
    return events.ListTransactionsRequested(
        request.id,
        tuple(str(one) for one in entity.state_filters if str(one) in _LABELS),
        tuple(int(one) for one in entity.producer_id_filters),
        int(getattr(entity, "duration_filter", -1)),
    )


_LABELS: Final = tuple(state.label for state in TransactionState)


def encode_list_transactions(
    request: PendingRequest, effect: effects.RespondListTransactions, context: ApiContext
) -> Response:
    version = request.header.version
    state_class = in_response(Api.LIST_TRANSACTIONS, version, "TransactionState")
    return SendResponse(
        make(
            response_class(Api.LIST_TRANSACTIONS, version),
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
            unknown_state_filters=(),
            transaction_states=tuple(
                state_class(
                    transactional_id=one.transactional_id,
                    producer_id=ProducerId(one.producer_id),
                    transaction_state=one.state.label,
                )
                for one in effect.transactions
            ),
        )
    )


def list_transactions_error(
    event: events.ListTransactionsRequested, error: Error
) -> effects.RespondListTransactions:
    return effects.RespondListTransactions(event.request, error)


def decode_describe_producers(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.DescribeProducersRequested:
    named = (
        TopicPartition(str(topic.name), int(partition))
        for topic in entity.topics
        for partition in topic.partition_indexes
    )
    return events.DescribeProducersRequested(request.id, tuple(dict.fromkeys(named)))


def encode_describe_producers(
    request: PendingRequest, effect: effects.RespondDescribeProducers, context: ApiContext
) -> Response:
    """When a producer wrote last is not remembered here."""
    version = request.header.version
    topic_class, partition_class, producer_class = (
        in_response(Api.DESCRIBE_PRODUCERS, version, name)
        for name in ("TopicResponse", "PartitionResponse", "ProducerState")
    )

    def producer(one: effects.ActiveProducer) -> Any:
        return producer_class(
            producer_id=ProducerId(one.producer_id),
            producer_epoch=i32(one.producer_epoch),
            last_sequence=i32(one.last_sequence),
            last_timestamp=i64(-1),
            coordinator_epoch=i32(one.coordinator_epoch),
            current_txn_start_offset=i64(one.txn_start_offset),
        )

    return SendResponse(
        make(
            response_class(Api.DESCRIBE_PRODUCERS, version),
            throttle_time=NO_THROTTLE,
            topics=by_topic(
                effect.results,
                lambda name, partitions: topic_class(name=name, partitions=partitions),
                lambda one: partition_class(
                    partition_index=i32(one[0].partition),
                    error_code=code(one[1]),
                    error_message=None,
                    active_producers=tuple(map(producer, one[2])),
                ),
                lambda one: one[0],
            ),
        )
    )


def describe_producers_error(
    event: events.DescribeProducersRequested, error: Error
) -> effects.RespondDescribeProducers:
    failed = tuple((one, error, ()) for one in event.partitions)
    return effects.RespondDescribeProducers(event.request, failed)
