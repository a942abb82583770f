"""The rules: each a condition on the rows of one relation, with the evidence that it gives.

A relation is a text of SQL beside this file, `<name>.sql`, which reads top-down from the tables of
a run; a rule is a row here. Both engines, DuckDB inside Spark's tasks and Spark SQL, run the same
texts (`dialects`). What an anomaly means and whether it counts is in `neaptide.checkers.anomalies`.

Who adds a rule adds a row, its name to that register, a tiny history that it finds, and a twin of
which it says nothing.
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
TABLES: Final = ("operations", "replicas", "fetch_rounds", "final_reads", "runs")


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
    """An anomaly, or a measure, is a row of the relation `over` for which `when` holds."""

    name: str
    over: str
    when: str
    evidence: tuple[Column, ...]
    at: str = "log_offset"
    value: str = "value"
    operation: str = "operation"


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
    Relation("copies"),
    Relation("holes"),
    Relation("unlike"),
    Relation("responses", kept=True),
    Relation("elections"),
    Relation("windows"),
    Relation("unread"),
)

_OF_A_LOSS: Final[tuple[Column, ...]] = (
    "acks", "acknowledged_ns", "first_read_ns", "highest_read", "end_offset",
)  # fmt: skip
_NOT_PROVED: Final = (
    "(may_be_deleted OR (on_disk > 0 AND coalesce(acked_offset >= end_offset, true)))"
)
_OF_A_STEP: Final[tuple[Column, ...]] = ("process", "previous_offset", "previous_operation")
_OF_SENDS: Final[tuple[Column, ...]] = (
    "process", "previous_value", ("previous_offset", "previous_place"), "previous_operation",
)  # fmt: skip
_GOES_BACK: Final = "place < previous_place"
_NEXT_OPERATION: Final = "send_operation <> previous_operation AND NOT is_failed"
_COPIES: Final[tuple[Column, ...]] = (
    "differs", "broker", "key", "leader_epoch", "other_broker", "other_key", "other_value",
    "other_leader_epoch",
)  # fmt: skip

RULES: Final = (
    Rule(
        "lost-write",
        over="gone",
        when=f"NOT deleted AND NOT {_NOT_PROVED} AND NOT above_all_reads"
        " AND (ok_sent > 0 OR (greatest IS NOT NULL AND ok_reads = 0))",
        at="acked_offset",
        operation="send_operation",
        evidence=_OF_A_LOSS,
    ),
    Rule(
        "unseen",
        over="gone",
        when=f"NOT deleted AND NOT {_NOT_PROVED} AND above_all_reads AND ok_sent > 0",
        at="acked_offset",
        operation="send_operation",
        evidence=_OF_A_LOSS,
    ),
    Rule(
        "unproven-loss",
        over="gone",
        when=f"NOT deleted AND {_NOT_PROVED} AND ok_sent > 0",
        at="acked_offset",
        operation="send_operation",
        evidence=(*_OF_A_LOSS, "on_disk", "may_be_deleted"),
    ),
    Rule(
        "committed-then-lost",
        over="places",
        when="complete AND NOT may_be_compacted AND ("
        "(main_greatest >= start_offset"
        " AND (final_greatest IS NULL OR main_greatest > final_greatest))"
        " OR (main_least >= start_offset AND main_least < final_least))",
        at="main_greatest",
        operation="main_operation",
        evidence=("acks", "acknowledged_ns", "first_read_ns", "final_least", "end_offset"),
    ),
    Rule(
        "moved",
        over="places",
        when="moved",
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
        when="least < greatest AND NOT moved AND NOT is_repeated",
        at="greatest",
        operation="send_operation",
        evidence=("least", "greatest", "reads"),
    ),
    Rule(
        "sent-twice",
        over="places",
        when="is_repeated",
        at="least",
        operation="send_operation",
        evidence=("sent", "failed", "reads"),
    ),
    Rule(
        "G1a",
        over="places",
        when="failed > 0 AND failed = sent AND ok_reads > 0",
        at="least",
        operation="read_operation",
        evidence=("send_operation", "reads"),
    ),
    Rule(
        "phantom",
        over="places",
        when="whole AND sent = 0 AND reads > 0",
        at="least",
        operation="seen_operation",
        evidence=("reads", "first_read_ns"),
    ),
    # The shortest cycle of wr and real time; where there are transactions, cycles are searched.
    Rule(
        "G1c-realtime",
        over="places",
        when="sent > 0 AND NOT transactions AND first_read_ns < sent_ns",
        at="least(main_least, final_least)",
        operation="read_operation",
        evidence=("send_operation", "sent_ns", "first_read_ns"),
    ),
    Rule(
        "reordered",
        over="standing_sends",
        when="final_least < sent_before_offset",
        at="final_least",
        operation="send_operation",
        evidence=("process", "sent_before", "sent_before_offset"),
    ),
    # The shortest cycle of ww and real time.
    Rule(
        "G0-realtime",
        over="overtaken",
        when="acknowledged_ns < sent_ns",
        evidence=(
            "sent_ns", "other_value", "other_offset", "other_operation", "acknowledged_ns",
        ),
    ),
    Rule(
        "nonmonotonic-send",
        over="sends",
        when=f"{_GOES_BACK} AND {_NEXT_OPERATION} AND previous_known_end",
        at="place",
        operation="send_operation",
        evidence=_OF_SENDS,
    ),
    Rule(
        "int-nonmonotonic-send",
        over="sends",
        when=f"{_GOES_BACK} AND send_operation = previous_operation",
        at="place",
        operation="send_operation",
        evidence=_OF_SENDS,
    ),
    Rule(
        "nonmonotonic-poll",
        over="steps",
        when="log_offset <= previous_offset AND NOT inside",
        evidence=_OF_A_STEP,
    ),
    Rule(
        "int-nonmonotonic-poll",
        over="steps",
        when="log_offset <= previous_offset AND inside",
        evidence=_OF_A_STEP,
    ),
    Rule(
        "poll-skip",
        over="leaps",
        when="next_known < log_offset AND log_offset > start_offset AND NOT inside",
        evidence=(*_OF_A_STEP, ("skipped_offset", "next_known")),
    ),
    Rule(
        "int-poll-skip",
        over="leaps",
        when="next_known < log_offset AND log_offset > start_offset AND inside",
        evidence=(*_OF_A_STEP, ("skipped_offset", "next_known")),
    ),
    Rule(
        "inconsistent-offsets",
        over="conflicts",
        when="value <> other_value",
        operation="coalesce(sent_by, read_by)",
        evidence=("other_value", "sent_by", "read_by", "other_sent_by", "other_read_by"),
    ),
    Rule(
        "precommitted-read",
        over="own_reads",
        when="reads > 0",
        evidence=("process", "reads"),
    ),
    Rule(
        "commit-regression",
        over="positions",
        when="went_back OR truncated",
        value="NULL",
        evidence=(
            (
                "how",
                "CASE WHEN NOT went_back THEN 'truncated' WHEN f = 'commit' THEN 'went back'"
                " ELSE 'lost' END",
            ),
            ("group", "consumer_group"), "process", "acknowledged_before", "end_offset",
        ),
    ),
    Rule(
        "newest-lost",
        over="newest",
        # A key that was deleted may be gone altogether.
        when="complete AND acked_offset >= start_offset"
        " AND coalesce(final_offset < acked_offset, NOT deletes)",
        at="acked_offset",
        evidence=("key", "final_offset", "final_value", "end_offset"),
    ),
    Rule(
        "torn-transaction",
        over="torn",
        when=f"NOT deleted AND NOT {_NOT_PROVED} AND (others_read > 0 OR NOT is_ok)",
        at="acked_offset",
        evidence=("process", "other_value", "others_read", "end_offset"),
    ),
    Rule(
        "wrong-sum",
        over="sums",
        when="is_off",
        at="place",
        value="NULL",
        evidence=("process", "total", "transfer_off"),
    ),
    Rule(
        "hanging-transaction",
        over="stable_ends",
        when="log_offset < high_watermark AND stood_ns > timeout_ns",
        value="NULL",
        evidence=("high_watermark", "stood_ns", "timeout_ns"),
    ),
    Rule(
        "input-twice",
        over="outputs",
        when="value IS NOT NULL AND source_offset = source_before",
        evidence=("source", "source_offset", "offset_before", "value_before"),
    ),
    Rule(
        "input-missing",
        over="outputs",
        when="complete AND source_offset > source_before + 1"
        " AND (value IS NOT NULL OR source_offset > 0)",
        at="log_offset",
        evidence=(
            "source", ("first_missing", "source_before + 1"),
            ("inputs", "source_offset - source_before - 1"), "offset_before",
        ),
    ),
    Rule(
        "unproven-stream",
        over="unsourced",
        when="true",
        at="NULL",
        value="NULL",
        operation="NULL",
        evidence=(),
    ),
    Rule(
        "unprocessed",
        over="passed",
        when="delivery = 'at-least-once'",
        evidence=(("group", "consumer_group"), "position", "delivery"),
    ),
    Rule(
        "skipped-by-commit",
        over="passed",
        when="delivery <> 'at-least-once'",
        evidence=(("group", "consumer_group"), "position", "delivery"),
    ),
    Rule(
        "processed-twice",
        over="repeated",
        when="delivery = 'at-most-once'",
        evidence=(
            ("group", "consumer_group"), "times", "resets_back", "process", "other_process",
            "delivery",
        ),
    ),
    Rule(
        "processed-again",
        over="repeated",
        when="delivery <> 'at-most-once'",
        evidence=(
            ("group", "consumer_group"), "times", "resets_back", "process", "other_process",
            "delivery",
        ),
    ),
    Rule(
        "owned-twice",
        over="owners",
        when="since_ns < other_until_ns",
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
        when="level OR log_offset < below",
        operation="NULL",
        evidence=_COPIES,
    ),
    Rule(
        "unproven-difference",
        over="copies",
        when="NOT (level OR log_offset < below)",
        operation="NULL",
        evidence=_COPIES,
    ),
    Rule(
        "replica-hole",
        over="holes",
        when="offsets > 0",
        value="NULL",
        operation="NULL",
        evidence=("broker", "offsets", "last_offset", ("log_end_offset", "log_end")),
    ),
    Rule(
        "log-mismatch",
        over="unlike",
        when="differs IS NOT NULL",
        evidence=("differs", "value_on_disk", "key", "key_on_disk"),
    ),
    Rule(
        "high-watermark-regression",
        over="responses",
        when="high_watermark < previous_high_watermark",
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
        when="first_high_watermark < earlier_high_watermark",
        at="first_high_watermark",
        value="NULL",
        operation="NULL",
        evidence=("leader_epoch", "earlier_high_watermark"),
    ),
    Rule(
        "int-send-skip",
        over="send_leaps",
        when="inside",
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
        when="NOT inside AND NOT is_failed AND turn = 1",
        at="place",
        operation="send_operation",
        evidence=("process", "skips", ("skipped_offset", "next_known")),
    ),
    Rule(
        "availability",
        over="windows",
        when="true",
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
        when="more <> 0",
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


def plan(*, thorough: bool, transactions: bool, tables: Collection[str]) -> Plan:
    """What is asked of runs that have such tables: of what no run has nothing is asked."""
    needs = _needs()
    rules = tuple(
        rule
        for rule in RULES
        if (thorough or rule.name not in _THOROUGH)
        and (thorough or transactions or rule.name not in _OF_TRANSACTIONS)
        and _MUST_HAVE.get(rule.over, "operations") in tables
    )
    needed = {"partitions", *(rule.over for rule in rules)}
    if transactions:
        needed |= {"log", "profiles"}  # the edges between transactions come from these
    for relation in reversed(RELATIONS):
        if relation.name in needed:
            needed |= needs[relation.name]
    return Plan(rules, tuple(relation for relation in RELATIONS if relation.name in needed))


# Which table a relation cannot do without, where it is not the operations.
_MUST_HAVE: Final = {
    "copies": "replicas",
    "holes": "replicas",
    "unlike": "replicas",
    "responses": "fetch_rounds",
    "elections": "fetch_rounds",
}
_NAMED: Final = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")


@cache
def _needs() -> Mapping[str, frozenset[str]]:
    """Which relations each text names."""
    names = {relation.name for relation in RELATIONS}
    return {r.name: frozenset(names & {*_NAMED.findall(r.sql)}) - {r.name} for r in RELATIONS}
