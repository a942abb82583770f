"""A follower dies: whether its leader leads on in the same epoch, ours and Apache Kafka's."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from tests.harness.command import neaptide
from tests.proof import proof_but

pytestmark = pytest.mark.live

STEPS: Final = """
title = "A follower dies"
[cluster]
brokers = ["A", "B"]
topics.t = { assignment = [["A", "B"]], settings = { "min.insync.replicas" = 1 } }
[cluster.settings]
"replica.lag.time.max.ms" = 30000
[[step]]
produce = { record = "m1", acks = "all" }
until = "acked(m1) and level"
[[step]]
kill = { broker = "B", in_flight = "discarded" }
until = "isr is {A}"
[[step]]
produce = { record = "m2", acks = "all" }
until = "acked(m2)"
[expect]
held = ["neaptide:0.8+", "kafka:0.8+"]
"""


@pytest.mark.spark
@pytest.mark.parametrize(
    ("system", "epoch"),
    proof_but(
        [("neaptide:2.8", 1), ("neaptide:4.0", 0), ("kafka:2.8.2", 1), ("kafka:4.0.0", 0)],
        ("neaptide:4.0", 0),
    ),
)
def test_c3_a_leader_whose_follower_dies_leads_on_in_its_epoch_from_kraft_3_6_on(
    tmp_path: Path, system: str, epoch: int
) -> None:
    """KAFKA-15021."""
    (tmp_path / "dies.toml").write_text(STEPS, encoding="utf-8")
    done, document = neaptide(tmp_path, "run", "dies.toml", "--system", system, "--json")
    assert done.returncode == 0, done.stderr
    files = sorted((Path(document["run"]) / "replicas").glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    epochs = {row["value"]: row["leader_epoch"] for row in rows if row["broker"] == 0}
    assert epochs == {"m1": 0, "m2": epoch}
