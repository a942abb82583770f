"""Topic ids (KIP-516) in what controllers send, in Metadata, and in Fetch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import LeaderAndIsr, TopicPartition
from neaptide.clusters.broker.replication.replicas.metadata_cache import (
    MetadataCache,
    with_partitions,
)
from neaptide.clusters.broker.server.apis import control
from neaptide.clusters.broker.server.apis.cluster import answer_metadata
from neaptide.clusters.broker.server.apis.row import PendingRequest, SendResponse
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import (
    Header,
    decode_response,
    encode_response,
    make,
    request_class,
)
from neaptide.clusters.broker.wire.topic_ids import TopicNames, is_unknown_topic, text_of, uuid_of
from tests.server.given import CONNECTION, CONTEXT, read_again
from tests.topic_ids import id_of_name, names_of, uuid_of_name

T0 = TopicPartition("t", 0)


def _state(topic_id: str | None) -> events.PartitionState:
    return events.PartitionState(T0, LeaderAndIsr(0, 3, (0,), 4, 6), (0, 1), {}, topic_id)


# --- what controllers send ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "version"), [("0.11", 1), ("2.1", 1), ("2.8", 5), ("4.0", 5)]
)
def test_c10_leader_and_isr_names_the_id_from_2_8_on(generation: str, version: int) -> None:
    config = replace(CONTEXT.config, generation=GENERATIONS[generation])
    state = _state(id_of_name("t") if version == 5 else None)
    sent = events.LeaderAndIsrRequested(0, 1, 4, (state,), (), 33 if version == 5 else -1)
    header, entity = read_again(control.encode_leader_and_isr_request(sent, config), generation)
    assert (header.api, header.version) == (Api.LEADER_AND_ISR, version)
    request = PendingRequest(70, CONNECTION, header)
    event = control.decode_leader_and_isr(request, entity, CONTEXT)
    assert event == replace(sent, request=70)

    outcomes = ((T0, Error.INCONSISTENT_TOPIC_ID),)
    effect = effects.RespondControl(70, Error.NONE, outcomes)
    response = control.encode_leader_and_isr(request, effect, CONTEXT)
    assert isinstance(response, SendResponse)
    frame = encode_response(response.entity, 3)[4:]
    _, answer = decode_response(frame, Api.LEADER_AND_ISR, version)
    if version == 5:
        [topic] = answer.topics
        assert topic.topic_id == uuid_of_name("t")
        [partition] = topic.partitions
    else:
        [partition] = answer.partitions
    assert int(partition.error_code) == Error.INCONSISTENT_TOPIC_ID


# --- names and ids --------------------------------------------------------------------------------


@pytest.mark.parametrize("no_id", [None, "", "x", "A" * 21, "A" * 44])
def test_c10_what_is_no_id_is_none(no_id: str | None) -> None:
    assert uuid_of(no_id) is None


def test_c10_an_id_is_kafkas_text_of_16_bytes() -> None:
    assert text_of(uuid_of("Hu5LOl5CTyCxLd3gNjBFyw")) == "Hu5LOl5CTyCxLd3gNjBFyw"
    assert text_of(None) is None


def test_c10_names_follow_what_the_broker_knows() -> None:
    known = {id_of_name("t"): "t"}
    state = object()
    names = TopicNames(lambda: dict(known), lambda: state)
    assert names.name_of(uuid_of_name("t")) == "t"
    assert is_unknown_topic(names.name_of(uuid_of_name("u")))
    known[id_of_name("u")] = "u"
    assert names.name_of(uuid_of_name("u")) == "u"  # who is not known is looked for again
    del known[id_of_name("t")]
    assert names.name_of(uuid_of_name("t")) == "t"
    state = object()
    assert is_unknown_topic(names.name_of(uuid_of_name("t")))


def test_c10_a_topic_that_was_made_again_is_not_mixed_with_the_one_before() -> None:
    other = replace(_state(id_of_name("t")), partition=TopicPartition("t", 1))
    before = with_partitions(MetadataCache(), (_state(id_of_name("t")), other))
    assert sorted(before.topics["t"]) == [0, 1]
    again = with_partitions(before, (_state(id_of_name("again")),))
    assert (sorted(again.topics["t"]), again.topic_ids["t"]) == ([0], id_of_name("again"))
    # An id that is learned later, or not said, is of the same topic.
    without = with_partitions(MetadataCache(), (_state(None), replace(other, topic_id=None)))
    learned = with_partitions(without, (_state(id_of_name("t")),))
    assert (sorted(learned.topics["t"]), learned.topic_ids["t"]) == ([0, 1], id_of_name("t"))
    unsaid = with_partitions(learned, (_state(None),))
    assert (sorted(unsaid.topics["t"]), unsaid.topic_ids) == ([0, 1], learned.topic_ids)


# --- Metadata -------------------------------------------------------------------------------------


def _metadata(version: int, *topics: tuple[str | None, str | None]) -> list[tuple[Any, ...]]:
    """(error, name, id) of each topic in the answer; asked for by (name, id)."""
    known = with_partitions(MetadataCache(), (_state(id_of_name("t")),))
    wanted: list[str] = []
    creation = cast(Any, _Creation(wanted))
    context = replace(
        CONTEXT, metadata=lambda: known, topic_names=names_of("t"), topic_creation=creation
    )
    topic_class = _topic_class(version)
    asked = tuple(make(topic_class, name=name, topic_id=uuid_of(one)) for name, one in topics)
    entity = make(request_class(Api.METADATA, version), **_request(asked))
    request = PendingRequest(0, CONNECTION, Header(Api.METADATA, version, 1, "c"))
    answer = answer_metadata(request, entity, context)
    _, received = decode_response(encode_response(answer, 1)[4:], Api.METADATA, version)
    assert wanted == [name for name, one in topics if one is None and name is not None]
    return [
        (int(one.error_code), one.name, getattr(one, "topic_id", None)) for one in received.topics
    ]


class _Creation:
    being_created = frozenset[str]()

    def __init__(self, wanted: list[str]) -> None:
        self.wanted = wanted

    def want(self, topic: str) -> None:
        self.wanted.append(topic)


def _topic_class(version: int) -> Any:
    from neaptide.clusters.broker.server.apis.entities import in_request

    return in_request(Api.METADATA, version, "MetadataRequestTopic")


def _request(topics: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "topics": topics,
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


@pytest.mark.parametrize("version", [9, 10, 11, 12, 13])
def test_c10_metadata_has_ids_from_v10_on(version: int) -> None:
    topic_id = uuid_of_name("t") if version >= 10 else None
    unknown = int(Error.UNKNOWN_TOPIC_OR_PARTITION)
    found = _metadata(version, ("t", None), ("u", None))
    assert found == [(0, "t", topic_id), (unknown, "u", None)]


def test_c10_metadata_finds_topics_by_ids_from_v12_on() -> None:
    found = _metadata(12, (None, id_of_name("t")), (None, id_of_name("u")))
    assert found == [
        (0, "t", uuid_of_name("t")),
        (int(Error.UNKNOWN_TOPIC_ID), None, uuid_of_name("u")),
    ]


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("name", [None, "t"])
def test_c10_metadata_before_v12_refuses_ids(version: int, name: str | None) -> None:
    [(error, _, topic_id)] = _metadata(version, (name, id_of_name("t")))
    assert (error, topic_id) == (Error.INVALID_REQUEST, uuid_of_name("t"))
