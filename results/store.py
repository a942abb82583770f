"""The store: a directory of run directories, each written atomically and found by name.

Not here: the columns (`results.schema`), what is in `run.json` (`results.run`), the Parquet writer
(`neaptide.results.tables`, re-exported because whoever creates a run wants it too).

The rule: a file that is there is whole. Everything is written under a hidden temporary name and
renamed; nothing waits for the disk, a run that a power failure cuts off is unknown anyway.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from neaptide.results.errors import RunNotFoundError, StoreError
from neaptide.results.run import RUN_FILE, Run

__all__ = [
    "LATEST",
    "create_run",
    "find_run",
    "list_runs",
    "point_latest_at",
    "private_files",
    "remove_run",
    "runs_directory",
    "write_json",
    "write_run",
    "write_text",
]

LATEST: Final = "latest"
# Runs have what users send, and how they reach their clusters.
_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_OTHERS: Final = 0o077
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def runs_directory() -> Path:
    """Where runs are kept: `NEAPTIDE_RUNS`, else `./runs`."""
    return Path(os.environ.get("NEAPTIDE_RUNS") or "runs").absolute()


def create_run(name: str, system: str, seed: int, utc: datetime, *, is_latest: bool = True) -> Path:
    """Make the directory of a new run and point `latest` at it, or leave that for later."""
    if utc.tzinfo is None:
        raise ValueError("utc must carry a time zone")
    stamp = utc.astimezone(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    base = _UNSAFE.sub("-", f"{stamp}-{name}-{system}-{seed}")
    runs = runs_directory()
    try:
        runs.mkdir(parents=True, exist_ok=True, mode=_DIRECTORY_MODE)
        directory = _make_new(runs, base)
        if is_latest:
            point_latest_at(directory)
    except OSError as error:
        raise StoreError(
            f"Cannot make a run directory in {runs} ({error.strerror}): "
            "set NEAPTIDE_RUNS to a directory that you may write to."
        ) from error
    return directory


def _make_new(runs: Path, base: str) -> Path:
    """Two runs may start in one second: the later one gets a number behind its name."""
    number = 1
    while True:
        directory = runs / (base if number == 1 else f"{base}-{number}")
        try:
            directory.mkdir(mode=_DIRECTORY_MODE)
            return directory
        except FileExistsError:
            number += 1


def remove_run(directory: Path) -> None:
    """If it was the latest, the one before it is. Fails at nothing."""
    latest = directory.parent / LATEST
    shutil.rmtree(directory, ignore_errors=True)
    try:
        if latest.is_symlink() and os.readlink(latest) == directory.name:
            left = [path for path in list_runs(directory.parent) if (path / RUN_FILE).exists()]
            if left:
                point_latest_at(left[-1])
            else:
                latest.unlink()
    except OSError:
        return


def point_latest_at(directory: Path) -> None:
    link = directory.parent / f".{LATEST}-{directory.name}"
    link.unlink(missing_ok=True)
    link.symlink_to(directory.name)
    link.replace(directory.parent / LATEST)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON file so that readers see the old one or the new one, never half of it."""
    write_text(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file whole, beside the old one, which is there until the new one takes its place.

    Raises StoreError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            temporary.touch(mode=_FILE_MODE)
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror}.") from error


@contextmanager
def private_files() -> Iterator[None]:
    """What this process makes meanwhile is for its user alone, and what it starts keeps to that."""
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def write_run(directory: Path, run: Run) -> None:
    """Write `run.json`."""
    write_json(directory / RUN_FILE, run.to_json())


def list_runs(runs: Path | None = None) -> list[Path]:
    """All run directories of the store, oldest first."""
    runs = runs or runs_directory()
    if not runs.is_dir():
        return []
    return sorted(
        path
        for path in runs.iterdir()
        if _is_directory(path) and not path.is_symlink() and not path.name.startswith(".")
    )


def _is_directory(path: Path) -> bool:
    """Not one that may not be looked at, nor a name that is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def find_run(text: str) -> Path:
    """Find a run by its path, its name, a part of its name that only it has, or `latest`."""
    for path in (Path(text), runs_directory() / text):
        if _is_directory(path):
            return path.resolve()
    matches = [path for path in list_runs() if text in path.name]
    if len(matches) == 1:
        return matches[0].resolve()
    if matches:
        names = ", ".join(path.name for path in matches[-3:])
        raise RunNotFoundError(
            f"{len(matches)} runs have {text!r} in their names ({names}, …): name one in full."
        )
    if Path(text).is_file():
        raise RunNotFoundError(
            f"{text} is a file, and a run is a directory; a history of Jepsen's must end in .edn:"
            " unpack it, or give it that name."
        )
    raise RunNotFoundError(
        f"There is no run {text!r}, neither as a path nor in {runs_directory()}: "
        "name a run directory, or set NEAPTIDE_RUNS to where they are."
    )
