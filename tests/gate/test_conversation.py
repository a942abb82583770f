"""What rules see of messages that are no rounds, and the answers that the gate gives itself."""

from __future__ import annotations

import struct
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.gate import answers, apis, decode
from neaptide.nemesis.gate.conversation import Conversation
from neaptide.nemesis.gate.model import CLIENT, Rule
from neaptide.nemesis.gate.rules import matches
from neaptide.nemesis.gate.said import Message
from tests.gate.conversing import (
    _NO_TIME,
    TOPIC_ID,
    api_versions,
    commit,
    produce,
    response,
    schema_of,
)
from tests.gate.wire import frame

BROKER = 2


def talk() -> Conversation:
    names = {str(TOPIC_ID): "t"}
    return Conversation(CLIENT, BROKER, names, lambda key, version: None)


def taken(message: Message | None, where: str, **fields: Any) -> bool:
    assert message is not None
    facts = replace(message.facts(), purpose="client")
    rule = Rule("r", "hold", message.message, api="any", purpose="client", where=where, **fields)
    return matches(rule, facts)


def test_the_table_of_apis_is_that_of_kafkas_definitions() -> None:
    for name, row in apis.APIS.items():
        package = import_module(f"kio.schema.{name}")
        versions = [int(found.name.removeprefix("v")) for found in iter_modules(package.__path__)]
        assert versions
        for version in versions:
            module = schema_of(name, version, "request")
            kinds = [
                kind
                for kind in vars(module).values()
                if getattr(kind, "__type__", None) is not None and kind.__name__.endswith("Request")
            ]
            assert {(int(kind.__api_key__), kind.__flexible__) for kind in kinds} == {
                (row.key, version >= row.flexible_from)
            }, (name, version)


def test_a_rule_sees_the_producer_of_a_record_batch() -> None:
    seen = talk().request(produce(9, 1), 0)
    assert seen is not None
    assert (seen.api, seen.source, seen.destination) == ("produce", CLIENT, BROKER)
    assert taken(seen, "producer_id == 7 and producer_epoch == 3 and sequence == 5", topic="t")
    assert taken(seen, "transactional_id == tx and client_id == client")
    assert not taken(seen, "producer_epoch == 2")
    assert not taken(seen, "transactional_id == other")
    assert not taken(seen, "", topic="u")


def test_a_rule_sees_who_commits_and_the_answer_belongs_to_it() -> None:
    conversation = talk()
    seen = conversation.request(commit(3), 0)
    assert taken(seen, "group == g and member == m and generation == 4 and offset == 9", topic="t")
    schema = schema_of("offset_commit", 8, "response")
    partition = schema.OffsetCommitResponsePartition(
        partition_index=0, error_code=ErrorCode.illegal_generation
    )
    topic = schema.OffsetCommitResponseTopic(name="t", partitions=(partition,))
    entity = schema.OffsetCommitResponse(throttle_time=_NO_TIME, topics=(topic,))
    answer = conversation.response(response("offset_commit", 8, 3, entity), 0)
    assert taken(answer, "group == g and error == 22")
    assert not taken(answer, "group == h")
    assert conversation.response(response("offset_commit", 8, 3, entity), 0) is None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_kio_has_not_is_read_as_far_as_rules_need_it(version: int) -> None:
    conversation = talk()
    assert taken(conversation.request(produce(version, 1), 0), "acks == -1", topic="t")
    body = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iihq", 1, 0, 6, 41)
    body += struct.pack(">q", -1) if version == 2 else b""
    answer = frame(struct.pack(">i", 1) + body + (struct.pack(">i", 0) if version else b""))
    assert taken(conversation.response(answer, 0), "error == 6 and offset == 41", topic="t")


@pytest.mark.parametrize("version", [0, 1, 2, 3, 7, 9, 12, 13])
def test_a_refused_produce_is_answered_behind_what_was_asked_before(version: int) -> None:
    conversation = talk()
    conversation.request(commit(1), 0)
    seen = conversation.request(produce(version, 2), 0)
    assert seen is not None
    assert seen.wire is not None
    assert conversation.refuse(seen.wire, 19)
    assert conversation.due() == []
    schema = schema_of("offset_commit", 8, "response")
    entity = schema.OffsetCommitResponse(throttle_time=_NO_TIME, topics=())
    conversation.response(response("offset_commit", 8, 1, entity), 0)
    [(answer, message)] = conversation.due()
    assert taken(message, "", topic="t")
    assert conversation.due() == []
    assert decode.correlation_id(answer) == 2
    if version < 3:
        assert decode.old_produce_response(answer, version)["t", 0]["error"] == 19
    else:
        reported = decode.response_entity(answer, 0, version)
        [topic] = reported.responses
        [partition] = topic.partition_responses
        named = topic.topic_id if version >= 13 else topic.name
        assert named == (TOPIC_ID if version >= 13 else "t")
        assert (partition.index, int(partition.error_code)) == (0, 19)


def test_a_produce_that_nobody_answers_holds_up_no_answer() -> None:
    conversation = talk()
    conversation.request(produce(9, 1, acks=0), 0)
    seen = conversation.request(produce(9, 2), 0)
    assert seen is not None
    assert seen.wire is not None
    assert conversation.refuse(seen.wire, 19)
    assert len(conversation.due()) == 1


def test_an_error_takes_the_place_of_what_was_answered() -> None:
    schema = schema_of("produce", 9, "response")
    partition = schema.PartitionProduceResponse(
        index=0, error_code=ErrorCode.none, base_offset=41, record_errors=()
    )
    topic = schema.TopicProduceResponse(name="t", partition_responses=(partition,))
    entity = schema.ProduceResponse(responses=(topic,), throttle_time=_NO_TIME)
    passed = response("produce", 9, 5, entity)
    changed = answers.with_error(passed, 0, 9, [("t", 0)], 7)
    assert changed is not None
    assert decode.correlation_id(changed) == 5
    reported = decode.response_entity(changed, 0, 9)
    assert int(reported.responses[0].partition_responses[0].error_code) == 7
    old = answers.with_error(frame(struct.pack(">i", 5)), 0, 2, [("t", 0)], 7)
    assert old is not None
    assert decode.old_produce_response(old, 2) == {("t", 0): {"error": 7, "offset": -1}}


def test_a_cap_leaves_a_new_client_an_old_version() -> None:
    changed = answers.capped(api_versions(1, 12), 3, 0, 7)
    assert changed is not None
    reported = decode.response_entity(changed, apis.API_VERSIONS, 3)
    assert [(row.api_key, row.min_version, row.max_version) for row in reported.api_keys] == [
        (0, 3, 7),
        (1, 4, 17),
    ]
    gone = answers.capped(api_versions(1, 12), 3, 0, 2)  # below all that there is
    assert gone is not None
    rest = decode.response_entity(gone, apis.API_VERSIONS, 3).api_keys
    assert [row.api_key for row in rest] == [1]
    assert answers.capped(api_versions(1, 7), 3, 0, 7) is None


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"action": "answer", "api": "produce", "error": "SOME"}, "'SOME' is no error of Kafka"),
        (
            {"action": "answer", "message": "request", "api": "heartbeat", "error": "NONE"},
            "only a produce can be answered",
        ),
        ({"action": "cap", "api": "produce", "capped_api": "fetch"}, "caps what is no ApiVersions"),
        ({"where": "group > g"}, "group is a text"),
        ({"where": "generation == g"}, "generation is a number"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(rule: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Rule(**{"id": "r", "action": "hold", "message": "response", **rule})
