"""What a produce request is answered, and what is appended then."""

from __future__ import annotations

import psutil
import pytest

from neaptide.clusters.broker.storage.record_batch import parse_batches
from tests.live.clients import librdkafka_consume
from tests.live.cluster import BROKERS, LiveCluster, until
from tests.live.raw import (
    RawConnection,
    fetch_request,
    fetched,
    produce_request,
    produced,
    stored_batches,
)
from tests.storage.batches import batch

pytestmark = pytest.mark.live
LEADER = 0


def end_offset(cluster: LiveCluster, topic: str) -> int:
    """The high watermark that the leader answers."""
    with RawConnection(cluster.client_port(LEADER)) as connection:
        return int(fetched(connection.ask(fetch_request(topic, 0))).high_watermark)


@pytest.mark.parametrize("acks", [1, -1])
def test_p1_acks_1_and_all_are_answered_with_the_offset(
    cluster: LiveCluster, topic_name: str, acks: int
) -> None:
    topic = cluster.create_topic(topic_name)
    with RawConnection(cluster.client_port(LEADER)) as connection:
        for offset in (0, 2, 4):
            request = produce_request(topic, batch(0, [b"a", b"b"]), acks=acks)
            assert produced(connection.ask(request)) == ("none", offset)


def test_p1_acks_0_is_not_answered(cluster: LiveCluster, topic_name: str) -> None:
    topic = cluster.create_topic(topic_name)
    with RawConnection(cluster.client_port(LEADER)) as connection:
        connection.send_request(produce_request(topic, batch(0, [b"silent"]), acks=0))
        loud = produce_request(topic, batch(0, [b"loud"]), acks=1)
        sent = connection.send_request(loud)
        correlation_id, answer = connection.receive(loud)
        assert correlation_id == sent
        assert produced(answer) == ("none", 1)


def test_p1_an_error_with_acks_0_closes_the_connection(cluster: LiveCluster) -> None:
    with RawConnection(cluster.client_port(LEADER)) as connection:
        connection.send_request(produce_request("nowhere", batch(0, [b"lost"]), acks=0))
        assert connection.is_closed_by_peer()


def test_p2_acks_all_times_out_while_the_followers_are_paused(
    cluster: LiveCluster, topic_name: str
) -> None:
    topic = cluster.create_topic(topic_name)
    with RawConnection(cluster.client_port(LEADER)) as connection:
        try:
            cluster.pause(1)
            cluster.pause(2)
            request = produce_request(topic, batch(0, [b"late"]), timeout_ms=300)
            assert produced(connection.ask(request))[0] == "request_timed_out"
            assert int(fetched(connection.ask(fetch_request(topic, 0))).high_watermark) == 0
        finally:
            cluster.resume(1)
            cluster.resume(2)
        # The record was appended all the same: it is committed when the followers have it.
        until(lambda: end_offset(cluster, topic) == 1, "the record is committed")
        cluster.await_isr(topic, BROKERS)
        again = produce_request(topic, batch(0, [b"in time"]))
        assert produced(connection.ask(again)) == ("none", 1)


def test_p3_a_record_that_is_too_large_is_not_appended(
    cluster: LiveCluster, topic_name: str
) -> None:
    topic = cluster.create_topic(topic_name, settings={"max.message.bytes": "1000"})
    with RawConnection(cluster.client_port(LEADER)) as connection:
        large = produce_request(topic, batch(0, [b"x" * 1000]))
        assert produced(connection.ask(large))[0] == "message_too_large"
        small = produce_request(topic, batch(0, [b"x" * 100]))
        assert produced(connection.ask(small)) == ("none", 0)


@pytest.mark.parametrize("byte", [8, 16, 17, 20, 60, -1])
def test_p3_a_corrupt_batch_is_not_appended(
    cluster: LiveCluster, topic_name: str, byte: int
) -> None:
    topic = cluster.create_topic(topic_name)
    corrupt = bytearray(batch(0, [b"value"]))
    corrupt[byte] ^= 0x41
    with RawConnection(cluster.client_port(LEADER)) as connection:
        answer = connection.ask(produce_request(topic, bytes(corrupt)))
        assert produced(answer)[0] == "corrupt_message"
        whole = connection.ask(produce_request(topic, batch(0, [b"value"])))
        assert produced(whole) == ("none", 0)
    stored = parse_batches(stored_batches(cluster.client_port(LEADER), topic))
    assert [header.base_offset for header in stored] == [0]


def test_p3_no_records_at_all_are_corrupt(cluster: LiveCluster, topic_name: str) -> None:
    topic = cluster.create_topic(topic_name)
    with RawConnection(cluster.client_port(LEADER)) as connection:
        assert produced(connection.ask(produce_request(topic, b"")))[0] == "corrupt_message"
    assert end_offset(cluster, topic) == 0


@pytest.mark.parametrize(
    ("acks", "error"), [(-1, "not_enough_replicas"), (1, "none"), (5, "invalid_required_acks")]
)
def test_i9_acks_all_wants_an_isr_of_min_insync_replicas(
    cluster: LiveCluster, topic_name: str, acks: int, error: str
) -> None:
    topic = cluster.create_topic(topic_name, [[LEADER]], {"min.insync.replicas": "2"})
    with RawConnection(cluster.client_port(LEADER)) as connection:
        answer = connection.ask(produce_request(topic, batch(0, [b"alone"]), acks=acks))
    assert produced(answer)[0] == error
    assert end_offset(cluster, topic) == (1 if error == "none" else 0)


def test_c8_a_broker_that_does_not_lead_says_so(cluster: LiveCluster, topic_name: str) -> None:
    topic = cluster.create_topic(topic_name)
    with RawConnection(cluster.client_port(1)) as connection:
        answer = connection.ask(produce_request(topic, batch(0, [b"astray"])))
        assert produced(answer)[0] == "not_leader_or_follower"
        partition = fetched(connection.ask(fetch_request(topic, 0)))
        assert partition.error_code.name == "not_leader_or_follower"
        unknown = connection.ask(produce_request("nowhere", batch(0, [b"astray"])))
        assert produced(unknown)[0] == "unknown_topic_or_partition"


def test_r1_a_consumer_reads_what_is_below_the_high_watermark_only(
    cluster: LiveCluster, topic_name: str
) -> None:
    topic = cluster.create_topic(topic_name)
    with RawConnection(cluster.client_port(LEADER)) as connection:
        assert produced(connection.ask(produce_request(topic, batch(0, [b"m1"])))) == ("none", 0)
        try:
            cluster.pause(1)
            cluster.pause(2)
            alone = connection.ask(produce_request(topic, batch(0, [b"m2"]), acks=1))
            assert produced(alone) == ("none", 1)
            seen = fetched(connection.ask(fetch_request(topic, 0)))
        finally:
            cluster.resume(1)
            cluster.resume(2)
        headers = parse_batches(bytes(seen.records))
        assert (int(seen.high_watermark), [h.base_offset for h in headers]) == (1, [0])
    assert librdkafka_consume(cluster.bootstrap, topic, 2) == [b"m1", b"m2"]
    cluster.await_isr(topic, BROKERS)


def test_a_consumer_that_does_not_read_its_answers_stops_nobody(
    cluster: LiveCluster, topic_name: str
) -> None:
    topic = cluster.create_topic(topic_name)
    with RawConnection(cluster.client_port(LEADER)) as writer:
        for _ in range(4):
            writer.ask(produce_request(topic, batch(0, [b"x" * 500_000])))
        with RawConnection(cluster.client_port(LEADER)) as lazy:
            request = fetch_request(topic, 0, max_bytes=2_000_000)
            sent = [lazy.send_request(request) for _ in range(100)]  # 200 MB of answers
            assert produced(writer.ask(produce_request(topic, batch(0, [b"y"]))))[0] == "none"
            resident = memory_bytes(cluster)
            assert [lazy.receive(request)[0] for _ in sent] == sent
    assert resident < 150_000_000


def memory_bytes(cluster: LiveCluster) -> int:
    process = next(p for p in cluster.host.running if p.spec.name == f"broker {LEADER}")
    return int(psutil.Process(process.pid).memory_info().rss)
