"""What a command does not need it does not load: a start is what a person waits for each time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.command import COMMAND

HEAVY = {
    *("pyarrow", "numpy", "pandas", "pyspark", "matplotlib", "duckdb", "scipy"),
    *("kio", "hypothesis", "confluent_kafka", "kazoo", "aiokafka", "kafka", "grpc"),
}


@pytest.mark.slow  # it starts a command
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["list"], 0),
        (["run", "append", "--system", "nothing"], 64),
    ],
)
def test_a_command_that_runs_nothing_loads_no_library_of_those_that_do(
    tmp_path: Path, arguments: list[str], status: int
) -> None:
    python, *command = COMMAND
    done = subprocess.run(
        [python, "-X", "importtime", *command, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == status, done.stderr[-500:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert sys.executable == python
    assert "typer" in loaded
    assert not loaded & HEAVY
