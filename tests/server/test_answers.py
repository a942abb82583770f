"""What a broker answers of its own accord, as a Kafka does: the case, and its silent twin."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i16, i32, i64

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.server.apis import cluster, fetch, group_membership, groups
from neaptide.clusters.broker.server.apis.entities import duration, in_request
from neaptide.clusters.broker.server.apis.row import PendingRequest, Refused, SendResponse
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, request_class
from tests.server.given import CONNECTION, CONTEXT, read_again

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def asked(entity: Any) -> tuple[PendingRequest, Any]:
    header, read = read_again(entity)
    return PendingRequest(9, CONNECTION, header), read


def entity_of(response: Any) -> Any:
    assert isinstance(response, SendResponse)
    return response.entity


def test_who_joins_a_group_is_called_by_a_name_that_nobody_else_has() -> None:
    api, version = Api.JOIN_GROUP, 4
    protocol = in_request(api, version, "JoinGroupRequestProtocol")
    entity = make(
        request_class(api, version),
        group_id=GroupId("g"),
        session_timeout=duration(6_000),
        rebalance_timeout=duration(6_000),
        member_id="",
        protocol_type="consumer",
        protocols=(make(protocol, name="range", metadata=b""),),
    )
    events = [group_membership.decode_join_group(*asked(entity), CONTEXT) for _ in range(2)]
    assert len({event.new_member_id for event in events}) == 2
    assert all(event.must_know_member_id for event in events)
    assert events[0].client_host == "/127.0.0.1"


@pytest.mark.parametrize(
    ("kind", "is_transaction"), [(0, False), (1, True), (2, None)], ids=["group", "id", "share"]
)
def test_nobody_coordinates_share_groups(kind: int, is_transaction: bool | None) -> None:
    entity = request_class(Api.FIND_COORDINATOR, 6)(key_type=i8(kind), coordinator_keys=("a", "b"))
    found = groups.decode_find_coordinator(*asked(entity), CONTEXT)
    if is_transaction is None:
        assert isinstance(found, Refused)
        assert found.error is Error.INVALID_REQUEST
        answered = groups.find_coordinator_error(found.event, found.error)
        assert [(one.name, one.error) for one in answered.found] == [
            ("a", Error.INVALID_REQUEST),
            ("b", Error.INVALID_REQUEST),
        ]
    else:
        assert found == events.FindCoordinatorRequested(9, ("a", "b"), is_transaction)


@pytest.mark.parametrize(("length", "is_kept"), [(4_096, True), (4_097, False), (5_000, False)])
def test_metadata_of_a_commit_has_a_limit_and_the_others_are_committed(
    length: int, is_kept: bool
) -> None:
    api, version = Api.OFFSET_COMMIT, 6
    partition = in_request(api, version, "OffsetCommitRequestPartition")
    topic = in_request(api, version, "OffsetCommitRequestTopic")

    def of(number: int, metadata: str) -> Any:
        return make(
            partition,
            partition_index=i32(number),
            committed_offset=i64(3),
            committed_leader_epoch=i32(-1),
            committed_metadata=metadata,
        )

    entity = make(
        request_class(api, version),
        group_id=GroupId("g"),
        generation_id_or_member_epoch=i32(-1),
        member_id="",
        topics=(make(topic, name=TopicName("t"), partitions=(of(0, "m" * length), of(1, "m"))),),
    )
    request, read = asked(entity)
    event = groups.decode_offset_commit(request, read, CONTEXT)
    kept = [one.partition for one in event.committed]
    assert kept == ([T0, T1] if is_kept else [T1])
    done = effects.RespondOffsetCommit(9, tuple((one, Error.NONE) for one in kept))
    answer = entity_of(groups.encode_offset_commit(request, done, CONTEXT))
    codes = {int(p.partition_index): int(p.error_code) for t in answer.topics for p in t.partitions}
    assert codes == {0: 0 if is_kept else Error.OFFSET_METADATA_TOO_LARGE, 1: 0}


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [
        ("retention.ms", "5", None),
        ("retention.ms", None, "Null value not supported for topic configs: retention.ms"),
        ("retention.mss", "5", "Unknown topic config: retention.mss"),
    ],
)
def test_settings_of_a_new_topic_that_kafka_refuses(
    name: str, value: str | None, refused: str | None
) -> None:
    api, version = Api.CREATE_TOPICS, 3
    config = in_request(api, version, "CreatableTopicConfig")
    topic = in_request(api, version, "CreatableTopic")
    made = make(
        topic,
        name=TopicName("t"),
        num_partitions=i32(1),
        replication_factor=i16(1),
        assignments=(),
        configs=(make(config, name=name, value=value),),
    )
    entity = make(
        request_class(api, version), topics=(made,), timeout=duration(1_000), validate_only=False
    )
    [new] = cluster.decode_create_topics(*asked(entity), CONTEXT).topics
    assert new.refused == refused


@pytest.mark.parametrize(("error", "mark"), [(Error.NONE, 7), (Error.NOT_LEADER_OR_FOLLOWER, -1)])
def test_an_error_of_a_fetch_has_no_high_watermark(error: Error, mark: int) -> None:
    assert fetch.offsets_of(effects.FetchedResult(T0, error, 7, 2, None)) == (
        (mark, 2) if error is Error.NONE else (-1, -1)
    )
