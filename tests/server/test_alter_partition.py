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
from neaptide.clusters.broker.server.apis.row import ApiContext, PendingRequest, SendResponse
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import decode_response, encode_response
from neaptide.clusters.broker.wire.topic_ids import TopicNames, topic_id
from tests.server.test_requests import CONNECTION, CONTEXT, read_again

T0 = TopicPartition("t", 0)
U3 = TopicPartition("u", 3)
CONFIG = replace(CONTEXT.config, broker_id=7, generation=GENERATIONS["4.0"])
OF_4_0: ApiContext = replace(CONTEXT, config=CONFIG, topic_names=TopicNames(lambda: ("t", "u")))


def _asked() -> tuple[effects.SendAlterPartition, PendingRequest, Any]:
    members = (events.IsrMember(7, 41), events.IsrMember(8))
    sent = effects.SendAlterPartition(
        1,
        5,
        41,
        (
            events.AlteredPartition(T0, 2, 9, members),
            events.AlteredPartition(U3, 0, 0, (events.IsrMember(7, 41),)),
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
    sent, request, _ = _asked()
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
    _, request, entity = _asked()
    event = alter_partition.decode_alter_partition(request, entity, CONTEXT)
    unknown = event.partitions[0].partition
    assert unknown.topic == str(topic_id("t"))
    assert topic_id(unknown.topic) == topic_id("t")


@pytest.mark.parametrize(("generation", "epoch"), [("4.0", 41), ("2.1", -1)])
def test_a_fetch_of_4_0_names_the_followers_registration(generation: str, epoch: int) -> None:
    config: ServerConfig = replace(CONFIG, generation=GENERATIONS[generation])
    asked = events.FetchedPartition(T0, 5, 100, log_start_offset=0, current_leader_epoch=2)
    sent = effects.SendFetch(events.FetcherId(1, 0), 3, 10, 1, 1_000, (asked,), 41)
    header, entity = read_again(fetch.encode_fetch_request(sent, config))
    assert header.version == config.generation.fetch_version
    event = fetch.decode_fetch(PendingRequest(70, CONNECTION, header), entity, OF_4_0)
    assert (event.replica_id, event.broker_epoch, event.partitions) == (7, epoch, (asked,))


@pytest.mark.parametrize(("generation", "epoch"), [("4.0", 12), ("2.1", -1)])
def test_update_metadata_of_4_0_names_the_registrations_of_all_brokers(
    generation: str, epoch: int
) -> None:
    config: ServerConfig = replace(CONFIG, generation=GENERATIONS[generation])
    live = BrokerRegistration(2, (Endpoint("REPLICATION", "127.0.0.1", 9),), None, 12)
    state = events.PartitionState(T0, LeaderAndIsr(2, 1, (2,), 4, 6), (2,), {})
    sent = events.UpdateMetadataRequested(0, 1, 4, (state,), (live,), broker_epoch=33)
    header, entity = read_again(control.encode_update_metadata_request(sent, config))
    request = PendingRequest(70, CONNECTION, header)
    event = control.decode_update_metadata(request, entity, OF_4_0)
    assert event == replace(sent, request=70, live_brokers=(replace(live, epoch=epoch),))
    response = control.encode_update_metadata(
        request, effects.RespondControl(70, Error.STALE_BROKER_EPOCH), OF_4_0
    )
    assert isinstance(response, SendResponse)
    frame = encode_response(response.entity, 3)[4:]
    _, answer = decode_response(frame, Api.UPDATE_METADATA, header.version)
    said = control.control_responded(2, 4, answer)
    assert said == events.ControlResponded(2, 4, Error.STALE_BROKER_EPOCH)


def test_clients_are_not_offered_a_fetch_that_names_topics_by_ids() -> None:
    from neaptide.clusters.broker.server.apis.cluster import encode_api_versions
    from neaptide.clusters.broker.server.apis.table import replication_apis

    apis = replication_apis("4.0")
    assert 15 in apis[Api.FETCH]
    offered = cast(Any, encode_api_versions(3, apis, Error.NONE)).api_keys
    assert {int(one.api_key): int(one.max_version) for one in offered}[Api.FETCH] <= 12
