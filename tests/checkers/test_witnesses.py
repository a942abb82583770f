"""An anomaly's evidence names the replicas and the fetch rounds that saw its offset."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from tests.checkers.histories import Story, final, held, poll, send
from tests.checkers.reading import judged
from tests.results.losing_run import A, B, C, write_losing_run

pytestmark = pytest.mark.spark

LOSS = [send("a", 0), send("b", 1), poll((0, "a"), (1, "b")), final((0, "a"), (1, "c"))]


def test_a_lost_record_is_followed_through_replicas_and_rounds(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = write_losing_run(tmp_path / "run")
    replaced = Story(LOSS, [held(0, (0, "a"), (1, "c")), held(1, (0, "a"))]).write(tmp_path / "r")
    unread = Story(LOSS).write(tmp_path / "unread")
    losing, other, without = (
        judged(verdict, directory)
        for verdict, directory in zip(
            check_runs(spark, [run, replaced, unread]), (run, replaced, unread), strict=True
        )
    )
    evidence = losing.evidence("lost-write")
    assert evidence["acks"] == "all"  # what it had before is kept
    assert evidence["replicas"] == []  # no log has the offset
    # Both had it; only B was answered, since the response to A was never delivered.
    assert evidence["rounds"] == [
        {"leader_epoch": 0, "leader": C, "follower": A, "had_in_round": 10},
        {
            "leader_epoch": 0,
            "leader": C,
            "follower": B,
            "had_in_round": 10,
            "committed_in_round": 10,
        },
    ]
    assert other.evidence("lost-write")["replicas"] == [
        {"broker": 0, "value": "c", "leader_epoch": 0}
    ]
    assert "rounds" not in other.evidence("lost-write")
    assert "replicas" not in without.evidence("lost-write")  # their logs were not read: not known
