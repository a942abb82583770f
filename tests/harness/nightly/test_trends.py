"""Spark over the rows of several nights, and the page that is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neaptide.checkers.pipeline.session import local_session
from neaptide.harness.nightly.page import write_page
from neaptide.harness.nightly.rates import rates_of
from neaptide.harness.nightly.rows import Known, row_of, write_rows
from neaptide.harness.nightly.state import Ended, Journal, Kind, read_night
from neaptide.harness.nightly.summary import became, markdown, summary_of
from neaptide.harness.nightly.trends import trends
from tests.harness.nightly.fakes import HELD, LOST, UNKNOWN, Words, play, verdict
from tests.results.losing_run import write_losing_run

pytestmark = pytest.mark.spark

KEY = "lost neaptide:0.10 append confluent-kafka acks=all idempotence=no"
RATES = [
    {"fault": "kill", "seconds": 10, "acknowledged": 50, "available_s": 5},
    {"fault": "none", "seconds": 10, "acknowledged": 100, "available_s": 10},
]
FINDING = {
    "key": KEY, "file": "/n/found/x.json", "run": "r", "again": [2, 3], "confirm": [3, 3],
    "faults": [9, 1], "phases": [5, 1], "complete": True, "simulated": {"file": "y", "steps": 5},
    "why": "",
}  # fmt: skip


def a_night(
    directory: Path, plays: list[tuple[str, Kind, Words, dict[str, Any]]], known: Known
) -> None:
    directory.mkdir(parents=True)
    journal = Journal(directory)
    journal.write("night", 0.0, seed=1, utc=f"{directory.name}T22:00:00+00:00")
    for name, kind, words, of in plays:
        item, _, attempt = name.partition("#")
        one = play(item, kind, **of)
        for _ in range(int(attempt or 1) - 1):
            one = one.again()
        journal.write("started", 1.0, play=one.to_json())
        journal.write("ended", 30.0, play=one.name, run=f"/r/{name}", seconds=20.0, why="")
        ended = Ended(one, f"/r/{name}", 20.0)
        row = row_of(directory.name, ended, verdict(words), known, None, RATES)
        journal.write("checked", 60.0, row=row)
    journal.write("finding", 90.0, **FINDING)
    journal.close()
    write_rows(directory, read_night(directory).rows)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("nights")
    schedule = {"of": "a.json@x", "expected": "lost"}
    a_night(
        directory / "2026-01-01",
        [
            ("cell 1", "pairs", LOST, {}),
            ("cell 2", "pairs", UNKNOWN, {"values": {"faults": "cut"}}),
            ("cell 2#2", "pairs", UNKNOWN, {"values": {"faults": "cut"}}),
            ("shrink 1", "shrink", LOST, {"of": KEY}),
        ],
        Known(),
    )
    a_night(
        directory / "2026-01-02",
        [
            ("known a.json@x", "known", LOST, schedule),
            ("cell 1", "pairs", HELD, {}),
            ("cell 2", "pairs", UNKNOWN, {"values": {"faults": "cut"}}),
            ("cell 2#2", "pairs", HELD, {"values": {"faults": "cut"}}),
            ("cell 3", "swarm", LOST, {}),
        ],
        Known(frozenset({KEY})),
    )
    (directory / "2026-01-03").mkdir()
    empty = Journal(directory / "2026-01-03")
    empty.write("night", 0.0, seed=3, utc="2026-01-03T22:00:00+00:00")
    empty.close()
    return directory


def test_what_all_nights_say_and_their_page(nights: Path, tmp_path: Path) -> None:
    spark = local_session("local[1]")
    try:
        found = trends(spark, nights)
        run = write_losing_run(tmp_path / "run")
        [(directory, rates)] = rates_of(spark, [run]).items()
        nothing = trends(spark, tmp_path / "none")
    finally:
        spark.stop()
    _nights(found)
    _cells(found)
    assert [(one["fault"], one["acknowledged_per_s"], one["available"]) for one in
            found["faults"]] == [("kill", 5.0, 0.5), ("none", 10.0, 1.0)]  # fmt: skip
    # Numbers are left out of reasons, so that the same reason is one; the last attempt counts.
    assert found["unknowns"] == [
        {"why": "Nobody knows N.", "runs": 1, "nights": 1, "systems": ["neaptide:0.10"]}
    ]
    [known] = found["known"]
    of_known = [known[name] for name in ("of", "plays", "lost", "news")]
    assert of_known == ["a.json@x", 1, 1, "known"]
    [finding] = found["findings"]
    assert (finding["key"], finding["nights"], finding["runs"]) == (KEY, 2, 3)
    assert finding["again"] == [2, 3]
    assert directory == run
    assert {one["fault"] for one in rates} == {"hold", "none"}  # its load ends before the kill
    assert sum(one["acknowledged"] for one in rates if one["fault"] == "none") == 1  # m1
    assert nothing == {name: [] for name in found}
    _page(nights, found)


def _nights(found: dict[str, Any]) -> None:
    first, second, third = found["nights"]
    counted = ("runs", "valid", "anomalous", "unknown", "new", "known", "acknowledged")
    assert [first[name] for name in counted] == [2, 0, 1, 1, 1, 0, 14]
    assert [second[name] for name in counted] == [4, 2, 2, 0, 0, 2, 28]
    assert (first["plays_of_findings"], first["seconds"], first["is_over"]) == (1, 90.0, False)
    assert (third["runs"], third["seed"]) == (0, 3)


def _cells(found: dict[str, Any]) -> None:
    kill, cut = found["cells"]
    assert (kill["faults"], kill["runs"], kill["anomalous"], kill["unknown"]) == ("kill", 4, 3, 0)
    assert kill["is_flaky"]
    assert kill["anomalous_interval"] == (0.3006, 0.9544)
    assert (cut["faults"], cut["runs"], cut["anomalous"], cut["unknown"]) == ("cut", 2, 0, 1)
    assert not cut["is_flaky"]
    assert cut["anomalous_interval"] == (0.0, 0.7935)  # of one run that concluded


def _page(nights: Path, found: dict[str, Any]) -> None:
    state = read_night(nights / "2026-01-02")
    summary = summary_of(nights / "2026-01-02", state, ("new",), "the disk is full")
    assert summary["verdicts"] == {"valid": 2, "anomalous": 2, "unknown": 0}
    assert summary["news"] == {"new": 0, "known": 2, "came back": 0, "quiet": 0}
    assert [one["fails"] for one in summary["results"]] == [False] * 4
    page = write_page(nights, found, summary).read_text(encoding="utf-8")
    for said in (
        "4 runs in 1 min 30 s", "the disk is full", "✗ lost, known", "3 of 4", "[30 %, 95 %]",
        "neaptide replay /n/found/x.json", "9 faults became 1", "Nobody knows N.",
        "2026-01-03", "50 % of none",
    ):  # fmt: skip
        assert said in page, said
    assert "http" not in page.replace("http-equiv", "")
    assert json.loads((nights / "trends.json").read_text())["last"]["runs"] == 4
    text = markdown(summary, nights / "index.html")
    assert "☑️ known" in text  # an anomaly, but not one that fails the night
    assert "neaptide replay /n/found/x.json" in text
    empty = summary_of(nights / "2026-01-03", read_night(nights / "2026-01-03"), ("new",), "")
    assert "No evidence" in markdown(empty, nights / "index.html")
    assert "No evidence" in write_page(nights, found, empty).read_text(encoding="utf-8")


def test_what_became_of_a_finding_in_words() -> None:
    assert became(FINDING) == [
        "played again, it came in 2 of 3 runs",
        "9 faults became 1",
        "the smaller schedule loses in 3 of 3",
        "in the simulation 5 steps come to the same",
    ]
    bare = {**FINDING, "again": [0, 0], "confirm": [0, 0], "faults": None, "simulated": None}
    assert became(bare) == ["saved as it was"]
    assert became({**bare, "why": "the night was over"}) == ["the night was over"]
