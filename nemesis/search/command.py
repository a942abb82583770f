"""The command that finds a schedule again: what was searched, as options of `neaptide explore`.

What a search assumes where nothing is said is not said again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from neaptide.nemesis.search.swarm import FAULTS_OF_A_SWARM
from neaptide.nemesis.search.targets import BAD, BAD_WITH_IDEMPOTENCE

if TYPE_CHECKING:
    from neaptide.nemesis.search.episode import Search

# Clean elections; time for holds before the ISR shrinks; who was refused soon tries again.
SETTINGS: Final[Mapping[str, str]] = {
    "unclean.leader.election.enable": "false",
    "replica.lag.time.max.ms": "10000",
    "replica.fetch.backoff.ms": "100",
}
TOPIC_SETTINGS: Final[Mapping[str, str]] = {"min.insync.replicas": "2"}


def command_of(search: Search, seed: int, by: str = "") -> str:
    """`by`: the options of a search by another way than chance, as `--priorities`."""
    options = [
        *_options(search.asked or search),
        *shlex.split(by),
        "--seed",
        str(seed),
        "--seeds",
        "1",
    ]
    return f"neaptide explore {shlex.join(options)}"


def _options(search: Search) -> Iterator[str]:
    yield from ("--system", f"neaptide:{search.rules.name}", "--acks", search.acks[0])
    if search.swarm:
        yield "--swarm"
    if not search.swarm or search.faults != FAULTS_OF_A_SWARM:
        yield from ("--nemesis", ",".join(search.faults))
    assumed = {**SETTINGS, **TOPIC_SETTINGS}
    for name, value in {**search.settings, **search.topic_settings}.items():
        if assumed.get(name) != value:
            yield from ("--set", f"{name}={value}")
    if search.outcomes not in (BAD, BAD_WITH_IDEMPOTENCE):
        yield from ("--outcome", search.outcomes[0])
    if search.idempotence:
        yield "--idempotence"
    if search.watched:
        yield "--invariants"
