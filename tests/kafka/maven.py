"""A Maven that does what a script says."""

from __future__ import annotations

from pathlib import Path


def fake_maven(cache: Path, script: str) -> None:
    command = cache.parents[2] / "bin" / "mvn"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
