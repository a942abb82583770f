"""Controller, elections, registrations, checkpoints: brokers die and come back."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.live.clients import librdkafka_consume, librdkafka_produce
from tests.live.cluster import BROKERS, LiveCluster, known_brokers, until
from tests.live.led import checkpoint

pytestmark = pytest.mark.live


def read_checkpoint(cluster: LiveCluster, broker: int, name: str) -> list[list[str]] | None:
    file = cluster.log_directory(broker) / name
    return checkpoint(file.read_text()) if file.exists() else None


def test_c1_c2_the_brokers_are_registered_and_one_of_them_is_controller(
    cluster: LiveCluster,
) -> None:
    assert sorted(cluster.zookeeper.get_children("/brokers/ids")) == ["0", "1", "2"]
    controller = cluster.controller()
    assert controller in BROKERS
    owner = cluster.zookeeper.get("/controller")[1].ephemeralOwner
    assert owner == cluster.zookeeper.get(f"/brokers/ids/{controller}")[1].ephemeralOwner
    assert {cluster.admin.list_topics(timeout=20).controller_id} == {controller}


def test_c1_c2_another_broker_takes_over_when_the_controller_dies(
    cluster: LiveCluster, topic_name: str
) -> None:
    before, epoch = cluster.controller(), cluster.controller_epoch()
    assert before is not None
    others = [broker for broker in BROKERS if broker != before]
    topic = cluster.create_topic(topic_name, [[before, *others]])
    cluster.kill(before)
    after = until(lambda: cluster.controller() in others, "another controller")
    assert after
    assert cluster.controller_epoch() == epoch + 1
    leader = cluster.await_leader(topic, other_than=before)
    assert leader == others[0]  # C3: the first of the assignment that is alive and in the ISR
    assert cluster.state(topic)["controller_epoch"] == epoch + 1
    librdkafka_produce(cluster.bootstrap, topic, [b"under the next one"], -1, "none")
    cluster.restart(before)
    cluster.await_isr(topic, BROKERS)
    assert cluster.controller_epoch() == epoch + 1


def test_c1_two_brokers_that_race_agree_on_one_controller(cluster: LiveCluster) -> None:
    """All sessions but one end at the same time; those who start again race for `/controller`."""
    for broker in BROKERS:
        cluster.kill(broker)
    epoch = cluster.controller_epoch()
    cluster.start(*BROKERS)
    cluster.await_registered(*BROKERS)
    until(lambda: cluster.controller() is not None, "a controller")
    until(lambda: len(known_brokers(cluster.admin)) == 3, "all in metadata")
    assert cluster.controller_epoch() == epoch + 1
    assert cluster.admin.list_topics(timeout=20).controller_id == cluster.controller()


def test_c3_without_a_replica_in_the_isr_the_partition_waits(
    cluster: LiveCluster, topic_name: str
) -> None:
    controller = cluster.controller()
    first, second = [broker for broker in BROKERS if broker != controller]
    topic = cluster.create_topic(topic_name, [[first, second]])
    librdkafka_produce(cluster.bootstrap, topic, [b"m1"], -1, "none")
    cluster.kill(second)
    until(lambda: cluster.state(topic)["isr"] == [first], "the dead one leaves the ISR")
    librdkafka_produce(cluster.bootstrap, topic, [b"m2"], -1, "none")
    cluster.kill(first)
    until(lambda: cluster.state(topic)["leader"] == -1, "no leader")
    assert cluster.state(topic)["isr"] == [first]
    cluster.restart(second)  # alive, but not in the ISR: not elected
    until(
        lambda: known_brokers(cluster.admin) == {controller, second},
        "the controller knows that it is back",
    )
    assert cluster.state(topic)["leader"] == -1
    cluster.restart(first)
    until(lambda: cluster.state(topic)["leader"] == first, "the ISR's last member leads")
    cluster.await_isr(topic, [first, second])
    assert librdkafka_consume(cluster.bootstrap, topic, 2) == [b"m1", b"m2"]


def test_c3_unclean_leader_election_takes_any_live_replica(
    cluster: LiveCluster, topic_name: str
) -> None:
    controller = cluster.controller()
    first, second = [broker for broker in BROKERS if broker != controller]
    settings = {"unclean.leader.election.enable": "true"}
    topic = cluster.create_topic(topic_name, [[first, second]], settings)
    cluster.kill(second)
    until(lambda: cluster.state(topic)["isr"] == [first], "the dead one leaves the ISR")
    cluster.kill(first)
    cluster.restart(second)
    until(lambda: cluster.state(topic)["leader"] == second, "a replica out of the ISR leads")
    assert cluster.state(topic)["isr"] == [second]


def test_c7_the_high_watermark_is_checkpointed_in_kafkas_format(
    cluster: LiveCluster, topic_name: str
) -> None:
    topic = cluster.create_topic(topic_name)
    librdkafka_produce(cluster.bootstrap, topic, [b"a", b"b", b"c"], -1, "none")
    for broker in BROKERS:
        until(
            lambda broker=broker: (
                [topic, "0", "3"]  # type: ignore[misc]
                in (read_checkpoint(cluster, broker, "replication-offset-checkpoint") or [])
            ),
            f"broker {broker} has written its high watermark",
        )
        recovery = read_checkpoint(cluster, broker, "recovery-point-offset-checkpoint")
        assert recovery is not None
        owner = (cluster.log_directory(broker) / "meta.properties").read_text().splitlines()
        assert f"broker.id={broker}" in owner
        assert "version=0" in owner


def test_c8_a_client_with_stale_metadata_finds_the_new_leader(
    cluster: LiveCluster, topic_name: str
) -> None:
    controller = cluster.controller()
    first, second = [broker for broker in BROKERS if broker != controller]
    topic = cluster.create_topic(topic_name, [[first, second]])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    errors: list[object] = []

    def produce(value: bytes) -> None:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: errors.append(error)
        )
        assert producer.flush(30) == 0

    produce(b"to the first")
    cluster.kill(first)
    cluster.await_leader(topic, other_than=first)
    produce(b"to the second")
    cluster.restart(first)
    cluster.await_isr(topic, [first, second])
    assert errors == [None, None]
    read = librdkafka_consume(cluster.bootstrap, topic, 2)
    assert read == [b"to the first", b"to the second"]


def test_e1_each_election_begins_an_epoch_in_leader_epoch_checkpoint(
    cluster: LiveCluster, topic_name: str
) -> None:
    controller = cluster.controller()
    assert controller is not None
    first, second = [broker for broker in BROKERS if broker != controller]
    topic = cluster.create_topic(topic_name, [[first, second, controller]])
    name = f"{topic}-0/leader-epoch-checkpoint"
    librdkafka_produce(cluster.bootstrap, topic, [b"m0", b"m1"], -1, "none")
    cluster.kill(first)
    cluster.await_leader(topic, other_than=first)
    epoch_1 = cluster.state(topic)["leader_epoch"]
    librdkafka_produce(cluster.bootstrap, topic, [b"m2"], -1, "none")
    cluster.restart(first)
    cluster.await_isr(topic, BROKERS)
    cluster.kill(second)
    cluster.await_leader(topic, other_than=second)
    epoch_2 = cluster.state(topic)["leader_epoch"]
    librdkafka_produce(cluster.bootstrap, topic, [b"m3"], -1, "none")
    cluster.restart(second)
    cluster.await_isr(topic, BROKERS)
    expected = [["0", "0"], [str(epoch_1), "2"], [str(epoch_2), "3"]]
    assert 0 < epoch_1 < epoch_2
    for broker in BROKERS:
        assert read_checkpoint(cluster, broker, name) == expected
    read = librdkafka_consume(cluster.bootstrap, topic, 4)
    assert read == [b"m0", b"m1", b"m2", b"m3"]
