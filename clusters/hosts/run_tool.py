"""Runs one of the system's tools (ip, nft) to its end: argument lists only, no shell."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

from neaptide.clusters.errors import HostError

_TIMEOUT_S: Final = 30.0


class ToolError(HostError):
    """A tool said no; the message is what it said."""


def run_tool(argv: Sequence[str], standard_input: str = "") -> str:
    """What it printed. Raises ToolError."""
    try:
        done = subprocess.run(
            list(argv),
            input=standard_input,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise ToolError(f"{' '.join(argv[:6])}: {said}")
    return done.stdout
