"""The register of anomalies: name, meaning, whether it counts, and the outcome that it proves.

Names, and what counts, are those of Jepsen's Kafka workload where it has them (`jepsen=True`:
`jepsen.tests.kafka` reports this type; which it allows is its `allowed-error-types`). Not here: how
each is found.

The rule of the outcome: the worst word among the anomalies that count. Where some count and none
has a word, the run broke a promise that no word names: the outcome is `anomalous`, never `held`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from neaptide.checkers.rules.conditions import RULES
from neaptide.results.outcomes import ANOMALOUS, WORST_FIRST, Outcome


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One kind of anomaly."""

    name: str
    meaning: str
    outcome: Outcome | None
    counts: bool = True
    counts_when_subscribed: bool = True
    # Where the producer is not idempotent, it may send a record again that was appended already, or
    # only after the one behind it.
    counts_at_least_once: bool = True
    counts_by_jepsen: bool = True  # also of histories that Jepsen recorded, which may allow it
    jepsen: bool = False  # an error type of Jepsen's Kafka workload
    doubt: bool = False  # where it is found, the run cannot conclude
    # What some rows of a run show, all of them show: `check --follow` reports it.
    early: bool = False
    by_time: bool = False  # it rests on the order of what one clock or several showed


def _cycles(
    name: str, meaning: str, *, counts: bool = True, jepsen: bool = False, realtime: bool = False
) -> tuple[Anomaly, ...]:
    """One kind of cycle: without order, and with that of real time, of which the order of each
    process is a part."""
    plain = Anomaly(name, f"{meaning}.", None, counts=counts, jepsen=jepsen)
    in_time = Anomaly(
        f"{name}-realtime",
        f"{meaning}, and the order of real time.",
        None,
        counts=counts,
        jepsen=jepsen,
        by_time=True,
    )
    return (plain, in_time) if realtime else (plain,)


_ALL: Final = (
    Anomaly(
        "replica-divergence",
        "Two replicas that were level have different records at one offset.",
        "diverged",
    ),
    Anomaly(
        "replica-hole",
        "A replica that was level lacks a record that another one has, or all end before one that"
        " was read, or begin above 0 although nothing deletes, or none has anything at an offset.",
        "diverged",
    ),
    Anomaly(
        "log-mismatch",
        "The final reads found a record, and the logs of the replicas, which were level, have"
        " another one at its offset, a control record, or nothing.",
        "diverged",
    ),
    Anomaly(
        "lost-write",
        "An acknowledged record, at or below the highest offset read, is in no final read.",
        "lost",
        jepsen=True,
    ),
    Anomaly(
        "unseen",
        "No read found an acknowledged record above the highest offset read, although the final "
        "reads reached the log end.",
        "lost",
        jepsen=True,
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
        jepsen=True,
        early=True,
    ),
    Anomaly(
        "moved",
        "A record was acknowledged at one offset, and read only at another (Jepsen: duplicate).",
        "reordered",
    ),
    Anomaly(
        "duplicate",
        "A record that was sent once is at two offsets.",
        "duplicated",
        counts_at_least_once=False,
        jepsen=True,
        early=True,
    ),
    Anomaly(
        "nonmonotonic-poll",
        "A consumer's next poll began at or before the offset where its last one ended.",
        "duplicated",
        counts_when_subscribed=False,
        jepsen=True,
        by_time=True,
        early=True,
    ),
    Anomaly(
        "reordered",
        "Two acknowledged sends of one process are in the log in the reverse of their order.",
        "reordered",
        counts_at_least_once=False,
        by_time=True,
    ),
    Anomaly(
        "int-nonmonotonic-poll",
        "Inside one poll the offsets go back or repeat.",
        "reordered",
        jepsen=True,
        early=True,
    ),
    Anomaly(
        "poll-skip",
        "A consumer's next poll skipped a record that is known to be in the log.",
        "skipped",
        counts_when_subscribed=False,
        jepsen=True,
        by_time=True,
    ),
    Anomaly(
        "int-poll-skip",
        "Inside one poll a record that is known to be in the log was skipped.",
        "skipped",
        jepsen=True,
    ),
    Anomaly(
        "nonmonotonic-send",
        "A process's next send is in the log before the one that it sent first.",
        "reordered",
        counts_at_least_once=False,
        jepsen=True,
        by_time=True,
        early=True,
    ),
    Anomaly(
        "int-nonmonotonic-send",
        "Inside one operation a later send is in the log before an earlier one.",
        "reordered",
        jepsen=True,
        early=True,
    ),
    Anomaly(
        "send-skip",
        "Records of others lie between two sends of one process: normal. Reported once each.",
        None,
        counts=False,
    ),
    Anomaly(
        "int-send-skip",
        "Records of others lie between two sends of one transaction: Kafka interleaves writes.",
        None,
        counts=False,
        jepsen=True,
    ),
    Anomaly(
        "precommitted-read",
        "A transaction read its own records before it committed.",
        None,
        jepsen=True,
        early=True,
    ),
    Anomaly(
        "commit-regression",
        "A group's committed position went back without a seek or a reset, was lost after it had "
        "been acknowledged, or lies beyond the end of the log.",
        "duplicated",  # the group reads again what it has read
        by_time=True,
    ),
    Anomaly(
        "G1a",
        "Aborted read: a record was read whose send had surely failed.",
        None,
        jepsen=True,
        early=True,
    ),
    *_cycles("G0", "A cycle of transactions over ww edges", counts=False, jepsen=True),
    Anomaly(
        "G0-realtime",
        "A send was acknowledged at a lower offset than one whose acknowledgement came before it "
        "began.",
        "reordered",
        counts_by_jepsen=False,
        jepsen=True,
        by_time=True,
        early=True,
    ),
    *_cycles("G1c", "A cycle of transactions over wr edges", jepsen=True, realtime=True),
    *_cycles(
        "G1c-ww",
        "A cycle of transactions over ww and wr edges (Jepsen's G1c where asked for ww edges, "
        "which it then allows: writes are not isolated)",
        counts=False,
    ),
    *_cycles(
        "G-single",
        "A cycle of transactions with exactly one rw edge (polls are no snapshots: normal)",
        counts=False,
    ),
    *_cycles(
        "G2",
        "A cycle of transactions with more than one rw edge (polls are no snapshots: normal)",
        counts=False,
    ),
    Anomaly(
        "cycles-unsearched",
        "The graph of transactions has more edges than one task can search.",
        None,
        counts=False,
        doubt=True,
    ),
    Anomaly(
        "phantom",
        "A record was read that no client had sent.",
        None,
    ),
    Anomaly(
        "high-watermark-regression",
        "Within one leader epoch a leader sent a follower a lower high watermark than before.",
        None,
        early=True,
    ),
    Anomaly(
        # KIP-101 and KIP-207: a new leader begins with the high watermark that it knew as a
        # follower, which is behind, and catches up once its own followers fetch. So it is normal.
        "high-watermark-regression-at-election",
        "A new leader's first high watermark is below one that an earlier leader had sent.",
        None,
        counts=False,
    ),
    Anomaly(
        "protocol-violation",
        "Brokers broke a promise that they give each other, as the messages between them show.",
        None,
    ),
    Anomaly(
        "explained-violation",
        "They did so after a fault that takes records away, or where an unclean election is "
        "allowed.",
        None,
        counts=False,
    ),
    Anomaly(
        "torn-transaction",
        "One record of a transaction was read, and another one is in no final read.",
        "lost",
    ),
    Anomaly(
        "wrong-sum",
        "What a reader had read up to a last stable offset does not add up to 0, although each "
        "transaction does.",
        None,
    ),
    Anomaly(
        "hanging-transaction",
        "A last stable offset stayed below the high watermark for longer than a transaction may "
        "last, although the cluster was healed.",
        "unavailable",
    ),
    Anomaly(
        "newest-lost",
        "The newest acknowledged value of a key is in no final read, nor is a later one.",
        "lost",
    ),
    Anomaly(
        "input-twice",
        "An input has two outputs, in a stream that promises one output for each input.",
        "duplicated",
    ),
    Anomaly(
        "input-missing",
        "An input has no output, in a stream that promises one output for each input.",
        "skipped",
    ),
    Anomaly(
        "owned-twice",
        "A partition was assigned to a member while another member of its group owned it.",
        None,
        by_time=True,
    ),
    Anomaly(
        "delivered-after-acknowledgement",
        "A share group was given a record again after one of its members had accepted or rejected "
        "it, and the broker had acknowledged that.",
        "duplicated",
    ),
    Anomaly(
        "skipped-by-share-group",
        "No member of a share group was ever given a record of the log, although the group came "
        "to rest.",
        "skipped",
    ),
    Anomaly(
        "unprocessed",
        "A group that promises at least once has committed a position behind a record that no "
        "member has processed, and no reset passed over it.",
        "skipped",
    ),
    Anomaly(
        "processed-twice",
        "A group that promises at most once has processed a record twice, without a reset back "
        "over it.",
        "duplicated",
    ),
    Anomaly(
        "processed-again",
        "A record was processed more than once, by a group that promises at least once, without a "
        "reset back over it.",
        None,
        counts=False,
    ),
    Anomaly(
        "skipped-by-commit",
        "A record was passed over without a reset, by a group that promises at most once.",
        None,
        counts=False,
    ),
    Anomaly(
        "unproven-stream",
        "It is not known which inputs a stream had. Some may have no output.",
        None,
        counts=False,
        doubt=True,
    ),
    Anomaly(
        "unproven-share-group",
        "A share group did not come to rest. Of a record that no member was given it is not known "
        "whether it was passed over.",
        None,
        counts=False,
        doubt=True,
    ),
    Anomaly(
        "unproven-difference",
        "Two replicas differ above the high watermark and were never level. This proves nothing, "
        "and the run cannot conclude.",
        None,
        counts=False,
        doubt=True,
    ),
    Anomaly(
        "sent-twice",
        "A value was sent more than once to a partition, and its records have no marks: nobody "
        "knows which of them was read.",
        None,
        counts=False,
        doubt=True,
    ),
    Anomaly(
        "unproven-loss",
        "No final read found an acknowledged record, but it is on a replica's disk where reads do "
        "not reach, or retention may have deleted it.",
        None,
        counts=False,
        doubt=True,
    ),
)

ANOMALIES: Final[Mapping[str, Anomaly]] = {anomaly.name: anomaly for anomaly in _ALL}


def counting(
    names: Iterable[str],
    *,
    subscribed: bool = False,
    at_least_once: bool = False,
    by_jepsen: bool = False,
) -> list[Anomaly]:
    """Those of the anomalies found that count against the run, given what its clients asked for."""
    found = [ANOMALIES[name] for name in names]
    return [
        anomaly
        for anomaly in found
        if anomaly.counts
        and (anomaly.counts_when_subscribed or not subscribed)
        and (anomaly.counts_at_least_once or not at_least_once)
        and (anomaly.counts_by_jepsen or not by_jepsen)
    ]


def worst(found: Iterable[Anomaly], *, available: bool) -> Outcome:
    """The outcome that the anomalies of a conclusive run prove."""
    found = list(found)
    words = {anomaly.outcome for anomaly in found}
    for outcome in WORST_FIRST:
        if outcome in words:
            return outcome
    if found:
        return ANOMALOUS
    return "held" if available else "unavailable"


def table() -> str:
    """The register as a Markdown table: a part of docs/reference/anomalies.md."""
    over = {rule.name: f"`{rule.over}`" for rule in RULES}
    lines = [
        "| anomaly | meaning | outcome | counts | Jepsen's | relation |",
        "|---|---|---|---|---|---|",
    ]
    for a in ANOMALIES.values():
        jepsens = "yes" if a.jepsen else ""
        cells = (a.name, a.meaning, a.outcome or "", _when(a), jepsens, over.get(a.name, ""))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _when(anomaly: Anomaly) -> str:
    if anomaly.doubt:
        return "makes the run unknown"
    if not anomaly.counts:
        return "never"
    if not anomaly.counts_when_subscribed:
        return "unless consumers share partitions by a group"
    if not anomaly.counts_by_jepsen:
        return "unless Jepsen recorded it"
    if not anomaly.counts_at_least_once:
        return "unless producers are not idempotent"
    return "always"
