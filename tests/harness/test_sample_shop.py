"""A project of somebody else runs its own suite: it passes, and with acks=1 it fails readably."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOP = Path(__file__).parents[1] / "sample_shop"


def suite(tmp_path: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=SHOP,
        env={**os.environ, "NEAPTIDE_RUNS": str(tmp_path), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.spark
def test_the_suite_of_the_shop_passes(tmp_path: Path) -> None:
    done = suite(
        tmp_path, "-n", "2"
    )  # two workers of xdist: each has clusters and a Spark of its own
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


@pytest.mark.live
@pytest.mark.spark
def test_with_acks_1_it_fails_and_says_which_order_was_lost_and_how(tmp_path: Path) -> None:
    done = suite(tmp_path, "-k", "survives", SHOP_ACKS="1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed" in done.stdout
    for line in (
        "anomalous (lost)",
        "lost-write: 'order-2 ⟨2⟩' in orders-0",
        "A: SIGKILL",
        "report: ",
    ):
        assert line in done.stdout, done.stdout
    assert "Traceback" not in done.stdout
    assert "neaptide/harness" not in done.stdout
