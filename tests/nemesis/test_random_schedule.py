"""A random schedule is drawn from its seed alone, and stays inside its time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.random_schedule import FAULTS, draw_schedule, parse_faults

BROKERS = (0, 1, 2)
ALL = tuple(FAULTS)


def test_one_seed_gives_one_schedule() -> None:
    assert draw_schedule(7, ALL, BROKERS, 120) == draw_schedule(7, ALL, BROKERS, 120)
    assert draw_schedule(7, ALL, BROKERS, 120) != draw_schedule(8, ALL, BROKERS, 120)


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_another_process_with_other_hashes_draws_the_same(hash_seed: str) -> None:
    code = (
        "from nemesis.random_schedule import *; "
        "print(draw_schedule(7, tuple(FAULTS), (0, 1, 2), 120))"
    )
    drawn = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert drawn.stdout.strip() == str(draw_schedule(7, ALL, BROKERS, 120))


def test_faults_follow_each_other_and_end_in_time() -> None:
    for seed in range(50):
        schedule = draw_schedule(seed, ALL, BROKERS, 60)
        assert schedule
        ends = 0.0
        for scheduled in schedule:
            assert scheduled.at_s > ends
            ends = scheduled.at_s + scheduled.lasts_s
        assert ends <= 60


def test_only_the_faults_that_were_asked_for_are_drawn() -> None:
    drawn = draw_schedule(3, ("kill", "cut"), BROKERS, 300)
    kinds = {scheduled.fault.kind for scheduled in drawn}
    assert kinds == {"kill", "cut"}
    assert draw_schedule(3, (), BROKERS, 300) == ()


@pytest.mark.parametrize("text", ["kill,boom", "", "none,kill"])
def test_an_unknown_fault_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="kill, pause, restart, cut"):
        parse_faults(text)


def test_none_is_no_fault() -> None:
    assert parse_faults("none") == ()
    assert parse_faults("pause, kill,pause") == ("pause", "kill")
