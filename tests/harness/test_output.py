"""What people see is what was said: on standard error, and in tables."""

from __future__ import annotations

import subprocess
import sys

import pytest

from neaptide.harness import output

WHILE_SPARK_STARTS = """
import os
from neaptide.harness import output
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
