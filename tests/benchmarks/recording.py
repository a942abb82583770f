"""How many operations a second one process of clients records, and in how much memory.

`python -m tests.benchmarks.recording --operations 2000000` prints JSON: sends that complete at once
(a library that costs nothing), with and without the journal of a run whose clients may be killed.
Each way is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from neaptide.workloads.journal import Journal
from neaptide.workloads.libraries.model import Library
from neaptide.workloads.recorder import Recorder
from neaptide.workloads.roles.append import AppendProducer
from neaptide.workloads.roles.role import Desk, Sends, Task

_BURST = 50


class _AtOnce:
    """A producer whose sends are acknowledged as they are made."""

    def __init__(self, _: Any = None) -> None:
        self._offset = 0

    def send(self, topic: str, partition: int, key: str | None, value: str, done: Any) -> None:
        self._offset += 1
        done(self._offset, None)

    def poll(self) -> None: ...


def measure(operations: int, journaled: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory)
        recorder = Recorder(run, 1, 0)
        journal = Journal(run, 1) if journaled else None
        numbers = itertools.count(1)
        library = Library("none", _AtOnce, _AtOnce, {}, frozenset())
        desk = Desk(recorder, journal, lambda: next(numbers), library, "", {}, {})
        role = AppendProducer(desk, Task("producer", 0, 1, {"t": 4}, 1.0, "all", True, 1, {}))
        sends = Sends(role, cast(Any, _AtOnce()))
        begun, cpu = time.perf_counter(), time.process_time()
        for number in range(0, operations, _BURST):
            sends.send([("t", n % 4, None, f"{number}-{n}") for n in range(_BURST)])
            if number % 500_000 == 0:  # as often as the files of a run are closed
                finished = [] if journal is None else journal.turn()
                recorder.flush()
                if journal is not None:
                    journal.delete(finished)
        recorder.close()
        wall_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    return {
        "journal": journaled,
        "operations": operations,
        "operations_per_s": round(operations / wall_s),
        "operations_per_cpu_s": round(operations / cpu_s),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=2_000_000)
    asked = parser.parse_args(arguments)
    results = []
    for journaled in (False, True):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            results.append(pool.apply(measure, (asked.operations, journaled)))
    print(json.dumps({"benchmark": "recording", "results": results}, indent=2))


if __name__ == "__main__":
    main()
