"""Toxics, clocks and disks of random runs: drawn as data, and nothing that loses by right."""

from __future__ import annotations

import random
from typing import Any

import pytest

from neaptide.clusters.hosts.toxiproxy import TOXICS
from neaptide.nemesis.drawn.faults import read_fault
from neaptide.nemesis.drawn.machines import (
    DAMAGES,
    CallsFault,
    ClockFault,
    DamageFault,
    draw_clock,
    draw_disk,
)
from neaptide.nemesis.drawn.toxics import SlowFault, draw_slow

BROKERS = (0, 1, 2)
SEEDS = range(400)
HOUR_MS = 3_600_000


def slows() -> list[SlowFault]:
    return [draw_slow(random.Random(seed), BROKERS) for seed in SEEDS]


def clocks() -> list[ClockFault]:
    return [draw_clock(random.Random(seed), BROKERS, 4) for seed in SEEDS]


def disks() -> list[CallsFault | DamageFault]:
    return [draw_disk(random.Random(seed), BROKERS, 4) for seed in SEEDS]


def test_the_same_seed_draws_the_same_and_what_is_saved_is_read_back() -> None:
    for drawn in (slows, clocks, disks):
        first = drawn()
        assert first == drawn()
        assert len({str(one) for one in first}) > 50
        for one in first:
            assert read_fault(one.to_json()) == one


def test_every_toxic_is_drawn_on_every_link_each_way_and_is_one() -> None:
    drawn = slows()
    assert {one.toxic.kind for one in drawn} == set(TOXICS)
    assert {one.purpose for one in drawn} == {"client", "replication", "coordination"}
    assert {one.toxic.stream for one in drawn} == {"upstream", "downstream"}
    assert {one.broker for one in drawn} == set(BROKERS)
    assert [one.toxic.problem() for one in drawn if one.toxic.problem()] == []


def test_no_clock_is_wrong_by_as_much_as_anything_is_kept() -> None:
    drawn = clocks()
    assert {one.shape for one in drawn} == {"jump", "strobe", "drift"}
    ahead = [ahead_ms for one in drawn for _, ahead_ms in one.moves]
    assert -HOUR_MS < min(ahead) < 0 < max(ahead) < HOUR_MS
    for one in drawn:
        times = [after_s for after_s, _ in one.moves]
        assert times == sorted(set(times))
        assert times[0] == 0


def test_a_strobe_goes_there_and_back_and_a_drift_further_and_further() -> None:
    for one in clocks():
        ahead = [ahead_ms for _, ahead_ms in one.moves]
        if one.shape == "strobe":
            assert set(ahead[::2]) == {ahead[0]}
            assert set(ahead[1::2]) == {0}
        elif one.shape == "drift":
            assert ahead == [ahead[0] * (n + 1) for n in range(len(ahead))]


def test_disks_fail_in_every_way_and_of_one_broker_at_a_time() -> None:
    drawn = disks()
    calls = [one for one in drawn if isinstance(one, CallsFault)]
    assert {one.fault.error for one in calls} == {"EIO", "ENOSPC", None}
    assert {one.fault.call for one in calls} == {"write", "fsync"}
    assert {one.fault.nth > 1 for one in calls} == {True, False}
    assert all((one.fault.error is None) == (one.fault.delay_ms > 0) for one in calls)
    damaged = {(one.damage, one.file) for one in drawn if isinstance(one, DamageFault)}
    assert damaged == {named[:2] for named in DAMAGES}
    assert {one.target.scope for one in drawn} == {"one", "leader", "follower"}


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        ("flipped-bit", "segment"),  # the base offset is in no checksum
        ("lost-directory", "segment"),
        ("lost-file", "epochs"),
        ("lost-file", "high-watermarks"),
    ],
)
def test_what_may_lose_by_right_is_neither_drawn_nor_read(damage: str, file: str) -> None:
    assert (damage, file) not in [drawn[:2] for drawn in DAMAGES]
    [one] = [one for one in disks() if isinstance(one, DamageFault)][:1]
    with pytest.raises(ValueError, match="need not survive"):
        read_fault({**one.to_json(), "damage": damage, "file": file})


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("slow", {"type": "fog"}),
        ("slow", {"attributes": {}}),
        ("slow", {"purpose": "moon"}),
        ("clock", {"shape": "melt"}),
        ("clock", {"moves": []}),
        ("disk", {"nth": 0}),
        ("disk", {"error": None, "delay_ms": 0}),
        ("disk", {"call": "seek"}),
    ],
)
def test_what_is_no_such_fault_is_refused(kind: str, change: dict[str, Any]) -> None:
    of_kind: dict[str, Any] = {
        "slow": slows()[0],
        "clock": clocks()[0],
        "disk": next(one for one in disks() if isinstance(one, CallsFault)),
    }
    saved = of_kind[kind].to_json()
    assert read_fault(saved) == of_kind[kind]
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        read_fault({**saved, **change})
    assert str(refused.value)
