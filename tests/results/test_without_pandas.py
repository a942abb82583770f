"""A process that only writes tables does without pandas, and pyarrow with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

PROGRAM = """
import sys
import pyarrow as pa
import pyarrow.parquet as pq
from results.without_pandas import forgo_pandas

forgo_pandas()
pq.write_table(pa.table({"value": ["a", None]}), sys.argv[1])
assert "pandas" not in sys.modules
"""


def test_a_table_is_written_without_pandas(tmp_path: Path) -> None:
    file = tmp_path / "table.parquet"
    subprocess.run([sys.executable, "-c", PROGRAM, str(file)], check=True, timeout=100)
    assert pq.read_table(file).to_pydict() == {"value": ["a", None]}
