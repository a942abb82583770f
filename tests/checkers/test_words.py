"""What a run says is taken at its word only where nothing speaks against it: rows that are not
understood, logs that begin above 0 although nothing deletes, disks that have something else.

Each history has a twin that must stay silent. All are judged by both engines, each in one job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from neaptide.checkers.material import unreadable
from neaptide.checkers.proofs import Counts
from neaptide.checkers.verdict import EngineName, Options, judge
from neaptide.results.run import Assigned, Converged, FinalRead
from tests.checkers.conftest import Writable
from tests.checkers.histories import (
    COMPACT,
    RETENTION,
    Op,
    Story,
    answered,
    final,
    held,
    poll,
    reached,
    send,
    setting,
    txn,
)
from tests.checkers.reading import Judged, judged
from tests.checkers.test_nothing_is_fine import edn
from tests.proof import proof_but

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # Spark SQL plans for minutes

A, B, C = (0, "a"), (1, "b"), (2, "c")
AB = (send("a", 0), send("b", 1), final(A, B))
ONLY_B = (send("a", 0), send("b", 1), final(B))
BOTH = [held(0, A, B), held(1, A, B)]
BEGINS_AT_1 = {"final_reads": (FinalRead("t", 0, 2, True, start_offset=1),)}
LARGEST = 2**63 - 1


def story(*ops: Op, replicas: Any = (), rounds: Any = (), **run: Any) -> Story:
    return Story(ops, replicas=replicas, rounds=rounds, run=run)


@dataclass(frozen=True)
class Changed:
    """A run in which a column has another value, in its first row for which `where` holds."""

    of: Story
    table: str
    column: str
    value: Any
    where: Mapping[str, Any]

    def write(self, directory: Path) -> Path:
        self.of.write(directory)
        [path] = (directory / self.table).glob("*.parquet")
        table = pq.read_table(path)
        rows = table.to_pylist()
        row = next(r for r in rows if all(r[name] == is_ for name, is_ in self.where.items()))
        row[self.column] = self.value
        schema = pa.schema([pa.field(f.name, f.type) for f in table.schema])
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
        return directory


def keyed(op: Op, *keys: str) -> Op:
    rows = tuple({**row, "key": key} for row, key in zip(op.rows, keys, strict=True))
    return replace(op, rows=rows)


def marker(broker: int, offset: int, value: str | None, end: int) -> list[dict[str, Any]]:
    [row] = held(broker, (offset, ""))
    more = {"value": value, "key": "producer 7 epoch 0", "control": True}
    return [row | more | {"log_end_offset": end, "high_watermark": end}]


def emptied(broker: int, end: int) -> list[dict[str, Any]]:
    """A log that says where it ends, and has nothing."""
    return [held(broker)[0] | {"log_end_offset": end, "high_watermark": end}]


def ending_at(log: Iterable[dict[str, Any]], end: int) -> list[dict[str, Any]]:
    return [row | {"log_end_offset": end, "high_watermark": end} for row in log]


def deleted(below: int, type: str = "ok") -> Op:
    return Op("delete-records", 3, type, ({"topic": "t", "partition": 0, "offset": below},))


def with_keys(log: Iterable[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    return [row | {"key": key} for row, key in zip(log, keys, strict=True)]


ELSEWHERE = (send("z", 0, partition=1), final((0, "z"), partition=1))
OF_ABORTED = {"final_reads": (reached(2), reached(1, partition=1))}
ON_DISKS = [held(0, (0, "z"), partition=1)]
ABORTED = txn(("send", None, "a"), type="fail")
UNSURE = txn(("send", None, "a"), type="info")
TOMBSTONE = keyed(replace(send("x", 1), rows=({**send("x", 1).rows[0], "value": None},)), "k")
CLEANED = (keyed(send("a", 0), "k"), TOMBSTONE, keyed(send("c", 2), "j"), keyed(final(C), "j"))
WHOLE_LOG = with_keys(held(0, A, (1, ""), C), "k", "k", "j")
WHOLE_LOG[1]["value"] = None
TWICE = (send("a", 0), final(A, (1, "a")))
SUMMED = Op("sum", 9, "ok", ({"topic": "t", "partition": 0, "offset": 2},))

# name -> (history, verdict, anomalies that count, what a reason says)
STORIES: dict[str, tuple[Writable, str, set[str], str]] = {
    # --- what lies below the log start
    "begins-above-0": (story(*ONLY_B, **BEGINS_AT_1), "anomalous", {"lost-write"}, ""),
    "begins-above-0-by-retention": (story(*ONLY_B, RETENTION, **BEGINS_AT_1), "valid", set(), ""),
    "begins-above-0-without-a-limit": (
        story(*ONLY_B, setting("retention.ms", "-1"), **BEGINS_AT_1),
        "anomalous", {"lost-write"}, "",
    ),
    "begins-above-0-and-is-compacted": (
        story(*ONLY_B, COMPACT, **BEGINS_AT_1), "anomalous", {"lost-write"}, "",
    ),
    "begins-above-0-by-a-request": (story(*ONLY_B, deleted(1), **BEGINS_AT_1), "valid", set(), ""),
    "begins-above-what-a-request-deleted": (
        story(*ONLY_B, deleted(0), **BEGINS_AT_1), "anomalous", {"lost-write"}, "",
    ),
    "begins-above-0-and-a-request-failed": (
        story(*ONLY_B, deleted(1, "fail"), **BEGINS_AT_1), "anomalous", {"lost-write"}, "",
    ),
    "begins-above-0-on-brokers-of-others": (
        story(*ONLY_B, own={"name": "x"}, **BEGINS_AT_1), "unknown", set(), "may have deleted",
    ),
    "a-consumer-steps-over-what-nobody-deleted": (
        story(
            *(send(value, offset) for offset, value in enumerate("abc")),
            poll(A), poll(C), final(A, B, C),
            final_reads=(FinalRead("t", 0, 3, True, start_offset=2),),
        ),
        "anomalous", {"poll-skip"}, "",
    ),
    "all-replicas-begin-above-0": (
        story(
            *ONLY_B, replicas=[held(0, B, start=1), held(1, B, start=1)], **BEGINS_AT_1
        ),
        "anomalous", {"lost-write", "replica-hole"}, "",
    ),
    "all-replicas-begin-above-0-by-retention": (
        story(
            *ONLY_B, RETENTION, replicas=[held(0, B, start=1), held(1, B, start=1)],
            **BEGINS_AT_1,
        ),
        "valid", set(), "",
    ),
    "one-replica-begins-above-0": (
        story(*AB, replicas=[held(0, A, B), held(1, B, start=1)]),
        "anomalous", {"replica-hole"}, "",
    ),
    "one-replica-begins-above-0-by-retention": (
        story(*AB, RETENTION, replicas=[held(0, A, B), held(1, B, start=1)]), "valid", set(), "",
    ),
    "acknowledged-at-minus-1-and-gone": (
        story(send("a", -1), send("b", 0), final((0, "b"))), "anomalous", {"lost-write"}, "",
    ),
    "acknowledged-at-minus-1-and-there": (
        story(send("b", 0), send("a", -1), final((0, "b"), (1, "a"))), "valid", set(), "",
    ),
    # --- what a run says of its replicas
    "assigned-as-read": (story(*AB, replicas=BOTH), "valid", set(), ""),
    "assigned-lacks-a-partition": (
        story(
            *AB, *ELSEWHERE, replicas=BOTH, final_reads=(reached(), reached(partition=1))
        ),
        "unknown", set(), "which brokers hold t-1",
    ),
    "assigned-names-no-broker": (
        story(*AB, replicas=BOTH, assigned=(Assigned("t", 0, ()),)),
        "unknown", set(), "which brokers hold t-0",
    ),
    "assigned-names-another-topic": (
        story(*AB, replicas=BOTH, assigned=(Assigned("T", 0, (0, 1)),)),
        "unknown", set(), "which brokers hold t-0",
    ),
    # --- what lies on the disks
    "all-disks-have-another-value": (
        story(*AB, replicas=[held(0, A, (1, "x")), held(1, A, (1, "x"))]),
        "anomalous", {"log-mismatch"}, "",
    ),
    "all-disks-have-nothing": (
        story(*AB, replicas=[emptied(0, 2), emptied(1, 2)]),
        "anomalous", {"log-mismatch", "replica-hole"}, "",
    ),
    "all-disks-have-the-last-record-only": (
        story(*AB, replicas=[held(0, B), held(1, B)]),
        "anomalous", {"log-mismatch", "replica-hole"}, "",
    ),
    "all-disks-have-nothing-at-an-offset-that-nobody-knows": (
        story(send("a", 0), send("c", 2), final(A, C), replicas=[held(0, A, C), held(1, A, C)]),
        "anomalous", {"replica-hole"}, "",
    ),
    "all-disks-have-nothing-at-an-offset-that-was-compacted": (
        story(
            send("a", 0), send("c", 2), COMPACT, final(A, C),
            replicas=[held(0, A, C), held(1, A, C)],
        ),
        "valid", set(), "",
    ),
    "all-logs-claim-an-end-behind-what-they-have": (
        story(*AB, replicas=[[row | {"log_end_offset": 3} for row in log] for log in BOTH]),
        "anomalous", {"replica-hole"}, "",
    ),
    "all-logs-end-before-the-end-that-was-read": (
        story(*AB, replicas=BOTH, final_reads=(reached(3),)), "anomalous", {"replica-hole"}, "",
    ),
    "all-logs-end-where-was-read": (
        story(*AB, replicas=BOTH, final_reads=(reached(2),)), "valid", set(), "",
    ),
    "all-disks-have-the-last-record-only-by-retention": (
        story(*AB, RETENTION, replicas=[held(0, B, start=1), held(1, B, start=1)]),
        "valid", set(), "",
    ),
    "all-disks-have-control-where-data-was": (
        story(*AB, replicas=[[*held(0, A), *marker(0, 1, "commit", 2)]]),
        "anomalous", {"log-mismatch"}, "",
    ),
    "all-disks-have-another-key": (
        story(
            keyed(send("a", 0), "k"), keyed(final(A), "k"), replicas=[with_keys(held(0, A), "j")]
        ),
        "anomalous", {"log-mismatch"}, "",
    ),
    "all-disks-have-the-same-key": (
        story(
            keyed(send("a", 0), "k"), keyed(final(A), "k"), replicas=[with_keys(held(0, A), "k")]
        ),
        "valid", set(), "",
    ),
    "another-value-on-disks-that-were-never-level": (
        story(
            *AB, replicas=[held(0, A, (1, "x")), held(1, A, (1, "x"))],
            converged=Converged(False, "late"),
        ),
        "unknown", set(), "never level",
    ),
    # --- markers of transactions
    "one-replica-lacks-a-marker": (
        story(
            send("a", 0), final(A),
            replicas=[[*ending_at(held(0, A), 2), *marker(0, 1, "commit", 2)],
                      ending_at(held(1, A), 2)],
        ),
        "anomalous", {"replica-hole"}, "",
    ),
    "one-replica-has-abort-where-another-has-commit": (
        story(
            send("a", 0), final(A),
            replicas=[[*ending_at(held(0, A), 2), *marker(0, 1, "commit", 2)],
                      [*ending_at(held(1, A), 2), *marker(1, 1, "abort", 2)]],
        ),
        "anomalous", {"replica-divergence"}, "",
    ),
    "both-replicas-have-the-marker": (
        story(
            send("a", 0), final(A),
            replicas=[[*ending_at(held(0, A), 2), *marker(0, 1, "commit", 2)],
                      [*ending_at(held(1, A), 2), *marker(1, 1, "commit", 2)]],
        ),
        "valid", set(), "",
    ),
    "one-replica-lacks-a-marker-that-compaction-takes": (
        story(
            send("a", 0), final(A), COMPACT,
            replicas=[[*ending_at(held(0, A), 2), *marker(0, 1, "commit", 2)],
                      ending_at(held(1, A), 2)],
        ),
        "valid", set(), "",
    ),
    # --- partitions with nothing to read
    "all-was-aborted": (story(ABORTED, *ELSEWHERE, **OF_ABORTED), "valid", set(), ""),
    "all-was-aborted-but-not-read-to-the-end": (
        story(
            ABORTED, *ELSEWHERE, final_reads=(reached(2, yes=False), reached(1, partition=1))
        ),
        "unknown", set(), "did not reach the log end",
    ),
    "what-was-no-transaction-failed": (
        story(send("a", type="fail"), *ELSEWHERE, **OF_ABORTED),
        "unknown", set(), "none was recorded",
    ),
    "all-has-an-unknown-end-and-was-aborted-by-the-disks": (
        story(
            UNSURE, *ELSEWHERE, **OF_ABORTED,
            replicas=[*ON_DISKS, ending_at(held(0, A), 2), marker(0, 1, "abort", 2)],
        ),
        "valid", set(), "",
    ),
    "all-has-an-unknown-end-and-was-committed-by-the-disks": (
        story(
            UNSURE, *ELSEWHERE, **OF_ABORTED,
            replicas=[*ON_DISKS, ending_at(held(0, A), 2), marker(0, 1, "commit", 2)],
        ),
        "unknown", set(), "none was recorded",
    ),
    # --- compaction
    "a-key-was-deleted-and-cleaned": (story(*CLEANED, COMPACT), "valid", set(), ""),
    "a-key-was-not-deleted-and-is-gone": (
        story(
            COMPACT, keyed(send("a", 0), "k"), keyed(send("b", 1), "k"), keyed(send("c", 2), "j"),
            keyed(final(C), "j"),
        ),
        "anomalous", {"newest-lost", "lost-write"}, "",
    ),
    "one-replica-has-cleaned-a-deleted-key": (
        story(
            *CLEANED[:-1], keyed(final(A, (1, None), C), "k", "k", "j"), COMPACT,
            replicas=[WHOLE_LOG, with_keys(held(1, C), "j")],
        ),
        "valid", set(), "",
    ),
    "one-replica-lacks-what-nothing-cleans": (
        story(
            *CLEANED[:-1], keyed(final(A, (1, None), C), "k", "k", "j"),
            replicas=[WHOLE_LOG, with_keys(held(1, C), "j")],
        ),
        "anomalous", {"replica-hole"}, "",
    ),
    # --- one of both
    "lost-though-nothing-was-acknowledged": (
        story(txn(("send", 0, "a"), ("send", 1, "b"), type="info"), final(B)),
        "anomalous", {"lost-write"}, "proved by what was read",
    ),
    "nothing-was-acknowledged": (
        story(send("a", type="info"), final()), "unknown", set(), "nothing could be lost",
    ),
    # --- what is allowed
    "twice-where-producers-are-not-idempotent": (
        story(*TWICE, clients={"idempotence": False}), "valid", set(), "",
    ),
    "twice-where-producers-are-idempotent": (
        story(*TWICE, clients={"idempotence": True}), "anomalous", {"duplicate"}, "",
    ),
    # --- amounts as large as there are
    "large-amounts-add-up-to-0": (
        story(
            setting("transaction.timeout.ms", str(LARGEST)),
            txn(("send", 0, f"{LARGEST}/a"), ("send", 1, f"-{LARGEST}/b")),
            final((0, f"{LARGEST}/a"), (1, f"-{LARGEST}/b")), SUMMED,
        ),
        "valid", set(), "",
    ),
    "large-amounts-do-not": (
        story(
            txn(("send", 0, f"{LARGEST}/a"), ("send", 1, f"{LARGEST}/b")),
            final((0, f"{LARGEST}/a"), (1, f"{LARGEST}/b")), SUMMED,
        ),
        "anomalous", {"wrong-sum"}, "",
    ),
}  # fmt: skip

# --- one value that is not in the words of the schema
PLAIN = story(*AB, replicas=BOTH, rounds=[answered(2, at=10), answered(2, at=20, round=2)])
IN_TRANSACTION = story(txn(("send", 0, "a"), ("send", 1, "b")), final(A, B), replicas=BOTH)
LED = story(
    *AB,
    Op(
        "leader", -2, "info", ({"topic": "t", "partition": 0, "value": '{"leader": 0, "isr": []}'},)
    ),
)
_SEND, _POLL = {"f": "send"}, {"f": "poll"}
MISFITS: Sequence[tuple[Story, str, str, Any, Mapping[str, Any]]] = (
    *((PLAIN, "operations", "type", value, _POLL) for value in (None, "OK", "done", "")),
    *((PLAIN, "operations", "f", value, _SEND) for value in (None, "SEND", "write")),
    *((PLAIN, "operations", "process", value, _SEND) for value in (None, -1, -7, -(2**31))),
    *((PLAIN, "operations", "partition", value, _SEND) for value in (-1, -(2**31))),
    *((PLAIN, "operations", "offset", value, _SEND) for value in (-2, LARGEST, -LARGEST)),
    (PLAIN, "operations", "offset", -1, _POLL),
    (PLAIN, "operations", "partition", None, _POLL),
    *((PLAIN, "operations", "topic", None, where) for where in (_SEND, _POLL)),
    *((PLAIN, "operations", "invoked_ns", value, _SEND) for value in (None, LARGEST, -LARGEST)),
    *((PLAIN, "operations", "completed_ns", value, _SEND) for value in (None, LARGEST)),
    *((PLAIN, "operations", "phase", value, _SEND) for value in (None, "FINAL")),
    *((PLAIN, "operations", "acks", value, _SEND) for value in ("ALL", "-1", "2")),
    *((PLAIN, "operations", "row", value, _SEND) for value in (None, -1)),
    *((PLAIN, "operations", "operation", value, _SEND) for value in (None, -1)),
    (IN_TRANSACTION, "operations", "mop", -1, _SEND),
    *((LED, "operations", "value", value, {"f": "leader"}) for value in (None, "1", "{", "A")),
    *((PLAIN, "replicas", "broker", value, {"offset": 1}) for value in (None, -1)),
    *((PLAIN, "replicas", "offset", value, {"offset": 1}) for value in (-1, 2, LARGEST)),
    *((PLAIN, "replicas", "control", value, {"offset": 1}) for value in (None,)),
    *((PLAIN, "replicas", "log_start_offset", value, {"offset": 1}) for value in (None, -1)),
    *((PLAIN, "replicas", "log_end_offset", value, {"offset": 1}) for value in (None, -LARGEST)),
    *((PLAIN, "fetch_rounds", "request_fate", value, {"round": 1}) for value in (None, "Held")),
    *((PLAIN, "fetch_rounds", "response_fate", value, {"round": 1}) for value in ("x",)),
    *((PLAIN, "fetch_rounds", "fetch_offset", value, {"round": 1}) for value in (None, -LARGEST)),
    *((PLAIN, "fetch_rounds", "leader", value, {"round": 1}) for value in (None, -1)),
)


def _name(table: str, column: str, value: Any, where: Mapping[str, Any]) -> str:
    text = f"{table}.{column}.{value}.of.{'.'.join(map(str, where.values()))}"
    return "".join(sign if sign.isalnum() or sign in "._-" else "x" for sign in text)


for _story, _table, _column, _value, _where in MISFITS:
    STORIES[_name(_table, _column, _value, _where)] = (
        Changed(_story, _table, _column, _value, _where), "unknown", set(), f"{_table}: ",
    )  # fmt: skip
SENT, POLLED = (0, "ok", "send", "[[:send 0 [0 1]]]"), (1, "ok", "poll", "[[:poll {0 [[0 1]]}]]")
CRASHED = (2, "info", "crash", "nil")
NEXT = "[[:send 0 [1 2]]]"
for _name_of, _ops, _verdict, _reason in (
    ("edn-in-its-words", (SENT, POLLED, CRASHED), "valid", ""),
    ("edn-f-in-capitals", (SENT, POLLED, (2, "ok", "SEND", NEXT)), "unknown", "SEND"),
    ("edn-f-unknown", (SENT, POLLED, (2, "ok", "write", NEXT)), "unknown", "write"),
    (
        "edn-offset-below-0",
        (SENT, POLLED, (2, "ok", "send", "[[:send 0 [-5 2]]]")), "unknown", "offset is -5",
    ),
    (
        "edn-offset-too-large",
        (SENT, POLLED, (2, "ok", "send", f"[[:send 0 [{LARGEST} 2]]]")), "unknown", "offset is",
    ),
):  # fmt: skip
    STORIES[_name_of] = (edn(*_ops), _verdict, set(), _reason)
for _n, _story in enumerate((PLAIN, IN_TRANSACTION, LED)):
    STORIES[f"every-row-is-understood-{_n}"] = (_story, "valid", set(), "")


FEW = 9  # every so many stories go through Spark SQL in `make test`, all in `make proof`
# What was slow or failed in Spark SQL alone is always among them.
ALWAYS = ("twice-", "large-", "lost-though", "edn-", str(LARGEST))
WAYS: Mapping[str, EngineName] = {"duckdb": "duckdb", "spark-few": "spark", "spark-all": "spark"}


@pytest.fixture(scope="module", params=proof_but(WAYS, "duckdb"))
def verdicts(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, Judged]:
    few = {*list(STORIES)[::FEW], *(n for n in STORIES if any(one in n for one in ALWAYS))}
    taken = [name for name in STORIES if request.param != "spark-few" or name in few]
    folder = tmp_path_factory.mktemp(request.param)
    directories = {name: STORIES[name][0].write(folder / name) for name in taken}
    options = Options(engine=WAYS[request.param])
    found = check_runs(spark, directories.values(), options=options)
    return {
        name: judged(verdict, directories[name])
        for name, verdict in zip(directories, found, strict=True)
    }


def test_each_history_is_judged_as_it_is(verdicts: dict[str, Judged]) -> None:
    wrong = {name: found.verdict for name, found in verdicts.items() if not is_right(name, found)}
    assert not wrong


def is_right(name: str, found: Judged) -> bool:
    _, expected, anomalies, reason = STORIES[name]
    verdict = found.verdict
    return (
        verdict.verdict == expected
        and (expected == "unknown" or set(verdict.anomalies) == anomalies)
        and (not reason or any(reason in one for one in verdict.reasons))
    )


def test_what_is_allowed_is_counted_apart(verdicts: dict[str, Judged]) -> None:
    allowed = verdicts["twice-where-producers-are-not-idempotent"].verdict.to_json()
    counted = verdicts["twice-where-producers-are-idempotent"].verdict.to_json()
    assert (allowed["anomalies"], allowed["allowed"]) == ({}, {"duplicate": 1})
    assert (counted["anomalies"], counted["allowed"]) == ({"duplicate": 1}, {})


@pytest.mark.parametrize(
    ("found", "says_so"), [({}, True), ({"availability": 1, "G0": 1}, True), ({"G1a": 1}, False)]
)
def test_that_nothing_could_be_lost_is_said_where_nothing_is(
    found: dict[str, int], says_so: bool
) -> None:
    verdict = judge(unreadable(Path("x"), "."), Counts(found), Options())
    assert any("nothing could be lost" in one for one in verdict.reasons) is says_so
