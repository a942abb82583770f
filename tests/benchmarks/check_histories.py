"""What a check of a planted history costs: time and memory by size (JSON).

python -m tests.benchmarks.check_histories --operations 10000 --operations 1000000
python -m tests.benchmarks.check_histories --runs 1000 --operations 200
python -m tests.benchmarks.check_histories --jepsen-shape --operations 1000000

Whole: the command as a process, from its start to its end; memory is the sum over it and all that
it started (the driver's Python and Java, which on one machine is also the executor), sampled, and
`cpu_s` their processor time, which says more where the machine is shared. Warm: the same check, a
second time in one session. With `--runs`, that many histories of the given size in one session.

With `--jepsen-shape` the history is one that Jepsen's Kafka workload would make (see
`tests.planting.jepsen`), checked from its EDN and from the Parquet of a run, valid and planted.

Every answer is compared with what was planted: a benchmark of wrong answers is worth nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.planting import jepsen
from tests.planting.planting import PLANTS as EVERY_KIND
from tests.planting.planting import UNSEEN, plant

FEW_KINDS = {"lost-write": 3, "duplicate": 2, "poll-skip": 2, "reordered": 2, "unseen": 1}
SAMPLE_S = 0.2


@dataclass
class Tree:
    """What a process and all that it started used."""

    memory_max: int = 0
    cpu_s: dict[int, float] = field(default_factory=dict)

    def sample(self, root: psutil.Process) -> None:
        memory = 0
        for process in [root, *root.children(recursive=True)]:
            try:
                memory += process.memory_info().rss
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self.cpu_s[process.pid] = times.user + times.system
        self.memory_max = max(self.memory_max, memory)


def whole(runs: Sequence[Path], expected: Mapping[str, int], options: Sequence[str]) -> Any:
    """The command, from start to end."""
    command = [
        sys.executable,
        "-m",
        "neaptide.harness.cli",
        "check",
        "--json",
        *options,
        *map(str, runs),
    ]
    begun = time.monotonic()
    tree = Tree()
    with (
        tempfile.TemporaryDirectory() as made,
        tempfile.TemporaryFile() as out,
        subprocess.Popen(command, stdout=out, env={**os.environ, "NEAPTIDE_RUNS": made}) as process,
    ):
        root = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                tree.sample(root)
                process.wait(SAMPLE_S)
            except (subprocess.TimeoutExpired, psutil.NoSuchProcess):
                continue
        seconds = time.monotonic() - begun
        out.seek(0)
        reported = json.load(out)
    for run in reported["runs"]:
        assert run["anomalies"] | run["allowed"] == expected, run
    return {
        "seconds": round(seconds, 2),
        "cpu_s": round(sum(tree.cpu_s.values()), 2),
        "memory_gib": round(tree.memory_max / 2**30, 2),
        "operations": sum(run["operations"] for run in reported["runs"]),
    }


def warm(runs: Sequence[Path], times: int) -> list[dict[str, float]]:
    """The same check again and again in one session."""
    from neaptide.checkers.check import check_runs
    from neaptide.checkers.material import open_run
    from neaptide.checkers.pipeline.session import local_session

    spark = local_session(rows=sum(open_run(run).rows for run in runs))
    tree = psutil.Process(os.getpid())

    def cpu_s() -> float:
        every = (p.cpu_times() for p in [tree, *tree.children(recursive=True)])
        return float(sum(t.user + t.system for t in every))

    reported = []
    for _ in range(times):
        begun, cpu_before = time.monotonic(), cpu_s()
        check_runs(spark, runs)
        reported.append(
            {
                "seconds": round(time.monotonic() - begun, 2),
                "cpu_s": round(cpu_s() - cpu_before, 2),
            }
        )
    spark.stop()
    return reported


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, action="append")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--value-bytes", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--every-kind", action="store_true", help="Plant all that can be.")
    parser.add_argument("--warm", type=int, default=2, help="Checks in one session; 0: none.")
    parser.add_argument("--jepsen-shape", action="store_true", help="One history as Jepsen's.")
    parser.add_argument("--scratch", type=Path, help="Where the histories are made, and left.")
    options, more = parser.parse_known_args()
    reported = []
    with tempfile.TemporaryDirectory() as temporary:
        for operations in options.operations or [10_000, 1_000_000]:
            base = (options.scratch or Path(temporary)) / f"{operations}x{options.runs}"
            measure = _measure_jepsen if options.jepsen_shape else _measure
            reported.append(measure(base, operations, options, more))
    print(json.dumps({"cores": os.cpu_count(), "results": reported}, indent=2))


def _measure(
    base: Path, operations: int, options: argparse.Namespace, more: Sequence[str]
) -> dict[str, Any]:
    runs, expected = [], Counter[str]()
    begun = time.monotonic()
    for n in range(options.runs):
        planted = plant(
            base / f"run{n:05d}",
            operations,
            dict.fromkeys((*EVERY_KIND, UNSEEN), 3) if options.every_kind else FEW_KINDS,
            partitions=options.partitions,
            seed=n,
            value_bytes=options.value_bytes,
        )
        runs.append(base / f"run{n:05d}")
        expected = Counter(one.anomaly for one in planted)
    planted_s = round(time.monotonic() - begun, 2)
    return {
        "operations_each": operations,
        "runs": options.runs,
        "partitions": options.partitions,
        "planted_s": planted_s,
        "whole": whole(runs, dict(sorted(expected.items())), more),
        "warm": warm(runs, options.warm)[1:] if options.warm else [],
    }


def _measure_jepsen(
    base: Path, operations: int, options: argparse.Namespace, more: Sequence[str]
) -> dict[str, Any]:
    base.mkdir(parents=True, exist_ok=True)
    reported: dict[str, Any] = {"operations": operations}
    for name, plants in {"valid": {}, "planted": dict.fromkeys(jepsen.STORIES, 3)}.items():
        edn, run = base / f"{name}.edn", base / name
        jepsen.write_edn(edn, operations, plants)
        jepsen.write_parquet(run, edn)
        wanted = jepsen.expected(plants)
        reported[name] = {
            "edn_mb": round(edn.stat().st_size / 1e6, 1),
            "from_edn": whole([edn], wanted, more),
            "from_parquet": whole([run], wanted, more),
            "warm": warm([run], options.warm)[1:] if options.warm else [],
        }
    return reported


if __name__ == "__main__":
    main()
