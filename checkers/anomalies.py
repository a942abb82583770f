"""The register of anomalies: name, meaning, whether it counts, and the outcome that it proves.

Names and rules follow Jepsen's Kafka workload where it has them. Not here: how each is found.

The rule of the outcome: the worst word among the anomalies that count. Where some count and none
has a word, the run broke a promise that no word names, and the outcome is `unknown`: never `held`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Outcome = Literal[
    "diverged", "lost", "duplicated", "reordered", "skipped", "unavailable", "held", "unknown"
]

WORST_FIRST: Final[tuple[Outcome, ...]] = (
    "diverged",
    "lost",
    "duplicated",
    "reordered",
    "skipped",
    "unavailable",
    "held",
)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One kind of anomaly."""

    name: str
    meaning: str
    outcome: Outcome | None
    counts: bool = True
    counts_when_subscribed: bool = True
    # Where the producer is not idempotent, it may send a record again that was appended already.
    counts_at_least_once: bool = True


_ALL: Final = (
    Anomaly(
        "replica-divergence",
        "One offset holds different records on two replicas that called themselves level.",
        "diverged",
    ),
    Anomaly(
        "lost-write",
        "An acknowledged record, at or below the highest offset read, is in no final read.",
        "lost",
    ),
    Anomaly(
        "unseen",
        "An acknowledged record above the highest offset read was read by nobody, "
        "although the final reads reached the log end.",
        "lost",
    ),
    Anomaly(
        "committed-then-lost",
        "A consumer had read a record at an offset where the final reads do not find it.",
        "lost",
    ),
    Anomaly(
        "inconsistent-offsets",
        "One offset was acknowledged or read with two different records.",
        "lost",
    ),
    Anomaly(
        "duplicate",
        "One record that was sent once is at two offsets.",
        "duplicated",
        counts_at_least_once=False,
    ),
    Anomaly(
        "nonmonotonic-poll",
        "A consumer's next poll began at or before the offset where its last one ended.",
        "duplicated",
        counts_when_subscribed=False,
    ),
    Anomaly(
        "reordered",
        "Two acknowledged sends of one process are in the log in the reverse of their order.",
        "reordered",
    ),
    Anomaly(
        "int-nonmonotonic-poll",
        "Inside one poll the offsets go back or repeat.",
        "reordered",
    ),
    Anomaly(
        "poll-skip",
        "A consumer's next poll skipped a record that is known to be in the log.",
        "skipped",
        counts_when_subscribed=False,
    ),
    Anomaly(
        "int-poll-skip",
        "Inside one poll a record that is known to be in the log was skipped.",
        "skipped",
    ),
    Anomaly(
        "G1a",
        "Aborted read: a record was read whose send had surely failed.",
        None,
    ),
    Anomaly(
        "phantom",
        "A record was read that nobody had sent.",
        None,
    ),
    Anomaly(
        "high-watermark-regression",
        "Within one leader epoch a leader told a follower a lower high watermark than before.",
        None,
    ),
    Anomaly(
        # KIP-101 and KIP-207: a new leader begins with the high watermark that it knew as a
        # follower, which is behind, and catches up once its own followers fetch. So it is normal.
        "high-watermark-regression-at-election",
        "A new leader's first high watermark is below one that an earlier leader had told.",
        None,
        counts=False,
    ),
    Anomaly(
        "unproven-difference",
        "Two replicas differ above the high watermark and were never level: no proof of anything, "
        "but the run cannot conclude.",
        None,
        counts=False,
    ),
)

ANOMALIES: Final[Mapping[str, Anomaly]] = {anomaly.name: anomaly for anomaly in _ALL}


def counting(
    names: Iterable[str], *, subscribed: bool = False, at_least_once: bool = False
) -> list[Anomaly]:
    """Those of the anomalies found that count against the run, given what its clients asked for."""
    found = [ANOMALIES[name] for name in names]
    return [
        anomaly
        for anomaly in found
        if anomaly.counts
        and (anomaly.counts_when_subscribed or not subscribed)
        and (anomaly.counts_at_least_once or not at_least_once)
    ]


def worst(found: Iterable[Anomaly], *, available: bool) -> Outcome:
    """The outcome that the anomalies of a conclusive run prove."""
    found = list(found)
    words = {anomaly.outcome for anomaly in found}
    for outcome in WORST_FIRST:
        if outcome in words:
            return outcome
    if found:
        return "unknown"
    return "held" if available else "unavailable"
