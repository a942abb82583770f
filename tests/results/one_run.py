"""A run with all its fields."""

from __future__ import annotations

from neaptide.results.run import (
    Aim,
    Assigned,
    Converged,
    FinalRead,
    Incident,
    Run,
    Written,
)

RUN = Run(
    neaptide="0.1.0",
    name="hw-truncation-loss",
    title="A record is lost",
    source=("KIP-101",),
    system="neaptide:0.10",
    host="local",
    seed=7,
    started_utc="2025-11-21T14:08:00Z",
    status="finished",
    kind="scenario",
    brokers={"A": 0, "B": 1, "C": 2},
    expected="lost",
    aim=Aim(True, "held for 3.1 s"),
    final_reads=(FinalRead("t", 0, 1, True),),
    converged=Converged(True, "all at 1"),
    replicas_written=True,
    written={"operations": {"c1": Written(2, 70)}},
    assigned=(Assigned("t", 0, (0, 1, 2)),),
    incidents=(Incident("coordination", "ZooKeeper ended."),),
    min_acked=5,
    repeat="neaptide replay x",
    clients={"producer": "librdkafka"},
    versions={"python": "3.11"},
)
