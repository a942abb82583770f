"""A disk that is full, or fills up in the middle of a run: one sentence, and nothing is left."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.command import neaptide

pytestmark = [pytest.mark.live, pytest.mark.needs("mounts")]

MISSING = 69
MIB = 2**20


def mounted(directory: Path, mebibytes: int) -> Iterator[Path]:
    """A small disk of its own: a tmpfs, which needs root."""
    disk = directory / "runs"
    disk.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(disk)]
    subprocess.run(options, check=True, capture_output=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path, 16)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path, 320)


def test_a_full_disk_is_said_before_anything_starts(tmp_path: Path, small_disk: Path) -> None:
    done, printed = neaptide(tmp_path, "repro", "acks-1-loss", "--json")
    assert done.returncode == MISSING, done.stderr
    assert printed is None
    assert "MiB are needed: free some, or set NEAPTIDE_RUNS" in done.stderr.splitlines()[-1]
    [run] = small_disk.glob("20*/run.json")
    recorded = json.loads(run.read_text())
    assert recorded["status"] == "not started"
    assert "MiB are needed" in recorded["aim"]["why"]


@pytest.mark.proof
def test_a_full_disk_for_the_ledger_is_said_before_anything_starts(
    tmp_path: Path, small_disk: Path
) -> None:
    (small_disk / "filler").write_bytes(b"x" * shutil.disk_usage(small_disk).free)
    stores = {"NEAPTIDE_STATE": str(small_disk), "NEAPTIDE_RUNS": str(tmp_path / "elsewhere")}
    done, printed = neaptide(tmp_path, "run", "append", "--time", "5", "--json", **stores)
    assert done.returncode == MISSING, done.stderr
    assert printed is None
    assert "set NEAPTIDE_STATE to a directory" in done.stderr.splitlines()[-1]


def test_a_disk_that_fills_up_ends_the_run_in_time(tmp_path: Path, disk: Path) -> None:
    stop = threading.Event()

    def fill() -> None:
        """Somebody else writes to the same disk once the run has begun to record."""
        while not stop.wait(0.1):
            if list(disk.glob("20*/operations/*.parquet")):
                free = shutil.disk_usage(disk).free
                (disk / "filler").write_bytes(b"x" * (free - 30 * MIB))
                return

    filler = threading.Thread(target=fill)
    filler.start()
    try:
        done, printed = neaptide(
            tmp_path, "run", "append", "--time", "60", "--rate", "200", "--json"
        )
    finally:
        stop.set()
        filler.join()
    assert done.returncode == MISSING, done.stderr
    assert printed is None
    assert "MiB are needed" in done.stderr.splitlines()[-1]
    [run] = disk.glob("20*/run.json")
    assert json.loads(run.read_text())["status"] == "interrupted"
