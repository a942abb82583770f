"""A client of no manners: it sends Kafka requests, or any bytes, over a socket of its own."""

from __future__ import annotations

import datetime
import socket
import time
from types import TracebackType
from typing import Any

from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import (
    decode_response,
    encode_request,
    entity_class,
    make,
    request_class,
)

_TIMEOUT_S = 20.0


class RawConnection:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._correlation_id = 0

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_request(self, entity: Any) -> int:
        self._correlation_id += 1
        self.send(encode_request(entity, correlation_id=self._correlation_id, client_id="raw"))
        return self._correlation_id

    def receive_frame(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def receive(self, request: Any) -> tuple[int, Any]:
        cls = type(request)
        return decode_response(self.receive_frame(), Api(cls.__api_key__), cls.__version__)

    def ask(self, entity: Any) -> Any:
        sent = self.send_request(entity)
        correlation_id, response = self.receive(entity)
        assert correlation_id == sent
        return response

    def half_close(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def is_closed_by_peer(self) -> bool:
        """Waits for the end of the stream; False if data comes."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError("the broker closed the connection")
            data += part
        return data


def milliseconds(number: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=number))


def _nested(api: Api, version: int, name: str) -> type[Any]:
    return entity_class(api, version, EntityType.request, name)


def produce_request(
    topic: str, records: bytes, *, acks: int = -1, timeout_ms: int = 10_000, version: int = 3
) -> Any:
    topic_class = _nested(Api.PRODUCE, version, "TopicProduceData")
    partition_class = _nested(Api.PRODUCE, version, "PartitionProduceData")
    partition = partition_class(index=i32(0), records=records)
    return request_class(Api.PRODUCE, version)(
        transactional_id=None,
        acks=i16(acks),
        timeout=milliseconds(timeout_ms),
        topic_data=(topic_class(name=TopicName(topic), partition_data=(partition,)),),
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    replica_id: int = -1,
    version: int = 5,
    current_leader_epoch: int = -1,
) -> Any:
    topic_class = _nested(Api.FETCH, version, "FetchTopic")
    partition_class = _nested(Api.FETCH, version, "FetchPartition")
    partition = make(
        partition_class,
        partition=i32(0),
        fetch_offset=i64(offset),
        log_start_offset=i64(-1),
        current_leader_epoch=i32(current_leader_epoch),
        partition_max_bytes=i32(max_bytes),
    )
    return make(
        request_class(Api.FETCH, version),
        replica_id=BrokerId(replica_id),
        max_wait=milliseconds(max_wait_ms),
        min_bytes=i32(min_bytes),
        max_bytes=i32(max_bytes),
        isolation_level=i8(0),
        session_id=i32(0),
        session_epoch=i32(-1),
        forgotten_topics_data=(),
        rack_id="",
        topics=(topic_class(topic=TopicName(topic), partitions=(partition,)),),
    )


def epoch_request(topic: str, leader_epoch: int, current_leader_epoch: int) -> Any:
    """OffsetForLeaderEpoch v2, for partition 0."""
    api, version = Api.OFFSET_FOR_LEADER_EPOCH, 2
    topic_class = _nested(api, version, "OffsetForLeaderTopic")
    partition = _nested(api, version, "OffsetForLeaderPartition")(
        partition=i32(0),
        current_leader_epoch=i32(current_leader_epoch),
        leader_epoch=i32(leader_epoch),
    )
    topics = (topic_class(topic=TopicName(topic), partitions=(partition,)),)
    return request_class(api, version)(topics=topics)


def produced(response: Any) -> tuple[str, int]:
    """Error name and base offset of a produce response with one partition."""
    partition = response.responses[0].partition_responses[0]
    return partition.error_code.name, int(partition.base_offset)


def fetched(response: Any) -> Any:
    """The one partition of a fetch response."""
    return response.responses[0].partitions[0]


def stored_batches(port: int, topic: str) -> bytes:
    """What a consumer may read of a topic's partition 0 from its beginning on, unopened."""
    with RawConnection(port) as connection:
        partition = fetched(connection.ask(fetch_request(topic, 0)))
        assert partition.error_code.name == "none", partition
        return bytes(partition.records or b"")


def until_readable(port: int, topic: str, offset: int, deadline_s: float = 20.0) -> None:
    """Until the high watermark that a consumer sees has passed an offset."""
    deadline = time.monotonic() + deadline_s
    with RawConnection(port) as connection:
        while int(fetched(connection.ask(fetch_request(topic, 0))).high_watermark) <= offset:
            assert time.monotonic() < deadline, f"{topic} is not readable up to {offset}"
