"""Numbers that clients send are not believed by a real broker: partitions, bytes, connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import psutil
import pytest
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import entity_class, make, request_class
from tests.hardening.poison import ONE, sealed, zeros
from tests.live.cluster import LiveCluster, until
from tests.live.raw import (
    RawConnection,
    fetch_request,
    milliseconds,
    produce_request,
    produced,
)
from tests.storage.batches import batch

pytestmark = pytest.mark.live
IDLE_MS = 2_000
SETTINGS = {
    "auto.create.topics.enable": "false",
    "zookeeper.session.timeout.ms": "20000",
    "connections.max.idle.ms": str(IDLE_MS),
}
MIB = 1 << 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    directory = tmp_path_factory.mktemp("limits")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        cluster = LiveCluster(directory, SETTINGS, "2.1", members=(0,))
        yield cluster
        cluster.close()


def create_topics(topics: dict[str, int], configs: dict[str, str] | None = None) -> Any:
    """CreateTopics v2: names with their numbers of partitions, one replica each."""
    api, version = Api.CREATE_TOPICS, 2
    config_class = entity_class(api, version, EntityType.request, "CreatableTopicConfig")
    topic_class = entity_class(api, version, EntityType.request, "CreatableTopic")
    given = tuple(
        make(config_class, name=name, value=value) for name, value in (configs or {}).items()
    )
    return request_class(api, version)(
        topics=tuple(
            topic_class(
                name=TopicName(name),
                num_partitions=i32(partitions),
                replication_factor=i16(1),
                assignments=(),
                configs=given,
            )
            for name, partitions in topics.items()
        ),
        timeout=milliseconds(20_000),
        validate_only=False,
    )


def errors(cluster: LiveCluster, request: Any) -> set[str]:
    with RawConnection(cluster.client_port(0)) as connection:
        return {topic.error_code.name for topic in connection.ask(request).topics}


def test_a10_as_many_partitions_as_anybody_says_are_not_created(cluster: LiveCluster) -> None:
    for partitions in (2**31 - 1, 10**6, 30_000, 10_001):
        assert errors(cluster, create_topics({"many": partitions})) == {"policy_violation"}
    assert errors(cluster, create_topics({f"t{one}": 1 for one in range(20_000)})) == {
        "policy_violation"
    }
    assert cluster.znode("/brokers/topics/many") is None
    assert errors(cluster, create_topics({"few": 3})) == {"none"}


def test_a10_settings_that_nobody_knows_are_not_sent_to_zookeeper(cluster: LiveCluster) -> None:
    """As many as these are more than jute.maxbuffer: that ended the session, and was sent again
    for ever."""
    large = {f"a.setting.{number}": "x" * 30_000 for number in range(40)}
    assert errors(cluster, create_topics({"large": 1}, large)) == {"invalid_config"}
    assert errors(cluster, create_topics({"small": 1})) == {"none"}


def test_a9_of_two_topics_the_one_with_a_bad_setting_is_refused_alone(
    cluster: LiveCluster,
) -> None:
    with RawConnection(cluster.client_port(0)) as connection:
        request = create_topics({"plain": 1})
        odd = create_topics({"odd": 1}, {"segment.bytes": "many"})
        both = make(
            type(request),
            topics=request.topics + odd.topics,
            timeout=request.timeout,
            validate_only=False,
        )
        found = {str(one.name): one.error_code.name for one in connection.ask(both).topics}
    assert found == {"plain": "none", "odd": "invalid_config"}
    assert cluster.znode("/brokers/topics/odd") is None


def test_a11_peers_that_never_read_take_a_bounded_part_of_memory(cluster: LiveCluster) -> None:
    """A dozen of them, who ask for all of a log; it was 3 GiB."""
    topic = cluster.create_topic("large-log", [[0]])
    port = cluster.client_port(0)
    records = batch(0, [b"x" * 900_000])
    with RawConnection(port) as producer:
        for _ in range(80):
            assert produced(producer.ask(produce_request(topic, records, acks=1)))[0] == "none"
    process = _process(port)
    before = process.memory_info().rss
    with ExitStack() as opened:
        for _ in range(12):
            peer = opened.enter_context(RawConnection(port))
            peer.send_request(fetch_request(topic, 0, max_bytes=2**31 - 1))
        with RawConnection(port) as neighbour:
            for _ in range(20):
                neighbour.ask(ApiVersionsRequest())
        assert process.memory_info().rss - before < 300 * MIB
        assert cluster.brokers.is_up(0)


def test_a10_bombs_of_zstd_make_the_broker_neither_deaf_nor_large(cluster: LiveCluster) -> None:
    """A dozen at once, each of a few kilobytes: as many zeros as a batch may come to, and more."""
    topic = cluster.create_topic("bombed", [[0]])
    port = cluster.client_port(0)
    process = _process(port)
    before = peak = process.memory_info().rss
    bombs = [sealed(ONE, attributes=4, body=zeros(size)) for size in (100 * MIB, 200 * MIB)]
    with ExitStack() as opened:
        peers = [opened.enter_context(RawConnection(port)) for _ in range(12)]
        requests = [produce_request(topic, bombs[n % 2], acks=1, version=7) for n in range(12)]
        for peer, request in zip(peers, requests, strict=True):
            peer.send_request(request)
        with RawConnection(port) as neighbour:
            for _ in range(200):
                neighbour.ask(ApiVersionsRequest())
                peak = max(peak, process.memory_info().rss)
        answers = {
            produced(peer.receive(request)[1])[0]
            for peer, request in zip(peers, requests, strict=True)
        }
    assert answers == {"corrupt_message", "message_too_large"}
    assert peak - before < 700 * MIB


def _process(port: int) -> psutil.Process:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # one that has just ended
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return process
    raise AssertionError(f"nobody listens on {port}")


def test_a11_idle_connections_are_closed(cluster: LiveCluster) -> None:
    with RawConnection(cluster.client_port(0)) as connection:
        connection.ask(ApiVersionsRequest())
        assert connection.is_closed_by_peer()
    assert "it is idle" in cluster.log(0)


def test_a11_more_connections_than_there_are_files_do_not_end_it(cluster: LiveCluster) -> None:
    port = cluster.client_port(0)
    process = _process(port)
    had = process.rlimit(psutil.RLIMIT_NOFILE)
    process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + 20, had[1]))
    try:
        with ExitStack() as opened:
            for _ in range(60):
                opened.enter_context(RawConnection(port))
        process.rlimit(psutil.RLIMIT_NOFILE, had)
        with RawConnection(port) as connection:
            connection.ask(ApiVersionsRequest())
    finally:
        process.rlimit(psutil.RLIMIT_NOFILE, had)
    assert cluster.brokers.is_up(0)


def test_a1_settings_that_change_in_zookeeper_hold_at_once_and_after_a_restart(
    cluster: LiveCluster,
) -> None:
    topic = cluster.create_topic("changing", [[0]], {"max.message.bytes": "100000"})
    request = produce_request(topic, batch(0, [b"x" * 500]), acks=1)

    def answer() -> str:
        with RawConnection(cluster.client_port(0)) as connection:
            return produced(connection.ask(request))[0]

    assert answer() == "none"
    content = {"version": 1, "config": {"max.message.bytes": "300"}}
    cluster.zookeeper.set(f"/config/topics/{topic}", json.dumps(content).encode())
    until(lambda: answer() == "message_too_large", "the new setting holds")
    cluster.do(cluster.brokers.stop(0))
    cluster.restart(0)
    until(lambda: cluster.state(topic)["leader"] == 0, "it leads again")
    not_yet = ("not_leader_or_follower", "unknown_topic_or_partition", "leader_not_available")
    until(lambda: answer() not in not_yet, "it knows that it leads")
    assert answer() == "message_too_large"
    content["config"] = {}
    cluster.zookeeper.set(f"/config/topics/{topic}", json.dumps(content).encode())
    until(lambda: answer() == "none", "the broker's setting holds again")
