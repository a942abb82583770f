"""A run written by hand: hw-truncation-loss on three brokers, as a gate and two clients record it.

A=0, B=1, C=2; C leads first, then B, then A. m1 is everywhere; m2 is on all three and acknowledged,
but the response that brings A the high watermark 2 is held. C dies, B leads, A truncates to its
high watermark 1; A's next fetch is held; B dies, A leads, and m2 is gone. Between all this there
are idle fetch rounds, as in life.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from neaptide.results.outcomes import RULES_VERSION
from neaptide.results.run import Aim, Assigned, Converged, FinalRead, Run
from neaptide.results.schema import ANOMALIES, FETCH_ROUNDS, OPERATIONS, REPLICAS
from neaptide.results.store import write_json, write_run
from neaptide.results.tables import write_table

A, B, C = 0, 1, 2
MS: Final = 1_000_000

RUN: Final = Run(
    neaptide="0.1.0",
    name="hw-truncation-loss",
    title="An acknowledged record is lost under clean elections",
    source=("KIP-101, scenario 1",),
    system="neaptide:0.10",
    host="local",
    seed=7,
    started_utc="2025-11-21T12:00:00+00:00",
    status="finished",
    kind="scenario",
    schedule={"cluster": {"topics": {"t": {"assignment": [["C", "B", "A"]]}}}},
    brokers={"A": A, "B": B, "C": C},
    expected="lost",
    aim=Aim(True, "held 3.1 s for A, then discarded"),
    final_reads=(FinalRead("t", 0, 1, True),),
    converged=Converged(True),
    replicas_written=True,
    assigned=(Assigned("t", 0, (C, B, A)),),
    repeat="neaptide run hw-truncation-loss --system neaptide:0.10 --seed 7",
)


def write_losing_run(directory: Path) -> Path:
    """The run as it is before it is checked."""
    return _write(directory, RUN, loses=True)


def write_held_twin(directory: Path) -> Path:
    """The same steps on 0.11, judged: A does not truncate, and asks B from offset 2."""
    run = replace(RUN, system="neaptide:0.11", expected="held")
    _write(directory, run, loses=False)
    write_table(directory / "anomalies", ANOMALIES, [])
    verdict = {"verdict": "valid", "outcome": "held", "anomalies": {}, "operations": 4}
    rest = {"reasons": [], "proofs": {"finished": True}, "made_by": {"rules": RULES_VERSION}}
    write_json(directory / "verdict.json", {"run": directory.name, **verdict, **rest})
    return directory


def _write(directory: Path, run: Run, *, loses: bool) -> Path:
    directory.mkdir(parents=True)
    tables = {
        "operations": (OPERATIONS, _operations(loses=loses)),
        "fetch_rounds": (FETCH_ROUNDS, _rounds(loses=loses)),
        "replicas": (REPLICAS, _replicas(loses=loses)),
    }
    written = {
        name: write_table(directory / name, schema, _tuples(schema, rows))
        for name, (schema, rows) in tables.items()
    }
    write_run(directory, replace(run, written=written))
    return directory


def write_verdict(directory: Path) -> None:
    """What the checkers say of it, for tests that are about the report alone."""
    loss = {"acks": "all", "acknowledged_ns": 4812 * MS, "first_read_ns": 4853 * MS}
    rows = [
        (directory.name, name, "t", 0, 1, "m2", operation, json.dumps(loss))
        for name, operation in (("lost-write", 2), ("committed-then-lost", 3))
    ]
    write_table(directory / "anomalies", ANOMALIES, rows)
    write_json(
        directory / "verdict.json",
        {
            "run": directory.name,
            "verdict": "anomalous",
            "outcome": "lost",
            "anomalies": {"lost-write": 1, "committed-then-lost": 1},
            "operations": 4,
            "reasons": [],
            "proofs": {"finished": True, "enough-acknowledged": True, "cycles": None},
            "made_by": {"rules": RULES_VERSION},
        },
    )


def _operations(*, loses: bool) -> Iterator[dict[str, Any]]:
    yield _operation(0, -2, "leader", 900, leader_epoch=0, value=_leader(C, [A, B, C]))
    yield _send(1, "m1", 0, 1_000, 1_400)
    hold = {"response": "fetch", "from": "C", "to": "A", "where": "high_watermark >= 2"}
    yield _operation(2, -1, "nemesis", 4_000, value=json.dumps({"hold": hold}))
    yield _send(3, "m2", 1, 4_200, 4_812)
    for row, value in enumerate(("m1", "m2")):
        yield _poll(4, row, value, 4_840, "main")
    yield _operation(5, -1, "nemesis", 5_900, value=json.dumps({"kill": {"broker": "C"}}))
    yield _operation(6, -2, "leader", 6_000, leader_epoch=1, value=_leader(B, [A, B]))
    yield _operation(7, -1, "nemesis", 9_200, value=json.dumps({"kill": {"broker": "B"}}))
    yield _operation(8, -2, "leader", 9_300, leader_epoch=2, value=_leader(A, [A]))
    yield _operation(9, -1, "nemesis", 9_500, value=json.dumps({"heal": {}}))
    yield _operation(10, -1, "nemesis", 9_600, value=json.dumps({"restart": {"broker": "C"}}))
    yield _operation(11, -1, "nemesis", 9_650, value=json.dumps({"restart": {"broker": "B"}}))
    for row, value in enumerate(("m1",) if loses else ("m1", "m2")):
        yield _poll(12, row, value, 11_000, "final")


def _rounds(*, loses: bool) -> Iterator[dict[str, Any]]:
    """Of C's epoch: B and A fetch m1, idle a while, fetch m2, learn of the high watermark 2."""
    for follower, late in ((B, 0), (A, 20)):
        yield _round(follower, C, 0, 1, 950 + late, 1_010 + late, 0, hw=0, bytes=70)
        yield _round(follower, C, 0, 2, 1_020 + late, 1_390, 1, hw=1)
        for number in range(3, 9):
            at_ms = 1_400 + 450 * (number - 3) + late
            yield _round(follower, C, 0, number, at_ms, at_ms + 440, 1, hw=1)
        yield _round(follower, C, 0, 9, 4_110 + late, 4_210 + late, 1, hw=1, bytes=70)
    yield _round(B, C, 0, 10, 4_250, 4_810, 2, hw=2)
    yield _round(A, C, 0, 10, 4_270, 4_811, 2, hw=2, response="held", discarded=3_100)
    end = 1 if loses else 2
    yield _round(A, B, 1, 1, 6_007, None, end, request="held", discarded=3_200)
    yield _round(C, A, 2, 1, 9_900, 9_910, end, hw=end)
    yield _round(B, A, 2, 1, 9_950, 9_960, end, hw=end)


def _replicas(*, loses: bool) -> Iterator[dict[str, Any]]:
    values = ("m1",) if loses else ("m1", "m2")
    for broker in (A, B, C):
        for offset, value in enumerate(values):
            yield {
                "broker": broker, "topic": "t", "partition": 0, "offset": offset,
                "batch_base_offset": offset, "value": value, "control": False,
                "log_start_offset": 0, "log_end_offset": len(values),
                "high_watermark": len(values),
            }  # fmt: skip


def _operation(
    operation: int, process: int, f: str, at_ms: int, done_ms: int | None = None, **rest: Any
) -> dict[str, Any]:
    return {
        "operation": operation, "row": 0, "process": process, "f": f,
        "type": "info" if f == "leader" else "ok", "invoked_ns": at_ms * MS,
        "completed_ns": (done_ms or at_ms + 1) * MS, "topic": "t" if process != -1 else None,
        "partition": 0 if process != -1 else None, "phase": "main",
    } | rest  # fmt: skip


def _send(operation: int, value: str, offset: int, at_ms: int, acked_ms: int) -> dict[str, Any]:
    return _operation(operation, 0, "send", at_ms, acked_ms, value=value, offset=offset, acks="all")


def _poll(operation: int, row: int, value: str, at_ms: int, phase: str) -> dict[str, Any]:
    polled = _operation(operation, 1, "poll", at_ms, at_ms + 13, value=value, offset=row)
    return polled | {"row": row, "phase": phase}


def _leader(leader: int, isr: list[int]) -> str:
    return json.dumps({"leader": leader, "isr": isr})


def _round(
    follower: int,
    leader: int,
    epoch: int,
    number: int,
    asked_ms: int,
    answered_ms: int | None,
    offset: int,
    *,
    hw: int | None = None,
    bytes: int = 0,
    request: str = "passed",
    response: str = "passed",
    discarded: int | None = None,  # held for so many milliseconds, then discarded
) -> dict[str, Any]:
    answered = answered_ms is not None
    gone = discarded is not None
    return {
        "follower": follower, "leader": leader, "topic": "t", "partition": 0,
        "leader_epoch": epoch, "round": number, "requested_ns": asked_ms * MS,
        "forwarded_ns": asked_ms * MS if answered else None,
        "responded_ns": answered_ms * MS if answered_ms is not None else None,
        "delivered_ns": answered_ms * MS if answered_ms is not None and not gone else None,
        "fetch_offset": offset, "high_watermark": hw, "records_bytes": bytes if answered else None,
        "error": 0 if answered else None,
        "request_fate": "discarded" if request == "held" else "passed",
        "response_fate": ("discarded" if response == "held" else "passed") if answered else None,
        "held_ns": (discarded or 0) * MS,
    }  # fmt: skip


def _tuples(columns: Any, rows: Iterator[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.get(name) for name in columns.names) for row in rows]
