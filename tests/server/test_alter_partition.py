"""AlterPartition, and what names the registrations of brokers, on the wire and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    Endpoint,
    LeaderAndIsr,
    TopicPartition,
)
from neaptide.clusters.broker.server.apis import alter_partition, control, fetch
from neaptide.clusters.broker.server.apis.cluster import encode_api_versions
from neaptide.clusters.broker.server.apis.row import ApiContext, PendingRequest, SendResponse
from neaptide.clusters.broker.server.apis.table import client_apis, replication_apis
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.server.dynamic_settings import DynamicSettings
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import decode_response, encode_response
from neaptide.clusters.broker.wire.topic_ids import FETCH_WITH_TOPIC_IDS
from tests.server.given import CONNECTION, CONTEXT, read_again
from tests.topic_ids import id_of_name, names_of, uuid_of_name

T0 = TopicPartition("t", 0)
U3 = TopicPartition("u", 3)
CONFIG = replace(CONTEXT.config, broker_id=7, generation=GENERATIONS["4.0"])
OF_4_0: ApiContext = replace(
    CONTEXT, settings=DynamicSettings(CONFIG, lambda: None), topic_names=names_of("t", "u")
)


def _asked() -> tuple[effects.SendAlterPartition, PendingRequest, Any]:
    members = (events.IsrMember(7, 41), events.IsrMember(8))
    sent = effects.SendAlterPartition(
        1,
        5,
        41,
        (
            events.AlteredPartition(T0, 2, 9, members, id_of_name("t")),
            events.AlteredPartition(U3, 0, 0, (events.IsrMember(7, 41),), id_of_name("u")),
        ),
    )
    entity = alter_partition.encode_alter_partition_request(sent, CONFIG)
    header, again = read_again(entity)
    assert (header.api, header.version) == (Api.ALTER_PARTITION, 3)
    return sent, PendingRequest(70, CONNECTION, header), again


def test_an_isr_change_comes_to_the_controller_as_it_was_sent() -> None:
    sent, request, entity = _asked()
    event = alter_partition.decode_alter_partition(request, entity, OF_4_0)
    assert event == events.AlterPartitionRequested(70, 7, 41, sent.partitions)


@pytest.mark.parametrize("error", [Error.NONE, Error.NOT_CONTROLLER])
def test_the_answer_comes_to_the_leader_as_it_was_sent(error: Error) -> None:
    sent, request, entity = _asked()
    alter_partition.decode_alter_partition(request, entity, OF_4_0)
    results = (
        events.AlteredResult(T0, Error.NONE, LeaderAndIsr(7, 2, (7, 8), -1, 10)),
        events.AlteredResult(U3, Error.INELIGIBLE_REPLICA),
    )
    effect = effects.RespondAlterPartition(70, error, () if error else results)
    response = alter_partition.encode_alter_partition(request, effect, OF_4_0)
    assert isinstance(response, SendResponse)
    frame = encode_response(response.entity, 3)[4:]
    number, entity = decode_response(frame, Api.ALTER_PARTITION, 3)
    event = alter_partition.decode_alter_partition_response(sent, entity)
    assert number == 3
    assert event == events.AlterPartitionResponded(5, error, () if error else results)


def test_a_topic_that_the_controller_does_not_know_is_named_by_its_id_in_the_answer_too() -> None:
    sent, request, entity = _asked()
    knows_u = replace(OF_4_0, topic_names=names_of("u"))
    event = alter_partition.decode_alter_partition(request, entity, knows_u)
    unknown, known = (one.partition for one in event.partitions)
    assert (unknown.topic, known.topic) == (str(uuid_of_name("t")), "u")
    error = Error.UNKNOWN_TOPIC_OR_PARTITION
    results = (events.AlteredResult(unknown, error), events.AlteredResult(known, error))
    answered = effects.RespondAlterPartition(70, Error.NONE, results)
    response = alter_partition.encode_alter_partition(request, answered, knows_u)
    assert isinstance(response, SendResponse)
    _, entity = decode_response(encode_response(response.entity, 3)[4:], Api.ALTER_PARTITION, 3)
    received = alter_partition.decode_alter_partition_response(sent, entity)
    assert received.results == (
        events.AlteredResult(T0, Error.UNKNOWN_TOPIC_ID),
        events.AlteredResult(U3, Error.UNKNOWN_TOPIC_OR_PARTITION),
    )


@pytest.mark.parametrize(("generation", "epoch"), [("4.0", 41), ("2.1", -1)])
def test_a_fetch_of_4_0_names_the_followers_registration(generation: str, epoch: int) -> None:
    config: ServerConfig = replace(CONFIG, generation=GENERATIONS[generation])
    topic_id = id_of_name("t") if config.generation.topic_ids else None
    asked = events.FetchedPartition(
        T0, 5, 100, log_start_offset=0, current_leader_epoch=2, topic_id=topic_id
    )
    sent = effects.SendFetch(events.FetcherId(1, 0), 3, 10, 1, 1_000, (asked,), 41)
    header, entity = read_again(fetch.encode_fetch_request(sent, config))
    assert header.version == config.generation.fetch_version
    event = fetch.decode_fetch(PendingRequest(70, CONNECTION, header), entity, OF_4_0)
    assert isinstance(event, events.FetchRequested)
    assert (event.replica_id, event.broker_epoch, event.partitions) == (7, epoch, (asked,))


@pytest.mark.parametrize(("generation", "epoch"), [("4.0", 12), ("2.8", -1), ("2.1", -1)])
def test_update_metadata_of_4_0_names_the_registrations_of_all_brokers(
    generation: str, epoch: int
) -> None:
    config: ServerConfig = replace(CONFIG, generation=GENERATIONS[generation])
    live = BrokerRegistration(2, (Endpoint("REPLICATION", "127.0.0.1", 9),), None, 12)
    topic_id = id_of_name("t") if config.generation.topic_ids else None
    state = events.PartitionState(T0, LeaderAndIsr(2, 1, (2,), 4, 6), (2,), {}, topic_id)
    own_epoch = 33 if config.generation.topic_ids else -1
    sent = events.UpdateMetadataRequested(0, 1, 4, (state,), (live,), broker_epoch=own_epoch)
    header, entity = read_again(control.encode_update_metadata_request(sent, config), generation)
    request = PendingRequest(70, CONNECTION, header)
    event = control.decode_update_metadata(request, entity, OF_4_0)
    assert event == replace(sent, request=70, live_brokers=(replace(live, epoch=epoch),))
    response = control.encode_update_metadata(
        request, effects.RespondControl(70, Error.STALE_BROKER_EPOCH), OF_4_0
    )
    assert isinstance(response, SendResponse)
    frame = encode_response(response.entity, 3)[4:]
    _, answer = decode_response(frame, Api.UPDATE_METADATA, header.version)
    said = control.control_responded(2, sent, answer)
    assert said == events.ControlResponded(2, 4, Error.STALE_BROKER_EPOCH)


def test_only_4_0_offers_clients_a_fetch_that_names_topics_by_ids() -> None:
    for generation in GENERATIONS:
        for apis in (client_apis(generation), replication_apis(generation)):
            offered = cast(Any, encode_api_versions(3, apis, Error.NONE)).api_keys
            highest = {int(one.api_key): int(one.max_version) for one in offered}[Api.FETCH]
            assert (highest >= FETCH_WITH_TOPIC_IDS) == (generation == "4.0")
