"""The examples of docs/pytest.md run as they stand; what it says of settings is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from neaptide.harness.testing.cluster import SHORTENED
from tests.documents import DOCS

PAGE = (DOCS / "pytest.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
[FIRST, SECURED, CONSUMING, CHECKS, WORKLOADS] = PYTHON.findall(PAGE)


def played(
    tmp_path: Path, test: str, conftest: str = "", *options: str
) -> subprocess.CompletedProcess[str]:
    """In a project of its own, with nothing else in it."""
    (tmp_path / "test_orders.py").write_text(test)
    (tmp_path / "conftest.py").write_text(conftest)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.spark
def test_the_first_example_passes_and_with_acks_1_it_fails(tmp_path: Path) -> None:
    passed = played(tmp_path, FIRST)
    assert "1 passed" in passed.stdout, passed.stdout + passed.stderr
    failed = played(tmp_path, FIRST.replace('"acks": "all"', '"acks": 1'))
    assert "1 failed" in failed.stdout, failed.stdout + failed.stderr
    assert "'order-2 ⟨" in failed.stdout


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.spark
def test_the_example_of_a_consumer_passes_and_with_a_commit_before_the_work_it_fails(
    tmp_path: Path,
) -> None:
    passed = played(tmp_path, CONSUMING)
    assert "1 passed" in passed.stdout, passed.stdout + passed.stderr
    dies = CONSUMING.replace("consumer.handled(message)\n", "pass  # it dies before\n")
    failed = played(tmp_path, dies)
    assert "1 failed" in failed.stdout, failed.stdout + failed.stderr
    assert "unprocessed" in failed.stdout


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.spark
def test_the_example_of_a_client_that_logs_in_passes(tmp_path: Path) -> None:
    passed = played(tmp_path, SECURED)
    assert "1 passed" in passed.stdout, passed.stdout + passed.stderr


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.spark
def test_a_check_of_ones_own_fails_each_test(tmp_path: Path) -> None:
    failed = played(tmp_path, FIRST, CHECKS)
    assert "1 failed" in failed.stdout, failed.stdout + failed.stderr
    assert "Order 7 was shipped twice." in failed.stdout


def test_the_settings_that_are_shorter_than_kafkas_are_all_there() -> None:
    rows = dict(re.findall(r"^\| `([a-z.]+\.ms)` \| (\d+) \|", PAGE, re.MULTILINE))
    assert rows == SHORTENED
