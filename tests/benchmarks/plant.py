"""Writes a history of any size with planted anomalies, and says what must be found in it (JSON).

python -m tests.benchmarks.plant runs/planted --operations 1000000 --plant lost-write=3
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from tests.planting.planting import plant


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plant", action="append", default=[], metavar="ANOMALY=COUNT")
    options = parser.parse_args()
    plants = {name: int(count) for name, count in (text.split("=") for text in options.plant)}
    begun = time.monotonic()
    planted = plant(
        options.directory,
        options.operations,
        plants,
        partitions=options.partitions,
        seed=options.seed,
    )
    seconds = round(time.monotonic() - begun, 3)
    print(json.dumps({"seconds": seconds, "planted": [asdict(one) for one in planted]}))


if __name__ == "__main__":
    main()
