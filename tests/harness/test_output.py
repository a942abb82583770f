"""What people see is what was said: on standard error, and in tables."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from neaptide.harness.terminal import output

WHILE_SPARK_STARTS = """
import os
from neaptide.harness.terminal import output
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
output.err.print("neaptide: one sentence")
"""


@pytest.mark.slow
def test_an_error_while_spark_starts_is_not_lost() -> None:
    command = [sys.executable, "-c", WHILE_SPARK_STARTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "neaptide: one sentence\n"


def test_a_table_shows_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(
        ("part", "there"), [("pip install 'neaptide[docker]'", "no"), ("[red]", "yes")]
    )
    shown = capsys.readouterr().out
    assert "pip install 'neaptide[docker]'" in shown
    assert "[red]" in shown
    assert "no" in shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"kill": {"broker": "B", "keep": {}}}, "kill: broker B"),
        ({"aim": {"roles": {"leader": "A", "old": "B"}}}, "aim: roles leader A and old B"),
        ({"cut": {"from": "A", "to": None, "both": False}}, "cut: from A, both False"),
        ({"heal": {}}, "heal"),
        ({"note": "a text"}, "note: a text"),
    ],
)
def test_what_was_done_to_a_cluster_is_one_line(value: dict[str, Any], text: str) -> None:
    assert output.fault_text(value) == text


def test_systems_that_do_not_fit_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 80 columns both were neaptide:…"""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(output._Console, "is_terminal", True)
    columns = ("scenario", "system", "expected", "observed", "agrees", "seconds", "anomalies")
    rest = ("lost", "lost", "yes", "12.3", "committed-then-lost 1, lost-write 1")
    systems = ("neaptide:0.10", "neaptide:0.11")
    output.print_table(columns, [("hw-truncation-loss", system, *rest) for system in systems])
    shown = capsys.readouterr().out
    assert "…" not in shown
