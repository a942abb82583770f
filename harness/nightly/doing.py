"""Plays one run or one search of a night in a process of its own, and has it ended with the night.

A process is in the ledger before it runs; it ends in order when the night is interrupted, by itself
when the night is killed (`child`), and at the latest when the next command starts.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.hosts.ledger import TOKEN_VARIABLE, Ledger
from neaptide.harness.nightly.state import Ended, Play
from neaptide.harness.play.recording import RECORD_ONLY, last_sentence, recorded

CHILD: Final = "neaptide.harness.cli.child"
ENDS_WITHIN_S: Final = 60.0  # what was asked to end: it has brokers to stop
_LATE_S: Final = 600.0  # beyond what a play should last
_ANOMALY_FOUND: Final = (0, 1)  # the statuses of a search that came to its end


class Doing:
    """Starts processes from the thread that it was made in: they end when that one does."""

    def __init__(self, night: Path) -> None:
        self._logs = night / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._ledger = Ledger()
        # As it was before Spark starts, which has other words in it meanwhile.
        self._environment = dict(os.environ)

    def close(self) -> None:
        """When none of them is left."""
        self._ledger.close()

    async def play(self, play: Play) -> Ended:
        """Returns when it has ended, or was ended because it is much too late."""
        words = play.words if play.is_search else (*play.words, *RECORD_ONLY)
        token = self._ledger.intend(f"{play.name} of a night", self._logs)
        log = self._logs / f"{_file_name(play.name)}.log"
        begun = time.monotonic()
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", CHILD, str(os.getpid()), "--isolated", *words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env={**self._environment, TOKEN_VARIABLE: token},
                start_new_session=True,  # a Ctrl-C in the terminal reaches the night alone
            )
        self._ledger.started(token, process.pid)
        why = ""
        try:
            async with asyncio.timeout(play.lasts_s + _LATE_S):
                stdout, _ = await process.communicate()
        except TimeoutError:
            stdout, why = b"", f"it did not end within {play.lasts_s + _LATE_S:.0f} s"
        finally:
            await _end(process)
        seconds = round(time.monotonic() - begun, 3)
        status = process.returncode if process.returncode is not None else -1
        said = log.read_text(encoding="utf-8", errors="replace")
        text = stdout.decode("utf-8", errors="replace")
        if play.is_search:
            return _searched(play, text, said, status, seconds, why)
        done = recorded(text, said, status)
        run = None if done.run is None else str(done.run)
        return Ended(play, run, seconds, why or done.why)


def _searched(play: Play, stdout: str, stderr: str, status: int, seconds: float, why: str) -> Ended:
    try:
        found: Mapping[str, Any] | None = json.loads(stdout)
    except ValueError:
        found = None
    if status not in _ANOMALY_FOUND or found is None:
        why = why or last_sentence(stderr) or f"it ended with status {status}"
        return Ended(play, None, seconds, why)
    return Ended(play, None, seconds, "", found)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Shielded from a second interrupt: what is not waited for here is left to the ledger."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(ENDS_WITHIN_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name)
