"""Plays a scenario file in the simulation and prints the digest of all that happened in it.

`python -m neaptide.harness.play.simulation FILE SYSTEM`: for whoever wants to see that one schedule
is one run, in any process and under any PYTHONHASHSEED.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import tempfile
from pathlib import Path

from neaptide.harness.live.account import Account
from neaptide.harness.play.simulation.play import play_simulated
from neaptide.nemesis.scenario import load_scenario


def digest(file: Path, system: str) -> str:
    """SHA-256 of every file that the run writes, in the order of their names."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        asyncio.run(play_simulated(load_scenario(file), system, directory, Account()))
        total = hashlib.sha256()
        for written in sorted(path for path in directory.rglob("*") if path.is_file()):
            total.update(f"{written.relative_to(directory)}\0".encode())
            total.update(written.read_bytes())
    return total.hexdigest()


if __name__ == "__main__":
    print(digest(Path(sys.argv[1]), sys.argv[2]))
