"""What counts against a run is Jepsen's, where Jepsen has the type; the documents say the same."""

from __future__ import annotations

import pytest

from neaptide.checkers.anomalies import ANOMALIES, counting

# The error types of jepsen.tests.kafka, and those that its allowed-error-types always allows.
JEPSEN_ERRORS = {
    "duplicate", "int-poll-skip", "int-nonmonotonic-poll", "int-nonmonotonic-send",
    "int-send-skip", "inconsistent-offsets", "precommitted-read", "G1a", "lost-write",
    "nonmonotonic-poll", "nonmonotonic-send", "poll-skip", "unseen",
    "G0", "G0-realtime", "G1c", "G1c-realtime",
}  # fmt: skip
JEPSEN_ALLOWS = {"int-send-skip", "G0", "G0-realtime"}
JEPSEN_ALLOWS_WHEN_SUBSCRIBED = {"poll-skip", "nonmonotonic-poll"}


def test_every_type_of_jepsens_is_in_the_register() -> None:
    assert {a.name for a in ANOMALIES.values() if a.jepsen} == JEPSEN_ERRORS


@pytest.mark.parametrize("subscribed", [False, True])
def test_what_counts_is_what_jepsen_does_not_allow(subscribed: bool) -> None:
    allowed = JEPSEN_ALLOWS | (JEPSEN_ALLOWS_WHEN_SUBSCRIBED if subscribed else set())
    counted = {a.name for a in counting(JEPSEN_ERRORS, subscribed=subscribed, by_jepsen=True)}
    assert counted == JEPSEN_ERRORS - allowed


def test_what_makes_a_run_unknown_is_not_counted() -> None:
    assert all(not a.counts for a in ANOMALIES.values() if a.doubt)
