"""What clients ask that cannot be: ours answers it as Apache Kafka does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32

from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import entity_class, make, request_class
from tests.live.alone import REAL, SYSTEMS, Alone
from tests.live.conftest import each_of
from tests.live.raw import (
    RawConnection,
    fetch_request,
    fetched,
    milliseconds,
    produce_request,
    produced,
)
from tests.storage.batches import batch

# Kafka 0.10 has none of these versions of Produce and Fetch.
pytestmark = [
    pytest.mark.live,
    pytest.mark.parametrize(
        "only_one", each_of([one for one in SYSTEMS if one.kafka != "0.10.2.2"]), indirect=True
    ),
]
TRANSACTIONAL = 1 << 4
GONE = 999  # an offset that no log has


def ask(alone: Alone, request: Any) -> Any:
    with RawConnection(alone.client_port(REAL)) as connection:
        return connection.ask(request)


def with_records(alone: Alone, name: str) -> str:
    topic = alone.create_topic(name, [[REAL]])
    alone.append(topic, 3)
    return topic


def twice(request: Any, field: str) -> Any:
    """The same request, in which the one topic stands twice, with the same partition."""
    [topic] = getattr(request, field)
    return replace(request, **{field: (topic, topic)})


# --- Produce and Fetch ---------------------------------------------------------------------------


def test_a_partition_that_is_named_twice_is_answered_once(alone: Alone, topic_name: str) -> None:
    topic = with_records(alone, topic_name)
    request = twice(produce_request(topic, batch(0, [b"once"]), acks=1), "topic_data")
    answer = ask(alone, request)
    assert [len(one.partition_responses) for one in answer.responses] == [1]
    assert produced(answer) == ("none", 3)
    read = ask(alone, twice(fetch_request(topic, 4), "topics"))
    assert [len(one.partitions) for one in read.responses] == [1]
    assert int(fetched(read).high_watermark) == 4


def test_an_error_of_fetch_carries_no_offsets(alone: Alone, topic_name: str) -> None:
    topic = with_records(alone, topic_name)
    found = fetched(ask(alone, fetch_request(topic, GONE)))
    assert found.error_code.name == "offset_out_of_range"
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (-1, -1, -1)
    there = fetched(ask(alone, fetch_request(topic, 0)))
    assert (there.error_code.name, there.high_watermark, there.log_start_offset) == ("none", 3, 0)


@pytest.mark.parametrize(("level", "error"), [(3, "unknown_server_error"), (1, "none")])
def test_an_isolation_level_that_is_none(
    alone: Alone, topic_name: str, level: int, error: str
) -> None:
    topic = with_records(alone, topic_name)
    request = replace(fetch_request(topic, 0), isolation_level=i8(level))
    assert fetched(ask(alone, request)).error_code.name == error


def test_records_of_a_transaction_need_the_id_of_one(alone: Alone, topic_name: str) -> None:
    topic = with_records(alone, topic_name)
    of_one = batch(0, [b"x"], attributes=TRANSACTIONAL, producer=(1, 0, 0))
    answer = ask(alone, produce_request(topic, of_one, acks=1))
    assert produced(answer)[0] == "transactional_id_authorization_failed"
    assert int(fetched(ask(alone, fetch_request(topic, 0))).high_watermark) == 3


def test_a_batch_that_is_cut_short_is_the_end_of_the_records(alone: Alone, topic_name: str) -> None:
    """Its error says, from KIP-467 on, that to send it again is of no use."""
    topic = with_records(alone, topic_name)
    whole = batch(0, [b"x"])
    old = alone.system.kafka is None
    error = "corrupt_message" if old else "invalid_record"
    for records in (whole[:-1], whole[:20], b""):
        assert produced(ask(alone, produce_request(topic, records, acks=1)))[0] == error
    cut = ask(alone, produce_request(topic, whole + whole[:20], acks=1))
    assert produced(cut) == ("none", 3)


# --- CreateTopics --------------------------------------------------------------------------------

UNSET = -1
CREATE_VERSION = 2


def create(alone: Alone, *topics: Any) -> dict[str, str]:
    """The errors, by topic."""
    request = request_class(Api.CREATE_TOPICS, CREATE_VERSION)(
        topics=topics, timeout=milliseconds(20_000), validate_only=False
    )
    return {str(one.name): one.error_code.name for one in ask(alone, request).topics}


def nested(entity: str, /, **fields: Any) -> Any:
    cls = entity_class(Api.CREATE_TOPICS, CREATE_VERSION, EntityType.request, entity)
    return make(cls, **fields)


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assigned: tuple[tuple[int, ...], ...] = (),
    settings: dict[str, str | None] | None = None,
) -> Any:
    return nested(
        "CreatableTopic",
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(replicas),
        assignments=tuple(
            nested(
                "CreatableReplicaAssignment",
                partition_index=i32(n),
                broker_ids=tuple(BrokerId(b) for b in brokers),
            )
            for n, brokers in enumerate(assigned)
        ),
        configs=tuple(
            nested("CreatableTopicConfig", name=each, value=value)
            for each, value in (settings or {}).items()
        ),
    )


def test_names_that_metrics_cannot_tell_apart_are_not_both_taken(
    alone: Alone, topic_name: str
) -> None:
    first, second = f"{topic_name}.a", f"{topic_name}_a"
    assert create(alone, topic(first)) == {first: "none"}
    assert create(alone, topic(second), topic(f"{topic_name}-a")) == {
        second: "invalid_topic_exception",
        f"{topic_name}-a": "none",
    }
    both = create(alone, topic(f"{topic_name}.b"), topic(f"{topic_name}_b"))  # in either order
    assert sorted(both.values()) == ["invalid_topic_exception", "none"]


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"assigned": ((REAL,),)}, "invalid_request"),
        ({"partitions": UNSET, "replicas": UNSET, "assigned": ((REAL,),)}, "none"),
        ({"settings": {"no.such.setting": "1"}}, "invalid_config"),
        ({"settings": {"segment.bytes": None}}, "invalid_config"),
        ({"settings": {"min.insync.replicas": "0"}}, "invalid_config"),
        ({"settings": {"preallocate": "perhaps"}}, "invalid_config"),
        ({"settings": {"compression.type": "rar"}}, "invalid_config"),
        ({"settings": {"min.cleanable.dirty.ratio": "1.5"}}, "invalid_config"),
        ({"settings": {"min.cleanable.dirty.ratio": "0.5", "preallocate": "false"}}, "none"),
    ],
)
def test_what_a_topic_cannot_have(
    alone: Alone, topic_name: str, more: dict[str, Any], error: str
) -> None:
    assert create(alone, topic(topic_name, **more)) == {topic_name: error}


def test_all_partitions_have_as_many_replicas(alone: Alone, topic_name: str) -> None:
    other = alone.phantom().broker
    uneven = topic(topic_name, UNSET, UNSET, ((REAL,), (REAL, other)))
    assert create(alone, uneven) == {topic_name: "invalid_replica_assignment"}
