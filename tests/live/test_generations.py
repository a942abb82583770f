"""Each further generation as three real processes: written, its leader killed, read to the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.metadata.v7.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import TopicName

from tests.live.clients import KCAT, LIBRARIES, librdkafka_produce
from tests.live.cluster import LiveCluster, until
from tests.live.conftest import SETTINGS
from tests.live.raw import RawConnection, epoch_request, fetch_request, fetched
from tests.proof import proof_but

pytestmark = pytest.mark.live
FIRST = [f"first {number}".encode() for number in range(50)]
SECOND = [f"second {number}".encode() for number in range(50)]


@pytest.fixture(params=proof_but(["0.8", "2.0", "2.1", "2.8"], "2.1"))
def of_generation(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LiveCluster]:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    cluster = LiveCluster(tmp_path, SETTINGS, request.param)
    yield cluster
    cluster.close()


def test_c3_what_was_acked_by_all_outlives_the_leader_in_every_generation(
    of_generation: LiveCluster,
) -> None:
    cluster = of_generation
    topic = cluster.create_topic("t", settings={"min.insync.replicas": "2"})
    librdkafka_produce(cluster.bootstrap, topic, FIRST, -1, "none")
    leader = cluster.state(topic)["leader"]
    cluster.kill(leader)
    cluster.await_leader(topic, other_than=leader)
    librdkafka_produce(cluster.bootstrap, topic, SECOND, -1, "none")
    cluster.restart(leader)
    cluster.await_isr(topic, (0, 1, 2))
    for client in LIBRARIES.values():
        assert client.consume(cluster.bootstrap, topic, 100) == FIRST + SECOND


@pytest.mark.needs("kcat")
def test_kcat_gets_on_with_every_generation(of_generation: LiveCluster) -> None:
    topic = of_generation.create_topic("t", settings={"min.insync.replicas": "2"})
    KCAT.produce(of_generation.bootstrap, topic, FIRST, -1, "none")
    assert KCAT.consume(of_generation.bootstrap, topic, len(FIRST)) == FIRST


@pytest.mark.parametrize("of_generation", ["2.1"], indirect=True)
def test_e6_a_client_that_names_its_epoch_learns_that_what_it_had_read_was_truncated(
    of_generation: LiveCluster,
) -> None:
    """Ten records are on both, ten more on the leader only; the other one is elected uncleanly."""
    cluster = of_generation
    unclean = {"unclean.leader.election.enable": "true"}
    topic = cluster.create_topic("t", [[0, 1]], unclean)
    librdkafka_produce(cluster.bootstrap, topic, FIRST[:10], -1, "none")
    cluster.kill(1)
    cluster.await_isr(topic, (0,))
    librdkafka_produce(cluster.bootstrap, topic, FIRST[10:20], -1, "none")
    old_epoch = _leader_epoch(cluster, 0, topic)
    assert old_epoch == cluster.state(topic)["leader_epoch"]
    cluster.kill(0)
    cluster.restart(1)
    cluster.await_leader(topic, other_than=0)
    until(lambda: _leader_epoch(cluster, 1, topic) > old_epoch, "the new epoch is in the metadata")
    librdkafka_produce(cluster.bootstrap, topic, SECOND[:15], 1, "none")
    new_epoch = _leader_epoch(cluster, 1, topic)
    with RawConnection(cluster.client_port(1)) as connection:
        for epoch, error in (
            (old_epoch, "fenced_leader_epoch"),
            (new_epoch, "none"),
            (new_epoch + 1, "unknown_leader_epoch"),
        ):
            asked = fetch_request(topic, 20, version=9, current_leader_epoch=epoch)
            assert fetched(connection.ask(asked)).error_code.name == error
        ended = connection.ask(epoch_request(topic, old_epoch, new_epoch)).topics[0].partitions[0]
    assert ended.error_code.name == "none"
    assert int(ended.end_offset) == 10  # of the 20 records that it had read


def _leader_epoch(cluster: LiveCluster, broker: int, topic: str) -> int:
    """As Metadata v7 says it."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=TopicName(topic)),))
    with RawConnection(cluster.client_port(broker)) as connection:
        (partition,) = connection.ask(request).topics[0].partitions
    return int(partition.leader_epoch)
