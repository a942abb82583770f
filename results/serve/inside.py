"""What may be read of a run: regular files that are in its directory, and in nobody else's.

The rule: a name that somebody asks for is compared with what is there, and never made part of a
path; a symbolic link that leads out of the directory is refused, with all that it would show.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from neaptide.results.errors import NeaptideError
from neaptide.results.left_out import STEPS_FILE
from neaptide.results.run import RUN_FILE
from neaptide.results.verdicts import VERDICT_FILE

READ_FOLDERS: Final = ("operations", "fetch_rounds", "replicas", "anomalies", "series", "logs")
REPORT_FILE: Final = "report.html"
SHOWN_FILES: Final = (REPORT_FILE, RUN_FILE, VERDICT_FILE, STEPS_FILE)
LOGS: Final = "logs"


class RefusedLinkError(NeaptideError):
    """A symbolic link leads out of a run, or something is no file."""


def refuse_links_out(directory: Path) -> None:
    """Of all that a page reads of a run. Raises RefusedLinkError."""
    root = directory.resolve()
    try:
        for path in _read_of(directory):
            if path.is_symlink() and not _is_within(path, root):
                raise RefusedLinkError(
                    f"{path.relative_to(directory)} is a symbolic link that leads out of the run:"
                    " nothing of this run is read."
                )
            if _makes_wait(path):
                raise RefusedLinkError(
                    f"{path.relative_to(directory)} is no regular file: nothing of this run is"
                    " read."
                )
    except OSError as error:
        raise RefusedLinkError(f"{directory.name} cannot be read: {error.strerror}.") from error


def _read_of(directory: Path) -> Iterator[Path]:
    yield from (directory / name for name in SHOWN_FILES)
    for name in READ_FOLDERS:
        folder = directory / name
        yield folder
        if folder.is_dir() and not folder.is_symlink():
            yield from folder.iterdir()


def _makes_wait(path: Path) -> bool:
    """A FIFO, a socket, a device: who opens it may wait for ever."""
    try:
        mode = path.stat().st_mode
    except (OSError, RuntimeError):  # it is not there, or a link to nothing: who reads it says so
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _is_within(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a loop of links leads nowhere
        return False


def shown_files(directory: Path) -> Mapping[str, Path]:
    """Files that have pages of their own, by the name that a URL may give: `logs/broker-0.log`."""
    found = {name: directory / name for name in SHOWN_FILES}
    found |= {f"{LOGS}/{path.name}": path for path in log_files(directory)}
    return {name: path for name, path in found.items() if is_plain(path)}


def log_files(directory: Path) -> list[Path]:
    folder = directory / LOGS
    if not folder.is_dir() or folder.is_symlink():
        return []
    return sorted(path for path in folder.iterdir() if is_plain(path))


def is_plain(path: Path) -> bool:
    """A regular file, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def all_files(directory: Path) -> Iterator[tuple[str, Path]]:
    """Every regular file below a directory, with its name there; links are passed over."""
    for folder, names, files in os.walk(directory, followlinks=False):
        names.sort()
        for name in sorted(files):
            path = Path(folder) / name
            if is_plain(path):
                yield str(path.relative_to(directory)), path


def open_plain(path: Path) -> BinaryIO:
    """For reading; a link that has taken the file's place meanwhile is refused. Raises OSError."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
