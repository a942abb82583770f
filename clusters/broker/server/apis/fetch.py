"""Fetch, as a leader answers it and as a follower sends it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, assert_never
from uuid import UUID

from kio.schema.types import BrokerId, ProducerId

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import (
    UNDEFINED_EPOCH,
    UNKNOWN_BROKER_EPOCH,
    UNKNOWN_OFFSET,
    Batch,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import EpochEnd
from neaptide.clusters.broker.server.apis.entities import (
    NO_THROTTLE,
    READ_UNCOMMITTED,
    by_topic,
    code,
    duration,
    error_of,
    has_isolation_level,
    in_request,
    in_response,
    milliseconds,
    reads_committed,
)
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
    PendingRequest,
    Refused,
    Response,
    SendResponse,
)
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.server.fetch_session import (
    NO_SESSION,
    FetchContext,
    FetchSession,
    Full,
    Incremental,
    SessionError,
    Sessionless,
)
from neaptide.clusters.broker.server.fetch_session_handler import SessionRequest, without_session
from neaptide.clusters.broker.server.sequences import marker_in, sequence_of
from neaptide.clusters.broker.storage.errors import RecordBatchError
from neaptide.clusters.broker.storage.record_batch import parse_batches
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, request_class, response_class
from neaptide.clusters.broker.wire.topic_ids import (
    FETCH_WITH_TOPIC_IDS,
    is_unknown_topic,
    text_of,
    uuid_of,
)

SESSIONS_VERSION: Final = 7  # of Fetch, from which on there are sessions
WITH_STORAGE_ERROR: Final = 6  # of Fetch: clients of earlier ones do not know it

# --- of a leader ----------------------------------------------------------------------------------


def decode_fetch(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.FetchRequested | Refused:
    """Of a partition that is named twice the last counts, as in Kafka's map."""
    min_bytes = int(entity.min_bytes)
    replica = getattr(entity, "replica_state", entity)  # from v15 on
    each = (
        events.FetchedPartition(
            TopicPartition(name, int(partition.partition)),
            int(partition.fetch_offset),
            int(partition.partition_max_bytes),
            log_start_offset=int(getattr(partition, "log_start_offset", -1)),
            current_leader_epoch=int(getattr(partition, "current_leader_epoch", -1)),
            last_fetched_epoch=int(getattr(partition, "last_fetched_epoch", -1)),
            topic_id=text_of(getattr(topic, "topic_id", None)),
        )
        for topic in entity.topics
        for name in [_requested_topic(topic, context)]
        for partition in topic.partitions
    )
    named = tuple({one.partition: one for one in each}.values())
    is_follower = int(replica.replica_id) >= 0
    request.fetch.is_committed = reads_committed(entity)
    request.fetch.is_of_follower = is_follower
    request.fetch.context = _context_of(request, entity, named, context, is_follower=is_follower)
    asked = request.fetch.context.asked
    if min_bytes > 1:  # measured only where it matters: one byte is there, or nothing is
        measure = context.reader.bytes_available
        asked = tuple(
            replace(one, bytes_available=measure(one.partition, one.fetch_offset)) for one in asked
        )
    event = events.FetchRequested(
        request.id,
        int(replica.replica_id),
        milliseconds(entity.max_wait),
        min_bytes,
        asked,
        int(getattr(replica, "replica_epoch", UNKNOWN_BROKER_EPOCH)),
        request.fetch.is_committed,
        None if is_follower else getattr(entity, "rack_id", None),
        _throttled(asked, context) if is_follower else frozenset(),
    )
    return event if has_isolation_level(entity) else Refused(event, Error.UNKNOWN_SERVER_ERROR)


def _throttled(
    asked: Iterable[events.FetchedPartition], context: ApiContext
) -> frozenset[TopicPartition]:
    quota = context.leader_quota
    if quota is None or not quota.is_exceeded:
        return frozenset()
    return frozenset(one.partition for one in asked if quota.is_throttled(one.partition))


def _context_of(
    request: PendingRequest,
    entity: Any,
    named: tuple[events.FetchedPartition, ...],
    context: ApiContext,
    *,
    is_follower: bool,
) -> FetchContext:
    sessions = context.fetch_sessions
    if sessions is None or request.header.version < SESSIONS_VERSION:
        return Sessionless(named)
    forgotten = tuple(
        TopicPartition(_requested_topic(topic, context), int(partition))
        for topic in entity.forgotten_topics_data
        for partition in topic.partitions
    )
    return sessions.begin(
        int(entity.session_id),
        int(entity.session_epoch),
        named,
        forgotten,
        is_follower=is_follower,
        uses_topic_ids=request.header.version >= FETCH_WITH_TOPIC_IDS,
        name_of=context.topic_names.name_of,
    )


def _requested_topic(topic: Any, context: ApiContext) -> str:
    """From v13 on topics have ids in place of names."""
    name = getattr(topic, "topic", None)
    return context.topic_names.name_of(topic.topic_id) if name is None else str(name)


def encode_fetch(
    request: PendingRequest, effect: effects.RespondFetch, context: ApiContext
) -> Response:
    """Reads the records, as many as the request and fetch.max.bytes allow.

    In a session only partitions with news are in the response.
    """
    version = request.header.version
    error, session_id, session = _session_of(request.fetch.context, effect, context)
    results = effect.results if error is Error.NONE else ()
    partition_class = in_response(Api.FETCH, version, "PartitionData")
    topic_class = in_response(Api.FETCH, version, "FetchableTopicResponse")
    ids = _ids_of(request.fetch.context.asked)
    budget = min(request.max_bytes, context.config.fetch_max_bytes)
    if not context.crowd.may_answer_at_length:
        budget = 0
    nothing_yet = True

    def read(result: effects.FetchedResult) -> tuple[effects.FetchedResult, bytes]:
        nonlocal budget, nothing_yet
        wanted = result.records
        records = b""
        if wanted is not None:
            # The first partition with records may exceed its limit by one batch, no other may.
            limit = max(0, min(wanted.max_bytes, budget))
            if limit or nothing_yet:
                records, error = context.reader.read(result.partition, wanted, limit, nothing_yet)
                budget -= len(records)
                quota = context.leader_quota if request.fetch.is_of_follower else None
                if quota is not None and quota.is_throttled(result.partition):
                    quota.record(len(records))
                nothing_yet = nothing_yet and not records
                result = result if error is Error.NONE else replace(result, error=error)
        return result, records

    def aborted(result: effects.FetchedResult, records: bytes) -> tuple[Any, ...] | None:
        if not request.fetch.is_committed:
            return None
        offset = result.records.offset if result.records is not None else 0
        aborted_class = in_response(Api.FETCH, version, "AbortedTransaction")
        return tuple(
            aborted_class(producer_id=ProducerId(one.producer_id), first_offset=one.first_offset)
            for one in context.reader.aborted(result.partition, offset, records)
        )

    def partition(answered: tuple[effects.FetchedResult, bytes]) -> Any:
        result, records = answered
        high_watermark, log_start_offset = offsets_of(result)
        is_error = result.error is not Error.NONE
        values = {
            "partition_index": result.partition.partition,
            "error_code": code(_fetch_error_of(result, version)),
            "high_watermark": high_watermark,
            "last_stable_offset": UNKNOWN_OFFSET if is_error else result.last_stable_offset,
            "log_start_offset": log_start_offset,
            "aborted_transactions": aborted(result, records),
            "preferred_read_replica": BrokerId(result.preferred_read_replica),
            "records": records,
        }
        if result.diverging_epoch is not None:
            end_class = in_response(Api.FETCH, version, "EpochEndOffset")
            epoch, end_offset = result.diverging_epoch
            values["diverging_epoch"] = end_class(epoch=epoch, end_offset=end_offset)
        return make(partition_class, **values)

    answers = [read(result) for result in results]
    if session is not None:
        answers = [answer for answer in answers if session.takes(*answer)]
    return SendResponse(
        make(
            response_class(Api.FETCH, version),
            throttle_time=NO_THROTTLE,
            error_code=code(error),
            session_id=session_id,
            responses=by_topic(
                answers,
                lambda name, partitions: make(
                    topic_class, topic=name, topic_id=ids.get(name), partitions=partitions
                ),
                partition,
                lambda answered: answered[0].partition,
            ),
        )
    )


def _ids_of(asked: Iterable[events.FetchedPartition]) -> dict[str, UUID | None]:
    return {one.partition.topic: uuid_of(one.topic_id) for one in asked}


def _fetch_error_of(result: effects.FetchedResult, version: int) -> Error:
    is_unknown = is_unknown_topic(result.partition.topic)
    if result.error is Error.UNKNOWN_TOPIC_OR_PARTITION and is_unknown:
        return Error.UNKNOWN_TOPIC_ID
    if result.error is Error.KAFKA_STORAGE_ERROR and version < WITH_STORAGE_ERROR:
        return Error.NOT_LEADER_OR_FOLLOWER  # what such a client looks for another leader by
    return result.error


def _session_of(
    fetch: FetchContext, effect: effects.RespondFetch, context: ApiContext
) -> tuple[Error, int, FetchSession | None]:
    """The error and the session id of a response; and the session, if only news are to be in it."""
    match fetch:
        case Sessionless():
            return Error.NONE, NO_SESSION, None
        case SessionError(error):
            return error, NO_SESSION, None
        case Full():
            assert context.fetch_sessions is not None
            return Error.NONE, context.fetch_sessions.create(fetch, effect.results), None
        case Incremental(session, epoch):
            is_next = session.epoch == epoch
            error = Error.NONE if is_next else Error.INVALID_FETCH_SESSION_EPOCH
            return error, session.id, session
    assert_never(fetch)


def offsets_of(result: effects.FetchedResult) -> tuple[int, int]:
    """High watermark and log start offset: an error says neither."""
    if result.error is not Error.NONE:
        return UNKNOWN_OFFSET, UNKNOWN_OFFSET
    return result.high_watermark, result.log_start_offset


def fetch_error(event: events.FetchRequested, error: Error) -> effects.RespondFetch:
    failed = (effects.FetchedResult(one.partition, error, -1, -1, None) for one in event.partitions)
    return effects.RespondFetch(event.request, tuple(failed))


# --- of a follower --------------------------------------------------------------------------------


def encode_fetch_request(
    effect: effects.SendFetch, config: ServerConfig, session: SessionRequest | None = None
) -> Any:
    """`session`: what of it is to be said; None: all, without a session.

    Where a topic has no id, all are named in the last version that does so, as Kafka does.
    """
    version = config.generation.fetch_version
    session = session or without_session(effect.partitions)
    forgotten = {topic: uuid_of(one) for topic, one in session.forgotten_ids.items()}
    ids = {**forgotten, **_ids_of(effect.partitions)}
    if None in ids.values():
        version = min(version, FETCH_WITH_TOPIC_IDS - 1)
    state: dict[str, Any] = {}
    if version >= 15:
        state_class = in_request(Api.FETCH, version, "ReplicaState")
        epoch = effect.broker_epoch
        state["replica_state"] = state_class(replica_id=config.broker_id, replica_epoch=epoch)
    partition_class = in_request(Api.FETCH, version, "FetchPartition")
    topic_class = in_request(Api.FETCH, version, "FetchTopic")
    return make(
        request_class(Api.FETCH, version),
        **state,
        replica_id=config.broker_id,
        max_wait=duration(effect.max_wait_ms),
        min_bytes=effect.min_bytes,
        max_bytes=effect.max_bytes,
        isolation_level=READ_UNCOMMITTED,
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=by_topic(
            session.partitions,
            lambda name, partitions: make(
                topic_class, topic=name, topic_id=ids.get(name), partitions=partitions
            ),
            lambda one: make(
                partition_class,
                partition=one.partition.partition,
                current_leader_epoch=one.current_leader_epoch,
                fetch_offset=one.fetch_offset,
                last_fetched_epoch=one.last_fetched_epoch,
                log_start_offset=one.log_start_offset,
                partition_max_bytes=one.max_bytes,
            ),
        ),
        forgotten_topics_data=by_topic(
            session.forgotten,
            lambda name, partitions: make(
                in_request(Api.FETCH, version, "ForgottenTopic"),
                topic=name,
                topic_id=ids.get(name),
                partitions=partitions,
            ),
            lambda partition: partition.partition,
            lambda partition: partition,
        ),
    )


def decode_fetch_response(effect: effects.SendFetch, response: Any) -> events.FetchResponded:
    """Batches have their own bytes as identity. A corrupt batch is an error of its partition."""
    results = []
    for name, partitions in _answered(effect, response):
        for partition in partitions:
            error = error_of(partition.error_code)
            batches: tuple[Batch, ...] = ()
            try:
                batches = _batches(bytes(partition.records or b""))
            except RecordBatchError:
                error = Error.CORRUPT_MESSAGE
            results.append(
                events.FetchResult(
                    TopicPartition(name, int(partition.partition_index)),
                    error,
                    int(partition.high_watermark),
                    int(getattr(partition, "log_start_offset", -1)),
                    batches,
                    _diverging_epoch(partition),
                )
            )
    return events.FetchResponded(effect.fetcher, effect.sequence, tuple(results))


def _answered(effect: effects.SendFetch, response: Any) -> Iterator[tuple[str, Any]]:
    """Names of topics with what is answered of their partitions; from v13 on topics have ids."""
    names = {uuid_of(one.topic_id): one.partition.topic for one in effect.partitions}
    for topic in response.responses:
        by_id = hasattr(topic, "topic_id")
        yield names[topic.topic_id] if by_id else str(topic.topic), topic.partitions


def session_of_response(
    effect: effects.SendFetch, response: Any
) -> tuple[Error, int, set[TopicPartition]]:
    """The error of a whole response (v7 on), its session, and which partitions are in it."""
    answered = {
        TopicPartition(name, int(partition.partition_index))
        for name, partitions in _answered(effect, response)
        for partition in partitions
    }
    return error_of(response.error_code), int(response.session_id), answered


def _diverging_epoch(partition: Any) -> EpochEnd | None:
    """A field of v12 that is left out where nothing diverges."""
    diverging = getattr(partition, "diverging_epoch", None)
    if diverging is None or int(diverging.epoch) == UNDEFINED_EPOCH:
        return None
    return EpochEnd(int(diverging.epoch), int(diverging.end_offset))


def _batches(records: bytes) -> tuple[Batch, ...]:
    batches, position = [], 0
    for header in parse_batches(records):
        batches.append(
            Batch(
                header.base_offset,
                header.offset_count,
                header.leader_epoch,
                header.size,
                records[position : position + header.size],
                sequence_of(header),
                marker_in(records, position, header),
            )
        )
        position += header.size
    return tuple(batches)
