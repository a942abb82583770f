"""What operators ask of brokers: the cluster, settings, log directories, to delete records.

The same on a real Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaAdminClient

from tests.live.cluster import BROKERS, DEADLINE_S, LiveCluster, running, until
from tests.proof import proof_but

pytestmark = [pytest.mark.live, pytest.mark.needs("maven")]
SETTINGS = {
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.cleaner.io.buffer.size": "262144",
}
SYSTEMS = ["neaptide:2.1", "neaptide:4.0", "kafka:3.9.1"]


@pytest.fixture(scope="module", params=proof_but(SYSTEMS, "neaptide:4.0"))
def own_or_kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCluster]:
    with running(request.param, tmp_path_factory.mktemp("describing"), SETTINGS) as cluster:
        cluster.create_topic("t", settings={"retention.ms": "60000"})
        yield cluster


def described(cluster: LiveCluster, resource: ConfigResource) -> dict[str, tuple[str | None, str]]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    [found] = admin.describe_configs([resource], request_timeout=DEADLINE_S).values()
    return {name: (one.value, str(one.source)) for name, one in found.result().items()}


def test_a_topics_settings_are_shown_with_where_they_come_from(own_or_kafka: LiveCluster) -> None:
    found = described(own_or_kafka, ConfigResource(ResourceType.TOPIC, "t"))
    assert found["retention.ms"][0] == "60000"
    assert found["min.insync.replicas"][0] == "2"
    assert found["segment.bytes"][0] == "1073741824"
    assert found["min.cleanable.dirty.ratio"][0] == "0.5"
    sources = [found[name][1] for name in ("retention.ms", "min.insync.replicas", "segment.bytes")]
    assert len(set(sources)) == 3  # the topic's, the broker's, a default


def test_a_topic_that_is_not_there_has_no_settings(own_or_kafka: LiveCluster) -> None:
    with pytest.raises(Exception, match="UNKNOWN_TOPIC_OR_PART"):
        described(own_or_kafka, ConfigResource(ResourceType.TOPIC, "other"))


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_a_topics_settings_are_altered_one_by_one(own_or_kafka: LiveCluster) -> None:
    """KIP-339. Legacy AlterConfigs replaces all of them, and is what older brokers have."""
    admin = AdminClient({"bootstrap.servers": own_or_kafka.bootstrap, "log_level": 0})
    resource = ConfigResource(ResourceType.TOPIC, own_or_kafka.create_topic("altered"))

    def is_set(name: str, value: str) -> bool:
        return described(own_or_kafka, resource)[name][0] == value

    if own_or_kafka.generation == "2.1":
        resource = ConfigResource(ResourceType.TOPIC, "altered", {"retention.ms": "5000"})
        [done] = admin.alter_configs([resource]).values()
        done.result()
        until(lambda: is_set("retention.ms", "5000"), "it is altered")
        return
    for operation, value, shown in (
        (AlterConfigOpType.SET, "5000", "5000"),
        (AlterConfigOpType.DELETE, None, "604800000"),
    ):
        entry = ConfigEntry("retention.ms", value, incremental_operation=operation)
        changed = ConfigResource(ResourceType.TOPIC, "altered", incremental_configs=[entry])
        [done] = admin.incremental_alter_configs([changed]).values()
        done.result()
        until(partial(is_set, "retention.ms", shown), "it is altered")
    entry = ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)
    wrong = ConfigResource(ResourceType.TOPIC, "altered", incremental_configs=[entry])
    [refused] = admin.incremental_alter_configs([wrong]).values()
    with pytest.raises(Exception, match="INVALID_CONFIG"):
        refused.result()


def test_a_brokers_settings_are_shown_by_itself(own_or_kafka: LiveCluster) -> None:
    found = described(own_or_kafka, ConfigResource(ResourceType.BROKER, "1"))
    assert found["broker.id"][0] == "1"
    assert found["min.insync.replicas"][0] == "2"
    assert "num.replica.fetchers" in found


def test_records_are_deleted_on_every_replica(own_or_kafka: LiveCluster) -> None:
    """KIP-107: what is answered is where the log starts everywhere."""
    producer = Producer({"bootstrap.servers": own_or_kafka.bootstrap, "log_level": 0})
    for number in range(5):
        producer.produce("t", value=str(number))
    assert producer.flush(DEADLINE_S) == 0
    admin = AdminClient({"bootstrap.servers": own_or_kafka.bootstrap, "log_level": 0})
    [deleted] = admin.delete_records([TopicPartition("t", 0, 3)]).values()
    assert deleted.result().low_watermark == 3
    reader = Consumer(
        {
            "bootstrap.servers": own_or_kafka.bootstrap,
            "group.id": "r",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        assert reader.get_watermark_offsets(TopicPartition("t", 0), DEADLINE_S) == (3, 5)
        reader.assign([TopicPartition("t", 0, 0)])
        first = until(lambda: reader.poll(0.2), "a record")
        assert first.offset() == 3
    finally:
        reader.close()
    [refused] = admin.delete_records([TopicPartition("t", 0, 6)]).values()
    with pytest.raises(Exception, match="OFFSET_OUT_OF_RANGE"):
        refused.result()


def test_the_cluster_and_its_log_directories_are_shown(own_or_kafka: LiveCluster) -> None:
    admin = AdminClient({"bootstrap.servers": own_or_kafka.bootstrap, "log_level": 0})
    if own_or_kafka.generation != "2.1":  # DescribeCluster is of 2.8
        cluster = admin.describe_cluster(request_timeout=DEADLINE_S).result()
        assert {one.id for one in cluster.nodes} == set(BROKERS)
        assert cluster.controller.id == own_or_kafka.controller()
    other = KafkaAdminClient(bootstrap_servers=own_or_kafka.bootstrap.split(","))
    try:
        shown = str(other.describe_log_dirs())
        assert "'t'" in shown
        assert "log_dir" in shown
    finally:
        other.close()


def test_r10_a_compacted_topic_keeps_the_newest_record_of_each_key_where_it_was(
    own_or_kafka: LiveCluster,
) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": "100",  # a batch each
        "min.cleanable.dirty.ratio": "0.01",
    }
    topic = own_or_kafka.create_topic("compacted", [BROKERS], settings)
    producer = Producer({"bootstrap.servers": own_or_kafka.bootstrap, "log_level": 0})
    for key, value in (("k", "1"), ("k", "2"), ("gone", "1"), ("gone", None), ("last", "1")):
        producer.produce(topic, value, key)
        assert producer.flush(DEADLINE_S) == 0

    def read() -> list[tuple[int | None, bytes | None, bytes | None]]:
        reader = Consumer(
            {"bootstrap.servers": own_or_kafka.bootstrap, "group.id": "c", "log_level": 0}
        )
        found: list[tuple[int | None, bytes | None, bytes | None]] = []
        try:
            reader.assign([TopicPartition(topic, 0, 0)])
            while not found or found[-1][0] != 4:
                message = until(lambda: reader.poll(0.2), "a record")
                found.append((message.offset(), message.key(), message.value()))
        finally:
            reader.close()
        return found

    kept = [(1, b"k", b"2"), (3, b"gone", None), (4, b"last", b"1")]
    until(lambda: read() == kept, "the newest of each key are left")


def test_c5_a_topic_is_deleted_with_its_files_and_made_again(own_or_kafka: LiveCluster) -> None:
    own_or_kafka.create_topic("doomed", [BROKERS, BROKERS])
    clients: dict[str, str | int | float | bool] = {
        "bootstrap.servers": own_or_kafka.bootstrap,
        "log_level": 0,
    }
    admin = AdminClient(clients)
    producer = Producer(clients)
    for number in range(4):
        producer.produce("doomed", value=str(number), partition=number % 2)
    assert producer.flush(DEADLINE_S) == 0
    reader = Consumer({**clients, "group.id": "of-doomed", "enable.auto.commit": False})
    at = [TopicPartition("doomed", 0, 1), TopicPartition("t", 0, 1)]

    def commits() -> bool:
        try:
            reader.commit(offsets=at, asynchronous=False)
        except KafkaException:
            return False  # its coordinator is not there yet
        return True

    until(commits, "positions are committed")
    [done] = admin.delete_topics(["doomed"], operation_timeout=DEADLINE_S).values()
    done.result(DEADLINE_S)

    def is_gone() -> bool:
        return not any(
            path.name.startswith("doomed-") and not path.name.endswith("-delete")
            for broker in BROKERS
            for path in own_or_kafka.log_directory(broker).iterdir()
        )

    until(is_gone, "its logs are deleted everywhere")
    [refused] = admin.delete_topics(["none"], operation_timeout=DEADLINE_S).values()
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        refused.result(DEADLINE_S)

    def positions() -> list[int]:
        return [one.offset for one in reader.committed(at, DEADLINE_S)]

    until(lambda: positions() == [-1001, 1], "its positions are gone, and no other")
    if own_or_kafka.generation != "4.0":  # answered before its name is free
        # The mark is the last of its znodes to go.
        is_marked = partial(own_or_kafka.zookeeper.exists, "/admin/delete_topics/doomed")
        until(lambda: is_marked() is None, "its name is free")
    own_or_kafka.create_topic("doomed", [BROKERS])
    offsets: list[int | None] = []
    again = Producer(clients)
    again.produce("doomed", b"v", on_delivery=lambda _, m: offsets.append(m.offset()))
    assert again.flush(DEADLINE_S) == 0
    assert offsets == [0]
    reader.close()


def test_c5_a_topic_is_deleted_when_its_dead_broker_is_back(own_or_kafka: LiveCluster) -> None:
    """With ZooKeeper: a replica that is not deleted keeps the topic."""
    own_or_kafka.create_topic("late", [BROKERS])
    dead = next(broker for broker in BROKERS if broker != own_or_kafka.controller())
    own_or_kafka.kill(dead)
    admin = AdminClient({"bootstrap.servers": own_or_kafka.bootstrap, "log_level": 0})
    admin.delete_topics(["late"], operation_timeout=1.0)
    path = own_or_kafka.log_directory(dead) / "late-0"
    alive = [own_or_kafka.log_directory(broker) / "late-0" for broker in BROKERS if broker != dead]
    exists = own_or_kafka.zookeeper.exists
    until(lambda: not any(each.exists() for each in alive), "those that live delete theirs")
    there = path.exists(), exists("/admin/delete_topics/late"), exists("/brokers/topics/late")
    own_or_kafka.restart(dead)
    assert all(there)
    until(lambda: not path.exists(), "it deletes its own")
    until(lambda: exists("/brokers/topics/late") is None, "the topic is gone")
    own_or_kafka.await_isr("t", BROKERS)


def test_a_topic_gets_more_partitions(own_or_kafka: LiveCluster) -> None:
    own_or_kafka.create_topic("grows", [BROKERS])
    admin = AdminClient({"bootstrap.servers": own_or_kafka.bootstrap, "log_level": 0})

    def grow(wanted: NewPartitions) -> None:
        [done] = admin.create_partitions([wanted], operation_timeout=DEADLINE_S).values()
        done.result(DEADLINE_S)

    grow(NewPartitions("grows", 2, [[2, 1, 0]]))
    grow(NewPartitions("grows", 4))
    with pytest.raises(KafkaException) as refused:
        grow(NewPartitions("grows", 3))
    assert refused.value.args[0].name() == "INVALID_PARTITIONS"
    until(lambda: own_or_kafka.is_known("grows", 4), "all brokers know them")
    state = own_or_kafka.state("grows", 1)
    assert (state["leader"], sorted(state["isr"])) == (2, list(BROKERS))
    producer = Producer({"bootstrap.servers": own_or_kafka.bootstrap, "log_level": 0})
    offsets: list[int | None] = []
    for partition in range(4):
        producer.produce(
            "grows", b"v", partition=partition, on_delivery=lambda _, m: offsets.append(m.offset())
        )
    assert producer.flush(DEADLINE_S) == 0
    assert offsets == [0] * 4


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_f13_who_is_throttled_stays_behind_until_it_may_go_on(own_or_kafka: LiveCluster) -> None:
    """A follower that comes back has too much to fetch for what it is allowed."""
    everyone = "follower.replication.throttled.replicas"
    own_or_kafka.create_topic("behind", [BROKERS], {"min.insync.replicas": "1", everyone: "*"})
    shown = described(own_or_kafka, ConfigResource(ResourceType.TOPIC, "behind"))
    assert shown[everyone][0] == "*"
    leader = own_or_kafka.state("behind")["leader"]
    away = next(broker for broker in BROKERS if broker != leader)
    rate = "follower.replication.throttled.rate"
    alter_broker(own_or_kafka, away, rate, "1000")
    own_or_kafka.kill(away)
    producer = Producer({"bootstrap.servers": own_or_kafka.bootstrap, "acks": 1, "log_level": 0})
    for _ in range(40):
        producer.produce("behind", b"x" * 100_000, partition=0)
        assert producer.flush(DEADLINE_S) == 0
    own_or_kafka.await_isr("behind", [broker for broker in BROKERS if broker != away])
    own_or_kafka.restart(away)
    until(lambda: size_of(own_or_kafka, away, "behind-0") > 0, "the first of it has come")
    assert size_of(own_or_kafka, away, "behind-0") < 4_000_000
    # Nothing else is slower for it: what is made meanwhile is replicated.
    own_or_kafka.create_topic("beside", [[leader, away]])
    producer.produce("beside", b"1", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    own_or_kafka.await_isr("beside", [leader, away])
    assert size_of(own_or_kafka, away, "behind-0") < 4_000_000
    assert away not in own_or_kafka.state("behind")["isr"]
    alter_broker(own_or_kafka, away, rate, None)
    own_or_kafka.await_isr("behind", BROKERS)


def size_of(cluster: LiveCluster, broker: int, log: str) -> int:
    directory = cluster.log_directory(broker) / log
    return sum(file.stat().st_size for file in directory.glob("*.log"))


def alter_broker(cluster: LiveCluster, broker: int, name: str, value: str | None) -> None:
    """By the API that brokers of this age have. None: it is as in the broker's file again."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    resource = partial(ConfigResource, ResourceType.BROKER, str(broker))
    if cluster.generation == "2.1":
        asked = admin.alter_configs([resource({} if value is None else {name: value})])
    else:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value, incremental_operation=operation)
        asked = admin.incremental_alter_configs([resource(incremental_configs=[entry])])
    [done] = asked.values()
    done.result(DEADLINE_S)


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_settings_of_a_broker_are_altered_while_it_runs(own_or_kafka: LiveCluster) -> None:
    name = "log.cleaner.backoff.ms"

    def seen() -> tuple[str | None, str]:
        return described(own_or_kafka, ConfigResource(ResourceType.BROKER, "1"))[name]

    before = seen()
    alter_broker(own_or_kafka, 1, name, "302")
    until(lambda: seen()[0] == "302", "it has it")
    assert seen()[1] != before[1]
    alter_broker(own_or_kafka, 1, name, None)
    until(lambda: seen() == before, "it is as its file has it")
    with pytest.raises(KafkaException, match="INVALID_REQUEST"):
        alter_broker(own_or_kafka, 1, "log.dirs", "/elsewhere")


def test_the_newest_record_is_found_by_its_time(own_or_kafka: LiveCluster) -> None:
    """KIP-734, ListOffsets v7."""
    topic = own_or_kafka.create_topic("of-times")
    producer = Producer({"bootstrap.servers": own_or_kafka.bootstrap, "log_level": 0})
    admin = AdminClient({"bootstrap.servers": own_or_kafka.bootstrap, "log_level": 0})

    def newest() -> tuple[int, int]:
        newest_record = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, 0): newest_record}
        [found] = admin.list_offsets(asked).values()
        result = found.result(DEADLINE_S)
        return result.offset, result.timestamp

    if own_or_kafka.generation == "2.1":
        with pytest.raises(KafkaException, match="UNSUPPORTED_VERSION"):
            newest()
        return
    assert newest() == (-1, -1)
    now_ms = time.time_ns() // 1_000_000
    for at, after_ms in enumerate((1, 5, 3)):
        producer.produce(topic, str(at), partition=0, timestamp=now_ms + after_ms)
        assert producer.flush(DEADLINE_S) == 0
    assert newest() == (1, now_ms + 5)
