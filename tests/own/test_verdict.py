"""What is concluded where nobody could read a replica's log, and how far its final reads count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from neaptide.checkers.material import Material
from neaptide.checkers.proofs import Counts, PartitionCounts
from neaptide.checkers.verdict import Options, RunVerdict, judge
from neaptide.harness.live.ending import is_behind
from neaptide.results.run import FinalRead, Written, parse_run
from tests.checkers.histories import run_of

READ = PartitionCounts(
    "t", 0, operations=3, sends=1, acked=1, polled=1, complete=True, final_records=1
)
ALL = Counts(partitions=(READ,))
ROWS = {"operations": {"c1": Written(1, 3)}}


def judged(counts: Counts, **run: object) -> RunVerdict:
    it = run_of(system="own:theirs", written=ROWS, **run)
    return judge(Material(Path("it"), it, {}, (), True, written=ROWS), counts, Options())


def test_what_clients_saw_is_enough_where_no_log_can_be_read() -> None:
    verdict = judged(ALL, logs_readable=False)
    assert (verdict.verdict, verdict.reasons) == ("valid", ())
    assert (verdict.proofs["replicas-read"], verdict.proofs["replicas-level"]) == (None, None)


def test_where_it_can_be_it_has_to_be() -> None:
    verdict = judged(ALL)
    assert (verdict.verdict, verdict.proofs["replicas-read"]) == ("unknown", False)
    assert verdict.reasons == ("The replicas' logs were not read at the end.",)


def test_clients_that_did_not_come_to_the_end_prove_nothing() -> None:
    verdict = judged(Counts(partitions=(replace(READ, complete=False),)), logs_readable=False)
    assert (verdict.verdict, verdict.proofs["final-reads"]) == ("unknown", False)


def test_a_loss_that_clients_saw_is_a_loss() -> None:
    verdict = judged(replace(ALL, anomalies={"lost-write": 1}), logs_readable=False)
    assert (verdict.verdict, verdict.outcome) == ("anomalous", "lost")


def test_the_record_of_a_run_says_it() -> None:
    """The twin: a run.json from before there was this reads as it did."""
    said = run_of(logs_readable=False, own={"name": "theirs"}, left=("neaptide-5-t",))
    assert parse_run(said.to_json()) == said
    old = {k: v for k, v in said.to_json().items() if k not in ("logs_readable", "own", "left")}
    assert (parse_run(old).logs_readable, parse_run(old).left) == (True, ())


@pytest.mark.parametrize(
    ("end", "last", "is_so"), [(8, 7, True), (7, 7, False), (None, 7, False), (8, None, False)]
)
def test_reads_count_where_they_have_the_last_record(
    end: int | None, last: int | None, is_so: bool
) -> None:
    assert is_behind(FinalRead("t", 0, end, reached=True), last) is is_so
