"""How a record was lost, from rows: who had it, who did not, and when that was decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neaptide.results.report.fate import Fate, fate_of, fates
from neaptide.results.report.rows import Row, load
from tests.results.losing_run import write_losing_run, write_verdict

MS = 1_000_000
NAMES = {0: "A", 1: "B", 2: "C"}
RECORD = "m7"
OFFSET = 7


def operation(f: str, at_ms: int, **rest: Any) -> Row:
    made = {
        "f": f, "type": "info", "invoked_ns": at_ms * MS, "completed_ns": at_ms * MS, "topic": "t",
        "partition": 0, "offset": None, "value": None, "acks": None, "leader_epoch": None,
    }  # fmt: skip
    return made | rest


def leads(broker: int, epoch: int, at_ms: int) -> Row:
    return operation("leader", at_ms, value=json.dumps({"leader": broker}), leader_epoch=epoch)


def sent(at_ms: int = 1_000, acks: str = "all", offset: int | None = OFFSET) -> Row:
    return operation(
        "send", at_ms, completed_ns=(at_ms + 10) * MS, type="ok", offset=offset, value=RECORD,
        acks=acks,
    )  # fmt: skip


def fault(verb: str, broker: str, at_ms: int, **fields: Any) -> Row:
    value = json.dumps({verb: {"broker": broker, **fields}})
    return operation("nemesis", at_ms, value=value, topic=None, partition=None)


def fetch(follower: int, leader: int, offset: int, at_ms: int, mark: int | None = None) -> Row:
    """`mark`: the high watermark of the answer; None: there was none."""
    return {
        "follower": follower, "leader": leader, "topic": "t", "partition": 0,
        "requested_ns": at_ms * MS, "delivered_ns": None if mark is None else (at_ms + 1) * MS,
        "fetch_offset": offset, "high_watermark": mark,
    }  # fmt: skip


def fate(operations: list[Row], rounds: list[Row], topic: str = "t") -> Fate | None:
    return fate_of(RECORD, topic, 0, operations, rounds, NAMES)


FETCHED = [fetch(1, 0, 7, 900, 7), fetch(1, 0, 8, 1_005, 7), fetch(2, 0, 8, 1_006, 8)]


def test_a_follower_that_truncates_to_its_high_watermark_and_leads() -> None:
    found = fate(
        [leads(0, 0, 0), sent(), fault("kill", "A", 1_500), leads(2, 1, 1_600),
         fault("kill", "C", 2_000), leads(1, 2, 2_100)],
        [*FETCHED, fetch(1, 2, 7, 1_700)],
    )  # fmt: skip
    assert str(found) == (
        "m7 (offset 7, acknowledged at 1.010 s by A, acks=all) was lost at 2.100 s, when B became"
        " leader of epoch 2 without it. B had it from 1.005 s, and truncated to its high"
        " watermark, offset 7, at 1.700 s. A had it, and was killed at 1.500 s. C had it, and was"
        " killed at 2.000 s."
    )


def test_a_follower_that_never_got_it() -> None:
    found = fate(
        [leads(0, 0, 0), sent(acks="1"), fault("pause", "A", 1_500), leads(1, 1, 1_600)],
        [fetch(1, 0, 7, 900, 7), fetch(2, 0, 7, 900, 7)],
    )
    assert str(found) == (
        "m7 (offset 7, acknowledged at 1.010 s by A, acks=1) was lost at 1.600 s, when B became"
        " leader of epoch 1 without it. B never got it. A had it, and was paused at 1.500 s."
        " C never got it."
    )


def test_a_truncation_that_is_not_to_the_high_watermark_does_not_say_so() -> None:
    found = fate(
        [leads(0, 0, 0), sent(), leads(2, 1, 1_600), leads(1, 2, 2_100)],
        [*FETCHED, fetch(1, 2, 3, 1_700)],
    )
    assert "and truncated to offset 3, at 1.700 s." in str(found)
    assert "C had it, and was not elected." in str(found)


def test_a_leader_that_lost_it_with_its_power_and_leads_again() -> None:
    power = fault("power_off", "A", 1_500, lost={"0": 1})
    found = fate(
        [leads(0, 0, 0), sent(), power, fault("restart", "A", 1_800), leads(0, 1, 2_000)], []
    )
    assert str(found).startswith("m7 (offset 7, acknowledged at 1.010 s by A, acks=all) was lost")
    assert "A had it from 1.010 s, and lost it with its power at 1.500 s." in str(found)


@pytest.mark.parametrize("lost", [{}, {"1": 5}])
def test_a_power_failure_that_took_nothing_of_the_partition_is_no_cause(
    lost: dict[str, int],
) -> None:
    power = fault("power_off", "A", 1_500, lost=lost)
    rows = [leads(0, 0, 0), sent(), power, fault("restart", "A", 1_800), leads(0, 1, 2_000)]
    assert fate(rows, []) is None


def test_a_leader_that_has_it_decides_nothing() -> None:
    rows = [leads(0, 0, 0), sent(), fault("kill", "A", 1_500), leads(2, 1, 1_600)]
    assert fate(rows, FETCHED) is None


def test_who_was_started_again_is_not_down() -> None:
    rows = [
        leads(0, 0, 0), sent(), fault("kill", "C", 1_100), fault("restart", "C", 1_200),
        leads(1, 1, 1_600),
    ]  # fmt: skip
    found = fate(rows, [fetch(1, 0, 7, 900, 7), fetch(2, 0, 8, 1_006, 8)])
    assert "C had it, and was not elected." in str(found)


@pytest.mark.parametrize(
    "operations",
    [
        [leads(0, 0, 0), leads(1, 1, 1_600)],  # nobody sent it
        [leads(0, 0, 0), sent(offset=None), leads(1, 1, 1_600)],  # acks=0: nobody knows where
        [sent(), leads(1, 1, 1_600)],  # nobody knows who led
        [leads(0, 0, 0), sent()],  # there was no election
    ],
)
def test_what_the_rows_do_not_show_is_not_said(operations: list[Row]) -> None:
    assert fate(operations, FETCHED) is None


def test_leaders_of_another_topic_are_not_ours() -> None:
    rows = [leads(0, 0, 0), sent(acks="1"), leads(1, 1, 1_600)]
    assert fate(rows, [], topic="other") is None
    assert fate(rows, []) is not None


def test_a_run_has_one_for_each_moment_at_which_something_was_lost(tmp_path: Path) -> None:
    directory = write_losing_run(tmp_path / "run")
    write_verdict(directory)
    [found] = fates(load(directory), 5)
    assert (found.record, found.heir.name, found.epoch) == ("m2", "A", 2)
    assert fates(load(directory), 0) == []
