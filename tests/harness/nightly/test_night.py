"""A night plays what it should, in order, within its limits; cut off anywhere it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.harness.nightly.night import OVERHEAD_S
from neaptide.harness.nightly.rows import Known
from neaptide.harness.nightly.state import (
    JOURNAL,
    Journal,
    Play,
    last_unfinished,
    nights_in,
    parse_journal,
    read_night,
)
from neaptide.harness.terminal.failing import last_words
from tests.harness.nightly.fakes import (
    HELD,
    LOST,
    UNKNOWN,
    Clock,
    Fakes,
    Words,
    live_cells,
    night,
    play,
)

KNOWN = [play("known a.json@x", "known", of="a.json@x", expected="held"),
         play("known b.json@x", "known", of="b.json@x", expected="lost")]  # fmt: skip


def comes_to(one: Play) -> Words:
    """Cell 3 loses whenever it is played; cell 5 and the first known prove nothing at first."""
    if one.item == "cell 3" or one.kind == "again":
        return LOST
    if one.item in ("cell 5", "known a.json@x") and one.attempt == 1:
        return UNKNOWN
    return HELD


def words_of(directory: Path) -> set[tuple[str, str, str]]:
    rows = read_night(directory).rows
    played = {(row["play"].rpartition(" #")[0], row["outcome"], "") for row in rows}
    return {item for item in played if item[0].startswith("again")} | {
        (row["play"].rpartition(" #")[0], row["outcome"], row["news"]) for row in last_words(rows)
    }


def test_known_schedules_come_first_then_cells_and_the_unknown_again(tmp_path: Path) -> None:
    fakes = Fakes(comes_to)
    night(tmp_path, fakes, known=KNOWN, cells=8, retries=1, jobs=1, searches=0)
    assert fakes.played[:2] == ["known a.json@x #1", "known b.json@x #1"]
    assert fakes.played.index("known a.json@x #2") < fakes.played.index("cell 5 #1")
    assert "cell 5 #2" in fakes.played
    assert "cell 5 #3" not in fakes.played
    assert {name.rpartition(" #")[0] for name in fakes.played} == {
        "known a.json@x", "known b.json@x", *(f"cell {n}" for n in range(1, 9)),
        "again 1 of cell 3", "again 2 of cell 3",
    }  # fmt: skip
    assert words_of(tmp_path) >= {("cell 3", "lost", "new"), ("known b.json@x", "held", "quiet")}
    assert read_night(tmp_path).findings.keys() == {
        "lost neaptide:0.10 append confluent-kafka acks=3 idempotence=no"
    }


def test_nobody_asked_for_another_try(tmp_path: Path) -> None:
    fakes = Fakes(comes_to)
    night(tmp_path, fakes, cells=8)
    assert "cell 5 #2" not in fakes.played


def test_an_anomaly_is_not_tried_again_and_a_known_one_is_not_looked_into(tmp_path: Path) -> None:
    key = "lost neaptide:0.10 append confluent-kafka acks=3 idempotence=no"
    fakes = Fakes(comes_to, Known(frozenset({key})))
    night(tmp_path, fakes, cells=4, retries=3)
    assert sorted(fakes.played) == [f"cell {n} #1" for n in range(1, 5)]
    assert ("cell 3", "lost", "known") in words_of(tmp_path)


@pytest.mark.parametrize("jobs", [1, 3])
def test_so_many_at_once_and_no_more(tmp_path: Path, jobs: int) -> None:
    fakes = Fakes()
    night(tmp_path, fakes, cells=40, jobs=jobs, searches=0)
    assert fakes.most_at_once == jobs
    assert len(fakes.played) == 40


def test_searches_have_places_of_their_own_or_every_fifth(tmp_path: Path) -> None:
    beside = Fakes()
    night(tmp_path / "beside", beside, jobs=1, searches=2, cells=30)
    assert beside.most_at_once == 3
    by_turns = Fakes()
    night(tmp_path / "turns", by_turns, jobs=1, searches=0, cells=30)
    kinds = ["search" if int(n.split()[1]) % 2 == 0 else "live" for n in by_turns.played[:15]]
    assert kinds == (["live"] * 4 + ["search"]) * 3


def test_nothing_begins_that_would_end_after_the_budget(tmp_path: Path) -> None:
    clock = Clock()
    fakes = Fakes(clock=clock, takes_s=0.0)
    one = night(tmp_path, fakes, jobs=1, searches=0, budget_s=OVERHEAD_S + 10)
    # The first shows that a run takes no longer than its load: after it five more fit.
    assert len(fakes.played) == 5
    assert one.used_s <= OVERHEAD_S + 10
    assert not one.stopped


def test_findings_do_not_starve_new_cells(tmp_path: Path) -> None:
    fakes = Fakes(lambda one: LOST)
    night(tmp_path, fakes, jobs=1, searches=0, live=live_cells(9), simulated=iter(()), cells=9)
    kinds = [name.split()[0] for name in fakes.played]
    assert kinds[:2] == ["cell", "cell"]
    assert "again" in kinds[2:4]
    assert kinds.count("again") == 2 * kinds.count("cell") == 10
    assert "cell" in kinds[4:7]


def test_what_else_a_play_of_a_finding_does_is_a_finding(tmp_path: Path) -> None:
    other = ("anomalous", "diverged")
    names = {"cell 1": LOST, "again 1 of cell 1": LOST, "again 2 of cell 1": other}
    fakes = Fakes(lambda one: names.get(one.item, other if one.kind == "again" else HELD))
    night(tmp_path, fakes, cells=1)
    findings = read_night(tmp_path).findings
    assert {key.split()[0] for key in findings} == {"lost", "diverged"}
    assert "again 2 of again 2 of cell 1 #1" in fakes.played
    assert len(fakes.played) == 5
    words = {(row["outcome"], row["news"]) for row in last_words(read_night(tmp_path).rows)}
    assert words == {("lost", "new"), ("diverged", "new")}


def test_a_finding_for_which_there_is_no_time_says_so(tmp_path: Path) -> None:
    fakes = Fakes(lambda one: LOST, takes_s=0.0)
    night(
        tmp_path, fakes, jobs=1, searches=0, budget_s=OVERHEAD_S + 10, live=live_cells(1),
        simulated=iter(()),
    )  # fmt: skip
    [finding] = read_night(tmp_path).findings.values()
    assert finding["again"] == [2, 2]
    other = tmp_path / "short"
    slow = Fakes(lambda one: LOST, takes_s=60.0)
    night(other, slow, jobs=1, searches=0, budget_s=OVERHEAD_S + 10, live=live_cells(1),
          simulated=iter(()))  # fmt: skip
    [finding] = read_night(other).findings.values()
    assert (finding["again"], finding["why"]) == ([0, 0], "the night was over")


def test_without_room_nothing_new_begins(tmp_path: Path) -> None:
    answers = iter([None, None, "the disk is full"])
    fakes = Fakes(room=lambda: next(answers, "no"))
    one = night(tmp_path, fakes, jobs=1, searches=0)
    assert one.stopped == "the disk is full"
    assert 0 < len(fakes.played) < 4
    assert len(read_night(tmp_path).rows) == len(fakes.played)


def test_a_failure_ends_the_night_and_is_not_lost(tmp_path: Path) -> None:
    class Failing(Fakes):
        async def play(self, play: Play):  # type: ignore[no-untyped-def]
            if play.item == "cell 5":
                raise RuntimeError("a bug")
            return await super().play(play)

    with pytest.raises(RuntimeError, match="a bug"):
        night(tmp_path, Failing())
    assert "cell 5" in {play.item for play in read_night(tmp_path).open.values()}


# --- cut off anywhere ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_from_each_prefix_of_its_journal_a_night_comes_to_the_same(
    tmp_path: Path, jobs: int
) -> None:
    limits = {"cells": 6, "retries": 1, "jobs": jobs, "known": KNOWN}
    night(tmp_path / "whole", Fakes(comes_to), **limits)  # type: ignore[arg-type]
    whole = (tmp_path / "whole" / JOURNAL).read_bytes()
    expected = words_of(tmp_path / "whole")
    findings = read_night(tmp_path / "whole").findings
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) > 30
    for end in [0, *ends]:
        for cut in (end, min(end + 40, len(whole))):  # after a line, and in the middle of one
            directory = tmp_path / f"cut-{cut}"
            directory.mkdir(exist_ok=True)
            (directory / JOURNAL).write_bytes(whole[:cut])
            before = parse_journal(whole[:cut].decode(), "x")
            fakes = Fakes(comes_to)
            night(directory, fakes, **limits)  # type: ignore[arg-type]
            assert words_of(directory) == expected, cut
            assert read_night(directory).findings.keys() == findings.keys()
            judged = {e["row"]["play"] for e in before if e["what"] == "checked"}
            assert judged.isdisjoint(fakes.played)  # nothing that was judged is played again
            ended = {e["play"] for e in before if e["what"] == "ended"}
            assert ended.isdisjoint(fakes.played)
            cut_off = {e["play"]["item"] for e in before if e["what"] == "started"} - {
                name.rpartition(" #")[0] for name in ended
            }
            assert cut_off <= {name.rpartition(" #")[0] for name in fakes.played}
            assert not read_night(directory).open
            assert not read_night(directory).unchecked


def test_time_that_was_used_before_counts(tmp_path: Path) -> None:
    first = Fakes(takes_s=0.0)
    night(tmp_path, first, jobs=1, searches=0, budget_s=100)
    again = Fakes(takes_s=0.0)
    night(tmp_path, again, jobs=1, searches=0, budget_s=100)
    assert len(first.played) == 10
    assert again.played == []


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    night(tmp_path, Fakes(), cells=2)
    path = tmp_path / JOURNAL
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([lines[0], "{half\n", *lines[2:]]), encoding="utf-8")
    with pytest.raises(UsageError, match="line 2 is damaged"):
        read_night(tmp_path)


def test_a_night_is_of_one_process(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    with pytest.raises(UsageError, match="goes on in another process"):
        Journal(tmp_path)
    first.close()
    Journal(tmp_path).close()


def test_the_last_night_that_is_not_over_goes_on(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no night in .* that was cut off"):
        last_unfinished(tmp_path)
    for name in ("2026-01-01", "2026-01-02", "2026-01-03"):
        (tmp_path / name).mkdir()
        journal = Journal(tmp_path / name)
        journal.write("night", 0.0, seed=1)
        if name != "2026-01-02":
            journal.write("over", 5.0)
        journal.close()
    assert [one.name for one in nights_in(tmp_path)] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert last_unfinished(tmp_path).name == "2026-01-02"
