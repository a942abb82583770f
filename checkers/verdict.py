"""A verdict: what was counted in a run, and what may be concluded from it.

Plain values; the counting is done by Spark (`neaptide.checkers.count`), what had to hold is in
`neaptide.checkers.proofs`.

The rule: three verdicts, never two. Whatever a run lacks makes it `unknown`, with the reasons in
sentences, unless an anomaly is proved that nothing of what is missing could take back. What was
found in an unknown run is listed as found so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from neaptide.checkers.anomalies import ANOMALIES, Anomaly, counting, worst
from neaptide.checkers.material import Material
from neaptide.checkers.proofs import Counts, Seen, not_looked_at, proved, went_back
from neaptide.results.outcomes import RULES_VERSION, Outcome

Verdict = Literal["valid", "anomalous", "unknown"]
EngineName = Literal["duckdb", "spark"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a check was asked for."""

    engine: EngineName | None = None  # null: by the sizes of partitions and the cores at hand
    thorough: bool = False
    min_acked: int | None = None  # null: what the run says, or 1


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """What may be said about one run."""

    run: str  # name of its directory
    verdict: Verdict
    outcome: Outcome
    anomalies: Mapping[str, int]  # that were proved, and count against the run
    operations: int
    reasons: tuple[str, ...]  # what could not be proved
    proofs: Mapping[str, bool | None]
    acknowledged: int = 0
    rows: Mapping[str, int] | None = None  # read, by table
    options: Options = Options()
    # Found, too, but normal in Kafka, or what the clients of this run have asked for.
    allowed: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "verdict": self.verdict,
            "outcome": self.outcome,
            "anomalies": dict(self.anomalies),
            "allowed": dict(self.allowed),
            "found_so_far": self.verdict == "unknown" and bool(self.anomalies),
            "operations": self.operations,
            "acknowledged": self.acknowledged,
            "proofs": dict(self.proofs),
            "reasons": list(self.reasons),
            "rows": dict(self.rows or {}),
            "made_by": {
                "rules": RULES_VERSION,
                "thorough": self.options.thorough,
                "min_acked": self.options.min_acked,
            },
        }


def judge(material: Material, counts: Counts, options: Options) -> RunVerdict:
    """Conclude from what was counted."""
    run = material.run
    least = options.min_acked
    if least is None:
        least = run.min_acked if run is not None else 1
    what = proved(Seen(material, counts, least))
    found, anomalies, allowed = _proved_anomalies(material, counts)
    available = counts.acked > 0 or counts.sends == 0
    verdict: Verdict = "valid"
    if found and not what.blocked:
        verdict = "anomalous"
    elif what.reasons:
        verdict = "unknown"
    outcome = worst(found, available=available) if verdict != "unknown" else "unknown"
    if verdict == "unknown" and not available and what.lacking == {"enough-acknowledged"}:
        outcome = "unavailable"  # of a loss nothing is known, of the service this is
    return RunVerdict(
        run=material.name,
        verdict=verdict,
        outcome=outcome,
        anomalies=anomalies,
        operations=sum(p.operations for p in counts.partitions),
        reasons=what.reasons,
        proofs=what.held,
        acknowledged=counts.acked,
        rows=material.rows_by_table,
        options=options,
        allowed=allowed,
    )


def unchecked(material: Material, counts: Counts, options: Options, reason: str) -> RunVerdict:
    """Of a run that was not read to its end, with what was proved before; nothing else is said."""
    _, anomalies, allowed = _proved_anomalies(material, counts)
    return RunVerdict(
        run=material.name,
        verdict="unknown",
        outcome="unknown",
        anomalies=anomalies,
        allowed=allowed,
        operations=sum(p.operations for p in counts.partitions),
        reasons=(reason,),
        proofs=not_looked_at(),
        rows=material.rows_by_table,
        options=options,
    )


def _proved_anomalies(
    material: Material, counts: Counts
) -> tuple[list[Anomaly], dict[str, int], dict[str, int]]:
    """Those that count in this run, and how many of each there are; then the others.

    Not what leaves a doubt, nor, where the clock went back, what rests on the order of time.
    """
    run = material.run
    in_order = went_back(counts) is None
    proved = {
        name: number
        for name, number in sorted(counts.anomalies.items())
        if (anomaly := ANOMALIES.get(name)) is not None
        and not anomaly.doubt
        and (in_order or not anomaly.by_time)
    }
    found = counting(
        proved,
        subscribed=run is not None and run.subscribes,
        at_least_once=run is not None and run.at_least_once,
        by_jepsen=material.by_jepsen,
    )
    names = {anomaly.name for anomaly in found}
    counted = {name: number for name, number in proved.items() if name in names}
    return found, counted, {name: number for name, number in proved.items() if name not in names}
