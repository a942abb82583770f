"""A verdict: what was counted in a run, and what may be concluded from it.

Plain values; the counting is done by Spark (`neaptide.checkers.count`).

The rule: three verdicts, never two. Whatever a run lacks makes it `unknown`, with the reasons in
sentences; what was proved all the same is listed as found so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from neaptide.checkers.anomalies import ANOMALIES, counting, worst
from neaptide.checkers.material import Material
from neaptide.checkers.replicas import UNPROVEN
from neaptide.results.outcomes import Outcome

VERDICT_FILE: Final = "verdict.json"

Verdict = Literal["valid", "anomalous", "unknown"]

_NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """What Spark counted in one partition; without topic: operations that are about none."""

    topic: str | None
    partition: int | None
    operations: int
    sends: int
    acked: int
    complete: bool  # its final reads are all there is to read
    final_records: int
    backward_operation: int | None = None  # one that completed before it was invoked


@dataclass(frozen=True, slots=True)
class Counts:
    """What Spark counted in one run."""

    anomalies: Mapping[str, int] = field(default_factory=dict)
    partitions: tuple[PartitionCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """What may be said about one run."""

    run: str  # name of its directory
    verdict: Verdict
    outcome: Outcome
    anomalies: Mapping[str, int]  # all that were proved, those that do not count included
    operations: int
    reasons: tuple[str, ...]  # why it is unknown; empty otherwise

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "verdict": self.verdict,
            "outcome": self.outcome,
            "anomalies": dict(self.anomalies),
            "found_so_far": self.verdict == "unknown" and bool(self.anomalies),
            "operations": self.operations,
            "reasons": list(self.reasons),
        }


def judge(material: Material, counts: Counts) -> RunVerdict:
    """Conclude from what was counted."""
    reasons = (*material.reasons, *_doubts(material, counts))
    in_order = _went_back(counts) is None
    proved = {name: n for name, n in sorted(counts.anomalies.items()) if _is_proof(name, in_order)}
    run = material.run
    found = counting(
        proved,
        subscribed=run is not None and run.subscribes,
        at_least_once=run is not None and run.at_least_once,
    )
    verdict: Verdict = "unknown" if reasons else "anomalous" if found else "valid"
    available = any(p.acked for p in counts.partitions) or not any(
        p.sends for p in counts.partitions
    )
    return RunVerdict(
        run=material.name,
        verdict=verdict,
        outcome="unknown" if reasons else worst(found, available=available),
        anomalies=proved,
        operations=sum(p.operations for p in counts.partitions),
        reasons=reasons,
    )


def _is_proof(name: str, in_order: bool) -> bool:
    anomaly = ANOMALIES.get(name)
    return anomaly is not None and not anomaly.doubt and (in_order or not anomaly.by_time)


def _went_back(counts: Counts) -> int | None:
    """The first operation that completed before it was invoked."""
    backward = (p.backward_operation for p in counts.partitions)
    return min((n for n in backward if n is not None), default=None)


def _doubts(material: Material, counts: Counts) -> Iterator[str]:
    if material.whole:
        yield from _unread(material, counts)
    backward = _went_back(counts)
    if backward is not None:
        yield (
            f"The clock went back: operation {backward} completed before it was invoked, "
            "so that no order can be told."
        )
    unplaced = sum(p.sends for p in counts.partitions if p.partition is None)
    if unplaced:
        yield f"{unplaced} sends do not name their partition."
    if "cycles-unsearched" in counts.anomalies:
        yield (
            "More transactions may lie on cycles over write-read edges than are searched: "
            "check a shorter run."
        )
    unproven = counts.anomalies.get(UNPROVEN, 0)
    if unproven:
        run = material.run
        why = run.converged.why if run is not None and run.converged is not None else ""
        yield (
            f"The replicas differ at {unproven} offsets but never were level"
            f"{f' ({why})' if why else ''}, so that a truncation may still have been due."
        )


def _unread(material: Material, counts: Counts) -> Iterator[str]:
    """Acknowledged writes of which final reads prove nothing."""
    where = sorted(
        (p.topic, p.partition, p.acked)
        for p in counts.partitions
        if p.acked and not p.complete and p.topic is not None and p.partition is not None
    )
    for topic, partition, acked in where[:_NAMED_MAX]:
        final_read = material.final_reads.get((topic, partition))
        if final_read is None:
            why = "there were no final reads of it"
        elif not final_read.reached:
            why = "its final reads did not reach the log end"
        else:
            why = "its final reads reached the log end but none was recorded"
        yield f"{acked} acknowledged writes of {topic}-{partition} cannot be judged: {why}."
    if len(where) > _NAMED_MAX:
        yield f"{len(where) - _NAMED_MAX} more partitions cannot be judged for like reasons."
