"""Nothing is called fine without proof: what a run lacks makes it unknown, and what is proved
counts, however it came about. Each history has a twin in which the proof is there.

All histories are judged in one Spark job; each test then looks at its own. Not here: what the
harness does when something dies (tests/harness), histories that cannot be read (test_unreadable).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from neaptide.checkers.evidence import replacement
from neaptide.checkers.histories.reader import fill_run, write_parts
from neaptide.checkers.histories.splits import splits
from neaptide.checkers.material import open_run
from neaptide.checkers.verdict import Options
from neaptide.results.outcomes import RULES_VERSION
from neaptide.results.run import RUN_FILE, Assigned, Converged, FinalRead, Incident
from neaptide.results.schema import OPERATIONS_READ
from neaptide.results.store import write_run
from neaptide.results.tables import TableWriter
from neaptide.results.verdicts import VERDICT_FILE
from tests.checkers.conftest import Judge, Writable
from tests.checkers.histories import (
    COMPACT,
    RETENTION,
    Op,
    Story,
    commit,
    final,
    held,
    operation_rows,
    poll,
    reached,
    run_of,
    send,
    txn,
)
from tests.checkers.reading import Judged

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Damaged:
    """A run of which something was taken, or to which something was done, once it was over."""

    of: Writable
    damage: Callable[[Path], None]

    def write(self, directory: Path) -> Path:
        self.of.write(directory)
        self.damage(directory)
        return directory


@dataclass(frozen=True)
class Edn:
    """A history as Jepsen writes it, one operation a line; by its import it becomes a run."""

    lines: tuple[str, ...]

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True)
        path = directory / "history.edn"
        path.write_text("".join(f"{line}\n" for line in self.lines), encoding="utf-8")
        utc = datetime(2026, 1, 1, tzinfo=UTC)
        fill_run(directory, path, splits(path), write_parts, version="0.1.0", utc=utc)
        return directory


@dataclass(frozen=True)
class InFiles:
    """A history whose sends one writer wrote and whose polls another, an operation a file."""

    ops: tuple[Op, ...]

    def write(self, directory: Path) -> Path:
        with (
            TableWriter(directory / "operations", OPERATIONS_READ, writer="senders") as senders,
            TableWriter(directory / "operations", OPERATIONS_READ, writer="pollers") as pollers,
        ):
            for n, op in enumerate(self.ops):
                writer = senders if op.f == "send" else pollers
                rows = operation_rows(n, op)
                writer.extend([tuple(row.get(c) for c in OPERATIONS_READ.names) for row in rows])
                writer.flush()
        written = {"operations": {"senders": senders.written, "pollers": pollers.written}}
        write_run(directory, run_of(system="jepsen", written=written))
        return directory


def story(*ops: Op, replicas: Any = (), **run: Any) -> Story:
    return Story(ops, replicas=replicas, run=run)


def unsure(op: Op, type: str = "info") -> Op:
    return replace(op, type=type)


def at(op: Op, invoked: int, completed: int) -> Op:
    """The operation at times of its own."""
    times = {"invoked_ns": invoked, "completed_ns": completed}
    return replace(op, rows=tuple(row | times for row in op.rows))


def keyed(key: str, log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"key": key} for row in log]


def without(*names: str) -> Callable[[Path], None]:
    """Files of operations that are gone, by patterns."""

    def delete(run: Path) -> None:
        for name in names:
            for path in (run / "operations").glob(name):
                path.unlink()

    return delete


def with_one_row_less(run: Path) -> None:
    """A writer's last file is there, but not all that it says it wrote."""
    document = json.loads((run / RUN_FILE).read_text())
    document["written"]["operations"]["0"]["rows"] += 1
    (run / RUN_FILE).write_text(json.dumps(document))


def with_a_loop(run: Path) -> None:
    (run / "operations" / "part-1-00000.parquet").symlink_to("part-1-00000.parquet")
    (run / "replicas").symlink_to("replicas")


def with_a_deep_run_json(run: Path) -> None:
    (run / RUN_FILE).write_text("[" * 100_000)


def edn(*ops: tuple[int, str, str, str]) -> Edn:
    """Operations as (process, type, f, value), one after the other in time."""
    lines = []
    for n, (process, type, f, value) in enumerate(ops):
        for index, kind in ((2 * n, "invoke"), (2 * n + 1, type)):
            lines.append(
                f"{{:index {index}, :type :{kind}, :process {process}, :time {10 * index}, "
                f":f :{f}, :value {value}}}"
            )
    return Edn(tuple(lines))


ACKED = (send("a", 0), final((0, "a")))
A, B = (0, "a"), (1, "b")
AB = (send("a", 0), send("b", 1), final(A, B))
ABC = (send("a", 0), send("b", 1), send("c", 2), final(A, B, (2, "c")))
LEVEL = [held(0, A, B), held(1, A, B)]
NEVER_LEVEL = Converged(False, "broker 1 stayed behind")
ON_THREE = (Assigned("t", 0, (0, 1, 2)),)
LOST_IN_FILES = (send("a", 0), send("b", 1), send("c", 2), final(A, (2, "c")))
DELETED = (FinalRead("t", 0, 2, True, start_offset=1),)
TWO = (reached(), reached(partition=1))
INCIDENTS = (
    Incident("client", "The clients' process 3 was killed"),
    Incident("process", "The gate died"),
    Incident("recorder", "Rows were not written: the disk was full"),
    Incident("coordination", "ZooKeeper died"),
)

STORIES: dict[str, Writable] = {
    # nothing was acknowledged
    "no-operation": story(),
    "all-timed-out": story(unsure(send("a")), unsure(send("b")), final()),
    "one-acked": story(*ACKED, unsure(send("b"))),
    "fewer-acked-than-asked": story(*AB, min_acked=3),
    "as-many-acked-as-asked": story(*AB, min_acked=2),
    # replicas never level
    "never-level": story(*ACKED, replicas=[held(0, A), held(1)], converged=NEVER_LEVEL),
    "never-level-but-lost": story(
        send("a", 0), send("b", 1), final(A), replicas=[held(0, A), held(1)], converged=NEVER_LEVEL
    ),
    "level": story(*ACKED, replicas=[held(0, A), held(1, A)]),
    # replicas not read
    "one-of-three-read": story(*ACKED, replicas=[held(0, A)], assigned=ON_THREE),
    "none-named": story(*ACKED, replicas=[held(0, A)], assigned=()),
    "three-of-three-read": story(
        *ACKED, replicas=[held(broker, A) for broker in range(3)], assigned=ON_THREE
    ),
    # replicas that call themselves level and are not
    "lacks-an-offset": story(*ABC, replicas=[held(0, A, B, (2, "c")), held(1, A, (2, "c"))]),
    "is-shorter": story(*AB, replicas=[held(0, A, B), held(1, A)]),
    "all-are-empty-though-read": story(*ACKED, replicas=[held(0), held(1)]),
    "all-are-empty-though-acked": story(
        send("a", 0), final(), replicas=[held(0), held(1)], final_reads=(reached(5, yes=False),)
    ),
    "begins-later": story(
        *ABC, RETENTION, replicas=[held(0, A, B, (2, "c")), held(1, (2, "c"), start=2)]
    ),
    "was-compacted": story(
        *ABC, COMPACT,
        replicas=[
            keyed("k", held(0, A, B, (2, "c"))), keyed("k", held(1, A, (2, "c"))),
        ],
    ),
    "lacks-a-marker": story(
        send("a", 0), send("c", 2), final(A, (2, "c")), COMPACT,
        replicas=[
            [*held(0, A, (2, "c")), held(0, (1, ""))[0] | {
                "value": None, "control": True, "log_end_offset": 3, "high_watermark": 3,
            }],
            held(1, A, (2, "c")),
        ],
    ),
    # a partition that mattered was not read to its end
    "only-unknown-sends-and-no-final-reads": story(*ACKED, unsure(send("x", partition=1))),
    "only-unknown-sends-and-final-reads-fell-short": story(
        *ACKED, unsure(send("x", partition=1)), final((0, "x"), partition=1),
        final_reads=(reached(), reached(5, partition=1, yes=False)),
    ),
    "only-unknown-sends-and-final-reads": story(
        *ACKED, unsure(send("x", partition=1)), final((0, "x"), partition=1), final_reads=TWO
    ),
    "only-read": story(*ACKED, poll((0, None), partition=1)),
    "only-read-and-final-reads": story(
        *ACKED, poll((0, None), partition=1), final((0, None), partition=1), final_reads=TWO
    ),
    # files and rows that are missing
    "whole": InFiles(ABC),
    "whole-and-lost": InFiles(LOST_IN_FILES),
    "a-middle-file-is-gone": Damaged(InFiles(ABC), without("part-senders-00001.parquet")),
    "the-last-file-is-gone": Damaged(InFiles(ABC), without("part-senders-00002.parquet")),
    "all-files-of-one-writer-are-gone": Damaged(InFiles(LOST_IN_FILES), without("part-pollers*")),
    "all-files-of-senders-are-gone": Damaged(InFiles(LOST_IN_FILES), without("part-senders*")),
    "a-row-is-gone": Damaged(story(*AB), with_one_row_less),
    # one bad run among others
    "looping-link": Damaged(story(*AB), with_a_loop),
    "deep-run-json": Damaged(story(*AB), with_a_deep_run_json),
    "beside-them": story(*AB),
    # what went wrong with the harness's own means
    **{
        f"incident-{one.kind}": story(*AB, incidents=(one,)) for one in INCIDENTS
    },
    # after an indeterminate operation a client goes on as a new process
    "sent-below-an-unknown-send": story(
        send("a", 0), unsure(send("A")), send("b", 1), final(A, B, (2, "A"))
    ),
    "sent-below-an-acked-send": story(
        send("a", 0), send("A", 2), send("b", 1), final(A, B, (2, "A"))
    ),
    # acknowledged, and not read because reads do not reach it
    "unread-but-on-the-leaders-disk": story(
        send("a", 0), send("b", 1, acks="1"), final(A),
        replicas=[held(0, A, B, hw=1), held(1, A, hw=1)], converged=NEVER_LEVEL,
        final_reads=(reached(1),),
    ),
    "unread-but-on-all-disks": story(
        send("a", 0), send("b", 1, acks="1"), final(A),
        replicas=[held(0, A, B, hw=1), held(1, A, B, hw=1)], final_reads=(reached(1),),
    ),
    "unread-and-on-no-disk": story(
        send("a", 0), send("b", 1, acks="1"), final(A),
        replicas=[held(0, A), held(1, A)], final_reads=(reached(1),),
    ),
    # commits that overlap in time
    "commits-behind-the-highest": story(
        *ACKED, at(commit(10, process=1), 2, 10), at(commit(12, process=2), 5, 20),
        at(commit(8, process=3), 15, 25),
    ),
    "commits-at-the-same-time": story(
        *ACKED, at(commit(10, process=1), 2, 10), at(commit(12, process=2), 5, 20),
        at(commit(8, process=3), 9, 25),
    ),
    # lost, moved, duplicated
    "acks-0-gone-where-some-was-deleted": story(
        send("a", acks="0"), send("b", 1), final(B), RETENTION, final_reads=DELETED
    ),
    "acks-0-gone": story(send("a", acks="0"), send("b", 1), final(B)),
    "acks-0-there": story(
        send("a", acks="0"), send("b", 1), final(A, B), RETENTION, final_reads=DELETED
    ),
    "found-elsewhere": story(send("a", 5), final((1, "a"))),
    "found-twice": story(send("a", 1), final((1, "a"), (5, "a"))),
    "found-where-it-was-sent": story(send("a", 5), final((5, "a"))),
    # an indeterminate transaction of which one record was read
    "it-committed-and-one-is-lost": edn(
        (0, "info", "txn", "[[:send 0 [0 1]] [:send 0 [1 2]]]"),
        (1, "ok", "txn", "[[:poll {0 [[1 2]]}]]"),
    ),
    "it-committed-and-one-moved": edn(
        (0, "info", "txn", "[[:send 0 [0 1]]]"), (1, "ok", "txn", "[[:poll {0 [[3 1]]}]]")
    ),
    "it-committed-and-one-is-twice": edn(
        (0, "info", "txn", "[[:send 0 [0 1]] [:send 0 [1 2]]]"),
        (1, "ok", "txn", "[[:poll {0 [[0 1] [1 2] [2 2]]}]]"),
    ),
    "it-committed-out-of-order": edn(
        (0, "info", "txn", "[[:send 0 [1 1]] [:send 0 [0 2]]]"),
        (1, "ok", "txn", "[[:poll {0 [[0 2] [1 1]]}]]"),
    ),
    "it-committed-and-all-is-there": edn(
        (0, "info", "txn", "[[:send 0 [0 1]] [:send 0 [1 2]]]"),
        (2, "ok", "txn", "[[:send 0 [2 3]]]"),
        (1, "ok", "txn", "[[:poll {0 [[0 1] [1 2] [2 3]]}]]"),
    ),
    "it-may-not-have-committed": edn(
        (0, "info", "txn", "[[:send 0 [0 1]] [:send 0 [1 2]]]"),
        (2, "ok", "txn", "[[:send 0 [2 3]]]"),
        (1, "ok", "txn", "[[:poll {0 [[2 3]]}]]"),
    ),
    "it-was-read-by-a-failed-poll-only": edn(
        (0, "info", "txn", "[[:send 0 [0 1]] [:send 0 [1 2]]]"),
        (3, "fail", "txn", "[[:poll {0 [[0 1]]}]]"),
        (2, "ok", "txn", "[[:send 0 [2 3]]]"),
        (1, "ok", "txn", "[[:poll {0 [[2 3]]}]]"),
    ),
    # an unsure read is no final read
    "only-a-failed-poll-saw-it": edn(
        (0, "ok", "send", "[[:send 0 [0 1]] [:send 0 [1 2]]]"),
        (1, "fail", "poll", "[[:poll {0 [[0 1]]}]]"),
        (2, "ok", "poll", "[[:poll {0 [[1 2]]}]]"),
    ),
    "only-an-unsure-poll-saw-it": edn(
        (0, "ok", "send", "[[:send 0 [0 1]] [:send 0 [1 2]]]"),
        (1, "info", "poll", "[[:poll {0 [[0 1]]}]]"),
        (2, "ok", "poll", "[[:poll {0 [[1 2]]}]]"),
    ),
    "a-failed-poll-saw-the-highest": edn(
        (0, "ok", "send", "[[:send 0 [0 1]] [:send 0 [1 2]]]"),
        (1, "fail", "poll", "[[:poll {0 [[0 1] [1 2]]}]]"),
        (2, "ok", "poll", "[[:poll {0 [[0 1]]}]]"),
    ),
    "a-failed-poll-saw-what-others-did": edn(
        (0, "ok", "send", "[[:send 0 [0 1]] [:send 0 [1 2]]]"),
        (1, "fail", "poll", "[[:poll {0 [[0 1]]}]]"),
        (2, "ok", "poll", "[[:poll {0 [[0 1] [1 2]]}]]"),
    ),
    # read before it was sent
    **{
        f"{type}-poll-before-the-send{where}": story(
            unsure(poll(A), type), send("a", 0), *more, final(A, *read)
        )
        for type in ("ok", "info", "fail")
        for where, more, read in (
            ("", (), ()),
            ("-among-transactions", (txn(("send", 1, "b")),), (B,)),
        )
    },
}  # fmt: skip


# Lines of a poll and of a send, both with a part of the nanosecond 5.
POLLS = ("[[:poll]]", "[[:poll {0 [[0 1]]}]]")
SENDS = ("[[:send 0 1]]", "[[:send 0 [0 1]]]")


def in_turn(poll: str, send: str, *turns: tuple[int, str, int]) -> Edn:
    """Lines in the order of their indices, each of a process and kind, at a time."""
    lines = []
    for index, (process, type, time) in enumerate(turns):
        f, values = (poll, POLLS) if process else (send, SENDS)
        lines.append(
            f"{{:index {index}, :type :{type}, :process {process}, :time {time}, :f :{f}, "
            f":value {values[type == 'ok']}}}"
        )
    return Edn(tuple(lines))


for poll_f, send_f in (("poll", "send"), ("txn", "txn")):
    STORIES[f"equal-times-read-before-{send_f}"] = in_turn(
        poll_f, send_f, (1, "invoke", 0), (1, "ok", 5), (0, "invoke", 5), (0, "ok", 9)
    )
    STORIES[f"equal-times-read-during-{send_f}"] = in_turn(
        poll_f, send_f, (1, "invoke", 0), (0, "invoke", 5), (1, "ok", 5), (0, "ok", 9)
    )


@pytest.fixture(scope="module")
def verdicts(judge: Judge) -> dict[str, Judged]:
    return judge(STORIES)


@dataclass(frozen=True)
class Looking:
    """What was found, and asserted of it in a line."""

    at: dict[str, Judged]

    def valid(self, *names: str) -> None:
        for name in names:
            found = self.at[name]
            assert (found.verdict.verdict, found.found) == ("valid", set()), (name, found.verdict)

    def unknown(self, name: str, why: str, anomalies: Collection[str] = ()) -> None:
        verdict = self.at[name].verdict
        assert verdict.verdict == "unknown", verdict
        assert any(why in reason for reason in verdict.reasons), verdict.reasons
        assert set(verdict.anomalies) == set(anomalies)

    def anomalous(self, name: str, *found: tuple[str, int | None, str | None]) -> None:
        judged = self.at[name]
        assert (judged.verdict.verdict, judged.found) == ("anomalous", set(found)), judged.verdict


@pytest.fixture
def looking(verdicts: dict[str, Judged]) -> Looking:
    return Looking(verdicts)


def test_nothing_was_acknowledged(looking: Looking) -> None:
    looking.unknown("no-operation", "Nothing was acknowledged")
    looking.unknown("all-timed-out", "Nothing was acknowledged")
    looking.valid("one-acked")


def test_fewer_were_acknowledged_than_a_run_asks_for(looking: Looking) -> None:
    looking.unknown("fewer-acked-than-asked", "Only 2 records were acknowledged")
    looking.valid("as-many-acked-as-asked")


def test_fewer_were_acknowledged_than_the_check_asks_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = story(*AB, min_acked=1).write(tmp_path / "run")
    (more,) = check_runs(spark, [run], options=Options(min_acked=3))
    assert (more.verdict, more.proofs["enough-acknowledged"]) == ("unknown", False)
    (as_many,) = check_runs(spark, [run], options=Options(min_acked=2))
    assert (as_many.verdict, as_many.proofs["enough-acknowledged"]) == ("valid", True)


def test_replicas_never_were_level(looking: Looking) -> None:
    looking.unknown("never-level", "were never level (broker 1 stayed behind)")
    looking.anomalous("never-level-but-lost", ("unseen", 1, "b"))
    looking.valid("level")


def test_logs_of_only_one_of_three_brokers_were_read(looking: Looking) -> None:
    looking.unknown("one-of-three-read", "not read: t-0 of broker 1, t-0 of broker 2.")
    looking.unknown("none-named", "which brokers hold which partition")
    looking.valid("three-of-three-read")


def test_replicas_that_call_themselves_level_and_are_not(looking: Looking) -> None:
    looking.anomalous("lacks-an-offset", ("replica-hole", 1, None))
    looking.anomalous("is-shorter", ("replica-hole", 1, None))
    looking.anomalous("all-are-empty-though-read", ("replica-hole", 0, None))
    looking.anomalous("all-are-empty-though-acked", ("replica-hole", 0, None))
    looking.valid("begins-later", "was-compacted", "lacks-a-marker")


def test_a_partition_that_mattered_was_not_read_to_its_end(looking: Looking) -> None:
    looking.unknown("only-unknown-sends-and-no-final-reads", "t-1 cannot be judged: there were no")
    looking.unknown("only-unknown-sends-and-final-reads-fell-short", "t-1 cannot be judged: its")
    looking.valid("only-unknown-sends-and-final-reads")
    # What is read there nobody has sent.
    [why] = looking.at["only-read"].verdict.reasons
    assert "t-1 cannot be judged: there were no" in why
    looking.anomalous("only-read-and-final-reads", ("phantom", 0, "⟨null⟩"))


def test_rows_or_files_are_missing(looking: Looking) -> None:
    of_three = "2 rows in 2 files of the writer 'senders', which wrote 3 rows in 3 files"
    looking.unknown("a-middle-file-is-gone", of_three, {"phantom"})
    looking.unknown("the-last-file-is-gone", of_three, {"phantom"})
    looking.unknown("all-files-of-one-writer-are-gone", "has 0 rows in 0 files", {"unseen"})
    looking.unknown("all-files-of-senders-are-gone", "has 0 rows in 0 files", {"phantom"})
    looking.unknown("a-row-is-gone", "which wrote 5 rows in 1 files")
    looking.valid("whole")
    looking.anomalous("whole-and-lost", ("lost-write", 1, "b"), ("int-poll-skip", 2, "c"))


def test_one_bad_run_disturbs_no_other(looking: Looking) -> None:
    looking.unknown("looping-link", "part-1-00000.parquet is no file")
    looking.unknown("deep-run-json", "nested too deeply")
    looking.valid("beside-them")


def test_a_run_whose_directory_is_a_loop_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (reason,) = open_run(tmp_path / "loop").reasons
    assert reason.startswith(str(tmp_path / "loop"))
    (tmp_path / "run").mkdir()
    assert "run.json is missing" in open_run(tmp_path / "run").reasons[0]


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.kind)
def test_what_went_wrong_with_the_harness_itself(looking: Looking, incident: Incident) -> None:
    looking.unknown(f"incident-{incident.kind}", incident.why)
    looking.valid("beside-them")


def test_after_an_indeterminate_send_a_client_is_a_new_process(looking: Looking) -> None:
    looking.valid("sent-below-an-unknown-send")
    looking.anomalous(
        "sent-below-an-acked-send",
        ("nonmonotonic-send", 1, "b"),
        ("reordered", 1, "b"),
        ("G0-realtime", 1, "b"),
    )


def test_unread_is_not_lost_while_a_disk_has_it(looking: Looking) -> None:
    looking.unknown("unread-but-on-the-leaders-disk", "may not be lost")
    looking.unknown("unread-but-on-all-disks", "may not be lost")
    looking.anomalous("unread-and-on-no-disk", ("unseen", 1, "b"))


def test_a_commit_is_judged_by_the_highest_acknowledged_before_it(looking: Looking) -> None:
    looking.anomalous("commits-behind-the-highest", ("commit-regression", 8, None))
    looking.valid("commits-at-the-same-time")


def test_what_retention_may_have_deleted_is_not_proved_lost(looking: Looking) -> None:
    looking.unknown("acks-0-gone-where-some-was-deleted", "retention may have deleted them")
    looking.anomalous("acks-0-gone", ("lost-write", None, "a"))
    looking.valid("acks-0-there")


def test_moved_and_duplicated_are_two_anomalies(looking: Looking) -> None:
    looking.anomalous("found-elsewhere", ("moved", 5, "a"))
    looking.anomalous("found-twice", ("duplicate", 5, "a"))
    looking.valid("found-where-it-was-sent")


def test_what_a_transaction_claims_counts_once_it_was_read(looking: Looking) -> None:
    looking.anomalous("it-committed-and-one-is-lost", ("lost-write", 0, "1"))
    looking.anomalous("it-committed-and-one-moved", ("moved", 3, "1"))
    looking.anomalous("it-committed-and-one-is-twice", ("duplicate", 2, "2"))
    looking.anomalous("it-committed-out-of-order", ("int-nonmonotonic-send", 0, "2"))
    looking.valid("it-committed-and-all-is-there", "it-may-not-have-committed")
    looking.valid("it-was-read-by-a-failed-poll-only")


def test_a_poll_that_did_not_succeed_is_no_final_read(looking: Looking) -> None:
    looking.anomalous("only-a-failed-poll-saw-it", ("lost-write", 0, "1"))
    looking.anomalous("only-an-unsure-poll-saw-it", ("lost-write", 0, "1"))
    looking.anomalous("a-failed-poll-saw-the-highest", ("unseen", 1, "2"))
    looking.valid("a-failed-poll-saw-what-others-did")


@pytest.mark.parametrize("where", ["", "-among-transactions"])
def test_a_poll_that_did_not_succeed_has_no_place_in_time(looking: Looking, where: str) -> None:
    looking.valid(f"info-poll-before-the-send{where}", f"fail-poll-before-the-send{where}")
    verdict = looking.at[f"ok-poll-before-the-send{where}"].verdict
    assert (verdict.verdict, dict(verdict.anomalies)) == ("anomalous", {"G1c-realtime": 1})


@pytest.mark.parametrize("send_f", ["send", "txn"])
def test_where_times_are_equal_the_order_of_the_lines_holds(looking: Looking, send_f: str) -> None:
    verdict = looking.at[f"equal-times-read-before-{send_f}"].verdict
    assert (verdict.verdict, dict(verdict.anomalies)) == ("anomalous", {"G1c-realtime": 1})
    looking.valid(f"equal-times-read-during-{send_f}")


def test_a_verdict_says_by_what_it_was_made(spark: SparkSession, tmp_path: Path) -> None:
    made = story(*AB, replicas=LEVEL).write(tmp_path / "run")
    check_runs(spark, [made], options=Options(thorough=True, min_acked=2))
    verdict = json.loads((made / VERDICT_FILE).read_text())
    assert verdict["made_by"] == {"rules": RULES_VERSION, "thorough": True, "min_acked": 2}
    assert verdict["rows"] == {"operations": 4, "replicas": 4}
    check_runs(spark, [made])
    again = json.loads((made / VERDICT_FILE).read_text())
    assert again["made_by"] == {"rules": RULES_VERSION, "thorough": False, "min_acked": None}


def test_evidence_stays_until_the_new_is_whole(tmp_path: Path) -> None:
    def write(text: str, error: Exception | None = None) -> None:
        with replacement(tmp_path, "anomalies") as directory:
            directory.mkdir()
            (directory / "part").write_text(text)
            if error is not None:
                raise error

    write("old")
    with pytest.raises(OSError, match="the disk is full"):
        write("half", OSError("the disk is full"))
    assert (tmp_path / "anomalies" / "part").read_text() == "old"
    write("new")
    assert (tmp_path / "anomalies" / "part").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["anomalies"]


def test_what_is_proved_without_an_acknowledgement_keeps_its_outcome(judge: Judge) -> None:
    """Nothing was acknowledged, but two replicas that are level hold different records."""
    differ = [held(0, (0, "a")), held(1, (0, "b"))]
    same = [held(0, (0, "a")), held(1, (0, "a"))]
    sent = [send("a", type="info"), send("b", type="info"), final((0, "a"))]
    found = judge({"differ": Story(sent, replicas=differ), "same": Story(sent, replicas=same)})
    assert (found["differ"].verdict.verdict, found["differ"].verdict.outcome) == (
        "anomalous", "diverged",
    )  # fmt: skip
    assert found["same"].verdict.outcome == "unavailable"
