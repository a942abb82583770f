"""C10: topic ids (KIP-516) as they are seen from outside, by ours and by Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.server.apis.entities import duration, in_request
from neaptide.clusters.broker.wire import control_flexible
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, request_class
from neaptide.clusters.broker.wire.topic_ids import text_of, uuid_of
from neaptide.clusters.kafka.members import ZooKeeperMembers, move_controller
from tests.live.clients import librdkafka_consume, librdkafka_produce
from tests.live.cluster import BROKERS, LiveCluster, until
from tests.live.conftest import SETTINGS
from tests.live.raw import RawConnection

pytestmark = pytest.mark.live
UNKNOWN_ID = "Hu5LOl5CTyCxLd3gNjBFyw"
NO_WAIT = duration(0)
OF_THE_TOPIC = 1  # DYNAMIC_TOPIC_CONFIG


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("neaptide:2.8", marks=pytest.mark.proof),
        "neaptide:4.0",
        pytest.param("kafka:3.9.1", marks=pytest.mark.needs("maven")),
    ],
)
def three(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCluster]:
    kind, _, version = request.param.partition(":")
    directory = tmp_path_factory.mktemp("three")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        if kind == "kafka":
            cluster = LiveCluster(directory, SETTINGS, kafka=version)
        else:
            cluster = LiveCluster(directory, SETTINGS, version)
        yield cluster
        cluster.close()


def id_of(cluster: LiveCluster, topic: str) -> str:
    """As the topic's znode says it."""

    def found() -> str | None:
        content = cluster.znode(f"/brokers/topics/{topic}")
        return None if content is None else content.get("topic_id")

    return until(found, f"{topic} has an id")


def metadata_file(cluster: LiveCluster, broker: int, topic: str, partition: int = 0) -> str:
    file = cluster.log_directory(broker) / f"{topic}-{partition}" / "partition.metadata"
    return until(lambda: file.read_text() if file.exists() else None, f"{file} is there")


def metadata(
    cluster: LiveCluster, broker: int, version: int, *topics: tuple[str | None, str | None]
) -> list[Any]:
    """What it says of topics, by (name, id)."""
    topic_class = in_request(Api.METADATA, version, "MetadataRequestTopic")
    named = tuple(
        make(
            topic_class,
            name=None if name is None else TopicName(name),
            topic_id=uuid_of(topic_id),
        )
        for name, topic_id in topics
    )
    request = make(
        request_class(Api.METADATA, version),
        topics=named,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    with RawConnection(cluster.client_port(broker)) as connection:
        return list(connection.ask(request).topics)


def answers_by_id(cluster: LiveCluster) -> bool:
    """Whether it is of Kafka 3.1 or later: Metadata v12 and Fetch v13."""
    request = make(
        request_class(Api.API_VERSIONS, 3), client_software_name="t", client_software_version="1"
    )
    with RawConnection(cluster.client_port(0)) as connection:
        keys = connection.ask(request).api_keys
    highest = {int(one.api_key): int(one.max_version) for one in keys}
    can = highest[Api.METADATA] >= 12
    assert can == (highest[Api.FETCH] >= 13)
    assert highest[Api.METADATA] >= 11
    return can


def test_c10_every_part_of_a_cluster_knows_a_topic_by_the_same_id(
    three: LiveCluster, topic_name: str
) -> None:
    topic = three.create_topic(topic_name, [BROKERS, BROKERS])
    topic_id = id_of(three, topic)
    assert text_of(uuid_of(topic_id)) == topic_id
    assert three.znode(f"/brokers/topics/{topic}")["version"] == 3
    for broker in BROKERS:
        for partition in (0, 1):
            text = metadata_file(three, broker, topic, partition)
            assert text.split("\n") == ["version: 0", f"topic_id: {topic_id}"]
        for version in (10, 11):
            [found] = metadata(three, broker, version, (topic, None))
            assert found.topic_id == uuid_of(topic_id)
    other = three.create_topic(f"{topic_name}-other"[-200:])
    assert id_of(three, other) != topic_id


def test_c10_a_topic_without_an_id_gets_one_from_the_controller(
    three: LiveCluster, topic_name: str
) -> None:
    """As an administrator of before 2.8 creates it."""
    three.zookeeper.ensure_path(f"/config/topics/{topic_name}")
    three.zookeeper.set(f"/config/topics/{topic_name}", znodes.encode_settings({}))
    three.zookeeper.create(f"/brokers/topics/{topic_name}", znodes.encode_assignment({0: BROKERS}))
    until(lambda: three.is_known(topic_name, 1), "it is in the metadata")
    topic_id = id_of(three, topic_name)
    for broker in BROKERS:
        assert f"topic_id: {topic_id}" in metadata_file(three, broker, topic_name)


def test_c10_the_id_stays_with_other_controllers_more_partitions_and_other_replicas(
    three: LiveCluster, topic_name: str
) -> None:
    topic = three.create_topic(topic_name, [(0, 1)])
    topic_id = id_of(three, topic)
    connect = f"127.0.0.1:{three.brokers.coordination_port}"
    ZooKeeperMembers(connect).add_partitions(topic, {0: (0, 1), 1: (1, 2)})
    assert f"topic_id: {topic_id}" in metadata_file(three, 2, topic, 1)
    epoch = three.controller_epoch()
    move_controller(connect)
    until(lambda: three.controller_epoch() > epoch and three.controller() is not None, "another")
    named = [{"topic": topic, "partition": 0, "replicas": [2, 1]}]
    content = json.dumps({"version": 1, "partitions": named}).encode()
    three.zookeeper.create("/admin/reassign_partitions", content)
    until(
        lambda: three.znode(f"/brokers/topics/{topic}")["partitions"]["0"] == [2, 1],
        "broker 2 has replica 0 in place of broker 0",
    )
    until(lambda: not three.zookeeper.exists("/admin/reassign_partitions"), "it is over")
    assert f"topic_id: {topic_id}" in metadata_file(three, 2, topic)
    assert id_of(three, topic) == topic_id
    for broker in BROKERS:

        def knows(broker: int = broker) -> bool:
            [found] = metadata(three, broker, 10, (topic, None))
            return bool(found.topic_id == uuid_of(topic_id) and len(found.partitions) == 2)

        until(knows, "the metadata has the same id")
    librdkafka_produce(three.bootstrap, topic, [b"after"], -1, "none")
    assert librdkafka_consume(three.bootstrap, topic, 1) == [b"after"]


@pytest.mark.parametrize("is_tried_only", [False, True])
def test_c10_who_creates_a_topic_is_answered_with_what_was_created(
    three: LiveCluster, topic_name: str, is_tried_only: bool
) -> None:
    settings = {"min.insync.replicas": "2", "segment.bytes": "1000000"}
    configs = in_request(Api.CREATE_TOPICS, 7, "CreatableTopicConfig")
    new = make(
        in_request(Api.CREATE_TOPICS, 7, "CreatableTopic"),
        name=TopicName(topic_name),
        num_partitions=i32(2),
        replication_factor=i16(3),
        assignments=(),
        configs=tuple(configs(name=name, value=value) for name, value in settings.items()),
    )
    request = make(
        request_class(Api.CREATE_TOPICS, 7),
        topics=(new, replace(new, name=TopicName("no name"))),
        timeout=duration(30_000),
        validate_only=is_tried_only,
    )

    def answer() -> list[Any] | None:
        """Of the controller; another broker says that it is none."""
        with RawConnection(three.client_port(three.controller() or 0)) as connection:
            found = list(connection.ask(request).topics)
        return None if int(found[0].error_code) == Error.NOT_CONTROLLER else found

    created, refused = until(answer, "the controller answers")
    assert int(created.error_code) == Error.NONE
    assert (int(created.num_partitions), int(created.replication_factor)) == (2, 3)
    said = {one.name: (one.value, int(one.config_source)) for one in created.configs}
    assert {name: said[name] for name in settings} == {
        name: (value, OF_THE_TOPIC) for name, value in settings.items()
    }
    if is_tried_only:
        assert created.topic_id is None
        assert three.znode(f"/brokers/topics/{topic_name}") is None
    else:
        assert text_of(created.topic_id) == id_of(three, topic_name)
    assert int(refused.error_code) == Error.INVALID_TOPIC_EXCEPTION
    assert (refused.topic_id, int(refused.num_partitions)) == (None, -1)


def _leader_and_isr(three: LiveCluster, broker: int, topic: str, topic_id: str, epoch: int) -> Any:
    state = three.state(topic)
    _, stat = three.zookeeper.get(f"/brokers/ids/{broker}")
    partition = control_flexible.LeaderAndIsrPartition(
        partition=i32(0),
        controller_epoch=i32(three.controller_epoch()),
        leader=BrokerId(state["leader"]),
        leader_epoch=i32(epoch),
        isr=tuple(BrokerId(one) for one in state["isr"]),
        zk_version=i32(0),
        replicas=tuple(BrokerId(one) for one in BROKERS),
        adding_replicas=(),
        removing_replicas=(),
        is_new=False,
    )
    return control_flexible.LeaderAndIsrRequest(
        controller_id=BrokerId(three.controller() or 0),
        controller_epoch=i32(three.controller_epoch()),
        broker_epoch=i64(stat.czxid),
        type=control_flexible.UNKNOWN_TYPE,
        topic_states=(
            control_flexible.LeaderAndIsrTopic(
                topic=TopicName(topic), topic_id=uuid_of(topic_id), partitions=(partition,)
            ),
        ),
        live_leaders=(
            control_flexible.LiveLeader(
                broker_id=BrokerId(state["leader"]),
                host="127.0.0.1",
                port=i32(three.replication_port(state["leader"])),
            ),
        ),
    )


def test_c10_a_log_of_another_topic_is_not_gone_on_with(
    three: LiveCluster, topic_name: str
) -> None:
    topic = three.create_topic(topic_name)
    topic_id, epoch = id_of(three, topic), three.state(topic)["leader_epoch"]
    follower = next(one for one in BROKERS if one != three.state(topic)["leader"])
    before = metadata_file(three, follower, topic)
    with RawConnection(three.replication_port(follower)) as connection:
        for named, wanted in ((UNKNOWN_ID, Error.INCONSISTENT_TOPIC_ID), (topic_id, Error.NONE)):
            request = _leader_and_isr(three, follower, topic, named, epoch + 1)
            answer = connection.ask(request)
            assert int(answer.error_code) == Error.NONE
            [of_topic] = answer.topics
            assert of_topic.topic_id == uuid_of(named)
            assert [int(one.error_code) for one in of_topic.partitions] == [wanted]
    assert metadata_file(three, follower, topic) == before


def test_c10_topics_are_found_by_their_ids(three: LiveCluster, topic_name: str) -> None:
    topic = three.create_topic(topic_name)
    topic_id = id_of(three, topic)
    librdkafka_produce(three.bootstrap, topic, [b"one"], -1, "none")
    if not answers_by_id(three):
        for version in (10, 11):
            [found] = metadata(three, 0, version, (topic, topic_id))
            assert int(found.error_code) == Error.INVALID_REQUEST
        return
    found = metadata(three, 0, 12, (None, topic_id), (None, UNKNOWN_ID))
    assert {(int(one.error_code), one.name, text_of(one.topic_id)) for one in found} == {
        (Error.NONE, topic, topic_id),
        (Error.UNKNOWN_TOPIC_ID, None, UNKNOWN_ID),
    }
    leader = three.state(topic)["leader"]
    request = _fetch(topic_id, UNKNOWN_ID)
    with RawConnection(three.client_port(leader)) as connection:
        answer = connection.ask(request)
        assert int(answer.error_code) == Error.NONE
        errors = {
            text_of(one.topic_id): [int(each.error_code) for each in one.partitions]
            for one in answer.responses
        }
        assert errors == {topic_id: [Error.NONE], UNKNOWN_ID: [Error.UNKNOWN_TOPIC_ID]}
        assert answer.session_id != 0
        by_name = make(
            request_class(Api.FETCH, 12),
            **_fetch_values(answer.session_id, 1),
            topics=(),
            forgotten_topics_data=(),
        )
        mixed = connection.ask(by_name)
        assert int(mixed.error_code) == Error.FETCH_SESSION_TOPIC_ID_ERROR


def _fetch(*topic_ids: str) -> Any:
    partition = make(
        in_request(Api.FETCH, 13, "FetchPartition"),
        partition=i32(0),
        current_leader_epoch=i32(-1),
        fetch_offset=i64(0),
        last_fetched_epoch=i32(-1),
        log_start_offset=i64(-1),
        partition_max_bytes=i32(1_000),
    )
    topic_class = in_request(Api.FETCH, 13, "FetchTopic")
    return make(
        request_class(Api.FETCH, 13),
        **_fetch_values(0, 0),
        topics=tuple(
            topic_class(topic_id=uuid_of(one), partitions=(partition,)) for one in topic_ids
        ),
        forgotten_topics_data=(),
    )


def _fetch_values(session_id: int, epoch: int) -> dict[str, Any]:
    wait: i32Timedelta = NO_WAIT
    return {
        "replica_id": BrokerId(-1),
        "max_wait": wait,
        "min_bytes": i32(0),
        "max_bytes": i32(10_000),
        "isolation_level": i8(0),
        "session_id": i32(session_id),
        "session_epoch": i32(epoch),
        "rack_id": "",
    }
