"""The workload `share` by the command: share groups keep what they promise, also under faults."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.harness.command import neaptide

pytestmark = [
    pytest.mark.live,
    pytest.mark.spark,
    pytest.mark.proof,
    pytest.mark.needs("maven"),
    pytest.mark.timeout(600),
]


@pytest.mark.parametrize(
    ("system", "nemesis", "churn"),
    [
        ("kafka:4.2.2", "none", "none"),
        ("kafka:4.4.0", "none", "leave"),
        ("kafka:4.4.0", "kill,pause", "none"),
        ("kafka:4.4.0", "client", "leave"),
    ],
)
def test_none_is_passed_over_and_none_comes_again(
    tmp_path: Path, system: str, nemesis: str, churn: str
) -> None:
    done, document = neaptide(
        tmp_path, "run", "share", "--system", system, "--nemesis", nemesis, "--time", "20",
        "--consumers", "3", "--seed", "11", "--option", f"churn={churn}", "--json",
    )  # fmt: skip
    assert document is not None, done.stderr
    assert (document["verdict"], document["reasons"]) == ("valid", [])
    assert document["proofs"]["share-group"] is True
    columns = ["f", "type", "value"]
    rows = pq.read_table(Path(document["run"]) / "operations", columns=columns).to_pylist()
    how = {row["value"] for row in rows if row["f"] == "acknowledge" and row["type"] == "ok"}
    assert how == {"accept", "release", "reject"}
    counts = {int(row["value"]) for row in rows if row["f"] == "acquire"}
    assert max(counts) > 1  # what was released came again
