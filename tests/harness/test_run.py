"""`run`: a scenario of one's own, an aim that is missed, and a short run under random faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide import harness
from tests.harness.command import neaptide

pytestmark = [pytest.mark.live, pytest.mark.spark]

ANOMALY, UNKNOWN = 1, 2
MINE = """
title = "the leader alone acknowledges, and dies"
[cluster]
brokers = ["A", "B"]
topics.t = { assignment = [["A", "B"]] }
settings = { "unclean.leader.election.enable" = false, "replica.lag.time.max.ms" = 30000 }
[[step]]
hold = { request = "fetch", from = "B", to = "A" }
until = "held(B, A)"
[[step]]
produce = { record = "m1", acks = "1" }
until = "acked(m1)"
[[step]]
kill = { broker = "A", in_flight = "discarded" }
until = "leader is B"
"""


@pytest.mark.proof
def test_a_scenario_of_ones_own_finds_the_loss(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE, encoding="utf-8")
    done, verdict = neaptide(tmp_path, "run", "mine.toml", "--system", "neaptide:0.11", "--json")
    assert verdict["outcome"] == "lost", done.stderr
    assert verdict["verdict"] == "anomalous"
    assert verdict["anomalies"] == {"unseen": 1}
    assert done.returncode == ANOMALY


def test_an_aim_that_is_missed_is_unknown_not_fine(tmp_path: Path) -> None:
    never = MINE + '[[step]]\nuntil = "leader is A"\nwithin = 1\n'
    (tmp_path / "never.toml").write_text(never, encoding="utf-8")
    done, verdict = neaptide(tmp_path, "run", "never.toml", "--system", "neaptide:0.11", "--json")
    assert verdict["verdict"] == "unknown", done.stderr
    assert any("step 4 (line 16)" in reason for reason in verdict["reasons"]), verdict["reasons"]
    assert done.returncode == UNKNOWN


def test_random_faults_lose_nothing_with_acks_all(tmp_path: Path) -> None:
    done, verdict = neaptide(
        tmp_path, "run", "append", "--system", "neaptide:0.11", "--nemesis", "kill,pause,cut",
        "--time", "6", "--rate", "1000", "--seed", "11", "--json",
    )  # fmt: skip
    assert verdict["verdict"] == "valid", (verdict, done.stderr)
    assert verdict["operations"] > 1000
    assert done.returncode == 0
    assert "--seed 11" in done.stderr


@pytest.mark.proof
def test_the_first_step_is_done_when_every_follower_fetches(tmp_path: Path) -> None:
    """Its condition has no time to come true: it holds at once, or never."""
    at_once = MINE.split("[[step]]")[0] + '[[step]]\nuntil = "round(B) >= 1"\nwithin = 0.001\n'
    (tmp_path / "at_once.toml").write_text(at_once, encoding="utf-8")
    options = ("--system", "neaptide:2.0", "--json")
    done, verdict = neaptide(tmp_path, "run", "at_once.toml", *options)
    nothing = ["Nothing was acknowledged, so nothing could be lost."]
    assert verdict["reasons"] == nothing, (verdict["reasons"], done.stderr)


@pytest.mark.proof
def test_a_zombie_comes_back_into_the_isr_or_is_fenced(tmp_path: Path) -> None:
    found = Path(harness.__path__[0]) / "found" / "kip-320-divergence.toml"
    systems = ("--system", "neaptide:2.0", "--system", "neaptide:2.1")
    done, document = neaptide(tmp_path, "replay", str(found), *systems, "--json")
    outcomes = [(one["observed"], one["reasons"]) for one in document["results"]]
    assert outcomes == [("diverged", []), ("held", [])], done.stderr
