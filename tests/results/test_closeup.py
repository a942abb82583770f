"""Under load the report shows the rounds by which a record was lost, and what missed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from neaptide.results.report import write_report
from neaptide.results.report.closeup import close_up
from neaptide.results.report.rows import load
from neaptide.results.run import MissedFault
from neaptide.results.schema import ANOMALIES
from neaptide.results.store import write_run
from neaptide.results.tables import write_table
from tests.results.losing_run import RUN, A, B, C, write_losing_run, write_verdict


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = write_losing_run(tmp_path / "run")
    write_verdict(directory)
    write_run(directory, replace(RUN, kind="random", expected=None))
    return directory


def test_the_rounds_that_matter_are_chosen_out_of_all(run: Path) -> None:
    found = close_up(load(run))
    assert found is not None
    assert (found.record, found.partition) == ("m2", 0)
    rounds = {(row["follower"], row["leader"], row["round"]) for row in found.rounds}
    assert (A, C, 10) in rounds  # its answer, with the high watermark, was held
    assert (A, B, 1) in rounds  # shows to where A has truncated
    assert {(A, C, 9), (B, C, 9)} <= rounds  # brought the record
    assert (B, C, 10) in rounds  # says that B has it
    assert not any(number < 9 for _, leader, number in rounds if leader == C)


def test_the_page_shows_them(run: Path) -> None:
    text = write_report(run).read_text(encoding="utf-8")
    assert "The fetch rounds around m2" in text
    assert "held 3.1 s" in text


def test_what_missed_is_on_the_page(run: Path) -> None:
    why = "step 3: after 4 s this is still not true: leader is next_leader"
    missed = (MissedFault(2, 13.5, "rounds", why),)
    write_run(run, replace(RUN, kind="random", expected=None, aimed=5, missed=missed))
    text = write_report(run).read_text(encoding="utf-8")
    assert "5 faults were aimed; 1 of them missed." in text
    assert why in text


def test_where_nothing_was_lost_there_is_nothing_to_close_up_on(run: Path) -> None:
    for path in (run / "anomalies").iterdir():
        path.unlink()
    write_table(run / "anomalies", ANOMALIES, [])
    assert close_up(load(run)) is None
    assert "The fetch rounds around" not in write_report(run).read_text(encoding="utf-8")
