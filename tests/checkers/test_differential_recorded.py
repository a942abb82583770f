"""The comparison of recorded runs with Jepsen's checker, without that checker."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from neaptide.checkers.verdict import RunVerdict
from tests.checkers.histories import Story, poll, send, txn
from tests.differential.jepsen import Said
from tests.differential.recorded import line, variants

OPS = (
    send("s", 0),
    txn(("send", 1, "a"), ("send", 2, "b")),
    txn(("send", 4, "c"), type="fail"),
    txn(("send", None, "d"), type="fail"),  # it got nowhere: nothing would be lost
    poll((0, "s"), (1, "a"), (2, "b")),
)


def ends(run: Path) -> list[str]:
    rows = pq.read_table(run / "operations").to_pylist()
    return [row["type"] for row in rows if row["f"] == "send"]


def test_one_transaction_ends_otherwise_than_was_recorded(tmp_path: Path) -> None:
    run = Story(OPS).write(tmp_path / "run")
    (tmp_path / "copies").mkdir()
    made = {copy.name: ends(copy) for copy in variants(run, tmp_path / "copies")}
    assert made == {
        "run": ["ok", "ok", "ok", "fail", "fail"],
        "run-lost": ["ok", "ok", "ok", "ok", "fail"],
        "run-aborted": ["ok", "fail", "fail", "fail", "fail"],
    }
    assert ends(run) == made["run"]
    plain = Story([send("s", 0)]).write(tmp_path / "plain")
    assert [copy.name for copy in variants(plain, tmp_path / "copies")] == ["plain"]


def agree(ours: dict[str, int], *errors: str, **sets: frozenset[tuple[int, int]]) -> bool:
    verdict = RunVerdict("run", "anomalous", "lost", ours, 1, (), {})
    theirs = Said(bad=frozenset(errors), sets={n.replace("_", "-"): s for n, s in sets.items()})
    return bool(line("run", verdict, theirs)["agree"])


def test_both_have_to_name_the_same_errors() -> None:
    one, other = frozenset({(0, 1)}), frozenset({(0, 2)})
    assert agree({})
    assert agree({"G1a": 2}, "G1a")
    assert not agree({"G1a": 2})
    assert not agree({}, "G1a")
    assert agree({"high-watermark-regression-at-election": 1})  # Jepsen has no such type
    assert agree({"lost-write": 1}, "lost-write", "unseen", lost_write=one, unseen=one)
    assert not agree({"lost-write": 1}, "lost-write", "unseen", lost_write=one, unseen=other)
    verdict = RunVerdict("run", "valid", "held", {}, 1, (), {})
    assert not line("run", verdict, Said(throws="double-invoke"))["agree"]
