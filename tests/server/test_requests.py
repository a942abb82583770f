"""No request that can be read ends the broker: it becomes an event that the core takes."""

from __future__ import annotations

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
from neaptide.clusters.broker.replication.settings import replication_settings
from neaptide.clusters.broker.replication.step import begin, step
from neaptide.clusters.broker.server.apis.row import (
    AnsweredByCore,
    CloseConnection,
    NoResponse,
    PendingRequest,
    Refused,
    SendResponse,
)
from neaptide.clusters.broker.server.apis.table import TABLE
from neaptide.clusters.broker.server.produced import Accepted, produced_batch
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import (
    CONTROL_APIS,
    encode_response,
)
from tests.proof import proof_but
from tests.server.given import CONNECTION, CONTEXT, read_again
from tests.wire import strategies

T0 = TopicPartition("t", 0)
NOW_MS = 1_000_000


# What the controller says is believed; what a client says must not matter.
OF_CLIENTS = [
    (api, version)
    for api, version in strategies.SPOKEN
    if isinstance(TABLE[api].answered, AnsweredByCore) and api not in CONTROL_APIS
]
IN_TEST = [one for one in OF_CLIENTS if one in strategies.OLDEST_AND_NEWEST]


def leader() -> Broker:
    """Broker 0 leads t-0 alone."""
    broker = start(0, GENERATIONS["0.11"], replication_settings({}, GENERATIONS["0.11"]), {})
    begin(broker)
    live = (BrokerRegistration(0, (Endpoint("CLIENT", "127.0.0.1", 9092),)),)
    state = events.PartitionState(T0, LeaderAndIsr(0, 0, (0,), 1, 0), (0,), {})
    step(broker, events.LeaderAndIsrRequested(1, 0, 1, (state,), live), NOW_MS)
    return broker


@pytest.mark.slow
@pytest.mark.parametrize(
    ("api", "version"),
    proof_but(OF_CLIENTS, *IN_TEST),
    ids=[f"{api.name} v{version}" for api, version in OF_CLIENTS],
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
    if isinstance(event, Refused):
        event = event.event
    assert type(event) is row.event
    step(broker, event, NOW_MS)
    # An error, whatever has failed, can be the response in every version.
    response = row.encode(request, row.error(event, Error.UNKNOWN_SERVER_ERROR), CONTEXT)
    if isinstance(response, SendResponse):
        encode_response(response.entity, 1)
    else:
        assert isinstance(event, events.ProduceRequested)
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
