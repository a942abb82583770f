"""`steps.json`: written, read again, and shown beside the steps; what is damaged is not shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neaptide.results.left_out import (
    STEPS_FILE,
    StepLeftOut,
    StepsLeftOut,
    read_left_out,
    write_left_out,
)
from neaptide.results.report import write_report
from tests.results.losing_run import write_losing_run, write_verdict
from tests.results.page import Page

STEPS = (
    StepLeftOut(1, "sends m1", "acked(m1)", {"lost": 5, "held": 15}, 0, ""),
    StepLeftOut(2, "kills C", "", {"held": 20}, 7, "step 3: it is not so"),
    StepLeftOut(3, "reads", "", {"lost": 19, "held": 1}, 0, ""),
)
LEFT_OUT = StepsLeftOut("neaptide:0.10", "lost", 20, 7, {"lost": 19, "held": 1}, STEPS)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = write_losing_run(tmp_path / "run")
    write_verdict(directory)
    return directory


def test_what_was_written_is_read(run: Path) -> None:
    assert read_left_out(run) is None
    write_left_out(run, LEFT_OUT)
    assert read_left_out(run) == LEFT_OUT


def test_a_step_decides_helps_or_is_not_needed() -> None:
    assert [LEFT_OUT.matters(step) for step in STEPS] == ["helps", "decides", "no"]
    document = LEFT_OUT.to_json()
    assert [(step["still"], step["matters"]) for step in document["steps"]] == [
        (5, "helps"),
        (0, "decides"),
        (19, "no"),
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"steps": 3}', '{"steps": [{"number": "x"}]}']
)
def test_what_cannot_be_read_is_not_shown(run: Path, text: str) -> None:
    (run / STEPS_FILE).write_text(text, encoding="utf-8")
    assert read_left_out(run) is None
    write_report(run)


def test_wrong_counts_are_not_shown(run: Path) -> None:
    for name, value in (("outcomes", 3), ("plays", "many"), ("steps", [7])):
        (run / STEPS_FILE).write_text(json.dumps({**LEFT_OUT.to_json(), name: value}))
        assert read_left_out(run) is None


def test_the_report_shows_it_beside_the_steps(run: Path) -> None:
    assert "Which step matters" not in write_report(run).read_text(encoding="utf-8")
    write_left_out(run, LEFT_OUT)
    texts = Page(write_report(run).read_text(encoding="utf-8")).texts
    begin = texts.index("kills C")
    assert texts[begin : begin + 3] == ["kills C", "0 of 20: it decides", "held 20"]
    assert "5 of 20: it helps" in texts
    assert "19 of 20: not needed" in texts
    assert "in 7 plays step 3: it is not so" in texts


def test_where_nothing_is_lost_the_report_says_so(run: Path) -> None:
    write_left_out(run, StepsLeftOut("neaptide:0.11", "held", 20, 7, {"held": 20}, ()))
    text = " ".join(Page(write_report(run).read_text(encoding="utf-8")).texts)
    assert "nothing is lost there, so no step was left out" in text
