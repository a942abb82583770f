"""How fast one log appends and reads: prints JSON, asserts nothing.

    python -m tests.benchmarks.storage_append [--directory DIR] [--seconds S]

Each case is measured in the same run, so that the figures compare: batches of one small record
(an event loop's worst case), batches of 100 records, the same with a flush an append, and reads at
the tail as a follower makes them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage.config import LogConfig
from neaptide.clusters.broker.storage.log import Log
from neaptide.clusters.broker.storage.record_batch import (
    assign,
    parse_batches,
    validate_produced,
    walk_records,
)
from tests.storage.batches import batch


def measure(step: Callable[[], int], seconds: float) -> dict[str, float]:
    """Calls of `step` (which returns bytes) for some seconds, after a warm-up."""
    for _ in range(20):
        step()
    calls = data = 0
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        for _ in range(20):
            data += step()
        calls += 20
    return {
        "calls_per_second": round(calls / elapsed),
        "microseconds_per_call": round(elapsed / calls * 1e6, 2),
        "megabytes_per_second": round(data / elapsed / 1e6, 1),
    }


def appender(log: Log, produced: bytes) -> Callable[[], int]:
    """All that a leader does with a batch: parse, check, look at its records, assign, append."""

    def step() -> int:
        data = bytearray(produced)
        [header] = parse_batches(produced)
        validate_produced(header)
        walk_records(produced, 0, header)
        log.append(data, assign(data, log.log_end_offset, 0))
        return len(data)

    return step


def tail_reader(log: Log, produced: bytes, batches_behind: int) -> Callable[[], int]:
    """A fetch round of a follower that is some batches behind, all of one record."""
    write = appender(log, produced)

    def step() -> int:
        for _ in range(batches_behind):
            write()
        end = log.log_end_offset
        return len(log.read(end - batches_behind, end, 1 << 20, min_one_batch=True))

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where to write; default: a temporary one")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case")
    options = parser.parse_args()
    small, large = batch(0, [b"v" * 100]), batch(0, [b"v" * 100] * 100)
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=options.directory) as root:

        def opened(name: str, **config: Any) -> Log:
            return Log.open(Path(root) / f"{name}-0", TopicPartition(name, 0), LogConfig(**config))

        cases = {
            "append 1 record": (opened("small"), lambda log: appender(log, small)),
            "append 100 records": (opened("large"), lambda log: appender(log, large)),
            "append 1 record, flush.messages=1": (
                opened("flushed", flush_messages=1),
                lambda log: appender(log, small),
            ),
            "append 1 record, read it": (opened("r1"), lambda log: tail_reader(log, small, 1)),
            "append 20 records, read them": (
                opened("r20"),
                lambda log: tail_reader(log, small, 20),
            ),
        }
        for name, (log, step) in cases.items():
            results[name] = measure(step(log), options.seconds)
            log.close()
    print(json.dumps({"benchmark": "storage_append", "results": results}, indent=2))


if __name__ == "__main__":
    main()
