"""Faults that are aimed at fetch rounds: a chain of steps of the scenario language, with roles.

An *episode* is data: the steps are those of a scenario file, and where a scenario names a broker an
episode names a *role*, which somebody has in one partition when the episode begins:

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
from dataclasses import dataclass
from typing import Any, Final, Literal

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
class Episode:
    """`outlasts_lag`: what it holds may be held for longer than `replica.lag.time.max.ms`."""

    shape: str
    partition: int
    steps: tuple[Mapping[str, Any], ...]
    outlasts_lag: bool = False
    kind: Literal["rounds"] = "rounds"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "shape": self.shape,
            "partition": self.partition,
            "outlasts_lag": self.outlasts_lag,
            "steps": [dict(step) for step in self.steps],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Episode:
        """Raises UsageError for steps that cannot be read."""
        episode = cls(
            str(raw.get("shape", "saved")),
            int(raw["partition"]),
            tuple(dict(step) for step in raw["steps"]),
            bool(raw.get("outlasts_lag", False)),
        )
        check_episode(episode)
        return episode

    @property
    def needs(self) -> int:
        """How many in the ISR it is about."""
        text = str(self.steps)
        apart = re.search(rf"\b{NEXT_LEADER}\b", text) and re.search(rf"\b{FOLLOWER}\b", text)
        return 3 if apart else 2


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
    episode: Episode, who: Cast, observed: Observed | None
) -> Iterator[tuple[int, AimedStep]]:
    """The steps one by one, with their numbers from 1; each is read when it is asked for.

    `observed`: what a relative `where` compares with; None: it is only seen that all can be read.
    Raises UsageError.
    """
    names = Names(brokers=dict(who.roles))
    for number, document in enumerate(episode.steps, start=1):
        for one in _expanded(document, who):
            yield number, _read(one, number, names, observed)


def check_episode(episode: Episode) -> None:
    """Raises UsageError where a step cannot be read, whoever has the roles."""
    everybody = {OLD_LEADER: 0, NEXT_LEADER: 1, FOLLOWER: 2, OLD_CONTROLLER: 0}
    for _ in read_steps(episode, Cast(everybody, (1, 2)), None):
        pass


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
        return ScenarioError(f"step {number} of an aimed fault: {message}")

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
