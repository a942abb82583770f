"""Runs the command as a person does, with stores of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "neaptide.harness.cli")
TIMEOUT_S = 580.0  # with a cold cache, jars are fetched first


def neaptide(
    directory: Path, *arguments: str, **env: str
) -> tuple[subprocess.CompletedProcess[str], Any]:
    """The finished process, and what it printed as JSON (None where it printed nothing)."""
    stores = {
        "NEAPTIDE_RUNS": str(directory / "runs"),
        "NEAPTIDE_STATE": str(directory / "state"),
    }
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **stores, **env},
        timeout=TIMEOUT_S,
        cwd=directory,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done, json.loads(done.stdout) if done.stdout else None
