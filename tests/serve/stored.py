"""A directory of runs as `neaptide serve` finds it: one that lost, its twin that held, one under
load that goes on, one that cannot be read, and two nights.

`python -m tests.serve.stored DIRECTORY` writes it, for work on the pages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from neaptide.results.left_out import StepLeftOut, StepsLeftOut, write_left_out
from neaptide.results.run import Run
from neaptide.results.schema import OPERATIONS
from neaptide.results.store import write_json, write_run
from neaptide.results.tables import TableWriter
from tests.results.losing_run import write_held_twin, write_losing_run, write_verdict

LOST: Final = "2025-11-21T12-00-00Z-hw-truncation-loss-neaptide-0.10-7"
HELD: Final = "2025-11-21T12-00-00Z-hw-truncation-loss-neaptide-0.11-7"
GOING_ON: Final = "2025-11-22T08-00-00Z-append-neaptide-2.1-99"
UNREADABLE: Final = "2025-11-20T08-00-00Z-broken"
NIGHT: Final = "2025-11-21T22-00-00Z-7"
BARE_NIGHT: Final = "2025-11-20T22-00-00Z"
KEY: Final = (
    "lost neaptide:0.10 append confluent-kafka acks=all idempotence=no min.insync.replicas=2"
)
SUMMARY: Final = {
    "night": "nights/2025-11-21T22-00-00Z-7",
    "seed": 7,
    "seconds": 3725.4,
    "runs": 4,
    "plays_of_findings": 3,
    "verdicts": {"valid": 2, "anomalous": 2, "unknown": 0},
    "news": {"new": 1, "known": 1, "came back": 0, "quiet": 0},
    "acknowledged": 61224,
    "schedules": 0,
    "aims": {"aimed": 4, "hit": 3},
    "fail_on": ["anomaly"],
    "stopped": "",
    "findings": [{"key": KEY, "file": "nights/found/lost.json", "run": LOST}],
    "results": [
        {"play": "cell 1 #1", "kind": "pairs", "of": "", "system": "neaptide:0.11", "run": HELD}
        | {"verdict": "valid", "outcome": "held", "news": ""},
        {"play": "cell 2 #1", "kind": "swarm", "of": "", "system": "neaptide:0.10", "run": LOST}
        | {"verdict": "anomalous", "outcome": "lost", "news": "new"},
        {"play": "known 1 #1", "kind": "known", "of": "kip-101.json", "system": "neaptide:0.10"}
        | {"run": "thinned-out", "verdict": "anomalous", "outcome": "lost", "news": "known"},
        {"play": "cell 3 #1", "kind": "swarm", "of": "", "system": "neaptide:2.1", "run": None}
        | {"verdict": "valid", "outcome": "held", "news": ""},
    ],
    "unknown_reasons": [],
    "thinned": 1,
}
STRANGE: Final = '<img src=x onerror="alert(1)">'
LOG: Final = """\
12:00:00.950 INFO broker: t-0: leader 2, epoch 0, ISR [2, 1, 0]
12:00:06.001 INFO broker: t-0: follower of 1 in epoch 1
12:00:06.002 WARN broker: t-0: truncating from 2 to 1, high watermark 1
    a line without a time
"""
RANDOM: Final = Run(
    neaptide="0.1.0",
    name="append",
    title=f"append under kill, and {STRANGE}",
    system="neaptide:2.1",
    host="local",
    seed=99,
    started_utc="2025-11-22T08:00:00+00:00",
    status="running",
    kind="random",
    schedule=[{"at_s": 1.0, "faults": [{"after_s": 0.0, "lasts_s": 2.0, "kind": "kill"}]}],
    brokers={"A": 0, "B": 1, "C": 2},
    repeat="neaptide run append --system neaptide:2.1 --nemesis kill --seed 99",
)


@dataclass(frozen=True, slots=True)
class Stored:
    root: Path

    @property
    def lost(self) -> Path:
        return self.root / LOST

    @property
    def going_on(self) -> Path:
        return self.root / GOING_ON


def write_store(root: Path) -> Stored:
    stored = Stored(root)
    write_losing_run(stored.lost)
    write_verdict(stored.lost)
    _write_logs(stored.lost)
    write_left_out(stored.lost, _left_out())
    write_held_twin(root / HELD)
    write_going_on(stored.going_on)
    (root / UNREADABLE).mkdir()
    (root / UNREADABLE / "run.json").write_text('{"name": ', encoding="utf-8")
    (root / "latest").symlink_to(LOST)
    night = root / "nights" / NIGHT
    night.mkdir(parents=True)
    write_json(night / "summary.json", SUMMARY)
    (root / "nights" / "index.html").write_text(
        f'<!doctype html><h1>The night</h1><a href="../runs/{LOST}/report.html">a run</a>',
        encoding="utf-8",
    )
    (root / "nights" / BARE_NIGHT).mkdir()
    (root / "nights" / "found").mkdir()
    return stored


def _write_logs(run: Path) -> None:
    (run / "logs").mkdir()
    for broker in range(3):
        (run / "logs" / f"broker-{broker}.log").write_text(LOG, encoding="utf-8")
    (run / "logs" / "gate.log").write_text("", encoding="utf-8")


def _left_out() -> StepsLeftOut:
    steps = (
        StepLeftOut(1, "sends m1 with acks=all", "acked(m1)", {"held": 12, "lost": 8}, 0, ""),
        StepLeftOut(2, "kills C (SIGKILL)", "leader is B", {"held": 20}, 20, "step 3: not so"),
        StepLeftOut(3, "reads from the beginning", "", {"lost": 20}, 0, ""),
    )
    return StepsLeftOut("neaptide:0.10", "lost", 20, 7, {"lost": 20}, steps)


def write_going_on(directory: Path) -> None:
    directory.mkdir()
    (directory / "fetch_rounds").mkdir()
    write_run(directory, RANDOM)
    go_on(directory, 0)


def go_on(directory: Path, number: int, **faults: Mapping[str, Any]) -> None:
    """One more file of its operations: five acknowledged sends, one that failed, a new leader."""
    rows = [_row(number * 100 + n, "send", "ok" if n < 5 else "fail") for n in range(6)]
    leader = json.dumps({"leader": number % 3, "isr": [0, 1, 2]})
    rows.append(_row(number * 100 + 50, "leader", "info", value=leader, leader_epoch=number))
    for verb, fields in faults.items():
        value = json.dumps({verb: fields})
        rows.append(_row(number * 100 + 60, "nemesis", "info", value=value, topic=None))
    with TableWriter(directory / "operations", OPERATIONS, writer=f"c{number}") as table:
        table.extend(tuple(row[name] for name in OPERATIONS.names) for row in rows)


def _row(number: int, f: str, type: str, **rest: Any) -> dict[str, Any]:
    return (
        dict.fromkeys(OPERATIONS.names)
        | {
            "operation": number, "row": 0, "process": 0, "f": f, "type": type,
            "invoked_ns": number * 1_000_000, "completed_ns": number * 1_000_000 + 5,
            "topic": "t", "partition": 0, "phase": "main", "value": f"v{number}", "acks": "all",
        }
        | rest
    )  # fmt: skip


def end(directory: Path) -> None:
    write_run(directory, replace(RANDOM, status="finished"))


if __name__ == "__main__":
    write_store(Path(sys.argv[1]))
