"""Chains of steps that name roles in place of brokers, as `cast` gives them in a partition.


    old_leader      who leads the partition
    next_leader     who is elected when that one dies: of the others in the ISR the first assigned
    follower        the last assigned of those in the ISR
    followers       both of these; a step for each
    old_controller  the active controller

Here a `where` may compare with what is observed when the rule is made: `high_watermark >=
HW(follower) + 3`. Nothing here draws or does anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from neaptide.clusters.errors import UsageError
from neaptide.nemesis import steps
from neaptide.nemesis.conditions import (
    Condition,
    Observed,
    parse_condition,
    parse_number,
)
from neaptide.nemesis.steps import Names, ScenarioError
from neaptide.nemesis.steps.document import read_document

OLD_LEADER: Final = "old_leader"
NEXT_LEADER: Final = "next_leader"
FOLLOWER: Final = "follower"
FOLLOWERS: Final = "followers"
OLD_CONTROLLER: Final = "old_controller"
DEFAULT_WITHIN_S: Final = 4.0
_COMMON: Final = ("until", "within", "why")
_COMPARISON: Final = re.compile(r"(.*?)(==|!=|>=|<=|>|<)(.*)")
_ENDS: Final = ("broker", "from", "to")
_RULES: Final = ("hold", "drop", "delay")


@dataclass(frozen=True, slots=True)
class AimedStep:
    """A step whose roles somebody has, and what is waited for after it."""

    step: steps.Step
    until: Condition | None
    within_s: float


# --- roles ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cast:
    """Who has which role. `followers`: in the order of the assignment."""

    roles: Mapping[str, int]
    followers: tuple[int, ...]


def cast(
    leader: int | None, isr: Sequence[int], assigned: Sequence[int], controller: int | None
) -> Cast | None:
    """None: there is no leader, or nobody who follows it."""
    followers = tuple(broker for broker in assigned if broker in isr and broker != leader)
    if leader is None or not followers:
        return None
    roles = {OLD_LEADER: leader, NEXT_LEADER: followers[0], FOLLOWER: followers[-1]}
    if controller is not None:
        roles[OLD_CONTROLLER] = controller
    return Cast(roles, followers)


def read_steps(
    documents: Sequence[Mapping[str, Any]], who: Cast, observed: Observed | None
) -> Iterator[tuple[int, AimedStep]]:
    """The steps one by one, with their numbers from 1; each is read when it is asked for.

    `observed`: what a relative `where` compares with; None: it is only seen that all can be read.
    Raises UsageError.
    """
    names = Names(brokers=dict(who.roles), is_timed=True)
    for number, document in enumerate(documents, start=1):
        for one in _expanded(document, who):
            yield number, _read(one, number, names, observed)


def read_anyhow(documents: Sequence[Mapping[str, Any]]) -> list[AimedStep]:
    """Raises UsageError where a step cannot be read, whoever has the roles."""
    everybody = {OLD_LEADER: 0, NEXT_LEADER: 1, FOLLOWER: 2, OLD_CONTROLLER: 0}
    return [
        replace(read, step=_as_said(read.step, documents[number - 1]))
        for number, read in read_steps(documents, Cast(everybody, (1, 2)), None)
    ]


def _as_said(step: steps.Step, document: Mapping[str, Any]) -> steps.Step:
    """What a rule compares with, in place of what that would be now."""
    if not isinstance(step, steps.MessageRule):
        return step
    return replace(step, where=document[step.verb].get("where", ""))


def is_readable(documents: Sequence[Mapping[str, Any]]) -> bool:
    try:
        read_anyhow(documents)
    except UsageError:
        return False
    return True


def needed(documents: Sequence[Mapping[str, Any]]) -> int:
    """How many in the ISR a chain is about."""
    text = str(documents)
    apart = re.search(rf"\b{NEXT_LEADER}\b", text) and re.search(rf"\b{FOLLOWER}\b", text)
    return 3 if apart else 2


def _expanded(document: Mapping[str, Any], who: Cast) -> list[dict[str, Any]]:
    """For `followers` a step for each; what is waited for comes after the last."""
    verbs = [key for key in document if key not in _COMMON]
    raw = document[verbs[0]] if len(verbs) == 1 else None
    if not isinstance(raw, Mapping) or FOLLOWERS not in [raw.get(end) for end in _ENDS]:
        return [dict(document)]
    all_of_them = {who.roles[role]: role for role in (FOLLOWER, NEXT_LEADER)}
    expanded = [
        {verbs[0]: {key: name if value == FOLLOWERS else value for key, value in raw.items()}}
        for name in reversed(all_of_them.values())
    ]
    expanded[-1] |= {key: document[key] for key in _COMMON if key in document}
    return expanded


def _read(
    document: Mapping[str, Any], number: int, names: Names, observed: Observed | None
) -> AimedStep:
    def complain(message: str) -> ScenarioError:
        return ScenarioError(f"step {number} of a chain: {message}")

    said = {key: _aimed(key, value, number, names, observed) for key, value in document.items()}
    read = read_document(
        said, names, lambda text: parse_condition(text, names.brokers, ()), complain
    )
    within_s = DEFAULT_WITHIN_S if read.within_s is None else read.within_s
    return AimedStep(read.step, read.until, within_s)


def _aimed(verb: str, raw: Any, number: int, names: Names, observed: Observed | None) -> Any:
    """A rule's table with numbers, and a name of its own: the same message may be the matter of
    two steps."""
    if verb not in _RULES or not isinstance(raw, Mapping):
        return raw
    named = {"rule": f"step {number}: {raw.get('from')}→{raw.get('to')}", **raw}
    where = raw.get("where")
    return {**named, "where": _fixed(str(where), names, observed)} if where else named


def _fixed(where: str, names: Names, observed: Observed | None) -> str:
    """Numbers in place of what is observed now."""
    comparisons = []
    for part in re.split(r"\band\b", where):
        found = _COMPARISON.fullmatch(part)
        if found is None:
            raise UsageError(f"cannot read the comparison {part.strip()!r}")
        name, sign, number = (piece.strip() for piece in found.groups())
        ask = parse_number(number, names.brokers)
        value = 0 if observed is None else ask(observed)
        if value is None:
            raise NotKnownError(f"{number} is not known")
        comparisons.append(f"{name} {sign} {value}")
    return " and ".join(comparisons)


class NotKnownError(Exception):
    """What a rule compares with was not observed: the fault cannot be aimed."""
