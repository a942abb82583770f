"""Real clients produce and consume; what they sent is stored as they sent it."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from clusters.broker.storage.record_batch import parse_batches
from tests.live.clients import CLIENTS, librdkafka_produce
from tests.live.cluster import LiveCluster
from tests.live.raw import RawConnection, produce_request, produced, stored_batches
from tests.storage.batches import COMPRESSIONS, NOW_MS, batch

pytestmark = pytest.mark.live
VALUES = [f"value {number:04}".encode() * 5 for number in range(100)]
CODES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("client", CLIENTS)
def test_P1_what_a_client_produced_every_client_reads(
    cluster: LiveCluster, topic_name: str, client: str, acks: int
) -> None:
    topic = cluster.create_topic(topic_name)
    CLIENTS[client].produce(cluster.bootstrap, topic, VALUES, acks, "none")
    for reader in CLIENTS.values():
        assert reader.consume(cluster.bootstrap, topic, len(VALUES)) == VALUES


@pytest.mark.parametrize("compression", CODES)
@pytest.mark.parametrize("client", CLIENTS)
def test_P6_compressed_batches_pass_unopened(
    cluster: LiveCluster, topic_name: str, client: str, compression: str
) -> None:
    topic = cluster.create_topic(topic_name, [[0, 1, 2]])
    CLIENTS[client].produce(cluster.bootstrap, topic, VALUES, -1, compression)
    headers = parse_batches(stored_batches(cluster.client_port(0), topic))
    assert {header.attributes & 7 for header in headers} == {CODES[compression]}
    assert CLIENTS[client].consume(cluster.bootstrap, topic, len(VALUES)) == VALUES
