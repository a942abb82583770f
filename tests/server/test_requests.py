"""No request that can be read ends the broker: it becomes an event that the core takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neaptide.clusters.broker.replication.broker import Broker, start
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.interface.effects import RespondProduce
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    Endpoint,
    LeaderAndIsr,
    TopicPartition,
)
from neaptide.clusters.broker.replication.settings import replication_settings
from neaptide.clusters.broker.replication.step import begin, step
from neaptide.clusters.broker.server import requests
from neaptide.clusters.broker.server.produced import produced_batch
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import decode_request, encode_request
from tests.wire import strategies
from tests.wire.strategies import CLIENT_APIS, REPLICATION_APIS

T0 = TopicPartition("t", 0)
NOW_MS = 1_000_000
EVENTS = {
    Api.PRODUCE: lambda request, entity: requests.produce(
        request, entity, 7, lambda _: None, names_invalid_records=True
    ),
    Api.INIT_PRODUCER_ID: requests.init_producer_id,
    Api.FETCH: lambda request, entity: requests.fetch(request, entity, lambda _, __: 0),
    Api.LIST_OFFSETS: requests.list_offsets,
    Api.FIND_COORDINATOR: requests.find_coordinator,
    Api.OFFSET_FETCH: requests.offset_fetch,
    Api.OFFSET_COMMIT: lambda request, entity: requests.offset_commit(
        request, entity, NOW_MS, with_epoch=True
    ),
    Api.CREATE_TOPICS: requests.create_topics,
    Api.OFFSET_FOR_LEADER_EPOCH: requests.offset_for_leader_epoch,
    Api.UPDATE_METADATA: requests.update_metadata,
    Api.STOP_REPLICA: requests.stop_replica,
}
# What the controller says is believed; what a client says must not matter.
OF_CLIENTS = [
    (api, version)
    for api, version in strategies.SPOKEN
    if api in EVENTS and (api in CLIENT_APIS or api is Api.OFFSET_FOR_LEADER_EPOCH)
]


def leader() -> Broker:
    """Broker 0 leads t-0 alone."""
    broker = start(0, GENERATIONS["0.11"], replication_settings({}, GENERATIONS["0.11"]), {})
    begin(broker)
    live = (BrokerRegistration(0, (Endpoint("CLIENT", "127.0.0.1", 9092),)),)
    state = events.PartitionState(T0, LeaderAndIsr(0, 0, (0,), 1, 0), (0,), {})
    step(broker, events.LeaderAndIsrRequested(1, 0, 1, (state,), live), NOW_MS)
    return broker


def read_again(entity: Any) -> Any:
    frame = encode_request(entity, correlation_id=1, client_id="c")
    return decode_request(frame[4:], REPLICATION_APIS)[1]


@pytest.mark.parametrize(
    ("api", "version"), OF_CLIENTS, ids=[f"{api.name} v{version}" for api, version in OF_CLIENTS]
)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_core_takes_whatever_a_client_asks(api: Api, version: int, data: st.DataObject) -> None:
    broker = leader()
    entity = read_again(data.draw(strategies.requests(api, version)))
    step(broker, EVENTS[api](9, entity), NOW_MS)


@settings(max_examples=100, deadline=None)
@given(records=st.binary(max_size=200))
def test_noise_for_records_is_answered_and_not_appended(records: bytes) -> None:
    broker = leader()
    produced = produced_batch(records, 7, None, names_invalid_records=False, at_once=True)
    effects = step(broker, events.ProduceRequested(9, 1, 1000, ((T0, (produced,)),)), NOW_MS)
    (answer,) = [effect for effect in effects if isinstance(effect, RespondProduce)]
    assert [result.error.name for result in answer.results] == ["CORRUPT_MESSAGE"]
