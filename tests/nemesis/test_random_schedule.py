"""A random schedule is drawn from its seed alone, stays inside its time, and can be saved."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.drawn.aims import SHAPES as AIMS
from neaptide.nemesis.drawn.episodes import Episode
from neaptide.nemesis.drawn.faults import FAULTS, CutFault, PartitionFault
from neaptide.nemesis.drawn.schedule import (
    Phase,
    Schedule,
    draw_schedule,
    faults_of,
    load_schedule,
    never_drawn,
    parse_faults,
    smaller,
)
from neaptide.nemesis.drawn.shapes import SHAPES

BROKERS = (0, 1, 2)
ALL = tuple(FAULTS)
SEEDS = range(60)


def drawn(seed: int, faults: tuple[str, ...] = ALL, time_s: float = 120) -> Schedule:
    return draw_schedule(seed, faults, BROKERS, time_s, 4)


def saved(schedule: Schedule, file: Path) -> Path:
    file.write_text(json.dumps([phase.to_json() for phase in schedule]), encoding="utf-8")
    return file


def test_one_seed_gives_one_schedule() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_another_process_with_other_hashes_draws_the_same(hash_seed: str) -> None:
    code = (
        "from neaptide.nemesis.drawn.schedule import *; "
        "print(draw_schedule(7, tuple(FAULTS), (0, 1, 2), 120, 4))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == str(drawn(7))


def test_phases_follow_each_other_with_calm_between_and_end_in_time() -> None:
    for seed in SEEDS:
        ends = 0.0
        for phase in drawn(seed, time_s=60):
            assert phase.at_s >= ends + 1.9
            ends = phase.at_s + phase.lasts_s
        assert 0 < ends <= 60


def test_only_the_faults_that_were_asked_for_are_drawn_and_each_seed_has_its_own_mix() -> None:
    asked = ("kill", "cut", "pause")
    mixes = [
        Counter(timed.fault.kind for phase in drawn(seed, asked, 300) for timed in phase.faults)
        for seed in SEEDS
    ]
    assert {name for mix in mixes for name in mix} == set(asked)
    assert len({mix.most_common(1)[0][0] for mix in mixes}) == 3
    assert drawn(3, ()) == ()


@pytest.mark.parametrize("asked", [("kill", "pause", "cut"), ("kill", "restart", "slow", "clock")])
def test_a_run_that_is_long_enough_has_each_fault_that_was_asked_for(
    asked: tuple[str, ...],
) -> None:
    for seed in SEEDS:
        schedule = drawn(seed, asked, 300)
        assert never_drawn(asked, schedule) == ()
        assert [phase.at_s for phase in schedule] == sorted(phase.at_s for phase in schedule)


def test_what_a_short_run_has_no_room_for_is_named() -> None:
    schedule = drawn(1, ("kill", "pause", "cut"), 12)
    left = never_drawn(("kill", "pause", "cut"), schedule)
    assert left
    assert {*left, *faults_of(schedule)} == {"kill", "pause", "cut"}
    assert never_drawn((), schedule) == ()


def test_every_fault_of_the_table_is_drawn_some_time_and_several_at_once() -> None:
    phases = [phase for seed in SEEDS for phase in drawn(seed)]
    assert {timed.fault.kind for phase in phases for timed in phase.faults} == set(FAULTS)
    assert {len(phase.faults) for phase in phases} == {1, 2, 3}


def test_an_aimed_fault_is_alone_and_links_are_cut_by_one_fault_at_a_time() -> None:
    for seed in SEEDS:
        for phase in drawn(seed):
            faults = [timed.fault for timed in phase.faults]
            assert len(faults) == 1 or not any(isinstance(one, Episode) for one in faults)
            assert sum(isinstance(one, CutFault | PartitionFault) for one in faults) <= 1


def test_aimed_faults_are_never_left_out_where_they_were_asked_for() -> None:
    for seed in SEEDS:
        assert "rounds" in faults_of(drawn(seed, ("rounds", "kill")))


def test_a_saved_schedule_is_the_same_again(tmp_path: Path) -> None:
    for seed in SEEDS:
        file = saved(drawn(seed), tmp_path / "schedule.json")
        assert load_schedule(file, BROKERS, 4) == drawn(seed)


def test_the_schedule_of_a_run_is_found_in_its_directory(tmp_path: Path) -> None:
    phases = [phase.to_json() for phase in drawn(5)]
    (tmp_path / "run.json").write_text(json.dumps({"schedule": phases}), encoding="utf-8")
    assert load_schedule(tmp_path, BROKERS, 4) == drawn(5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "'schedule' is missing"),
        ("[1]", "no schedule"),
        ('[{"at_s": 1, "faults": []}]', "without faults"),
        ('[{"at_s": 1, "faults": [{"after_s": 0, "lasts_s": 1, "kind": "flood"}]}]', "flood"),
        ("not JSON", "no schedule"),
    ],
)
def test_a_file_without_a_schedule_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "schedule.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=says):
        load_schedule(file, BROKERS, 4)


def test_a_schedule_for_more_brokers_or_partitions_is_refused(tmp_path: Path) -> None:
    file = saved(drawn(1, ("kill",)), tmp_path / "schedule.json")
    with pytest.raises(UsageError, match="raise --brokers"):
        load_schedule(file, (0, 1), 4)
    aimed = saved(drawn(1, ("rounds",)), tmp_path / "schedule.json")
    with pytest.raises(UsageError, match="raise --partitions"):
        load_schedule(aimed, BROKERS, 1)


def size(schedule: Schedule) -> int:
    def of(phase: Phase) -> int:
        return sum(len(t.fault.steps) if isinstance(t.fault, Episode) else 1 for t in phase.faults)

    return sum(map(of, schedule))


def test_what_is_smaller_has_less_in_it_and_can_be_played() -> None:
    schedule = drawn(2)
    less = list(smaller(schedule))
    assert len(less) > size(schedule) / 2
    for one in less:
        assert 0 < size(one) < size(schedule)


def shrunk(schedule: Schedule, step: str) -> Schedule:
    """As far as a schedule goes while one of its aimed faults has this verb."""
    while True:
        for less in smaller(schedule):
            if any(
                isinstance(timed.fault, Episode) and any(step in one for one in timed.fault.steps)
                for phase in less
                for timed in phase.faults
            ):
                schedule = less
                break
        else:
            return schedule


def test_shrinking_comes_to_the_one_step_that_matters() -> None:
    schedule = next(s for s in map(drawn, SEEDS) if '"pause": {' in json.dumps(_json(s)))
    [phase] = shrunk(schedule, "pause")
    [timed] = phase.faults
    assert isinstance(timed.fault, Episode)
    assert [next(iter(step)) for step in timed.fault.steps] == ["pause"]
    assert replace(phase, faults=()).at_s == phase.at_s


def _json(schedule: Schedule) -> list[object]:
    return [phase.to_json() for phase in schedule]


@pytest.mark.parametrize("text", ["kill,boom", "", "none,kill"])
def test_an_unknown_fault_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=", ".join(FAULTS)):
        parse_faults(text)


def test_none_is_no_fault_and_all_is_every_one() -> None:
    assert parse_faults("none") == ()
    assert parse_faults("pause, kill,pause") == ("pause", "kill")
    assert parse_faults("kill,all") == ALL


def test_the_documentation_has_every_shape() -> None:
    text = (Path(__file__).parents[2] / "docs" / "nemesis.md").read_text(encoding="utf-8")
    for shape in (*AIMS, *SHAPES):
        assert f"`{shape}`" in text
