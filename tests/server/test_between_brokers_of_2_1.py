"""C10, P4: what brokers up to 2.1 send to brokers is what Apache Kafka 2.1.1 sends, to the byte.

The frames are those that the classes of kafka-clients 2.1.1 have made of the same values.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    Endpoint,
    EndTransactionMarker,
    LeaderAndIsr,
    TopicPartition,
)
from neaptide.clusters.broker.server.apis import transactions
from neaptide.clusters.broker.server.apis.row import (
    AnsweredByCore,
    PendingRequest,
    SendResponse,
)
from neaptide.clusters.broker.server.apis.table import TABLE, replication_apis
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tests.server.given import CONNECTION, CONTEXT

PARTITION = TopicPartition("t", 3)
STATE = events.PartitionState(
    PARTITION, LeaderAndIsr(1, 2, (1, 2), 5, 4), (1, 2, 3), {}, is_new=True
)
REPLICATION = (Endpoint("REPLICATION", "127.0.0.1", 9092),)
LEADER_AND_ISR = (
    "000400010000000700016300000000000000050000000100017400000003000000050000000100000002000000020000"
    "000100000002000000040000000300000001000000020000000301000000010000000100093132372e302e302e310000"
    "2384"
)
STOP_REPLICA = "00050000000000070001630000000000000005010000000100017400000003"
UPDATE_METADATA = (
    "000600040000000700016300000000000000050000000100017400000003000000050000000100000002000000020000"
    "000100000002000000040000000300000001000000020000000300000001000000030000000100000001000000010000"
    "238400093132372e302e302e310006434c49454e540000000172"
)
SENT = [
    (
        events.LeaderAndIsrRequested(0, 0, 5, (STATE,), (BrokerRegistration(1, REPLICATION),)),
        LEADER_AND_ISR,
    ),
    (events.StopReplicaRequested(0, 0, 5, True, (PARTITION,)), STOP_REPLICA),
    (
        events.UpdateMetadataRequested(
            0,
            0,
            5,
            (replace(STATE, is_new=False, offline=(3,)),),
            (BrokerRegistration(1, (Endpoint("CLIENT", "127.0.0.1", 9092),), "r"),),
        ),
        UPDATE_METADATA,
    ),
]


@pytest.mark.parametrize(("event", "frame"), SENT, ids=["leaders", "stop", "metadata"])
@pytest.mark.parametrize("generation", ["0.8", "2.1"])
def test_c10_a_controller_up_to_2_1_sends_what_kafka_sends(
    generation: str, event: events.LeaderAndIsrRequested, frame: str
) -> None:
    config = replace(CONTEXT.config, generation=GENERATIONS[generation])
    [sent] = [row.sent for row in TABLE.values() if row.sent and row.sent.message is type(event)]
    entity = sent.encode(event, config)
    assert encode_request(entity, correlation_id=7, client_id="c")[4:].hex() == frame
    header, read = decode_request(bytes.fromhex(frame), replication_apis(generation))
    answered = TABLE[header.api].answered
    assert isinstance(answered, AnsweredByCore)
    request = PendingRequest(70, CONNECTION, header)
    assert answered.decode(request, read, CONTEXT) == replace(event, request=70)


MARKERS = (
    "001b00000000000700016300000001000000000000000900020100000001000174000000010000000300000004"
)
MARKED = "000000070000000100000000000000090000000100017400000001000000030000"


def test_p4_a_coordinator_up_to_2_1_sends_the_markers_that_kafka_sends() -> None:
    marker = EndTransactionMarker(9, 2, 4, True)
    config = replace(CONTEXT.config, generation=GENERATIONS["2.1"])
    sent = effects.SendWriteTxnMarkers(1, 5, ((marker, (PARTITION,)),))
    entity = transactions.encode_write_txn_markers_request(sent, config)
    assert encode_request(entity, correlation_id=7, client_id="c")[4:].hex() == MARKERS
    header, read = decode_request(bytes.fromhex(MARKERS), replication_apis("2.1"))
    request = PendingRequest(70, CONNECTION, header)
    event = transactions.decode_write_txn_markers(request, read, CONTEXT)
    assert event == events.WriteTxnMarkersRequested(70, sent.markers)

    marked = (events.MarkedPartition(9, PARTITION, Error.NONE),)
    effect = effects.RespondWriteTxnMarkers(70, marked)
    response = transactions.encode_write_txn_markers(request, effect, CONTEXT)
    assert isinstance(response, SendResponse)
    assert encode_response(response.entity, 7)[4:].hex() == MARKED
    _, answer = decode_response(bytes.fromhex(MARKED), Api.WRITE_TXN_MARKERS, 0)
    found = transactions.decode_write_txn_markers_response(sent, answer)
    assert found == events.WriteTxnMarkersResponded(1, 5, marked)
