"""A swarm: every seed draws what it searches, as faults, acks, brokers, partitions, retention.

What is rare where everything is possible is common where little is. Rule: Groce et al., "Swarm
Testing" (2012). What loses by design is not drawn: no power failure takes the last copy, and where
producers want several kinds of acknowledgements those of acks=all alone are promises. After its
steps a seed tries some runs message by message.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from neaptide.nemesis.search.priorities import ByMessages
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.targets import (
    COMMITS,
    FIVE,
    OF_OPERATORS,
    OF_TRANSACTIONS,
    RETENTION,
    RETENTION_CHECK,
)

FAULTS_OF_A_SWARM: Final = (
    *("kill", "hold", "cut", "pause", "wait", "stop", "zombie", "stale", "consume"),
    *("client", "alone", "unplug", "power_off", COMMITS, "control"),
    *OF_OPERATORS,
    *OF_TRANSACTIONS,
)
DRAWN_SETTINGS: Final = ("min.insync.replicas", "zookeeper.session.timeout.ms")
_LIKELY: Final = 0.5
_UNLIKELY: Final = 0.3
_SELDOM: Final = 0.2
_RARE: Final = frozenset({"client", "alone", "unplug", "power_off", COMMITS, "control"})
_NOT_WITH_TRANSACTIONS: Final = frozenset({"power_off", "unplug"})
_NOT_WITH_COMMITS: Final = frozenset({"power_off", "zombie", "stale"})
# A process that starts again obeys what was sent to the one before, up to Kafka 2.1 (KIP-380).
_NOT_WITH_CONTROL: Final = frozenset({"kill", "stop", "power_off", "unplug"})
_MIXED: Final = ("0", "1", "all")
LINGER_MS: Final = 500  # a step later there may be a record of another partition
RUNS_OF_A_SWARM: Final = ByMessages(runs=12, fetches_only=None)


def drawn(search: Search, seed: int) -> Search:
    """What this seed searches; the same for the same seed. Faults are drawn from the search's."""
    rng = Random(f"swarm {seed}")
    faults = tuple(
        one
        for one in search.faults
        if one not in OF_OPERATORS
        and one not in OF_TRANSACTIONS
        and rng.random() < (_UNLIKELY if one in _RARE else _LIKELY)
    )
    if COMMITS in faults:  # nobody looks after the last copy of a commit, nor fences coordinators
        faults = tuple(one for one in faults if one not in _NOT_WITH_COMMITS)
    if "control" in faults and not search.rules.checks_broker_epochs:
        faults = tuple(one for one in faults if one not in _NOT_WITH_CONTROL)
    operators = _operators(search, seed)
    transacts = _transacts(search, seed)
    if transacts:  # nobody looks after the last copy of what a coordinator has decided
        faults = tuple(one for one in faults if one not in _NOT_WITH_TRANSACTIONS)
    names = FIVE if "reassign" in operators and seed % 2 else search.names
    is_promise = search.acks == ("all",)
    idempotence = is_promise and search.rules.idempotence is not None and rng.random() < 0.25
    mixes = is_promise and not idempotence and rng.random() < 0.3
    topic = {**search.topic_settings, "min.insync.replicas": rng.choice(("1", "2"))}
    settings = dict(search.settings)
    settings["zookeeper.session.timeout.ms"] = rng.choice(("2000", "6000"))
    if rng.random() < 0.25:
        topic.update(RETENTION)
        settings.update(RETENTION_CHECK)
    is_five = rng.random() < 0.12
    partitions = rng.choices((1, 2, 3), (5, 3, 1))[0]
    return replace(
        search,
        swarm=False,
        asked=search,
        acks=_MIXED if mixes and not transacts else search.acks,
        faults=(*(faults or ("kill",)), *operators, *transacts),
        settings=settings,
        topic_settings=topic,
        idempotence=idempotence and not transacts,
        names=FIVE if is_five else names,
        partitions=partitions,
        linger_ms=LINGER_MS if partitions > 1 and seed % 2 else 0,
        spares=True,
        messages=RUNS_OF_A_SWARM,
        second_client=True,
    )


def _transacts(search: Search, seed: int) -> tuple[str, ...]:
    """By chance of its own, too."""
    rng = Random(f"transactions {seed}")
    if search.rules.idempotence is None or search.acks != ("all",) or rng.random() >= _UNLIKELY:
        return ()
    return tuple(one for one in OF_TRANSACTIONS if one in search.faults)


def _operators(search: Search, seed: int) -> tuple[str, ...]:
    """By chance of its own: what else a seed draws does not depend on it. Often where they were
    asked for by their names."""
    rng = Random(f"operators {seed}")
    often = _SELDOM if search.faults == FAULTS_OF_A_SWARM else _LIKELY
    return tuple(one for one in OF_OPERATORS if rng.random() < often and one in search.faults)
