"""Requests and responses of clients, as the gate reads them."""

from __future__ import annotations

import io
import struct
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from neaptide.nemesis.gate import apis
from tests.gate.wire import frame

TOPIC_ID = UUID(int=0x7)
_NO_TIME = timedelta(0)


def schema_of(api: str, version: int, kind: str) -> Any:
    return import_module(f"kio.schema.{api}.v{version}.{kind}")


def _bytes(*entities: Any) -> bytes:
    buffer = io.BytesIO()
    for entity in entities:
        entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def request(api: str, version: int, number: int, entity: Any) -> bytes:
    """A request frame with a header as clients write it."""
    row = apis.APIS[api]
    client = b"client"
    head = struct.pack(">hhih", row.key, version, number, len(client)) + client
    tags = b"\x00" if version >= row.flexible_from else b""
    return frame(head + tags + _bytes(entity))


def response(api: str, version: int, number: int, entity: Any) -> bytes:
    flexible = apis.response_is_flexible(apis.APIS[api].key, version)
    return frame(struct.pack(">i", number) + (b"\x00" if flexible else b"") + _bytes(entity))


def batch(producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
    """The head of a record batch of format v2: rules look at nothing behind it."""
    data = bytearray(61)
    data[16] = 2
    struct.pack_into(">qhi", data, 43, producer_id, epoch, sequence)
    return bytes(data)


def produce(version: int, number: int, *, acks: int = -1, records: bytes | None = None) -> bytes:
    if version < 3:
        body = struct.pack(">hiih", acks, 1000, 1, 1) + b"t" + struct.pack(">iii", 1, 0, 3) + b"abc"
        head = struct.pack(">hhih", 0, version, number, 1) + b"c"
        return frame(head + body)
    schema = schema_of("produce", version, "request")
    partition = schema.PartitionProduceData(index=0, records=records or batch(7, 3, 5))
    named: dict[str, Any] = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "t"}
    topic = schema.TopicProduceData(**named, partition_data=(partition,))
    entity = schema.ProduceRequest(
        transactional_id="tx",
        acks=acks,
        timeout=timedelta(seconds=1),
        topic_data=(topic,),
    )
    return request("produce", version, number, entity)


def commit(number: int, generation: int = 4) -> bytes:
    schema = schema_of("offset_commit", 8, "request")
    partition = schema.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=9, committed_leader_epoch=-1, committed_metadata=None
    )
    topic = schema.OffsetCommitRequestTopic(name="t", partitions=(partition,))
    entity = schema.OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=generation, member_id="m", topics=(topic,)
    )
    return request("offset_commit", 8, number, entity)


def api_versions(number: int, most: int) -> bytes:
    schema = schema_of("api_versions", 3, "response")
    keys = (
        schema.ApiVersion(api_key=0, min_version=3, max_version=most),
        schema.ApiVersion(api_key=1, min_version=4, max_version=17),
    )
    entity = schema.ApiVersionsResponse(
        error_code=ErrorCode.none, api_keys=keys, throttle_time=_NO_TIME
    )
    return response("api_versions", 3, number, entity)
