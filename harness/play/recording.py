"""Runs of the command that only record: `neaptide run … --no-check`, in processes of their own.

What a run comes to is judged by whoever started it, many in one Spark session.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMMAND: Final = (sys.executable, "-m", "neaptide.harness.cli", "--isolated")
RECORD_ONLY: Final = ("--no-check", "--json")


@dataclass(frozen=True, slots=True)
class Recorded:
    """`run`: its directory; None: there is none, and `why` says what came in the way."""

    run: Path | None
    why: str = ""


def recorded(stdout: str, stderr: str, status: int) -> Recorded:
    """What a `run --no-check --json` left, from what it printed and its exit status."""
    try:
        document = json.loads(stdout)
        return Recorded(Path(document["run"]))
    except (ValueError, KeyError, TypeError):
        return Recorded(None, last_sentence(stderr) or f"it ended with status {status}")


def last_sentence(stderr: str) -> str:
    """Of what a command says when it fails, the sentence that says why."""
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    return lines[-1].removeprefix("neaptide: ").rstrip(".") if lines else ""


def command(words: Sequence[str]) -> list[str]:
    return [*COMMAND, *words, *RECORD_ONLY]


def output_of(words: Sequence[str]) -> tuple[str, str, int]:
    """What a command prints, and its exit status. Who is interrupted lets it end in order: it has
    brokers to stop."""
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            return *process.communicate(), process.returncode
        except BaseException:
            process.terminate()
            process.wait()
            raise
