"""Draws faults that are aimed at fetch rounds. Pure: chance comes in as a generator.

The shapes are those by which replicated logs have lost records, each with much left open: on which
condition it begins, how long it waits, what is held, whether who dies is killed, paused or cut off.
`chain` has no shape: one to three rules and what is done when each has hit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from neaptide.nemesis.roles import (
    FOLLOWER,
    FOLLOWERS,
    NEXT_LEADER,
    OLD_CONTROLLER,
    OLD_LEADER,
)

Step = dict[str, Any]
_ROUNDS: Final = (1, 25)
_RECORDS: Final = (1, 200)
_DELAY_MS: Final = (50, 800)


def _begin(rng: random.Random, who: str) -> Step:
    """A condition on which it begins: so many rounds, or records, from now."""
    least, most = _ROUNDS
    what, count = rng.choice(
        (
            (f"round({who})", rng.randint(least, most)),
            (f"HW({who})", rng.randint(*_RECORDS)),
            (f"LEO({who})", rng.randint(*_RECORDS)),
        )
    )
    return {"until": f"{what} >= was({what}) + {count}"}


def _gone(rng: random.Random, who: str, until: str, power_off: bool) -> Step:
    """Somebody leaves the cluster, mostly by dying; then there is another leader."""
    how = rng.choices(("kill", "pause", "cut"), (8, 1, 1))[0]
    if how == "kill":
        if power_off and rng.random() < 0.4:
            return {"power_off": {"broker": who}, "until": until}
        return {"kill": {"broker": who, "in_flight": _in_flight(rng)}, "until": until}
    if how == "pause":
        return {"pause": {"broker": who}, "until": until, "within": 8}
    cut = {"from": who, "to": "coordination", "purpose": "coordination", "both": True}
    return {"cut": cut, "until": until, "within": 8}


def _in_flight(rng: random.Random) -> str:
    return rng.choices(("discarded", "delivered"), (5, 1))[0]


def _stale_high_watermark(rng: random.Random, power_off: bool) -> list[Step]:
    """KIP-101, scenario 1: a follower does not get to know what is committed, and two leaders die
    before it does."""
    beyond = rng.randint(0, 50)
    return [
        _begin(rng, FOLLOWER),
        {
            "hold": {
                "response": "fetch",
                "from": OLD_LEADER,
                "to": FOLLOWER,
                "where": f"high_watermark > HW({FOLLOWER}) + {beyond}",
            },
            "until": f"held({OLD_LEADER}, {FOLLOWER})",
        },
        {"until": f"HW({NEXT_LEADER}) > HW({FOLLOWER})"},
        {
            "hold": {
                "request": rng.choices(("fetch", "any"), (5, 1))[0],
                "from": FOLLOWER,
                "to": NEXT_LEADER,
            }
        },
        _gone(
            rng,
            OLD_LEADER,
            f"leader is {NEXT_LEADER} and held({FOLLOWER}, {NEXT_LEADER})",
            power_off,
        ),
        _gone(rng, NEXT_LEADER, f"leader is {FOLLOWER}", power_off),
    ]


def _skipped_epoch(rng: random.Random, power_off: bool) -> list[Step]:
    """KIP-279: the leader changes twice before a follower asks where its epoch ends."""
    return [
        _begin(rng, NEXT_LEADER),
        {
            "hold": {
                "response": "fetch",
                "from": OLD_LEADER,
                "to": NEXT_LEADER,
                "where": "records_bytes > 0",
            },
            "until": f"held({OLD_LEADER}, {NEXT_LEADER})",
        },
        {"until": f"LEO({FOLLOWER}) > LEO({NEXT_LEADER})"},
        {"hold": {"request": "any", "from": FOLLOWER, "to": NEXT_LEADER}},
        _gone(
            rng,
            OLD_LEADER,
            f"leader is {NEXT_LEADER} and held({FOLLOWER}, {NEXT_LEADER})",
            power_off,
        ),
        _gone(rng, NEXT_LEADER, f"leader is {FOLLOWER}", power_off),
    ]


def _old_leader_lives(rng: random.Random, power_off: bool) -> list[Step]:
    """A zombie: the leader does not learn that it is none any more."""
    cut = {"from": OLD_LEADER, "to": "coordination", "purpose": "coordination", "both": True}
    others = {"request": "any", "from": FOLLOWERS, "to": OLD_LEADER}
    steps: list[Step] = [_begin(rng, FOLLOWER)]
    if rng.random() < 0.5:
        steps.append({rng.choice(("hold", "drop")): others})
    steps += [
        {"cut": cut, "until": f"leader is not {OLD_LEADER}", "within": 8},
        {"until": f"round({FOLLOWER}) >= was(round({FOLLOWER})) + {rng.randint(1, 20)}"},
        {"heal": {"from": OLD_LEADER, "to": "coordination"}},
    ]
    return steps


def _late_follower(rng: random.Random, power_off: bool) -> list[Step]:
    """A follower is held until the ISR is without it, is let go, and the leader goes."""
    rule = "late"
    return [
        _begin(rng, FOLLOWER),
        {
            "hold": {"request": "fetch", "from": FOLLOWER, "to": OLD_LEADER, "rule": rule},
            "until": f"{FOLLOWER} not in isr",
            "within": 15,
        },
        {rng.choice(("release", "discard")): {"rule": rule}},
        *([_begin(rng, FOLLOWER)] if rng.random() < 0.5 else []),
        _gone(rng, OLD_LEADER, f"leader is not {OLD_LEADER}", power_off),
    ]


def _lost_epoch_answer(rng: random.Random, power_off: bool) -> list[Step]:
    """The leader goes, and a follower does not learn from the next one where its epoch ends."""
    api = rng.choice(("offset_for_leader_epoch", "any"))
    kind = rng.choice(("request", "response"))
    ends = (FOLLOWER, NEXT_LEADER) if kind == "request" else (NEXT_LEADER, FOLLOWER)
    rule = "epoch"
    held = {kind: api, "from": ends[0], "to": ends[1], "rule": rule}
    return [
        _begin(rng, FOLLOWER),
        {"hold": held},
        _gone(
            rng,
            OLD_LEADER,
            f"leader is {NEXT_LEADER} and held({ends[0]}, {ends[1]})",
            power_off,
        ),
        rng.choice(
            (
                {"release": {"rule": rule}},
                {"discard": {"rule": rule}},
                _gone(rng, NEXT_LEADER, f"leader is {FOLLOWER}", power_off),
            )
        ),
    ]


def _chain(rng: random.Random, power_off: bool) -> list[Step]:
    steps: list[Step] = []
    for number in range(rng.randint(1, 3)):
        rule = f"rule {number + 1}"
        steps += [_begin(rng, rng.choice((NEXT_LEADER, FOLLOWER))), _aimed(rng, rule)]
        steps += _done(rng, rule, power_off)
    return steps


def _aimed(rng: random.Random, rule: str) -> Step:
    """One rule: who, what, and until it has hit."""
    verb = rng.choices(("hold", "drop", "delay"), (3, 1, 1))[0]
    kind = rng.choice(("request", "response"))
    api = rng.choices(("fetch", "any"), (4, 1))[0]
    who = rng.choice((NEXT_LEADER, FOLLOWER, FOLLOWERS))
    ends = (who, OLD_LEADER) if kind == "request" else (OLD_LEADER, who)
    message: Step = {kind: api, "from": ends[0], "to": ends[1]}
    if who != FOLLOWERS:
        message["rule"] = rule
        if kind == "response" and rng.random() < 0.5:
            message["where"] = f"high_watermark > HW({who}) + {rng.randint(0, 50)}"
        if verb == "hold":
            return {verb: message, "until": f"held({ends[0]}, {ends[1]})"}
    if verb == "delay":
        message["delay_ms"] = rng.randint(*_DELAY_MS)
    if verb == "drop" and who != FOLLOWERS:
        message["times"] = rng.randint(1, 3)
    return {verb: message}


def _done(rng: random.Random, rule: str, power_off: bool) -> list[Step]:
    """What is done when a rule has hit, if anything."""
    how = rng.choices(("gone", "elect", "controller", "nothing"), (4, 1, 1, 1))[0]
    if how == "elect":
        return [{"elect": {}}]
    if how == "nothing":
        return []
    if how == "controller":
        return [_gone(rng, OLD_CONTROLLER, f"controller is not {OLD_CONTROLLER}", power_off=False)]
    who = rng.choice((OLD_LEADER, NEXT_LEADER))
    until = f"leader is not {OLD_LEADER}" if who == OLD_LEADER else f"{who} not in isr"
    return [_gone(rng, who, until, power_off)]


# Weights, before a seed changes them: the first has lost most records in the field.
SHAPES: Final[Mapping[str, tuple[float, Callable[[random.Random, bool], list[Step]]]]] = {
    "stale-high-watermark": (5, _stale_high_watermark),
    "skipped-epoch": (1, _skipped_epoch),
    "old-leader-lives": (1, _old_leader_lives),
    "late-follower": (0.7, _late_follower),
    "lost-epoch-answer": (1, _lost_epoch_answer),
    "chain": (1.5, _chain),
}
_OUTLASTS_LAG: Final = ("late-follower",)


def draw_weights(rng: random.Random) -> dict[str, float]:
    """Swarm: how likely each shape is in one run; no seed is like another."""
    return {name: weight * rng.uniform(0.3, 1.0) for name, (weight, _) in SHAPES.items()}


def draw_chain(
    rng: random.Random, partitions: int, weights: Mapping[str, float], *, power_off: bool
) -> tuple[Step, ...]:
    """`power_off`: some of those who die lose what they had not flushed."""
    [shape] = rng.choices(list(weights), list(weights.values()))
    steps = SHAPES[shape][1](rng, power_off)
    cast: Step = {"partition": rng.randrange(partitions)}
    if shape in _OUTLASTS_LAG:
        cast["outlasts_lag"] = True
    return ({"cast": cast, "why": shape}, *steps)
