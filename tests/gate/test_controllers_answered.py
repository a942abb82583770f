"""What a controller is answered, in every version: a stale one is known by it."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from kio.schema.alter_partition.v3 import request as alter_partition_request
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from neaptide.clusters.broker.wire.codec import encode_request
from neaptide.nemesis.gate.exchange import Exchange
from neaptide.nemesis.gate.model import Rule
from neaptide.nemesis.gate.rounds import RoundCounter
from neaptide.nemesis.gate.rules import matches
from tests.gate import wire

STALE_CONTROLLER_EPOCH = 11
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6


def answers(api_key: int, version: int, error: int, *, flexible: bool, client_id: str) -> list:  # type: ignore[type-arg]
    """Whom broker 2 has answered what, after one request and its answer."""
    found: list[tuple[int | None, int, int]] = []
    exchange = Exchange(2, RoundCounter(), {}, lambda *_: None, lambda *seen: found.append(seen))
    tags = b"\0" if flexible else b""
    exchange.request(wire.request(api_key, version, tags + b"\0" * 60, client_id=client_id), 0)
    exchange.response(wire.frame(struct.pack(">i", 1) + tags + struct.pack(">h", error)), 1)
    return found


@pytest.mark.parametrize(
    ("api_key", "version", "flexible"),
    [
        (LEADER_AND_ISR, 3, False),
        (LEADER_AND_ISR, 5, True),
        (STOP_REPLICA, 0, False),
        (STOP_REPLICA, 3, True),
        (UPDATE_METADATA, 5, False),
        (UPDATE_METADATA, 7, True),
    ],
)
def test_a_stale_controller_is_named_with_who_refused_it(
    api_key: int, version: int, flexible: bool
) -> None:
    refused = answers(api_key, version, STALE_CONTROLLER_EPOCH, flexible=flexible, client_id="0")
    assert refused == [(0, 2, STALE_CONTROLLER_EPOCH)]


@pytest.mark.parametrize("error", [0, 3, 41])
def test_other_answers_are_reported_as_they_are(error: int) -> None:
    assert answers(LEADER_AND_ISR, 5, error, flexible=True, client_id="0") == [(0, 2, error)]


def test_the_controller_of_kafka_0_8_has_a_longer_name() -> None:
    name = "id_0-host_127.0.0.1-port_9092"
    refused = answers(LEADER_AND_ISR, 3, STALE_CONTROLLER_EPOCH, flexible=False, client_id=name)
    assert refused == [(0, 2, STALE_CONTROLLER_EPOCH)]


def rule(**fields: Any) -> Rule:
    return Rule("r", "hold", "request", source=0, destination=2, **fields)


def test_a_rule_takes_a_leader_and_isr_by_its_leader_epoch() -> None:
    exchange = Exchange(2, RoundCounter(), {}, lambda *_: None, lambda *_: None)
    body = wire.leader_and_isr(1, "t", 0, leader=2, leader_epoch=7)
    asked = exchange.request(body, 0)
    assert asked is not None
    assert asked.news is not None
    assert asked.news.states["t", 0].leader_epoch == 7
    facts = asked.facts()
    assert matches(rule(api="leader_and_isr", where="leader_epoch == 7"), facts)
    assert not matches(rule(api="leader_and_isr", where="leader_epoch > 7"), facts)
    assert not matches(rule(api="update_metadata"), facts)
    assert not matches(rule(api="any"), facts)


@pytest.mark.parametrize(
    ("api_key", "name"),
    [
        (LEADER_AND_ISR, "leader_and_isr"),
        (STOP_REPLICA, "stop_replica"),
        (UPDATE_METADATA, "update_metadata"),
    ],
)
def test_what_a_controller_sends_and_is_answered_is_known_by_name(api_key: int, name: str) -> None:
    exchange = Exchange(2, RoundCounter(), {}, lambda *_: None, lambda *_: None)
    asked = exchange.request(wire.request(api_key, 1, b"\0" * 60, client_id="0"), 0)
    answered = exchange.response(wire.frame(struct.pack(">ih", 1, 0)), 1)
    assert asked is not None
    assert answered is not None
    assert matches(rule(api=name), asked.facts())
    assert (answered.api, answered.source, answered.destination) == (name, 2, 0)
    assert answered.message == "response"


def test_what_a_leader_asks_its_controller_is_coordination_and_rules_may_name_it() -> None:
    exchange = Exchange(1, RoundCounter(), {}, lambda *_: None, lambda *_: None)
    kinds = alter_partition_request
    change = kinds.PartitionData(
        partition_index=i32(0), leader_epoch=i32(4), new_isr_with_epochs=(), partition_epoch=i32(7)
    )
    topic = kinds.TopicData(topic_id=UUID(int=9), partitions=(change,))
    entity = kinds.AlterPartitionRequest(broker_id=BrokerId(2), topics=(topic,))
    frame = encode_request(entity, correlation_id=5, client_id="2")
    message = exchange.request(frame, 0)
    assert message is not None
    assert (message.api, message.message, message.source) == ("alter_partition", "request", 2)
    assert message.destination == 1
    assert {(part.topic, part.numbers["leader_epoch"]) for part in message.parts} == {
        (str(UUID(int=9)), 4)
    }
    assert exchange.is_coordination
