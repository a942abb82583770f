"""A process that only writes tables does without numpy and pandas, and pyarrow with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

WRITES = """
import sys
from neaptide.results.forgone import forgo

forgo()
import pyarrow as pa
import pyarrow.parquet as pq

pq.write_table(pa.table({"value": ["a", None], "n": [1, 2]}), sys.argv[1])
assert not {"numpy", "pandas"} & set(sys.modules)
"""

STARTS = """
import runpy, sys

try:
    runpy.run_module({program!r}, run_name="__main__")
except (SystemExit, IndexError):
    pass
assert not {{"hypothesis", "numpy", "pandas"}} & set(sys.modules)
assert "pyarrow" in sys.modules
"""


@pytest.mark.slow
def test_a_table_is_written_without_them(tmp_path: Path) -> None:
    file = tmp_path / "table.parquet"
    subprocess.run([sys.executable, "-c", WRITES, str(file)], check=True, timeout=100)
    assert pq.read_table(file).to_pydict() == {"value": ["a", None], "n": [1, 2]}


@pytest.mark.slow
@pytest.mark.parametrize("program", ["neaptide.nemesis.gate", "neaptide.workloads.worker"])
def test_the_small_processes_do_without_them(program: str) -> None:
    """They end at once, for want of a configuration."""
    look = STARTS.format(program=program)
    subprocess.run([sys.executable, "-c", look], check=True, timeout=100)
