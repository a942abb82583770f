"""The rules: of which relation each is a column, and which evidence it gives.

A relation is a text of SQL beside this file, `<name>.sql`, which reads top-down from the tables of
a run; its last columns say which rules hold of a row. Both engines, DuckDB inside Spark's tasks and
Spark SQL, run the same texts (`dialects`). What an anomaly means and whether it counts is in
`neaptide.checkers.anomalies`.

Who adds a rule adds its column, a row here, its name to that register, a tiny history that it
finds, and a twin of which it says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

Column = str | tuple[str, str]  # its name, or its name and what it is of the relation

# Tables that a relation may start from, and what of a run they are.
TABLES: Final = ("operations", "replicas", "fetch_rounds", "messages", "final_reads", "runs")


@dataclass(frozen=True, slots=True)
class Relation:
    """A text of SQL. `kept`: several others look at it, so it is stored rather than asked again."""

    name: str
    kept: bool = False
    text: str = ""  # in place of the file's

    @property
    def sql(self) -> str:
        return self.text or text_of(self.name)


@cache
def text_of(name: str) -> str:
    """A text of SQL beside this file."""
    return (files(__package__) / f"{name}.sql").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Rule:
    """An anomaly, or a measure, is a row of the relation `over` whose column of that name is true:
    `lost_write` of `gone` for lost-write. The other fields are what its evidence is made of."""

    name: str
    over: str
    evidence: tuple[Column, ...]
    at: str = "log_offset"
    value: str = "value"
    operation: str = "operation"

    @property
    def column(self) -> str:
        return self.name.replace("-", "_")


# In an order in which each needs only what stands before it.
RELATIONS: Final = (
    Relation("said", kept=True),
    Relation("deleting", kept=True),
    Relation("partitions", kept=True),
    Relation("compacting", kept=True),
    Relation("compacted", kept=True),
    Relation("records"),
    Relation("profiles", kept=True),
    Relation("places"),
    Relation("gone"),
    Relation("sends", kept=True),
    Relation("standing_sends"),
    Relation("log", kept=True),
    Relation("gaps", kept=True),
    Relation("conflicts"),
    Relation("steps", kept=True),
    Relation("leaps"),
    Relation("send_leaps", kept=True),
    Relation("overtaken"),
    Relation("own_reads"),
    Relation("resets", kept=True),
    Relation("positions"),
    Relation("newest"),
    Relation("torn"),
    Relation("sums"),
    Relation("stable_ends"),
    Relation("outputs"),
    Relation("unsourced"),
    Relation("passed"),
    Relation("repeated"),
    Relation("owners"),
    Relation("rests", kept=True),
    Relation("shared"),
    Relation("restless"),
    Relation("copies"),
    Relation("holes"),
    Relation("unlike"),
    Relation("responses", kept=True),
    Relation("elections"),
    Relation("states", kept=True),
    Relation("elected", kept=True),
    Relation("behind"),
    Relation("led"),
    Relation("transactional"),
    Relation("ended"),
    Relation("unasked"),
    Relation("windows"),
    Relation("unread"),
)

_OF_A_LOSS: Final[tuple[Column, ...]] = (
    "acks", "acknowledged_ns", "first_read_ns", "highest_read", "end_offset",
)  # fmt: skip
_OF_A_STEP: Final[tuple[Column, ...]] = ("process", "previous_offset", "previous_operation")
_OF_SENDS: Final[tuple[Column, ...]] = (
    "process", "previous_value", ("previous_offset", "previous_place"), "previous_operation",
)  # fmt: skip
_COPIES: Final[tuple[Column, ...]] = (
    "differs", "broker", "key", "leader_epoch", "other_broker", "other_key", "other_value",
    "other_leader_epoch",
)  # fmt: skip

PROTOCOL_VIOLATION: Final = "protocol-violation"


def _violations(
    over: str, rule: str, *evidence: Column, at: str = "NULL", operation: str = "NULL"
) -> tuple[Rule, ...]:
    """A promise between brokers: who breaks it is reported by the name of the promise."""
    names = (PROTOCOL_VIOLATION, "explained-violation")[: 1 + ("explained_by" in evidence)]
    said: tuple[Column, ...] = (("rule", f"'{rule}'"), *evidence)
    return tuple(
        Rule(name, over=over, at=at, value="NULL", operation=operation, evidence=said)
        for name in names
    )


RULES: Final = (
    Rule(
        "lost-write",
        over="gone",
        at="acked_offset",
        operation="send_operation",
        evidence=_OF_A_LOSS,
    ),
    Rule(
        "unseen",
        over="gone",
        at="acked_offset",
        operation="send_operation",
        evidence=_OF_A_LOSS,
    ),
    Rule(
        "unproven-loss",
        over="gone",
        at="acked_offset",
        operation="send_operation",
        evidence=(*_OF_A_LOSS, "on_disk", "may_be_deleted"),
    ),
    Rule(
        "committed-then-lost",
        over="places",
        at="main_greatest",
        operation="main_operation",
        evidence=("acks", "acknowledged_ns", "first_read_ns", "final_least", "end_offset"),
    ),
    Rule(
        "moved",
        over="places",
        at="greatest",
        operation="send_operation",
        evidence=(
            ("acknowledged_at", "acked_offset"), ("found_at", "seen_least"), "acks",
            "acknowledged_ns",
        ),
    ),
    Rule(
        "duplicate",
        over="places",
        at="greatest",
        operation="send_operation",
        evidence=("least", "greatest", "reads"),
    ),
    Rule(
        "sent-twice",
        over="places",
        at="least",
        operation="send_operation",
        evidence=("sent", "failed", "reads"),
    ),
    Rule(
        "G1a",
        over="places",
        at="least",
        operation="read_operation",
        evidence=("send_operation", "reads"),
    ),
    Rule(
        "phantom",
        over="places",
        at="least",
        operation="seen_operation",
        evidence=("reads", "first_read_ns"),
    ),
    # The shortest cycle of wr and real time; where there are transactions, cycles are searched.
    Rule(
        "G1c-realtime",
        over="places",
        at="read_at",
        operation="read_operation",
        evidence=("send_operation", "sent_ns", "first_read_ns"),
    ),
    Rule(
        "reordered",
        over="standing_sends",
        at="final_least",
        operation="send_operation",
        evidence=("process", "sent_before", "sent_before_offset"),
    ),
    # The shortest cycle of ww and real time.
    Rule(
        "G0-realtime",
        over="overtaken",
        evidence=(
            "sent_ns", "other_value", "other_offset", "other_operation", "acknowledged_ns",
        ),
    ),
    Rule(
        "nonmonotonic-send",
        over="sends",
        at="place",
        operation="send_operation",
        evidence=_OF_SENDS,
    ),
    Rule(
        "int-nonmonotonic-send",
        over="sends",
        at="place",
        operation="send_operation",
        evidence=_OF_SENDS,
    ),
    Rule(
        "nonmonotonic-poll",
        over="steps",
        evidence=_OF_A_STEP,
    ),
    Rule(
        "int-nonmonotonic-poll",
        over="steps",
        evidence=_OF_A_STEP,
    ),
    Rule(
        "poll-skip",
        over="leaps",
        evidence=(*_OF_A_STEP, ("skipped_offset", "next_known")),
    ),
    Rule(
        "int-poll-skip",
        over="leaps",
        evidence=(*_OF_A_STEP, ("skipped_offset", "next_known")),
    ),
    Rule(
        "inconsistent-offsets",
        over="conflicts",
        evidence=("other_value", "sent_by", "read_by", "other_sent_by", "other_read_by"),
    ),
    Rule(
        "precommitted-read",
        over="own_reads",
        evidence=("process", "reads"),
    ),
    Rule(
        "commit-regression",
        over="positions",
        value="NULL",
        evidence=(
            "how", ("group", "consumer_group"), "process", "acknowledged_before", "end_offset",
        ),
    ),
    Rule(
        "newest-lost",
        over="newest",
        # A key that was deleted may be gone altogether.
        at="acked_offset",
        evidence=("key", "final_offset", "final_value", "end_offset"),
    ),
    Rule(
        "torn-transaction",
        over="torn",
        at="acked_offset",
        evidence=("process", "other_value", "others_read", "end_offset"),
    ),
    Rule(
        "wrong-sum",
        over="sums",
        at="place",
        value="NULL",
        evidence=("process", "total", "transfer_off"),
    ),
    Rule(
        "hanging-transaction",
        over="stable_ends",
        value="NULL",
        evidence=("high_watermark", "stood_ns", "timeout_ns"),
    ),
    Rule(
        "input-twice",
        over="outputs",
        evidence=("source", "source_offset", "offset_before", "value_before"),
    ),
    Rule(
        "input-missing",
        over="outputs",
        at="log_offset",
        evidence=(
            "source", "first_missing", ("inputs", "missing"), "offset_before",
        ),
    ),
    Rule(
        "unproven-stream",
        over="unsourced",
        at="NULL",
        value="NULL",
        operation="NULL",
        evidence=(),
    ),
    Rule(
        "delivered-after-acknowledgement",
        over="shared",
        evidence=(
            ("group", "share_group"), "acknowledgement", "acknowledged_by", "process",
            "delivery_count", "times",
        ),
    ),
    Rule(
        "skipped-by-share-group",
        over="shared",
        evidence=(("group", "share_group"),),
    ),
    Rule(
        "unproven-share-group",
        over="restless",
        at="NULL",
        value="NULL",
        operation="NULL",
        evidence=(),
    ),
    Rule(
        "unprocessed",
        over="passed",
        evidence=(("group", "consumer_group"), "position", "delivery"),
    ),
    Rule(
        "skipped-by-commit",
        over="passed",
        evidence=(("group", "consumer_group"), "position", "delivery"),
    ),
    Rule(
        "processed-twice",
        over="repeated",
        evidence=(
            ("group", "consumer_group"), "times", "resets_back", "process", "other_process",
            "delivery",
        ),
    ),
    Rule(
        "processed-again",
        over="repeated",
        evidence=(
            ("group", "consumer_group"), "times", "resets_back", "process", "other_process",
            "delivery",
        ),
    ),
    Rule(
        "owned-twice",
        over="owners",
        at="NULL",
        value="NULL",
        evidence=(
            ("group", "consumer_group"), "process", "since_ns", "other_process", "other_operation",
            "other_until_ns",
        ),
    ),
    Rule(
        "replica-divergence",
        over="copies",
        operation="NULL",
        evidence=_COPIES,
    ),
    Rule(
        "unproven-difference",
        over="copies",
        operation="NULL",
        evidence=_COPIES,
    ),
    Rule(
        "replica-hole",
        over="holes",
        value="NULL",
        operation="NULL",
        evidence=("broker", "offsets", "last_offset", ("log_end_offset", "log_end")),
    ),
    Rule(
        "log-mismatch",
        over="unlike",
        evidence=("differs", "value_on_disk", "key", "key_on_disk"),
    ),
    Rule(
        "high-watermark-regression",
        over="responses",
        at="high_watermark",
        value="NULL",
        operation="NULL",
        evidence=(
            "leader", "leader_epoch", "follower", "round", "responded_ns",
            "previous_high_watermark",
        ),
    ),
    Rule(
        "high-watermark-regression-at-election",
        over="elections",
        at="first_high_watermark",
        value="NULL",
        operation="NULL",
        evidence=("leader_epoch", "earlier_high_watermark"),
    ),
    *_violations(
        "elected",
        "unclean-election",
        "leader", "leader_epoch", ("isr_before", "trim(previous_isr)"), ("at_ns", "from_ns"),
        "explained_by",
        operation="operation",
    ),
    *_violations(
        "behind",
        "isr-behind-acknowledged",
        "follower", "leader", "leader_epoch", "round", "requested_ns", "acknowledged", "isr",
        "explained_by",
        at="fetch_offset",
    ),
    *_violations(
        "led", "one-leader-an-epoch", "leader", "other_leader", "leader_epoch", "responded_ns"
    ),
    *_violations(
        "ended",
        "marker-sent-before-a-write",
        "leader", "producer_id", "producer_epoch", "committed", "marker_sent_ns", "write_sent_ns",
        "marker_delivered_ns",
    ),
    *_violations(
        "unasked",
        "end-sent-before-a-write",
        "leader", "producer_id", "producer_epoch", "committed", "end_sent_ns", "write_sent_ns",
        "end_delivered_ns", "marker_sent_ns",
    ),
    Rule(
        "int-send-skip",
        over="send_leaps",
        at="place",
        operation="send_operation",
        evidence=(
            "process", "previous_value", ("previous_offset", "previous_place"),
            ("skipped_offset", "next_known"),
        ),
    ),
    Rule(
        "send-skip",
        over="send_leaps",
        at="place",
        operation="send_operation",
        evidence=("process", "skips", ("skipped_offset", "next_known")),
    ),
    Rule(
        "availability",
        over="windows",
        at="NULL",
        value="NULL",
        operation="NULL",
        evidence=(
            "from_ns", "to_ns", "fault", "acked", "failed", "indeterminate", "longest_gap_ns",
            "gap_from_ns",
        ),
    ),
    Rule(
        "unseen-over-time",
        over="unread",
        at="NULL",
        value="NULL",
        operation="NULL",
        evidence=("at_ns", ("unseen", "unread")),
    ),
)  # fmt: skip

AVAILABILITY: Final = "availability"
UNSEEN_OVER_TIME: Final = "unseen-over-time"
# What is reported about a run without judging it, in `measures/`; where asked (`--thorough`).
MEASURES: Final = (AVAILABILITY, UNSEEN_OVER_TIME)
# Looked for where asked only: what is normal in Kafka never counts.
_THOROUGH: Final = (*MEASURES, "send-skip")
# Of runs with transactions, or where asked.
_OF_TRANSACTIONS: Final = ("int-send-skip", "precommitted-read", "torn-transaction")


@dataclass(frozen=True, slots=True)
class Plan:
    """The rules to judge by, and the relations that they need, in order."""

    rules: tuple[Rule, ...]
    relations: tuple[Relation, ...]

    def over(self, relation: str) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if rule.over == relation)


def plan(
    *,
    thorough: bool,
    transactions: bool,
    tables: Collection[str],
    only: Collection[str] | None = None,
) -> Plan:
    """What is asked of runs that have such tables: of what no run has nothing is asked. `only`:
    these rules, and nothing beside them."""
    rules = tuple(
        rule
        for rule in RULES
        if (only is None or rule.name in only)
        and (thorough or rule.name not in _THOROUGH)
        and (thorough or transactions or rule.name not in _OF_TRANSACTIONS)
        and _MUST_HAVE.get(rule.over, "operations") in tables
    )
    needed = {rule.over for rule in rules}
    if only is None:
        needed.add("partitions")
    if transactions and only is None:
        needed |= {"log", "profiles"}  # the edges between transactions come from these
    return Plan(rules, relations_of(needed))


def relations_of(names: Collection[str]) -> tuple[Relation, ...]:
    """These relations and all that they read, each before what reads it. Tables need none."""
    needs, needed = _needs(), set(names)
    for relation in reversed(RELATIONS):
        if relation.name in needed:
            needed |= needs[relation.name]
    return tuple(relation for relation in RELATIONS if relation.name in needed)


# Which table a relation cannot do without, where it is not the operations.
_MUST_HAVE: Final = {
    "copies": "replicas",
    "holes": "replicas",
    "unlike": "replicas",
    "responses": "fetch_rounds",
    "elections": "fetch_rounds",
    "elected": "fetch_rounds",
    "behind": "fetch_rounds",
    "led": "fetch_rounds",
    "ended": "messages",
    "unasked": "messages",
}
_NAMED: Final = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")


@cache
def _needs() -> Mapping[str, frozenset[str]]:
    """Which relations each text names."""
    names = {relation.name for relation in RELATIONS}
    return {r.name: frozenset(names & {*_NAMED.findall(r.sql)}) - {r.name} for r in RELATIONS}
