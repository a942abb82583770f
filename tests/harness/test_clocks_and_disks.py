"""Clocks that are set and disks that fail, under real brokers: each test waits for the effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.disks.damage import damage, keep_snapshot, put_back
from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.faketime import CLOCK_FILE, write_clock
from tests.harness.command import neaptide

HEAD = """
title = "a test"
source = ["a test"]
[cluster]
brokers = ["A", "B", "C"]
start_order = ["C", "A", "B"]
topics.t = { assignment = [["A", "B"]], settings = { SETTINGS } }
[cluster.settings]
"log.retention.check.interval.ms" = 200
"replica.lag.time.max.ms" = 10000
[[step]]
produce = { record = "m1", acks = "all" }
until = "acked(m1) and level"
"""

RETENTION = (
    HEAD.replace("SETTINGS", '"retention.ms" = 86400000, "segment.bytes" = 100')
    + """
[[step]]
produce = { record = "m2", acks = "all" }
until = "acked(m2)"
[[step]]
produce = { record = "m3", acks = "all" }
until = "acked(m3) and level and log_start_offset(A) == 0"
[[step]]
why = "two days pass on A: what is older than a day is deleted"
set_clock = { broker = "A", ahead_ms = 172800000 }
until = "log_start_offset(A) > 0"
within = 60
"""
)

FSYNC = (
    HEAD.replace("SETTINGS", '"flush.messages" = 1')
    + """
[[step]]
inject = { broker = "A", call = "fsync", error = "EIO" }
[[step]]
produce = { record = "m2", acks = "all" }
until = "leader is B and not up(A)"
within = 60
[[step]]
end_injections = { broker = "A" }
"""
)

DAMAGED = HEAD.replace("SETTINGS", "") + "".join(
    f"""
[[step]]
kill = {{ broker = "B", in_flight = "delivered" }}
until = "isr is {{A}}"
[[step]]
damage = {{ broker = "B", kind = "{kind}" }}
[[step]]
restart = {{ broker = "B" }}
until = "isr is {{A, B}} and level"
within = 60
"""
    for kind in ("flipped-bit", "lost-directory")
)


def played(directory: Path, text: str) -> list[Any]:
    """What the nemesis did; every step came to what it waited for, and nothing was lost."""
    (directory / "one.toml").write_text(text, encoding="utf-8")
    done, reported = neaptide(directory, "run", "one.toml", "--system", "neaptide:2.1", "--json")
    assert reported is not None, done.stderr
    run = directory / "runs" / "latest"
    assert json.loads((run / "run.json").read_text())["aim"] == {"hit": True, "why": ""}
    assert json.loads((run / "verdict.json").read_text())["outcome"] == "held"
    rows = pq.read_table(run / "operations").to_pylist()
    return [json.loads(row["value"]) for row in rows if row["f"] == "nemesis"]


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.needs("faketime")
def test_a_clock_that_jumps_ages_records(tmp_path: Path) -> None:
    steps = played(tmp_path, RETENTION)
    assert {"clock": {"broker": "A", "ahead_ms": 172800000}} in steps
    assert {"clock": {"broker": "A", "ahead_ms": 0}} in steps, "it is put right at the end"


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.needs("strace")
def test_a_leader_whose_disk_fails_is_replaced(tmp_path: Path) -> None:
    steps = played(tmp_path, FSYNC)
    [met] = [step["end_injections"] for step in steps if "end_injections" in step]
    assert met["calls_met"] > 0


@pytest.mark.proof
@pytest.mark.live
def test_a_damaged_follower_is_level_again(tmp_path: Path) -> None:
    steps = played(tmp_path, DAMAGED)
    done = [step["damage"]["kind"] for step in steps if "damage" in step]
    assert done == ["flipped-bit", "lost-directory"]


@pytest.mark.live
def test_the_simulation_refuses_what_it_has_not(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(RETENTION, encoding="utf-8")
    done, _ = neaptide(tmp_path, "run", "one.toml", "--host", "simulation")
    assert done.returncode == 64
    assert "The simulation cannot do all steps" in done.stderr


# --- files ---------------------------------------------------------------------------------------

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "data" / "t-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log").write_bytes(bytes(range(200)))
    (directory / f"{100:020}.log").write_bytes(bytes(range(100)))
    (directory.parent / "meta.properties").write_text("broker.id=1\n")
    (directory.parent / "replication-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    return directory.parent


def test_one_bit_is_flipped_and_the_same_again_puts_it_back(logs: Path) -> None:
    segment = logs / "t-0" / f"{100:020}.log"
    before = segment.read_bytes()
    done = damage(logs, "flipped-bit", "segment", PARTITION, seed=3)
    after = segment.read_bytes()
    differ = [n for n in range(100) if before[n] != after[n]]
    assert len(differ) == 1
    assert (before[differ[0]] ^ after[differ[0]]).bit_count() == 1
    assert f"byte {differ[0]} of" in done
    damage(logs, "flipped-bit", "segment", PARTITION, seed=3)
    assert segment.read_bytes() == before
    assert (logs / "t-0" / f"{0:020}.log").read_bytes() == bytes(range(200))


def test_a_tail_is_torn(logs: Path) -> None:
    damage(logs, "torn-tail", "segment", PARTITION, seed=3)
    left = (logs / "t-0" / f"{100:020}.log").read_bytes()
    assert 36 <= len(left) < 100
    assert left == bytes(range(100))[: len(left)]


def test_a_file_is_lost_or_there_is_none(logs: Path) -> None:
    damage(logs, "lost-file", "high-watermarks", PARTITION, seed=3)
    assert not (logs / "replication-offset-checkpoint").exists()
    with pytest.raises(UsageError, match="has no high-watermarks"):
        damage(logs, "lost-file", "high-watermarks", PARTITION, seed=3)


def test_a_directory_that_is_lost_still_says_whose_it_is(logs: Path) -> None:
    assert damage(logs, "lost-directory", "segment", PARTITION, seed=3) == "3 files"
    assert sorted(path.name for path in logs.iterdir()) == [".lock", "meta.properties"]


def test_a_snapshot_is_put_back(logs: Path) -> None:
    snapshot = logs.parent / "snapshot"
    keep_snapshot(logs, snapshot)
    damage(logs, "torn-tail", "segment", PARTITION, seed=3)
    (logs / "t-0" / "new").touch()
    put_back(logs, snapshot)
    assert (logs / "t-0" / f"{100:020}.log").read_bytes() == bytes(range(100))
    assert not (logs / "t-0" / "new").exists()
    with pytest.raises(UsageError, match="No snapshot"):
        put_back(logs, logs.parent / "other")


def test_a_clock_is_written_as_libfaketime_reads_it(tmp_path: Path) -> None:
    write_clock(tmp_path, 1500)
    assert (tmp_path / CLOCK_FILE).read_text() == "+1.500\n"
    write_clock(tmp_path, -60_000)
    assert (tmp_path / CLOCK_FILE).read_text() == "-60.000\n"
