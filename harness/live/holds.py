"""Holds that end although no step ends them: when such an end is a missed aim.

A follower that an answer is held for may close the connection: it learned of a later leader
epoch, or its request timed out. What was held is lost then, and the rule stands: asked again, the
answer is held again, and the aim is kept, as in the simulation. It is missed when an answer passes,
because the rule has had its `times`, or its `where` is of a round that is over; or one may have
passed, because the gate left rounds out. Of other messages nobody reports exactly whether one has
passed: there the aim is missed at once. No IO here: events of the gate go in, sentences come out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

Event = Mapping[str, Any]
_ANSWER: Final = ("fetch", "response")  # api and message of what a delivered round is about


class Holds:
    """Of one run. `ever_held`: the rules that have held something."""

    def __init__(self) -> None:
        self.ever_held: set[str] = set()
        self._torn: dict[tuple[str, object, object], Event] = {}
        self._sees_rounds = False

    def see_rounds(self) -> None:
        """The gate reports every round from now on: before, what passes is not known."""
        self._sees_rounds = True

    def let_go(self, rule: str) -> None:
        """A step ends what the rule does."""
        self._torn = {key: event for key, event in self._torn.items() if event["rule"] != rule}

    def died(self, node: int) -> None:
        """A step has ended a node: its connections are over, and what was held on them."""
        self._torn = {key: event for key, event in self._torn.items() if node not in key[1:]}

    def take(self, event: Event, down: Collection[int | str]) -> str | None:
        """Why the aim is missed, if it is. `down`: who is down because a step said so."""
        match event["event"]:
            case "hold_started":
                self.ever_held.add(event["rule"])
                self._torn.pop(_key(event), None)
            case "hold_ended" if event["how"] == "closed":
                if event["source"] in down or event["destination"] in down:
                    return None
                if not self._sees_rounds or not _is_of_round(event):
                    return _missed(event)
                self._torn[_key(event)] = event
            case "round" if event["phase"] == "delivered":
                for key, torn in self._torn.items():
                    if key[1:] == (event["leader"], event["follower"]):
                        del self._torn[key]
                        return _missed(torn)
            case "rounds_not_reported" if self._torn:
                return _missed(self._torn.popitem()[1])
        return None


def _key(hold: Event) -> tuple[str, object, object]:
    return hold["rule"], hold["source"], hold["destination"]


def _is_of_round(hold: Event) -> bool:
    """A consumer's fetch is no round: nobody reports whether the next answer has passed."""
    is_replica = isinstance(hold["destination"], int)
    return is_replica and (hold["api"], hold["message"]) == _ANSWER


def _missed(torn: Event) -> str:
    return f"the hold of {torn['rule']} did not last: {torn['closed_by']} closed the connection"
