"""What is told on standard error reaches it, whatever is done to descriptor 2 meanwhile."""

from __future__ import annotations

import subprocess
import sys

WHILE_SPARK_STARTS = """
import os
from neaptide.harness import output
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
output.err.print("neaptide: one sentence")
"""


def test_an_error_while_spark_starts_is_not_lost() -> None:
    command = [sys.executable, "-c", WHILE_SPARK_STARTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "neaptide: one sentence\n"
