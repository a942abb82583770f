"""Kafka's own reader finds nothing wrong with what live brokers wrote, on any replica."""

from __future__ import annotations

import re

import pytest

from tests.live.clients import CLIENTS
from tests.live.cluster import BROKERS, LiveCluster
from tests.live.compression import COMPRESSES, OF_THIS_AGE
from tests.live.raw import RawConnection, produce_request, produced
from tests.storage.batches import batch
from tests.storage.dumped import dump

pytestmark = [pytest.mark.live, pytest.mark.needs("maven")]


@pytest.mark.needs("kcat")
def test_r8_kafka_reads_what_every_client_wrote_with_every_compression(
    cluster: LiveCluster, topic_name: str
) -> None:
    topic = cluster.create_topic(
        topic_name, settings={"segment.bytes": "4000", "index.interval.bytes": "500"}
    )
    written: list[str] = []
    for client, able in COMPRESSES.items():
        for compression in able:
            values = [f"{client}-{compression}-{number:04}" for number in range(40)]
            sent = [value.encode() for value in values]
            CLIENTS[client].produce(cluster.bootstrap, topic, sent, -1, compression)
            written += values
    with RawConnection(cluster.client_port(0)) as connection:
        for compression in OF_THIS_AGE:
            records = batch(0, [f"raw-{compression}".encode()] * 2, compression=compression)
            assert produced(connection.ask(produce_request(topic, records)))[0] == "none"
            written += [f"raw-{compression}"] * 2
    cluster.await_isr(topic, BROKERS)
    segments = [
        file
        for broker in BROKERS
        for file in sorted((cluster.log_directory(broker) / f"{topic}-0").glob("*.log"))
    ]
    assert len(segments) > 2 * len(BROKERS)
    text = dump(segments, "--deep-iteration", "--print-data-log")
    payloads = re.findall(r"payload: (\S+)$", text, re.MULTILINE)
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", text, re.MULTILINE)]
    assert payloads == written * len(BROKERS)
    assert offsets == list(range(len(written))) * len(BROKERS)
    assert text.count("isvalid: true") == text.count("baseOffset: ")


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4"])
def test_p6_a_topics_batches_are_compressed_as_it_says(
    cluster: LiveCluster, topic_name: str, compression: str
) -> None:
    settings = {"compression.type": compression}
    topic = cluster.create_topic(topic_name, settings=settings)
    values = [b"value-%d" % number for number in range(100)]
    for client in ("confluent-kafka", "kafka-python", "aiokafka"):
        CLIENTS[client].produce(cluster.bootstrap, topic, values, -1, "none")
        assert CLIENTS["confluent-kafka"].consume(cluster.bootstrap, topic, 100)[:100] == values
    cluster.await_isr(topic, BROKERS)
    for broker in BROKERS:
        text = dump(sorted((cluster.log_directory(broker) / f"{topic}-0").glob("*.log")))
        assert set(re.findall(r"compresscodec: (\S+)", text)) == {compression}
