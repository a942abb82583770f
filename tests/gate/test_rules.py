"""Which rule takes a message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.gate.model import Rule
from neaptide.nemesis.gate.rules import (
    NO_PARTITION,
    MessageFacts,
    PartitionFacts,
    RuleBook,
    matches,
)

_RESPONSE = MessageFacts(
    api="fetch",
    message="response",
    source=3,
    destination=1,
    partitions=(
        PartitionFacts("t", 0, {"round": 7, "high_watermark": 2}),
        PartitionFacts("u", 1, {"round": 2, "high_watermark": 9}),
    ),
)
_ANY = Rule("r", "hold", "response")


@pytest.mark.parametrize(
    "field",
    [
        {},
        {"source": 3, "destination": 1},
        {"topic": "u"},
        {"partition": 1},
        {"topic": "t", "where": "round == 7"},
        {"where": "high_watermark >= 9"},
        {"api": "any"},
    ],
)
def test_a_rule_takes_what_it_names(field: dict[str, Any]) -> None:
    assert matches(replace(_ANY, **field), _RESPONSE)


@pytest.mark.parametrize(
    "field",
    [
        {"message": "request"},
        {"source": 1, "destination": 3},  # the way a request would travel
        {"topic": "v"},
        {"topic": "t", "partition": 1},  # no partition is both
        {"topic": "t", "where": "high_watermark >= 9"},
        {"api": "offset_for_leader_epoch"},
    ],
)
def test_a_rule_leaves_what_it_does_not_name(field: dict[str, Any]) -> None:
    assert not matches(replace(_ANY, **field), _RESPONSE)


_END_TXN = MessageFacts(
    api="end_txn",
    message="request",
    source="client",
    destination=1,
    partitions=(PartitionFacts(*NO_PARTITION, {"transactional_id": "tx"}),),
    purpose="client",
)


@pytest.mark.parametrize(
    ("field", "is_taken"),
    [
        ({"topic": "t", "partition": 0}, True),  # as every rule of a scenario names them
        ({"where": "transactional_id == tx"}, True),
        ({"where": "transactional_id == other"}, False),
        ({"where": "fetch_offset >= 0"}, False),
        ({"api": "heartbeat"}, False),
        ({"api": "any", "topic": "t", "partition": 0}, False),
    ],
)
def test_a_message_about_no_partition_is_taken_by_a_rule_that_names_its_api(
    field: dict[str, Any], is_taken: bool
) -> None:
    rule = Rule("r", "hold", "request", api="end_txn", purpose="client")
    assert matches(replace(rule, **field), _END_TXN) == is_taken


def test_an_unknown_source_matches_no_rule_that_names_one() -> None:
    unknown = replace(_RESPONSE, source=None)
    assert matches(_ANY, unknown)
    assert not matches(replace(_ANY, source=3), unknown)


def test_the_first_rule_that_matches_wins_until_it_is_spent() -> None:
    first = replace(_ANY, id="first", times=2)
    second = replace(_ANY, id="second", action="drop")
    book = RuleBook().install(first).install(second)
    taken = []
    for _ in range(4):
        book, rule = book.judge(_RESPONSE)
        taken.append(None if rule is None else rule.id)
    assert taken == ["first", "first", "second", "second"]
    assert [entry.taken for entry in book.installed] == [2, 2]


def test_a_removed_rule_takes_nothing_and_what_no_rule_takes_passes() -> None:
    book = RuleBook().install(_ANY).remove("r").install(replace(_ANY, message="request"))
    assert book.judge(_RESPONSE) == (book, None)


def test_two_rules_cannot_share_an_id() -> None:
    with pytest.raises(UsageError, match="there is a rule 'r' already"):
        RuleBook().install(_ANY).install(_ANY)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"action": "eat"}, "'eat' is no action: must be one of hold, drop, delay"),
        ({"message": "reply"}, "'reply' is no message"),
        ({"api": "shout"}, "'shout' is no api"),
        ({"action": "delay"}, "give delay_ms >= 1"),
        ({"times": 0}, "give times >= 1"),
        ({"where": "hw > 1"}, "no 'hw'"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(field: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(_ANY, **field)


def test_a_rule_from_json_with_a_wrong_or_missing_field_is_refused() -> None:
    with pytest.raises(UsageError, match="'form' is no field of a rule: must be one of id,"):
        Rule.from_dict({"id": "r", "action": "hold", "message": "request", "form": 1})
    with pytest.raises(UsageError, match="a rule is not complete"):
        Rule.from_dict({"id": "r"})
