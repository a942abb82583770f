"""Real clients produce and consume; what they sent is stored as they sent it."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from neaptide.clusters.broker.storage.record_batch import parse_batches
from tests.live.clients import CLIENTS, KCAT, LIBRARIES, NAMES
from tests.live.cluster import BROKERS, LiveCluster
from tests.live.compression import COMPRESSES, OF_THIS_AGE
from tests.live.raw import RawConnection, produce_request, produced, stored_batches
from tests.storage.batches import NOW_MS, batch

pytestmark = pytest.mark.live
VALUES = [f"value {number:04}".encode() * 5 for number in range(100)]
CODES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("client", NAMES)
def test_p1_what_a_client_produced_every_library_reads(
    cluster: LiveCluster, topic_name: str, client: str, acks: int
) -> None:
    topic = cluster.create_topic(topic_name)
    CLIENTS[client].produce(cluster.bootstrap, topic, VALUES, acks, "none")
    for reader in LIBRARIES.values():
        assert reader.consume(cluster.bootstrap, topic, len(VALUES)) == VALUES


@pytest.mark.needs("kcat")
@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("client", CLIENTS)
def test_p1_what_a_client_produced_kcat_reads(
    cluster: LiveCluster, topic_name: str, client: str, acks: int
) -> None:
    topic = cluster.create_topic(topic_name)
    CLIENTS[client].produce(cluster.bootstrap, topic, VALUES, acks, "none")
    assert KCAT.consume(cluster.bootstrap, topic, len(VALUES)) == VALUES


@pytest.mark.parametrize(
    ("client", "compression"),
    [
        pytest.param(client, compression, marks=[pytest.mark.needs("kcat")] * (client == "kcat"))
        for client, able in COMPRESSES.items()
        for compression in able
    ],
)
def test_p6_compressed_batches_pass_unopened(
    cluster: LiveCluster, topic_name: str, client: str, compression: str
) -> None:
    topic = cluster.create_topic(topic_name)
    CLIENTS[client].produce(cluster.bootstrap, topic, VALUES, -1, compression)
    headers = parse_batches(stored_batches(cluster.client_port(0), topic))
    assert {header.attributes & 7 for header in headers} == {CODES[compression]}
    assert CLIENTS[client].consume(cluster.bootstrap, topic, len(VALUES)) == VALUES


def test_a10_zstd_is_refused_before_the_version_of_produce_that_has_it(
    cluster: LiveCluster, topic_name: str
) -> None:
    """As Kafka refuses it (KIP-110), and aiokafka does not ask whether it may."""
    topic = cluster.create_topic(topic_name)
    with RawConnection(cluster.client_port(0)) as connection:
        for compression, error in (("zstd", "unsupported_compression_type"), ("lz4", "none")):
            sent = batch(0, VALUES, compression=compression)
            assert produced(connection.ask(produce_request(topic, sent)))[0] == error


@pytest.mark.parametrize("compression", OF_THIS_AGE)
def test_p6_the_bytes_of_a_batch_come_back_but_for_its_offset_and_epoch(
    cluster: LiveCluster, topic_name: str, compression: str
) -> None:
    topic = cluster.create_topic(topic_name)
    sent = batch(0, VALUES, compression=compression)
    with RawConnection(cluster.client_port(0)) as connection:
        for offset in (0, len(VALUES)):
            answer = connection.ask(produce_request(topic, sent))
            assert produced(answer) == ("none", offset)
    stored = stored_batches(cluster.client_port(0), topic)
    assert len(stored) == 2 * len(sent)
    assert [header.base_offset for header in parse_batches(stored)] == [0, len(VALUES)]
    covered_by_checksum = 17
    for at in (0, len(sent)):
        assert stored[at + covered_by_checksum : at + len(sent)] == sent[covered_by_checksum:]
    read = CLIENTS["confluent-kafka"].consume(cluster.bootstrap, topic, 2 * len(VALUES))
    assert read == VALUES * 2


def test_r1_offsets_by_earliest_latest_and_timestamp(cluster: LiveCluster, topic_name: str) -> None:
    topic = cluster.create_topic(topic_name)
    with RawConnection(cluster.client_port(0)) as connection:
        for number in range(3):
            records = batch(0, [b"a", b"b"], timestamp=NOW_MS + 100 * number)
            assert produced(connection.ask(produce_request(topic, records)))[0] == "none"
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20) == (0, 6)

    def found(timestamp: int) -> int:
        asked = [TopicPartition(topic, 0, timestamp)]
        return int(consumer.offsets_for_times(asked, timeout=20)[0].offset)

    offsets = [found(NOW_MS + after) for after in (-1, 0, 1, 2, 100, 201)]
    behind_the_last = found(NOW_MS + 202)
    consumer.close()
    assert offsets == [0, 0, 1, 2, 2, 5]
    assert behind_the_last == OFFSET_END


def test_c5_c9_a_topic_that_a_client_created_has_the_settings_and_the_replicas_it_asked_for(
    cluster: LiveCluster, topic_name: str
) -> None:
    settings = {"min.insync.replicas": "2", "max.message.bytes": "1000"}
    topic = cluster.create_topic(topic_name, [[2, 0], [1, 2]], settings)
    assert cluster.znode(f"/config/topics/{topic}")["config"] == settings
    assert cluster.znode(f"/brokers/topics/{topic}")["partitions"] == {"0": [2, 0], "1": [1, 2]}
    assert [cluster.state(topic, number)["leader"] for number in (0, 1)] == [2, 1]


@pytest.mark.parametrize(
    ("name", "settings", "complaint"),
    [
        ("not/allowed", {}, "letters, digits"),
        ("fine", {"min.insync.replicas": "two"}, "min.insync.replicas"),
        ("fine", {"segment.bytes": "large"}, "segment.bytes"),
    ],
)
def test_c5_a_topic_that_cannot_be_is_refused_in_words_and_hurts_nobody(
    cluster: LiveCluster, name: str, settings: dict[str, str], complaint: str
) -> None:
    with pytest.raises(KafkaException, match=complaint):
        cluster.create_topic(name, settings=settings)
    assert cluster.znode(f"/brokers/topics/{name}") is None
    assert all(cluster.brokers.is_up(broker) for broker in BROKERS)


def test_c5_a_topic_that_exists_is_not_created_again(cluster: LiveCluster, topic_name: str) -> None:
    cluster.create_topic(topic_name)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        cluster.create_topic(topic_name)
