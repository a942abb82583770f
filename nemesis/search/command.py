"""The command that finds a schedule again: what was searched, as options of `neaptide explore`.

What a search assumes where nothing is said is not said again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from neaptide.nemesis.search.priorities import ByMessages
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.swarm import FAULTS_OF_A_SWARM
from neaptide.nemesis.search.targets import (
    BAD,
    BAD_WITH_IDEMPOTENCE,
    NAMES,
    RETENTION,
    RETENTION_CHECK,
)

# Clean elections; time for holds before the ISR shrinks; who was refused soon tries again.
SETTINGS: Final[Mapping[str, str]] = {
    "unclean.leader.election.enable": "false",
    "replica.lag.time.max.ms": "10000",
    "replica.fetch.backoff.ms": "100",
}
TOPIC_SETTINGS: Final[Mapping[str, str]] = {"min.insync.replicas": "2"}


def command_of(search: Search, seed: int) -> str:
    asked = search.asked or search
    mode = ["swarm"] if asked.swarm else [] if asked.messages is None else ["priorities"]
    words = [*mode, *_options(asked), "--seed", str(seed), "--seeds", "1"]
    return f"neaptide explore {shlex.join(words)}"


def _options(search: Search) -> Iterator[str]:
    yield from ("--system", f"neaptide:{search.rules.name}", "--acks", ",".join(search.acks))
    if search.messages is not None:
        yield from _by_messages(search.messages)
    if not search.swarm or search.faults != FAULTS_OF_A_SWARM:
        yield from ("--nemesis", ",".join(search.faults))
    if len(search.names) != len(NAMES):
        yield from ("--brokers", str(len(search.names)))
    if search.partitions != 1:
        yield from ("--partitions", str(search.partitions))
    assumed = {**SETTINGS, **TOPIC_SETTINGS}
    if search.topic_settings.items() >= RETENTION.items():
        assumed |= {**RETENTION, **RETENTION_CHECK}
        yield "--retention"
    for name, value in {**search.settings, **search.topic_settings}.items():
        if assumed.get(name) != value:
            yield from ("--set", f"{name}={value}")
    if search.outcomes not in (BAD, BAD_WITH_IDEMPOTENCE):
        yield from ("--outcome", search.outcomes[0])
    if search.idempotence:
        yield "--idempotence"
    if search.watched:
        yield "--invariants"


def _by_messages(wanted: ByMessages) -> Iterator[str]:
    if wanted.fetches_only:
        yield "--fetches-only"
    bounds = {} if wanted.bounds is None else wanted.bounds._asdict()
    for name, count in bounds.items():
        yield from (f"--{name}", str(count))
