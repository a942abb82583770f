"""All of the hardening, in its long form or a part of it: prints JSON.

    python -m tests.hardening [--frames 1000000] [--kills 300] [--seed 1]

So many frames each to what reads them, to brokers and to the gate; so many kills. Exit status: 0
where all of it held, 1 where something did not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.hardening import entities, frames, gate_frames, kills


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=frames.FRAMES)
    parser.add_argument("--kills", type=int, default=kills.KILLS)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    report: dict[str, Any] = {"seed": asked.seed}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        os.environ["NEAPTIDE_STATE"] = str(directory / "state")
        parts: dict[str, Callable[[Path], dict[str, Any]]] = {
            "entities": lambda _: entities.hurt(asked.frames, asked.seed),
            "gate": lambda here: gate_frames.hurt(here, asked.frames, asked.seed),
            **{
                f"broker {generation}": partial(
                    frames.hurt,
                    generation=generation,
                    frames=asked.frames // len(frames.GENERATIONS),
                    number=asked.seed,
                )
                for generation in frames.GENERATIONS
            },
            "kills": lambda here: kills.hurt(here, asked.kills, asked.seed),
        }
        for part, hurt in parts.items():
            here = directory / part.replace(" ", "-")
            here.mkdir()
            try:
                report[part] = hurt(here)
            except frames.HardeningError as error:
                report[part] = {"failed": str(error)}
    print(json.dumps(report, indent=2))
    held = entities.held(report["entities"])
    return int(not held or any("failed" in report[part] for part in parts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
