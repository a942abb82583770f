"""A random schedule is drawn from its seed alone, stays inside its time, and can be saved."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.harness.scenarios import saved_schedule
from neaptide.nemesis.acts import Act, Schedule, smaller, without_calm
from neaptide.nemesis.drawn.aims import SHAPES as AIMS
from neaptide.nemesis.drawn.faults import FAULTS, faults_of, kind_of
from neaptide.nemesis.drawn.schedule import draw_schedule, never_drawn, parse_faults
from neaptide.nemesis.minimise import minimise
from neaptide.nemesis.scenario import load_scenario
from neaptide.nemesis.shapes import SHAPES

BROKERS = ("A", "B", "C")
ALL = tuple(FAULTS)
SEEDS = range(60)


def drawn(seed: int, faults: tuple[str, ...] = ALL, time_s: float = 120) -> Schedule:
    return draw_schedule(seed, faults, BROKERS, time_s, 4)


def saved(schedule: Schedule, file: Path) -> Path:
    topic = "t", [list(BROKERS)] * 4
    command = "neaptide run append --system neaptide:0.10 --nemesis all --time 60 --set 'a.b=c d'"
    document = saved_schedule.document_of("drawn", command, BROKERS, topic, schedule)
    saved_schedule.save(document, file)
    return file


def test_one_seed_gives_one_schedule() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_another_process_with_other_hashes_draws_the_same(hash_seed: str) -> None:
    code = (
        "from neaptide.nemesis.drawn.schedule import *; "
        "print(draw_schedule(7, tuple(FAULTS), ('A', 'B', 'C'), 120, 4))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == str(drawn(7))


def phases(schedule: Schedule) -> list[list[Act]]:
    """What there is at the same time, or almost."""
    found: list[list[Act]] = []
    for act in schedule:
        if found and act.at_s < max(one.ends_s for one in found[-1]) + 1.9:
            found[-1].append(act)
        else:
            found.append([act])
    return found


def test_acts_are_in_order_with_calm_between_some_and_end_in_time() -> None:
    for seed in SEEDS:
        schedule = drawn(seed, time_s=60)
        times = [act.at_s for act in schedule]
        assert times == sorted(times)
        assert times[0] >= 2.0
        assert max(act.ends_s for act in schedule) <= 60
        assert len(phases(schedule)) > 2


def test_only_the_faults_that_were_asked_for_are_drawn_and_each_seed_has_its_own_mix() -> None:
    asked = ("kill", "cut", "pause")
    mixes = [Counter(kind_of(act.verb) for act in drawn(seed, asked, 300)) for seed in SEEDS]
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


def test_what_a_short_run_has_no_room_for_is_named() -> None:
    schedule = drawn(1, ("kill", "pause", "cut"), 12)
    left = never_drawn(("kill", "pause", "cut"), schedule)
    assert left
    assert {*left, *faults_of(schedule)} == {"kill", "pause", "cut"}
    assert never_drawn((), schedule) == ()


def test_every_fault_of_the_table_is_drawn_some_time_and_several_at_once() -> None:
    found = [phase for seed in SEEDS for phase in phases(drawn(seed))]
    kinds = [set(faults_of(tuple(phase))) for phase in found]
    assert set().union(*kinds) == set(FAULTS)
    assert {len(one) for one in kinds} >= {1, 2, 3}


def test_an_aimed_fault_is_alone_and_links_are_cut_by_one_fault_at_a_time() -> None:
    for seed in SEEDS:
        for phase in phases(drawn(seed)):
            kinds = [kind_of(act.verb) for act in phase]
            assert len(kinds) == 1 or "rounds" not in kinds
            assert sum(kind in ("cut", "partition") for kind in kinds) <= 1


def test_aimed_faults_are_never_left_out_where_they_were_asked_for() -> None:
    for seed in SEEDS:
        assert "rounds" in faults_of(drawn(seed, ("rounds", "kill")))


def test_a_saved_schedule_is_a_scenario_file_and_the_same_again(tmp_path: Path) -> None:
    for seed in SEEDS:
        file = saved(drawn(seed), tmp_path / "schedule.toml")
        scenario = load_scenario(file)
        assert saved_schedule.schedule_of(scenario) == drawn(seed)
        assert scenario.settings == {"a.b": "c d"}
        assert scenario.run == ("append", "--system", "neaptide:0.10")
    words = saved_schedule.command(file)
    for option, value in (("--brokers", "3"), ("--partitions", "4"), ("--set", "a.b=c d")):
        assert words[words.index(option) + 1] == value


def test_the_schedule_of_a_run_is_found_in_its_directory(tmp_path: Path) -> None:
    document = load_scenario(saved(drawn(5), tmp_path / "schedule.toml")).document
    (tmp_path / "run.json").write_text(json.dumps({"schedule": document}), encoding="utf-8")
    assert saved_schedule.schedule_of(saved_schedule.load(tmp_path)) == drawn(5)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("run.json", "{}", "has no schedule of a random run"),
        ("run.json", '{"schedule": {"title": "x"}}', "has no schedule of a random run"),
        ("run.json", "not JSON", "has no schedule of a random run"),
        ("run.json", '{"schedule": [{"at_s": 1, "faults": []}]}', "draw one anew with"),
    ],
)
def test_a_directory_without_a_schedule_of_today_is_refused(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=says):
        saved_schedule.load(tmp_path)


def test_a_schedule_from_before_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"draw one anew with `neaptide run` and its seed, or"):
        saved_schedule.load(tmp_path / "lost.json")


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('run = "append', 'run = "--append', "run must begin with a workload"),
        ("at = ", "until = ", "step 1: needs an at, or a cast before it"),
        ("lasts = ", "lasts = -", r"lasts = -\d.* must be more than 0"),
        ('"leader(', '"leader(9', "is no broker"),
        ("brokers = [", 'brokers = ["leader(0)", ', "is what others are called"),
        ("kill = ", "flood = ", "'flood' is no step"),
        ("brokers = [", 'brokers = ["A", ', "must name each broker once"),
    ],
)
def test_a_file_that_says_what_cannot_be_is_refused(
    tmp_path: Path, before: str, after: str, says: str
) -> None:
    seed = next(n for n in SEEDS if "leader(" in str(drawn(n, ("kill",))))
    file = saved(drawn(seed, ("kill",)), tmp_path / "schedule.toml")
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(UsageError, match=says):
        saved_schedule.load(file)


def test_times_are_for_files_with_a_run(tmp_path: Path) -> None:
    file = saved(drawn(1, ("kill",)), tmp_path / "schedule.toml")
    lines = file.read_text(encoding="utf-8").splitlines()
    text = "\n".join(one for one in lines if not one.startswith("run ="))
    file.write_text(re.sub(r"(leader|follower)\(\d\)", "A", text), encoding="utf-8")
    with pytest.raises(UsageError, match="at and lasts are for files with run"):
        load_scenario(file)


def size(schedule: Schedule) -> int:
    return sum(len(act.steps) for act in schedule)


def test_what_is_smaller_has_less_in_it_and_can_be_read(tmp_path: Path) -> None:
    schedule = without_calm(drawn(2))
    less = list(smaller(schedule))
    assert len(less) > size(schedule) / 2
    for one in less:
        assert 0 < size(one) < size(schedule)
    load_scenario(saved(less[-1], tmp_path / "schedule.toml"))


def test_shrinking_comes_to_the_one_step_that_matters() -> None:
    def pauses(one: Schedule) -> bool:
        return any(act.verb == "cast" and "pause" in step for act in one for step in act.steps)

    schedule = next(filter(pauses, map(drawn, SEEDS)))
    [act] = minimise(schedule, smaller, pauses).smallest
    assert [next(iter(step)) for step in act.steps] == ["cast", "pause"]


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
