"""Bytes to messages, by api and version. Pure.

kio reads what it has (Fetch requests v4 to v18, OffsetForLeaderEpoch v2 to v4); the older versions
and LeaderAndIsr, which Kafka 4 removed, are read here, and Fetch responses, which may be large, in
nemesis.gate.fetch_answer. A version that is in no table is None: the message passes, unread.
"""

from __future__ import annotations

import importlib
import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from neaptide.clusters.broker.wire.reading import UnreadableError, read_entity
from neaptide.nemesis.gate import apis
from neaptide.nemesis.gate import messages as m
from neaptide.nemesis.gate.cursor import Cursor
from neaptide.nemesis.gate.frames import HEAD_BYTES, LENGTH_BYTES, MalformedStreamError

# api_key, api_version, correlation_id, length of the client id
_REQUEST_HEADER: Final = struct.Struct(">hhih")
_FLEXIBLE_FROM: Final = {
    **{row.key: row.flexible_from for row in apis.APIS.values()},
    m.LEADER_AND_ISR: 4,
    m.STOP_REPLICA: 2,
    m.UPDATE_METADATA: 6,
}
_BROKER_CLIENT = re.compile(r"(?:broker-|id_)(\d{1,9})-", re.ASCII)
_BARE_ID = re.compile(r"\d{1,9}", re.ASCII)
_QUORUM_CLIENT = re.compile(r"(?:raft-client-)?(\d{1,9})", re.ASCII)
ALTER_PARTITION: Final = apis.APIS["alter_partition"].key
CONTROLLER_APIS: Final = (m.LEADER_AND_ISR, m.STOP_REPLICA, m.UPDATE_METADATA)
FETCH_VERSIONS: Final = range(0, 19)
EPOCH_VERSIONS: Final = range(0, 5)
LEADER_AND_ISR_VERSIONS: Final = (0, 1, 2, 5)  # of 0.8.2 to 2.3, and of 2.8 to 3.1
_LEADER_AND_ISR_WITH_TOPIC_IDS: Final = 5
_UUID_BYTES: Final = 16
_NO_ID: Final = bytes(_UUID_BYTES)  # which kio reads as None


def request_header(frame: bytes) -> m.RequestHeader:
    """The header of a request frame."""
    try:
        key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame, LENGTH_BYTES)
        start = LENGTH_BYTES + _REQUEST_HEADER.size
        end = start + max(length, 0)
        client_id = None if length < 0 else frame[start:end].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedStreamError(f"no request header: {error}") from None
    if is_flexible(key, version):
        end = _after_tags(frame, end)
    return m.RequestHeader(key, version, correlation_id, client_id, end)


def correlation_id(frame: bytes) -> int:
    """The correlation id of a response frame."""
    if len(frame) < HEAD_BYTES:
        raise MalformedStreamError("no response header: the message ends too early")
    return int.from_bytes(frame[LENGTH_BYTES:HEAD_BYTES], "big", signed=True)


def source_broker(header: m.RequestHeader) -> int | None:
    """The broker that a request's header names as its sender, if it does.

    Replica fetchers are "broker-N-fetcher-K" from Kafka 0.11 on; a controller is its bare id, as is
    a leader that asks the controller for another ISR; up to 0.8 "id_N-host_H-port_P".
    """
    client_id = header.client_id or ""
    if found := _BROKER_CLIENT.match(client_id):
        return int(found.group(1))
    if header.api_key not in (*CONTROLLER_APIS, ALTER_PARTITION):
        return None
    bare = _BARE_ID.fullmatch(client_id)
    return int(bare.group()) if bare else None


def quorum_node(header: m.RequestHeader) -> int | None:
    """The KRaft node that a request to a controller comes from, if it is from one.

    Its raft client is "raft-client-N", its channel for all else is its bare id.
    """
    found = _QUORUM_CLIENT.fullmatch(header.client_id or "")
    return int(found.group(1)) if found else None


def fetch_request(frame: bytes, header: m.RequestHeader) -> m.FetchRequest | None:
    version = header.api_version
    if version not in FETCH_VERSIONS:
        return None
    if version < 4:
        return _old_fetch_request(Cursor(frame, header.size), version)
    raw = _kio("fetch", version, "request", frame, header.size)
    return m.FetchRequest(
        replica_id=int(raw.replica_id if version < 15 else raw.replica_state.replica_id),
        session_id=int(raw.session_id) if version >= 7 else 0,
        session_epoch=int(raw.session_epoch) if version >= 7 else -1,
        partitions={
            (_topic(topic), int(entry.partition)): m.FetchPartition(
                int(entry.fetch_offset),
                known(entry.current_leader_epoch) if version >= 9 else None,
            )
            for topic in raw.topics
            for entry in topic.partitions
        },
        forgotten=tuple(
            (_topic(topic), int(partition))
            for topic in (raw.forgotten_topics_data if version >= 7 else ())
            for partition in topic.partitions
        ),
    )


def epoch_request(frame: bytes, header: m.RequestHeader) -> m.EpochRequest | None:
    version = header.api_version
    if version not in EPOCH_VERSIONS:
        return None
    if version < 2:
        cursor = Cursor(frame, header.size)
        pairs = _by_topic(cursor, lambda c: (c.int32(), c.int32()))
        return m.EpochRequest(None, pairs)
    raw = _kio("offset_for_leader_epoch", version, "request", frame, header.size)
    return m.EpochRequest(
        replica_id=int(raw.replica_id) if version >= 3 else None,
        partitions={
            (str(topic.topic), int(entry.partition)): int(entry.leader_epoch)
            for topic in raw.topics
            for entry in topic.partitions
        },
    )


def epoch_response(frame: bytes, version: int) -> m.EpochResponse:
    if version < 2:
        cursor = Cursor(frame, HEAD_BYTES)
        return m.EpochResponse(_by_topic(cursor, lambda c: _old_epoch_end(c, version)))
    body = _response_body(frame, m.OFFSET_FOR_LEADER_EPOCH, version)
    raw = _kio("offset_for_leader_epoch", version, "response", frame, body)
    return m.EpochResponse(
        {
            (str(topic.topic), int(entry.partition)): int(entry.error_code)
            for topic in raw.topics
            for entry in topic.partitions
        }
    )


# --- any api that rules may name ------------------------------------------------------------------


def request_entity(frame: bytes, header: m.RequestHeader) -> Any | None:
    """A request as kio reads it; None: kio has no such version."""
    return _entity(frame, header.api_key, header.api_version, "request", header.size)


def response_entity(frame: bytes, api_key: int, version: int) -> Any | None:
    """A response as kio reads it; None: kio has no such version."""
    flexible = apis.response_is_flexible(api_key, version)
    start = _after_tags(frame, HEAD_BYTES) if flexible else HEAD_BYTES
    return _entity(frame, api_key, version, "response", start)


def _entity(frame: bytes, api_key: int, version: int, kind: str, start: int) -> Any | None:
    try:
        _class(apis.NAMES[api_key], version, kind)
    except ModuleNotFoundError:
        return None
    return _kio(apis.NAMES[api_key], version, kind, frame, start)


def first_error(frame: bytes) -> int:
    """The error that a response of version 0 begins with."""
    return Cursor(frame, HEAD_BYTES).int16()


def old_produce_request(
    frame: bytes, header: m.RequestHeader
) -> tuple[int, dict[m.TopicPartition, dict[str, int | str | None]]]:
    """The acks, and what is said of each partition, of Produce v0 to v2, which kio has not."""
    cursor = Cursor(frame, header.size)
    acks = cursor.int16()
    cursor.int32()  # timeout_ms
    found = _by_topic(cursor, lambda c: (c.int32(), {"records_bytes": c.skipped_bytes()}))
    return acks, found


def old_produce_response(
    frame: bytes, version: int
) -> dict[m.TopicPartition, dict[str, int | str | None]]:
    def partition(cursor: Cursor) -> tuple[int, dict[str, int]]:
        number, error, offset = cursor.int32(), cursor.int16(), cursor.int64()
        if version >= 2:
            cursor.int64()  # log_append_time_ms
        return number, {"error": error, "offset": offset}

    return _by_topic(Cursor(frame, HEAD_BYTES), partition)


def control_error(frame: bytes, api_key: int, version: int) -> int:
    """The error of the answer to a controller's request: in every version it comes first."""
    return Cursor(frame, _response_body(frame, api_key, version)).int16()


def leader_and_isr(
    frame: bytes, header: m.RequestHeader
) -> dict[m.TopicPartition, m.LeaderEpoch] | None:
    """Who leads what, in which epoch, as a controller sends it to a broker.

    None for the others, which nobody misses: from Kafka 2.4 on Fetch itself names the epoch.
    """
    version = header.api_version
    if version not in LEADER_AND_ISR_VERSIONS:
        return None
    cursor = Cursor(frame, header.size)
    cursor.int32()  # controller_id
    cursor.int32()  # controller_epoch
    if version < 2:
        return dict(cursor.array(lambda c: _partition_state(c, c.string(), version)))
    cursor.int64()  # broker_epoch
    if version >= _LEADER_AND_ISR_WITH_TOPIC_IDS:
        cursor.int8()  # type
        by_topic = cursor.compact_array(_flexible_topic_states)
    else:
        by_topic = cursor.array(_topic_states)
    return dict(state for states in by_topic for state in states)


def _topic_states(cursor: Cursor) -> tuple[tuple[m.TopicPartition, m.LeaderEpoch], ...]:
    topic = cursor.string()
    return cursor.array(lambda c: _partition_state(c, topic, 2))


def _flexible_topic_states(
    cursor: Cursor,
) -> tuple[tuple[m.TopicPartition, m.LeaderEpoch], ...]:
    topic = cursor.compact_string()
    cursor.skip(_UUID_BYTES)
    states = cursor.compact_array(lambda c: _flexible_partition_state(c, topic))
    cursor.skip_tags()
    return states


def _flexible_partition_state(cursor: Cursor, topic: str) -> tuple[m.TopicPartition, m.LeaderEpoch]:
    partition = cursor.int32()
    cursor.int32()  # controller_epoch
    state = m.LeaderEpoch(leader=cursor.int32(), leader_epoch=cursor.int32())
    cursor.compact_array(Cursor.int32)  # isr
    cursor.int32()  # zk_version
    for _ in ("replicas", "adding_replicas", "removing_replicas"):
        cursor.compact_array(Cursor.int32)
    cursor.int8()  # is_new
    cursor.skip_tags()
    return (topic, partition), state


def _partition_state(
    cursor: Cursor, topic: str, version: int
) -> tuple[m.TopicPartition, m.LeaderEpoch]:
    partition = cursor.int32()
    cursor.int32()  # controller_epoch
    state = m.LeaderEpoch(leader=cursor.int32(), leader_epoch=cursor.int32())
    cursor.array(Cursor.int32)  # isr
    cursor.int32()  # zk_version
    cursor.array(Cursor.int32)  # replicas
    if version >= 1:
        cursor.int8()  # is_new
    return (topic, partition), state


def _old_fetch_request(cursor: Cursor, version: int) -> m.FetchRequest:
    replica_id = cursor.int32()
    cursor.int32()  # max_wait_ms
    cursor.int32()  # min_bytes
    if version >= 3:
        cursor.int32()  # max_bytes
    pairs = _by_topic(cursor, _old_fetch_partition)
    return m.FetchRequest(replica_id, 0, -1, pairs, ())


def _old_fetch_partition(cursor: Cursor) -> tuple[int, m.FetchPartition]:
    partition, fetch_offset = cursor.int32(), cursor.int64()
    cursor.int32()  # partition_max_bytes
    return partition, m.FetchPartition(fetch_offset)


def _old_epoch_end(cursor: Cursor, version: int) -> tuple[int, int]:
    error, partition = cursor.int16(), cursor.int32()
    if version >= 1:
        cursor.int32()  # leader_epoch
    cursor.int64()  # end_offset
    return partition, error


def _by_topic(
    cursor: Cursor, read: Callable[[Cursor], tuple[int, Any]]
) -> dict[m.TopicPartition, Any]:
    by_topic = cursor.array(lambda c: (c.string(), c.array(read)))
    return {(topic, n): value for topic, entries in by_topic for n, value in entries}


# Of Kafka up to 2.7; kio begins with a later version.
_NOT_IN_KIO: Final = {("write_txn_markers", 0): "neaptide.clusters.broker.wire.txn_markers"}


@lru_cache
def _class(api: str, version: int, kind: str) -> Any:
    named = f"kio.schema.{api}.v{version}.{kind}"
    module = importlib.import_module(_NOT_IN_KIO.get((api, version), named))
    name = "".join(part.capitalize() for part in (*api.split("_"), kind))
    return getattr(module, name)


def _kio(api: str, version: int, kind: str, frame: bytes, offset: int) -> Any:
    try:
        entity, frame, end = read_entity(_class(api, version, kind), frame, offset)
    except UnreadableError as error:
        raise MalformedStreamError(f"{api} {kind} v{version}: {error}") from None
    if end != len(frame):
        raise MalformedStreamError(f"{api} {kind} v{version}: bytes are left over")
    return entity


def _topic(entity: Any) -> str:
    """A topic's name, or its id as text where a message has no name."""
    name = getattr(entity, "topic", None)
    if name is not None:
        return str(name)
    return topic_of_id(_NO_ID if entity.topic_id is None else entity.topic_id.bytes)


@lru_cache(maxsize=1024)
def topic_of_id(raw: bytes) -> str:
    """What stands for a topic that a message names by id: the id as text."""
    return str(UUID(bytes=raw))


def known(value: int) -> int | None:
    """What Kafka writes as -1 where it does not know is None here."""
    return None if value < 0 else int(value)


def is_flexible(api_key: int, version: int) -> bool:
    """Whether lengths are varints and fields may be tagged (KIP-482)."""
    return version >= _FLEXIBLE_FROM.get(api_key, 1 << 15)


def _response_body(frame: bytes, api_key: int, version: int) -> int:
    start = HEAD_BYTES
    return _after_tags(frame, start) if is_flexible(api_key, version) else start


def _after_tags(frame: bytes, offset: int) -> int:
    """Where the tagged fields of a header end. No header that Kafka has defined carries any."""
    if offset >= len(frame) or frame[offset] != 0:
        raise MalformedStreamError("a header with tagged fields, or cut short")
    return offset + 1
