"""What is new, known, come back or quiet; what fails a night; what is thinned out; rates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from neaptide.clusters.errors import UsageError
from neaptide.harness.nightly.junit import write_junit
from neaptide.harness.nightly.rates import rates
from neaptide.harness.nightly.rows import (
    ROWS_FILE,
    SCHEMA,
    Known,
    known_after,
    news_of,
    of_search,
    row_of,
    write_rows,
)
from neaptide.harness.nightly.state import Ended, Kind
from neaptide.harness.nightly.summary import main_reason
from neaptide.harness.nightly.thin import Stored, to_remove
from neaptide.harness.nightly.trends import wilson
from neaptide.harness.terminal.exits import Exit
from neaptide.harness.terminal.failing import (
    fails,
    last_words,
    parse_fail_on,
    status_of,
    verdict_status,
)
from neaptide.results.run import MissedFault
from tests.harness.nightly.fakes import HELD, LOST, UNKNOWN, Words, play, verdict
from tests.results.losing_run import RUN

KEY = "lost neaptide:0.10 append confluent-kafka acks=all idempotence=no"


def row(words: Words, kind: Kind = "pairs", known: Known = Known(), **of: Any) -> dict[str, Any]:  # noqa: B008
    item = of.pop("item", "cell 1")
    one = play(item, kind, **of)
    return row_of("n1", Ended(one, "/runs/r1", 12.5), verdict(words), known)


# --- keys and news -------------------------------------------------------------------------------


def test_a_key_has_whatever_may_be_why_and_not_what_brought_it_about() -> None:
    assert row(LOST)["key"] == KEY
    assert row(LOST, values={"faults": "cut", "host": "netns", "brokers": "5"})["key"] == KEY
    for other in ({"system": "kafka:3.9.1"}, {"client": "aiokafka"}, {"acks": "1"},
                  {"workload": "txn"}, {"set min.insync.replicas": "1"}):  # fmt: skip
        assert row(LOST, values=other)["key"] != KEY
    assert row(LOST, values={"set a.b": "1"})["key"].endswith("a.b=1")
    assert row(HELD)["key"] == row(UNKNOWN)["key"] == ""


@pytest.mark.parametrize(
    ("words", "expected", "was_quiet", "news"),
    [
        (LOST, "held", False, "came back"),
        (LOST, "held", True, "came back"),
        (LOST, "lost", False, "known"),
        (LOST, "lost", True, "came back"),
        (LOST, None, False, "known"),
        (HELD, "lost", False, "quiet"),
        (HELD, "held", False, ""),
        (HELD, None, False, ""),
        (UNKNOWN, "lost", False, ""),
        (UNKNOWN, "held", True, ""),
    ],
)
def test_news_of_a_known_schedule(
    words: Words, expected: str | None, was_quiet: bool, news: str
) -> None:
    one = play("known a@x", "known", of="a@x", expected=expected)
    known = Known(frozenset({KEY}), frozenset({"a@x"} if was_quiet else ()))
    assert news_of(one, *words, "" if words == HELD else KEY, known) == news


@pytest.mark.parametrize(
    ("kind", "words", "keys", "news"),
    [
        ("pairs", LOST, (), "new"),
        ("swarm", LOST, (), "new"),
        ("swarm", LOST, (KEY,), "known"),
        ("pairs", LOST, (f"{KEY} x=1",), "new"),
        ("pairs", HELD, (), ""),
        ("pairs", UNKNOWN, (), ""),
        ("shrink", LOST, (), ""),
        ("again", LOST, (KEY,), ""),
        ("shrink", ("anomalous", "diverged"), (), "new"),
        ("shrink", ("anomalous", "diverged"), (KEY.replace("lost", "diverged"),), ""),
    ],
)
def test_news_of_a_cell(kind: Kind, words: Words, keys: tuple[str, ...], news: str) -> None:
    of = "" if kind in ("pairs", "swarm") else KEY
    assert row(words, kind, Known(frozenset(keys)), of=of)["news"] == news


def test_a_known_file_keeps_the_key_that_it_was_saved_for() -> None:
    saved_for = "lost neaptide:0.10 append simulation acks=1"
    of: Any = {"of": "a@x", "finding": saved_for, "values": {"workload": "a"}}
    assert row(LOST, "known", **of)["key"] == saved_for
    assert row(("anomalous", "diverged"), "known", **of)["key"].startswith(
        "diverged neaptide:0.10 a"
    )
    elsewhere = {**of, "values": {"system": "neaptide:2.1"}}
    assert row(LOST, "known", **elsewhere)["key"].startswith("lost neaptide:2.1 append conf")


def test_what_earlier_nights_make_known() -> None:
    def nights(of: str, *words: Words) -> list[Any]:
        return [row(one, "known", item=f"known {of}", of=of) for one in words]

    rows = [
        row(LOST),
        *nights("a@x", LOST, HELD, UNKNOWN, HELD, UNKNOWN, HELD),
        *nights("b@x", HELD, HELD, HELD, LOST),
        *nights("c@x", HELD, HELD),  # twice may be chance
    ]
    known = known_after(rows, ["other"])
    assert known.keys == {KEY, "other"}
    assert known.quiet == {"a@x"}  # an unknown night says nothing


# --- rows ----------------------------------------------------------------------------------------


def test_a_row_is_whole_and_comes_back_from_disk(tmp_path: Path) -> None:
    missed = (MissedFault(1, 2.0, "rounds", "x"), MissedFault(2, 3.0, "kill", "y"))
    run = replace(RUN, aimed=5, missed=missed)
    rate = {"fault": "kill", "seconds": 3, "acknowledged": 4, "available_s": 2}
    full = row_of(
        "n1", Ended(play("cell 1"), "/runs/r1", 12.5), verdict(LOST), Known(), run, [rate]
    )
    assert (full["aimed"], full["missed"], full["run"], full["acknowledged"]) == (5, 1, "r1", 7)
    assert full["repeat"] == RUN.repeat
    assert full["settings"] == "acks=all idempotence=no brokers=3"
    none = row_of("n1", Ended(play("cell 2"), None, 1.0, "no"), verdict(UNKNOWN), Known())
    assert none["repeat"] == "neaptide run append"
    write_rows(tmp_path, [full, none])
    table = pq.read_table(tmp_path / ROWS_FILE)
    assert table.schema == SCHEMA
    assert table.to_pylist() == [full, none]


def test_the_verdict_of_a_search() -> None:
    none: dict[str, Any] = {"found": [], "broken": [], "schedules": 500}
    assert of_search(none)["verdict"] == "valid"
    assert of_search({**none, "schedules": 0})["verdict"] == "unknown"
    found = of_search(
        {**none, "found": [{"outcome": "lost"}, {"outcome": "diverged"}, {"outcome": "lost"}]}
    )
    assert (found["verdict"], found["outcome"]) == ("anomalous", "diverged")
    assert found["anomalies"] == {"lost": 2, "diverged": 1}
    broken = of_search({**none, "broken": [{"invariant": "one-leader"}]})
    assert (broken["verdict"], broken["outcome"]) == ("anomalous", "unknown")


# --- what fails ----------------------------------------------------------------------------------

NEW, CAME_BACK = row(LOST), row(LOST, "known", of="a", expected="held")
OLD = row(LOST, known=Known(frozenset({KEY})))


@pytest.mark.parametrize(
    ("words", "failing"),
    [
        ("anomaly", [NEW, OLD, CAME_BACK]),
        ("new", [NEW]),
        ("known", [OLD]),
        ("regression", [CAME_BACK]),
        ("new,regression", [NEW, CAME_BACK]),
        ("unknown", [row(UNKNOWN), row(("unknown", "unavailable"))]),
        ("unavailable", [row(("unknown", "unavailable"))]),
        ("lost", [NEW, OLD, CAME_BACK]),
        ("diverged", [row(("anomalous", "diverged"))]),
        ("lost-write", [NEW, OLD, CAME_BACK, row(("anomalous", "diverged"))]),
        ("duplicate", []),
    ],
)
def test_which_rows_make_the_status_1(words: str, failing: list[Any]) -> None:
    every = [NEW, OLD, CAME_BACK, row(HELD), row(UNKNOWN), row(("unknown", "unavailable")),
             row(("anomalous", "diverged"))]  # fmt: skip
    asked = parse_fail_on(words, of_a_night=True)
    # The last one is new as well, and an anomaly.
    expected = failing + ([every[-1]] if words in ("anomaly", "new", "new,regression") else [])
    assert [one for one in every if fails(one, asked)] == sorted(expected, key=every.index)


@pytest.mark.parametrize(
    ("rows", "words", "status"),
    [
        ([row(HELD)], "anomaly", Exit.AGREES),
        ([row(HELD), NEW], "anomaly", Exit.ANOMALY),
        ([row(HELD), OLD], "new", Exit.AGREES),
        ([row(HELD), row(UNKNOWN)], "anomaly", Exit.UNKNOWN),
        ([row(HELD), row(UNKNOWN)], "unknown", Exit.ANOMALY),
        ([NEW, row(UNKNOWN)], "anomaly", Exit.ANOMALY),
        ([OLD, row(UNKNOWN)], "new", Exit.UNKNOWN),
        ([], "anomaly", Exit.UNKNOWN),
        ([], "unknown", Exit.UNKNOWN),
    ],
)
def test_the_exit_status(rows: list[Any], words: str, status: Exit) -> None:
    assert status_of(rows, parse_fail_on(words, of_a_night=True)) is status


def test_of_runs_that_are_no_night_nothing_is_new() -> None:
    with pytest.raises(UsageError, match="--fail-on 'new' must be one of anomaly, unknown, div"):
        parse_fail_on("new")
    lost = SimpleNamespace(allowed={}, verdict="anomalous", outcome="lost", anomalies={"unseen": 1})
    cycle = SimpleNamespace(
        allowed={}, verdict="anomalous", outcome="anomalous", anomalies={"G1a": 1}
    )
    held: Any = SimpleNamespace(allowed={}, verdict="valid", outcome="held", anomalies={})
    unknown: Any = SimpleNamespace(
        allowed={}, verdict="unknown", outcome="unknown", anomalies={"unseen": 1}
    )
    verdicts: list[Any] = [lost, cycle, held]
    for words, of, status in (
        (("anomaly",), verdicts, 1), (("lost",), verdicts, 1), (("unseen",), verdicts, 1),
        (("duplicate",), verdicts, 0), (("anomalous",), [cycle], 1), (("lost",), [cycle], 0),
        (("anomaly",), [held, unknown], 2), (("unknown",), [held, unknown], 1),
        (("unseen",), [held, unknown], 2), (("anomaly",), [held], 0),
    ):  # fmt: skip
        runs: list[Any] = of
        assert verdict_status(runs, words) == status, (words, of)
    for expected, one, status in (
        ("lost", lost, 0), ("held", lost, 1), ("lost", held, 1), ("held", held, 0),
        ("held", unknown, 2), ("anomalous", cycle, 0),
    ):  # fmt: skip
        of_one: list[Any] = [one]
        assert verdict_status(of_one, expected=expected) == status, (expected, one)


@pytest.mark.parametrize("text", ["anomalies", "", " , ", "held", "new,old"])
def test_what_is_no_word_to_fail_on(text: str) -> None:
    with pytest.raises(UsageError, match="--fail-on"):
        parse_fail_on(text)


def test_the_last_attempt_counts_and_shrinking_does_not() -> None:
    first, again = row(UNKNOWN), {**row(HELD), "play": "cell 1 #2"}
    assert last_words([first, again, row(LOST, "shrink", item="shrink 1", of=KEY)]) == [again]


def test_junit_of_a_night(tmp_path: Path) -> None:
    write_junit([NEW, row(HELD), row(UNKNOWN)], tmp_path / "all.xml")
    text = (tmp_path / "all.xml").read_text(encoding="utf-8")
    assert 'failures="1"' in text
    assert 'errors="1"' in text
    assert "lost, new" in text
    assert "no evidence" in text
    write_junit([], tmp_path / "none.xml")
    assert 'errors="1"' in (tmp_path / "none.xml").read_text(encoding="utf-8")


# --- thinning ------------------------------------------------------------------------------------


def stored(*what: str) -> list[Stored]:
    """`valid:5`: a run of 5 bytes; `shrink:anomalous:5` one of a finding."""
    runs = []
    for n, text in enumerate(what):
        *kind, word, size = text.split(":")
        runs.append(Stored(f"r{n}", kind[0] if kind else "pairs", word, int(size)))
    return runs


@pytest.mark.parametrize(
    ("what", "keep", "gone"),
    [
        (("valid:5", "valid:5"), 10, []),
        (("valid:5", "valid:5"), 9, ["r0"]),
        (("unknown:5", "valid:5", "valid:5"), 9, ["r1", "r2"]),
        (("unknown:5", "valid:5", "valid:5"), 4, ["r1", "r2", "r0"]),
        (("anomalous:5", "valid:5", "anomalous:5"), 3, ["r1"]),
        (("valid:5", "shrink:anomalous:5", "again:valid:5"), 9, ["r1", "r2"]),
    ],
)
def test_valid_runs_go_first_and_anomalous_ones_never(
    what: tuple[str, ...], keep: int, gone: list[str]
) -> None:
    assert to_remove(stored(*what), keep) == gone


# --- numbers -------------------------------------------------------------------------------------


def test_wilson() -> None:
    assert wilson(0, 0) is None
    assert wilson(0, 10) == (0.0, 0.2775)  # Wilson (1927), by hand
    assert wilson(1, 2) == (0.0945, 0.9055)
    assert wilson(10, 10) == (0.7225, 1.0)


def test_a_second_is_of_each_fault_that_lasted_in_it() -> None:
    acknowledged = {3: 10, 4: 0, 5: 20, 7: 30}
    found = rates(acknowledged, [(4.2, 5.0, "kill"), (4.5, 5.5, "cut"), (90.0, 99.0, "kill")])
    by_fault = {one["fault"]: one for one in found}
    assert by_fault["kill"] == {
        "fault": "kill", "seconds": 1, "acknowledged": 0, "available_s": 0,
    }  # fmt: skip
    assert by_fault["cut"] == {
        "fault": "cut", "seconds": 2, "acknowledged": 20, "available_s": 1,
    }  # fmt: skip
    # 3, 6 and 7: in 6 no send ended at all.
    assert by_fault["none"] == {
        "fault": "none", "seconds": 3, "acknowledged": 40, "available_s": 2,
    }  # fmt: skip
    assert rates({}, []) == []


def test_of_a_run_that_did_not_finish_the_last_reason_says_why() -> None:
    interrupted = "The run did not finish: its status is interrupted."
    assert main_reason([interrupted, "There were no final reads.", "Broker 1 ended."]) == (
        "Broker 1 ended."
    )
    assert main_reason([interrupted]) == interrupted
    assert main_reason(["Too few records.", "The replicas were never level."]) == "Too few records."
