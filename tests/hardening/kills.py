"""Kills of a run's harness and of its parts, as many as one likes: prints JSON.

    python -m tests.hardening.kills [--kills 300] [--seed 1]

Each run is one of its own. Somewhere in it one process is killed (SIGKILL), stopped, or its harness
is asked to end. When the run is over, by the next command at the latest, nothing that it started is
left, its `run.json` says how it ended, and nothing but a run to which nothing happened is finished
without an incident. Exit status: 0 where that held, 1 where it did not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from neaptide.clusters.hosts.ledger import TOKEN_VARIABLE
from tests.hardening.frames import HardeningError

KILLS: Final = 300
_LASTS_S: Final = 600.0  # a run that is left alone
_WITHIN_S: Final = 180.0
_MARK: Final = "NEAPTIDE_HARDENING"
_COMMAND: Final = (sys.executable, "-m", "neaptide.harness.cli")
# What is killed, by a word of its command line; the harness itself has none of them.
PARTS: Final = {
    "harness": "",
    "gate": "nemesis.gate",
    "clients": "workloads.worker",
    "broker": "broker.server",
    "zookeeper": "zookeeper",
}
HOW: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Run:
    """One `neaptide run`, and all that carries its mark."""

    def __init__(self, directory: Path, number: int) -> None:
        self.directory = directory
        self.env = {
            **os.environ,
            "NEAPTIDE_RUNS": str(directory / "runs"),
            "NEAPTIDE_STATE": str(directory / "state"),
            _MARK: str(directory),
        }
        self.log = directory / "said"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*_COMMAND, "run", "append", "--no-check", "--time", "500", "--seed", str(number)],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def parts(self) -> dict[int, str]:
        """What this run has started and that lives: by pid, its command line."""
        found = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                environ = process.environ()
                mine = environ.get(_MARK) == str(self.directory) and TOKEN_VARIABLE in environ
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = " ".join(process.cmdline())
        return found

    def of_kind(self, part: str) -> list[int]:
        if part == "harness":
            return [self.process.pid]
        return sorted(pid for pid, line in self.parts().items() if PARTS[part] in line)

    def await_part(self, part: str) -> list[int]:
        """HardeningError where there is none in time."""
        deadline = time.monotonic() + _WITHIN_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise HardeningError(f"the run ended by itself: {self.log.read_text()[-500:]}")
            if found := self.of_kind(part):
                return found
            time.sleep(0.05)
        raise HardeningError(f"there was no {part}")

    def await_end(self) -> int:
        try:
            return self.process.wait(_WITHIN_S)
        except subprocess.TimeoutExpired:
            said = self.log.read_text(encoding="utf-8", errors="replace")[-500:]
            raise HardeningError(f"the run did not end: {said}; left: {self.parts()}") from None

    def next_command(self) -> None:
        done = subprocess.run(
            [*_COMMAND, "list", "--json"], env=self.env, capture_output=True, timeout=_WITHIN_S
        )
        if done.returncode != 0:
            raise HardeningError(f"the next command failed: {done.stderr[-500:]!r}")


def kill_one(directory: Path, number: int) -> str:
    """What was killed, and how. Raises HardeningError."""
    chance = random.Random(f"kills/{number}")
    part = chance.choice(tuple(PARTS))
    how = chance.choice(HOW) if part == "harness" else signal.SIGKILL
    run = Run(directory, number)
    try:
        run.await_part(chance.choice(("harness", "clients", "broker")))
        time.sleep(chance.random() * 3)  # somewhere: nothing waits for this moment
        victim = chance.choice(run.await_part(part))
        with suppress(ProcessLookupError):
            os.kill(victim, how)
        status = run.await_end()
        said = run.log.read_text(encoding="utf-8", errors="replace")
        if "Traceback" in said or status in (0, 1, 70):
            raise HardeningError(f"status {status} after {part} had {how.name}: {said[-1000:]}")
        run.next_command()
        if left := run.parts():
            raise HardeningError(f"left after {part} had {how.name}: {left}")
        for file in (directory / "runs").glob("2*/run.json"):
            document = json.loads(file.read_text(encoding="utf-8"))
            if document["status"] in ("running", "finished"):
                raise HardeningError(f"{part} had {how.name}, and the run is {document['status']}")
        return f"{part} {how.name}"
    finally:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
            run.next_command()


def hurt(directory: Path, kills: int, number: int) -> dict[str, Any]:
    """Raises HardeningError."""
    began = time.monotonic()
    done: Counter[str] = Counter()
    for count in range(kills):
        here = directory / str(count)
        here.mkdir()
        try:
            done[kill_one(here, number + count)] += 1
        except HardeningError as error:
            raise HardeningError(f"kill {number + count}: {error}") from error
    seconds = round(time.monotonic() - began, 1)
    return {"kills": sum(done.values()), "of_kind": dict(sorted(done.items())), "seconds": seconds}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        try:
            found = hurt(Path(directory), asked.kills, asked.seed)
        except HardeningError as error:
            found = {"failed": str(error)}
    print(json.dumps(found, indent=2))
    return int("failed" in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
