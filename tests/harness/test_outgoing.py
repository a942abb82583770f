"""Whoever reads what a command prints may stop: its status is that of its verdict, or 141."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

COMMAND = f"{sys.executable} -m neaptide.harness.cli"
# Prints much, and ends with a verdict's status.
PRINTS = """
import sys, typer
from neaptide.harness.cli import main as cli
from neaptide.harness.terminal import output
@cli.app.command()
def much(status: int) -> None:
    for number in range(2_000):
        output.out.print(f"line {number} " + "x" * 100)
    output.print_table(("a",), [("b",)] * 5)
    output.print_json({"a": "b"})
    output.err.print("said")
    raise typer.Exit(status)
cli.main()
"""


def shell(command: str) -> tuple[int, str]:
    """The status of the first of a pipeline, and what is on standard error."""
    script = f"set -o pipefail; {command}; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}
    )
    *said, status = done.stderr.splitlines()
    return int(status), "\n".join(said)


@pytest.fixture
def much(tmp_path: Path) -> str:
    (tmp_path / "much.py").write_text(PRINTS, encoding="utf-8")
    return f"{sys.executable} {tmp_path / 'much.py'} much"


@pytest.mark.parametrize("reader", ["| head -1 >/dev/null", "| true", "2>&1 | true", ">/dev/null"])
@pytest.mark.parametrize("status", [0, 1, 2])
def test_a_reader_that_stops_changes_no_status(much: str, reader: str, status: int) -> None:
    found, said = shell(f"{much} {status} {reader}")
    assert found == status
    assert "Traceback" not in said
    assert "Exception ignored" not in said


@pytest.mark.parametrize(("status", "expected"), [(0, 141), (1, 1), (2, 2)])
def test_what_cannot_be_written_is_one_sentence(much: str, status: int, expected: int) -> None:
    found, said = shell(f"{much} {status} >/dev/full")
    assert found == expected
    assert said.count("No space left on device") == 1
    assert "Traceback" not in said
    assert "Exception ignored" not in said


def test_the_list_of_scenarios_may_be_cut() -> None:
    assert shell(f"{COMMAND} list | head -1 >/dev/null") == (0, "")
    assert shell(f"{COMMAND} list --json | true") == (0, "")
    assert shell(f"{COMMAND} --help | true") == (0, "")
