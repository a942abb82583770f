"""No request that can be read ends the broker: it becomes an event that the core takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neaptide.clusters.broker.replication.broker import Broker, start
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.interface.effects import RespondProduce
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    Endpoint,
    LeaderAndIsr,
    TopicPartition,
)
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache
from neaptide.clusters.broker.replication.settings import replication_settings
from neaptide.clusters.broker.replication.step import begin, step
from neaptide.clusters.broker.server.apis.row import (
    AnsweredByCore,
    ApiContext,
    CloseConnection,
    NoResponse,
    PendingRequest,
    SendResponse,
)
from neaptide.clusters.broker.server.apis.table import TABLE, replication_apis
from neaptide.clusters.broker.server.config import server_config
from neaptide.clusters.broker.server.crowd import Crowd, CrowdLimits
from neaptide.clusters.broker.server.listener import Connection
from neaptide.clusters.broker.server.log_reader import LogReader
from neaptide.clusters.broker.server.produced import Accepted, produced_batch
from neaptide.clusters.broker.storage.log_directory import LogDirectory
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import (
    CONTROL_APIS,
    Header,
    decode_request,
    encode_request,
    encode_response,
)
from tests.server.test_config import GOOD
from tests.wire import strategies
from tests.wire.strategies import REPLICATION_APIS

T0 = TopicPartition("t", 0)
NOW_MS = 1_000_000
CONNECTION = cast(Connection, SimpleNamespace(listener="CLIENT"))


def context() -> ApiContext:
    """Of a broker that has no logs."""
    config = server_config(GOOD)
    logs = cast(LogDirectory, SimpleNamespace(logs={}))
    unused = cast(Any, None)
    return ApiContext(
        config,
        Crowd(CrowdLimits()),
        LogReader(logs, unused),
        unused,
        unused,
        unused,
        MetadataCache,
        lambda: None,
        unused,
    )


CONTEXT = context()
# What the controller says is believed; what a client says must not matter.
OF_CLIENTS = [
    (api, version)
    for api, version in strategies.SPOKEN
    if isinstance(TABLE[api].answered, AnsweredByCore) and api not in CONTROL_APIS
]


def leader() -> Broker:
    """Broker 0 leads t-0 alone."""
    broker = start(0, GENERATIONS["0.11"], replication_settings({}, GENERATIONS["0.11"]), {})
    begin(broker)
    live = (BrokerRegistration(0, (Endpoint("CLIENT", "127.0.0.1", 9092),)),)
    state = events.PartitionState(T0, LeaderAndIsr(0, 0, (0,), 1, 0), (0,), {})
    step(broker, events.LeaderAndIsrRequested(1, 0, 1, (state,), live), NOW_MS)
    return broker


def read_again(entity: Any, generation: str | None = None) -> tuple[Header, Any]:
    """As a broker of this generation reads it; None: as one of the latest."""
    apis = REPLICATION_APIS if generation is None else replication_apis(generation)
    frame = encode_request(entity, correlation_id=1, client_id="c")
    return decode_request(frame[4:], apis)


@pytest.mark.parametrize(
    ("api", "version"), OF_CLIENTS, ids=[f"{api.name} v{version}" for api, version in OF_CLIENTS]
)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_core_takes_whatever_a_client_asks(api: Api, version: int, data: st.DataObject) -> None:
    broker = leader()
    row = TABLE[api].answered
    assert isinstance(row, AnsweredByCore)
    header, entity = read_again(data.draw(strategies.requests(api, version)))
    request = PendingRequest(9, CONNECTION, header)
    event = row.decode(request, entity, CONTEXT)
    assert type(event) is row.event
    step(broker, event, NOW_MS)
    # An error, whatever has failed, can be the response in every version.
    response = row.encode(request, row.error(event, Error.UNKNOWN_SERVER_ERROR), CONTEXT)
    if isinstance(response, SendResponse):
        encode_response(response.entity, 1)
    else:
        assert api is Api.PRODUCE
        assert isinstance(response, CloseConnection) or (
            isinstance(response, NoResponse) and not event.partitions
        )


@settings(max_examples=100, deadline=None)
@given(records=st.binary(max_size=200))
def test_noise_for_records_is_answered_and_not_appended(records: bytes) -> None:
    broker = leader()
    produced = produced_batch(
        records, 7, Accepted(NOW_MS), names_invalid_records=False, at_once=True
    )
    effects = step(broker, events.ProduceRequested(9, 1, 1000, ((T0, (produced,)),)), NOW_MS)
    (answer,) = [effect for effect in effects if isinstance(effect, RespondProduce)]
    assert [result.error.name for result in answer.results] == ["CORRUPT_MESSAGE"]
