"""The example of docs/workloads.md, a workload of somebody's own, runs as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.documents import DOCS
from tests.harness.command import neaptide

[SECTION] = re.findall(
    r"^## A workload of your own$.*?(?=^## |\Z)",
    (DOCS / "workloads.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)
[MODULE] = re.findall(r"In `shop/load.py`:\n\n```python\n(.*?)^```$", SECTION, re.M | re.S)
[COMMAND] = re.findall(r"`neaptide (run shop\.load:ORDERS [^`]+)`", SECTION)


def played(tmp_path: Path, module: str) -> tuple[int, Any]:
    """In a directory with nothing else in it; for fewer seconds than the command would."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "load.py").write_text(module, encoding="utf-8")
    done, document = neaptide(tmp_path, *shlex.split(COMMAND), "--time", "4", "--json")
    return done.returncode, document


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.spark
def test_the_workload_of_the_page_is_run_by_its_command(tmp_path: Path) -> None:
    status, document = played(tmp_path, MODULE)
    assert (status, document["verdict"]) == (0, "valid")
    operations = tmp_path / "runs" / "latest" / "operations"
    rows = pq.read_table(operations, columns=["f", "type", "key", "value"]).to_pylist()
    for kind in ("send", "poll"):
        done = [row for row in rows if (row["f"], row["type"]) == (kind, "ok")]
        keys = {row["key"] for row in done if row["value"].startswith("order-")}
        assert keys == {f"customer-{number}" for number in range(9)}


@pytest.mark.live
def test_a_module_without_what_the_command_names_is_refused(tmp_path: Path) -> None:
    assert played(tmp_path, MODULE.replace("ORDERS =", "OTHERS =")) == (64, None)
    assert not (tmp_path / "runs").exists()
