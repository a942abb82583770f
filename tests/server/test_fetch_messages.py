"""What a follower and its leader say of epochs reaches the other, in versions that have it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import EpochEnd
from neaptide.clusters.broker.server.apis.entities import in_request
from neaptide.clusters.broker.server.apis.fetch import (
    decode_fetch,
    decode_fetch_response,
    encode_fetch,
    encode_fetch_request,
)
from neaptide.clusters.broker.server.apis.offsets import (
    decode_list_offsets,
    encode_list_offsets,
)
from neaptide.clusters.broker.server.apis.row import PendingRequest, ResponseLater, SendResponse
from neaptide.clusters.broker.server.apis.table import replication_apis
from neaptide.clusters.broker.server.config import server_config
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import (
    Header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    make,
    request_class,
)
from tests.server.given import CONNECTION, CONTEXT, GOOD
from tests.topic_ids import id_of_name, names_of

T = TopicPartition("t", 0)
ASKED = events.FetchedPartition(
    T, 7, 1_000, log_start_offset=2, current_leader_epoch=5, last_fetched_epoch=4
)
SENT = effects.SendFetch(events.FetcherId(1, 0), 1, 500, 1, 10_000, (ASKED,))


def _pending(api: Api, version: int) -> PendingRequest:
    return PendingRequest(9, CONNECTION, Header(api, version, 1, "c"), max_bytes=1_000)


@pytest.mark.parametrize(("generation", "last_epoch"), [("2.1", -1), ("2.8", 4), ("4.0", 4)])
def test_e8_a_leader_receives_the_last_fetched_epoch(generation: str, last_epoch: int) -> None:
    config = replace(server_config(GOOD), generation=GENERATIONS[generation])
    asked = replace(ASKED, topic_id=id_of_name("t") if generation == "4.0" else None)
    sent = replace(SENT, partitions=(asked,))
    frame = encode_request(encode_fetch_request(sent, config), correlation_id=1, client_id="c")
    header, entity = decode_request(frame[4:], replication_apis(generation))
    known = replace(CONTEXT, topic_names=names_of("t"))
    event = decode_fetch(_pending(header.api, header.version), entity, known)
    assert isinstance(event, events.FetchRequested)
    assert event.partitions == (replace(asked, last_fetched_epoch=last_epoch),)


@pytest.mark.parametrize("diverging", [None, EpochEnd(3, 6), EpochEnd(0, 0)])
def test_e8_a_follower_receives_where_it_diverges(diverging: EpochEnd | None) -> None:
    result = effects.FetchedResult(T, Error.NONE, 5, 2, None, diverging)
    response = encode_fetch(_pending(Api.FETCH, 12), effects.RespondFetch(9, (result,)), CONTEXT)
    assert isinstance(response, SendResponse)
    frame = encode_response(response.entity, 1)
    _, entity = decode_response(frame[4:], Api.FETCH, 12)
    (received,) = decode_fetch_response(SENT, entity).results
    assert received == events.FetchResult(T, Error.NONE, 5, 2, (), diverging)


@pytest.mark.parametrize(
    ("version", "error"), [(4, "leader_not_available"), (5, "offset_not_available")]
)
@pytest.mark.parametrize("look_up", [None, 1])
def test_f15_clients_that_do_not_know_offset_not_available_receive_another_error(
    version: int, error: str, look_up: int | None
) -> None:
    stale = Error.OFFSET_NOT_AVAILABLE
    result = effects.OffsetResult(T, stale, -1)
    if look_up is not None:
        result = effects.OffsetResult(T, Error.NONE, -1, look_up, 3, not_found=stale)
    answer = effects.RespondListOffsets(9, (result,))
    context = CONTEXT if look_up is None else replace(CONTEXT, reader=cast(Any, _FindsNothing()))
    response = encode_list_offsets(_pending(Api.LIST_OFFSETS, version), answer, context)
    if isinstance(response, ResponseLater):
        entity = asyncio.run(response.work)
    else:
        assert isinstance(response, SendResponse)
        entity = response.entity
    assert entity.topics[0].partitions[0].error_code.name == error


class _FindsNothing:
    """A reader of logs in which nothing is as young as what is looked for."""

    async def look_up_all(self, wanted: list[effects.OffsetResult]) -> dict[TopicPartition, Any]:
        return {one.partition: (one.not_found, -1, -1, -1) for one in wanted}


@pytest.mark.parametrize(
    ("version", "known"), [(6, [-2, -1]), (7, [-3, -2, -1]), (8, [-4, -3]), (9, [-5, -4, -3])]
)
def test_what_a_timestamp_stands_for_is_known_from_its_version_on(
    version: int, known: list[int]
) -> None:
    for timestamp in range(-6, 0):
        request = make(
            request_class(Api.LIST_OFFSETS, version),
            replica_id=BrokerId(-1),
            isolation_level=i8(0),
            topics=(
                in_request(Api.LIST_OFFSETS, version, "ListOffsetsTopic")(
                    name=TopicName("t"),
                    partitions=(
                        make(
                            in_request(Api.LIST_OFFSETS, version, "ListOffsetsPartition"),
                            partition_index=i32(0),
                            timestamp=i64(timestamp),
                            current_leader_epoch=i32(-1),
                        ),
                    ),
                ),
            ),
        )
        event = decode_list_offsets(_pending(Api.LIST_OFFSETS, version), request, CONTEXT)
        assert isinstance(event, events.ListOffsetsRequested)
        is_known = timestamp >= known[0]
        assert event.partitions[0].timestamp == (timestamp if is_known else -6)


@pytest.mark.parametrize(
    ("version", "error"), [(5, Error.NOT_LEADER_OR_FOLLOWER), (6, Error.KAFKA_STORAGE_ERROR)]
)
def test_r11_a_client_of_before_learns_of_an_offline_replica_as_of_one_that_leads_no_more(
    version: int, error: Error
) -> None:
    result = effects.FetchedResult(T, Error.KAFKA_STORAGE_ERROR, -1, -1, None)
    header = Header(Api.FETCH, version, 1, "c")
    request = PendingRequest(1, CONNECTION, header)
    answer = encode_fetch(request, effects.RespondFetch(1, (result,)), CONTEXT)
    assert isinstance(answer, SendResponse)
    [topic] = answer.entity.responses
    assert topic.partitions[0].error_code.value == error
