"""Predictions beyond the outcome: what did not come true is said, with what was seen instead."""

from __future__ import annotations

from neaptide.harness.scenarios.predictions import confirmed_sights, unseen_sights
from neaptide.nemesis.scenario import parse_scenario
from tests.nemesis.seen import Seen

SCENARIO = parse_scenario(
    "mine",
    """
title = "a title"
[cluster]
brokers = ["A", "B"]
topics.t = { assignment = [["A", "B"]] }
[[step]]
until = "level"
[expect.seen]
"isr_changes >= 5" = ["kafka:0.8"]
"isr_changes is 4" = ["kafka:0.9+"]
""",
    "mine.toml",
)


def test_what_was_predicted_for_this_system_and_is_not_so_is_named() -> None:
    assert unseen_sights(SCENARIO, "kafka:0.8.2.2", Seen()) == (
        "predicted isr_changes >= 5, seen 4",
    )


def test_what_is_so_or_was_predicted_for_others_is_not() -> None:
    assert unseen_sights(SCENARIO, "kafka:3.9.1", Seen()) == ()
    assert unseen_sights(SCENARIO, "neaptide:0.8", Seen()) == ()


def test_what_came_true_is_named_too() -> None:
    assert confirmed_sights(SCENARIO, "kafka:3.9.1", Seen()) == ("isr_changes is 4",)
    assert confirmed_sights(SCENARIO, "kafka:0.8.2.2", Seen()) == ()
    assert confirmed_sights(SCENARIO, "neaptide:0.8", Seen()) == ()
