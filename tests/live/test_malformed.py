"""Bytes that are no Kafka request end their connection, with one log line, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from kio.schema.api_versions.v0.request import ApiVersionsRequest

from neaptide.clusters.broker.server.apis.table import client_apis
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import decode_response
from tests.live.clients import CLIENTS
from tests.live.cluster import BROKERS, LiveCluster
from tests.live.raw import RawConnection, fetch_request, produce_request
from tests.storage.batches import batch
from tests.wire.hurt import HEADS, NULL

pytestmark = pytest.mark.live
BROKER = 0


def header(api: int, version: int, correlation_id: int = 7) -> bytes:
    client = b"raw"
    return struct.pack(">hhih", api, version, correlation_id, len(client)) + client


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


MALFORMED = {
    "garbage": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a negative length": struct.pack(">i", -5) + b"hello",
    "a length of nothing": struct.pack(">i", 0),
    "oversized": struct.pack(">i", 2_000_001) + b"x" * 100,
    "no whole header": framed(b"\x00\x00"),
    "an unknown API key": framed(header(999, 0)),
    "an API for brokers only": framed(header(Api.LEADER_AND_ISR, 2) + b"\x00" * 24),
    "a version too new": framed(header(Api.METADATA, 99) + b"\x00" * 8),
    "a version too old": framed(header(Api.PRODUCE, 0) + b"\x00" * 8),
    "a body that ends too early": framed(header(Api.METADATA, 1) + struct.pack(">i", 3)),
    "bytes behind the body": framed(header(Api.METADATA, 1) + struct.pack(">i", 0) + b"more"),
    "an array of two thousand million": framed(header(Api.METADATA, 1) + b"\x7f\xff\xff\xff"),
    "an array of a negative length": framed(
        header(Api.LIST_OFFSETS, 1) + struct.pack(">ii", 0, -9)
    ),
    **{
        f"a10 null array, {what}": framed(header(api, version) + head + NULL + bytes(8))
        for what, (api, version, head) in HEADS.items()
    },
}


@pytest.fixture
def neighbour(cluster: LiveCluster) -> Iterator[RawConnection]:
    """A connection with good manners, open from before until after."""
    with RawConnection(cluster.client_port(BROKER)) as connection:
        connection.ask(ApiVersionsRequest())
        yield connection
        connection.ask(ApiVersionsRequest())


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_request_closes_its_own_connection_with_one_log_line(
    cluster: LiveCluster, neighbour: RawConnection, what: str
) -> None:
    before = len(cluster.log(BROKER).splitlines())
    with RawConnection(cluster.client_port(BROKER)) as connection:
        connection.ask(ApiVersionsRequest())
        connection.send(MALFORMED[what])
        assert connection.is_closed_by_peer()
    said = [line for line in cluster.log(BROKER).splitlines()[before:] if "closing the" in line]
    assert len(said) == 1
    assert " WARNING listener: " in said[0]
    assert "Traceback" not in cluster.log(BROKER)
    assert cluster.brokers.is_up(BROKER)


def test_a_request_that_never_ends_is_forgotten_with_its_connection(
    cluster: LiveCluster, neighbour: RawConnection
) -> None:
    with RawConnection(cluster.client_port(BROKER)) as connection:
        connection.send(struct.pack(">i", 1000) + b"begun")
        connection.half_close()
        assert connection.is_closed_by_peer()


def test_what_was_asked_before_the_malformed_request_is_answered(cluster: LiveCluster) -> None:
    with RawConnection(cluster.client_port(BROKER)) as connection:
        first = connection.send_request(ApiVersionsRequest())
        connection.send(MALFORMED["an unknown API key"])
        assert connection.receive(ApiVersionsRequest())[0] == first
        assert connection.is_closed_by_peer()


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(cluster: LiveCluster) -> None:
    with RawConnection(cluster.client_port(BROKER)) as connection:
        connection.send(framed(header(Api.API_VERSIONS, 99, correlation_id=42)))
        frame = connection.receive_frame()
        correlation_id, answer = decode_response(frame, Api.API_VERSIONS, 0)
        assert correlation_id == 42
        assert answer.error_code.name == "unsupported_version"
        assert {int(reported.api_key) for reported in answer.api_keys} == {
            int(api) for api in client_apis("0.11")
        }
        connection.ask(ApiVersionsRequest())  # it goes on in a version that is known


def test_pipelined_requests_are_answered_in_their_order(cluster: LiveCluster) -> None:
    with RawConnection(cluster.client_port(BROKER)) as connection:
        sent = [connection.send_request(ApiVersionsRequest()) for _ in range(200)]
        assert [connection.receive(ApiVersionsRequest())[0] for _ in sent] == sent


def test_an_answer_that_takes_long_is_not_overtaken(cluster: LiveCluster, topic_name: str) -> None:
    topic = cluster.create_topic(topic_name)
    with RawConnection(cluster.client_port(BROKER)) as connection:
        slow = fetch_request(topic, 0, max_wait_ms=200, min_bytes=1)
        sent = [connection.send_request(slow), connection.send_request(ApiVersionsRequest())]
        received = [connection.receive(slow)[0], connection.receive(ApiVersionsRequest())[0]]
        assert received == sent


def test_a_request_is_forgotten_when_its_connection_ends(
    cluster: LiveCluster, neighbour: RawConnection, topic_name: str
) -> None:
    """A produce and a fetch that wait in purgatory; what was appended stays."""
    topic = cluster.create_topic(topic_name)
    cluster.pause(1)
    cluster.pause(2)
    try:
        with (
            RawConnection(cluster.client_port(BROKER)) as producer,
            RawConnection(cluster.client_port(BROKER)) as consumer,
        ):
            producer.send_request(produce_request(topic, batch(0, [b"given up"])))
            consumer.send_request(fetch_request(topic, 0, max_wait_ms=10_000, min_bytes=1))
            producer.half_close()
            consumer.half_close()
            assert producer.is_closed_by_peer()
            assert consumer.is_closed_by_peer()
    finally:
        cluster.resume(1)
        cluster.resume(2)
    read = CLIENTS["confluent-kafka"].consume(cluster.bootstrap, topic, 1)
    assert read == [b"given up"]


def test_all_brokers_are_still_there(cluster: LiveCluster) -> None:
    assert all(cluster.brokers.is_up(broker) for broker in BROKERS)
