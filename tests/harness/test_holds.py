"""When a hold that its receiver ended is a missed aim, by the events that the gate reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from neaptide.harness.live.holds import Holds

A, B, C = 0, 1, 2
MISSED = "the hold of h did not last: 0 closed the connection"
Event = dict[str, Any]


def _held(name: str = "hold_started", message: str = "response", **more: Any) -> Event:
    ends = (C, A) if message == "response" else (B, A)
    hold = {"rule": "h", "api": "fetch", "message": message}
    return {"event": name, **hold, "source": ends[0], "destination": ends[1]} | more


def _closed(message: str = "response", **more: Any) -> Event:
    return _held("hold_ended", message, how="closed", closed_by=A, **more)


def _round(phase: str, follower: int = A, leader: int = C) -> Event:
    return {"event": "round", "phase": phase, "follower": follower, "leader": leader}


def _missed(events: Iterable[Event], holds: Holds | None = None) -> list[str]:
    watched = holds or Holds()
    watched.see_rounds()
    reported = (watched.take(event, ()) for event in events)
    return [missed for missed in reported if missed is not None]


HELD, CLOSED, HELD_REQUEST = _held(), _closed(), _held(message="request")
LEFT_OUT: Event = {"event": "rounds_not_reported", "count": 3}
ASKED, ANSWERED, DELIVERED = _round("started"), _round("answered"), _round("delivered")


@pytest.mark.parametrize(
    ("events", "is_missed"),
    [
        ([HELD, CLOSED], False),
        ([HELD, CLOSED, ASKED, ANSWERED, HELD], False),
        ([HELD, CLOSED, ASKED, ANSWERED, HELD, DELIVERED], False),
        ([HELD, CLOSED, ASKED, ANSWERED, DELIVERED], True),
        ([HELD, CLOSED, ANSWERED, HELD, CLOSED, DELIVERED], True),
        ([HELD, CLOSED, _round("delivered", A, B), _round("delivered", B, C)], False),
        ([HELD_REQUEST, _closed("request")], True),
        ([HELD, CLOSED, LEFT_OUT], True),
        ([HELD, LEFT_OUT, CLOSED, ANSWERED, HELD, LEFT_OUT], False),
        ([HELD, _held("hold_ended", how="released"), DELIVERED], False),
        ([HELD, _held("hold_ended", how="discarded"), DELIVERED], False),
        ([HELD, _closed(api="offset_for_leader_epoch")], True),
    ],
    ids=[
        "nothing came after it",
        "the next one is held",
        "what passes after that has been let go",
        "the next one passes",
        "the one after the next one passes",
        "others pass",
        "no round would show a request before its answer",
        "nobody knows what has passed",
        "it was held all the while",
        "released by a step",
        "discarded by a step",
        "no round would show epochs",
    ],
)
def test_a_closed_connection_is_a_miss_when_such_a_message_passes(
    events: list[Event], is_missed: bool
) -> None:
    assert _missed(events) == ([MISSED] if is_missed else [])


def test_it_is_a_miss_at_once_where_rounds_are_not_reported() -> None:
    assert Holds().take(CLOSED, ()) == MISSED


@pytest.mark.parametrize("down", [A, C])
def test_it_is_no_miss_where_a_step_has_ended_either_end(down: int) -> None:
    assert Holds().take(CLOSED, {down}) is None
    assert Holds().take(CLOSED, {B}) == MISSED


@pytest.mark.parametrize("ended", [A, C])
def test_it_is_forgotten_when_a_step_ends_either_end(ended: int) -> None:
    holds = Holds()
    assert not _missed([HELD, CLOSED], holds)
    holds.died(B)
    holds.died(ended)
    assert not _missed([DELIVERED], holds)


def test_it_is_forgotten_when_a_step_ends_the_rule() -> None:
    holds = Holds()
    assert not _missed([HELD, CLOSED], holds)
    holds.let_go("another")
    holds.let_go("h")
    assert not _missed([DELIVERED], holds)


def test_another_node_and_another_rule_end_nothing() -> None:
    holds = Holds()
    assert not _missed([HELD, CLOSED], holds)
    holds.died(B)
    holds.let_go("another")
    assert _missed([DELIVERED, DELIVERED], holds) == [MISSED]


def test_what_has_held_something_is_known() -> None:
    holds = Holds()
    _missed([CLOSED], holds)
    assert holds.ever_held == set()
    _missed([HELD], holds)
    assert holds.ever_held == {"h"}


def test_a_client_that_was_not_killed_must_not_end_a_hold() -> None:
    """Nobody reports rounds there: the first end that no step has made is a missed aim."""
    ends: dict[str, Any] = {"source": A, "destination": "client"}
    held = [_held(**ends), _closed(**ends)]
    assert _missed(held) == [MISSED]
    watched = Holds()
    watched.see_rounds()
    assert [watched.take(event, {"client"}) for event in held] == [None, None]
