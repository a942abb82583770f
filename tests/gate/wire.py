"""Messages as brokers send them, written with kio (or by hand where kio has no such version)."""

from __future__ import annotations

import importlib
import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer


@dataclass(frozen=True)
class Ask:
    """One partition of a Fetch request."""

    topic: str
    partition: int
    fetch_offset: int
    leader_epoch: int = -1


@dataclass(frozen=True)
class Answer:
    """One partition of a Fetch response."""

    topic: str
    partition: int
    high_watermark: int
    records: bytes = b""
    log_start_offset: int = 0
    error: int = 0


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def topic_id(topic: str) -> UUID:
    """An id for a topic; the text of an id is that id."""
    try:
        return UUID(topic)
    except ValueError:
        return UUID(int=sum(topic.encode()) + 1)


def _schema(api: str, version: int, kind: str) -> Any:
    return importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")


def _write(*entities: Any) -> bytes:
    buffer = io.BytesIO()
    for entity in entities:
        entity_writer(type(entity))(buffer, entity)
    return frame(buffer.getvalue())


def _with_fields(kind: Any, **values: Any) -> Any:
    """An entity from those values that this version has a field for."""
    return kind(**{k: v for k, v in values.items() if k in kind.__dataclass_fields__})


def _header(entity: Any, correlation_id: int, client_id: str) -> Any:
    return entity.__header_schema__(
        request_api_key=entity.__api_key__,
        request_api_version=entity.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )


def fetch_request(
    version: int,
    asks: Sequence[Ask],
    *,
    replica_id: int = 1,
    correlation_id: int = 1,
    client_id: str = "broker-1-fetcher-0",
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[tuple[str, int]] = (),
) -> bytes:
    s = _schema("fetch", version, "request")
    topics = tuple(
        _with_fields(
            s.FetchTopic,
            topic=ask.topic,
            topic_id=topic_id(ask.topic),
            partitions=(
                _with_fields(
                    s.FetchPartition,
                    partition=ask.partition,
                    current_leader_epoch=ask.leader_epoch,
                    fetch_offset=ask.fetch_offset,
                    partition_max_bytes=1 << 20,
                ),
            ),
        )
        for ask in asks
    )
    extra: dict[str, Any] = {}
    if version >= 15:
        extra["replica_state"] = s.ReplicaState(replica_id=replica_id)
    if version >= 7:
        extra["forgotten_topics_data"] = tuple(
            _with_fields(s.ForgottenTopic, topic=t, topic_id=topic_id(t), partitions=(p,))
            for t, p in forgotten
        )
    entity = _with_fields(
        s.FetchRequest,
        replica_id=replica_id,
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        **extra,
    )
    return _write(_header(entity, correlation_id, client_id), entity)


def fetch_response(
    version: int,
    answers: Sequence[Answer],
    *,
    correlation_id: int = 1,
    session_id: int = 0,
    error: int = 0,
) -> bytes:
    s = _schema("fetch", version, "response")
    responses = tuple(
        _with_fields(
            s.FetchableTopicResponse,
            topic=answer.topic,
            topic_id=topic_id(answer.topic),
            partitions=(
                _with_fields(
                    s.PartitionData,
                    partition_index=answer.partition,
                    error_code=ErrorCode(answer.error),
                    high_watermark=answer.high_watermark,
                    last_stable_offset=-1,
                    log_start_offset=answer.log_start_offset,
                    aborted_transactions=None,
                    records=answer.records,
                ),
            ),
        )
        for answer in answers
    )
    return fetch_response_of(
        version, responses, correlation_id=correlation_id, session_id=session_id, error=error
    )


def fetch_response_of(
    version: int,
    responses: tuple[Any, ...],
    *,
    correlation_id: int = 1,
    session_id: int = 0,
    error: int = 0,
) -> bytes:
    """A response from kio's own topics."""
    s = _schema("fetch", version, "response")
    entity = _with_fields(
        s.FetchResponse,
        throttle_time=timedelta(0),
        error_code=ErrorCode(error),
        session_id=session_id,
        responses=responses,
    )
    header = entity.__header_schema__(correlation_id=correlation_id)
    return _write(header, entity)


def epoch_request(
    version: int,
    topic: str,
    partition: int,
    leader_epoch: int,
    *,
    replica_id: int = 1,
    client_id: str = "broker-1-fetcher-0",
    correlation_id: int = 1,
) -> bytes:
    s = _schema("offset_for_leader_epoch", version, "request")
    entry = _with_fields(
        s.OffsetForLeaderPartition,
        partition=partition,
        leader_epoch=leader_epoch,
        current_leader_epoch=leader_epoch,
    )
    entity = _with_fields(
        s.OffsetForLeaderEpochRequest,
        replica_id=replica_id,
        topics=(s.OffsetForLeaderTopic(topic=topic, partitions=(entry,)),),
    )
    return _write(_header(entity, correlation_id, client_id), entity)


def epoch_response(
    version: int, topic: str, partition: int, error: int, *, correlation_id: int = 1
) -> bytes:
    s = _schema("offset_for_leader_epoch", version, "response")
    entry = s.EpochEndOffset(
        error_code=ErrorCode(error), partition=partition, leader_epoch=3, end_offset=7
    )
    topics = (s.OffsetForLeaderTopicResult(topic=topic, partitions=(entry,)),)
    entity = s.OffsetForLeaderEpochResponse(throttle_time=timedelta(0), topics=topics)
    header = entity.__header_schema__(correlation_id=correlation_id)
    return _write(header, entity)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def request(api_key: int, version: int, body: bytes, *, client_id: str) -> bytes:
    return frame(struct.pack(">hhi", api_key, version, 1) + text(client_id) + body)


def leader_and_isr(
    version: int, topic: str, partition: int, leader: int, leader_epoch: int, *, controller: int = 0
) -> bytes:
    """LeaderAndIsr v0 to v2, as a controller of Kafka 0.8.2 to 2.2 sends it."""
    isr = struct.pack(">iii", 2, leader, controller)
    state = struct.pack(">iiii", partition, 1, leader, leader_epoch) + isr
    state += struct.pack(">i", 5) + isr + (b"\x00" if version >= 1 else b"")
    live = struct.pack(">i", 1) + struct.pack(">i", leader) + text("127.0.0.1") + b"\0\0\x23\x84"
    if version < 2:
        head = struct.pack(">iii", controller, 1, 1)
        # The topic's name comes first in each partition's state.
        body = head + text(topic) + state + live
    else:
        head = struct.pack(">iiqi", controller, 1, 9, 1)
        body = head + text(topic) + struct.pack(">i", 1) + state + live
    return request(4, version, body, client_id=str(controller))


def flexible_leader_and_isr(
    topic: str, partition: int, leader: int, leader_epoch: int, *, controller: int = 0
) -> bytes:
    """LeaderAndIsr v5, as a controller of Kafka 2.8 sends it; with a tagged field that nobody
    knows behind each structure."""
    tags = b"\x01\x63\x02ab"
    brokers = b"\x03" + struct.pack(">ii", leader, controller)
    state = struct.pack(">iiii", partition, 1, leader, leader_epoch) + brokers
    state += struct.pack(">i", 5) + brokers + b"\x01\x00\x00" + tags  # one array is null
    named = bytes([len(topic) + 1]) + topic.encode() + topic_id(topic).bytes
    live = b"\x02" + struct.pack(">i", leader) + b"\x0a127.0.0.1" + struct.pack(">i", 9092) + tags
    head = struct.pack(">iiqb", controller, 1, 9, 0)
    body = head + b"\x02" + named + b"\x02" + state + tags + live + tags
    return request(4, 5, b"\x00" + body, client_id=str(controller))
