"""One file of the ledger, read: whose it is, and what it names. Whatever lies there, it is read.

A file is written whole up to its first line before it has its name, and line by line after that. So
a last line without an end is that of an owner that died while it wrote; what else is no row of the
ledger is not the ledger's.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.hosts.identity import ProcessIdentity, boot_id

_BYTES_MAX: Final = 64 * 1024 * 1024
_PIDS: Final = Path("/proc/self/ns/pid")
_FIRST_PIDS: Final = "pid:[4026531836]"  # the namespace that a machine boots with, on every Linux


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a pid means something."""

    host: str
    boot: str
    pids: str  # the PID namespace

    @classmethod
    def here(cls) -> Whereabouts:
        return cls(os.uname().nodename, boot_id(), os.readlink(_PIDS))

    def is_over(self, here: Whereabouts) -> bool:
        """This machine was there, and has been started anew since."""
        was_here = self.host == here.host and self.pids == here.pids == _FIRST_PIDS
        return was_here and self.boot != here.boot


@dataclass(frozen=True, slots=True)
class Owner:
    """Who wrote a ledger.

    Earlier versions wrote when it started by the wall clock, which proves nothing: `process` is
    None then. The earliest did not write where it was, either: it was here.
    """

    pid: int
    process: ProcessIdentity | None
    where: Whereabouts | None

    def is_dead(self, here: Whereabouts) -> bool:
        """Surely: of one that cannot be seen from here nothing is known."""
        if self.where is None or self.where == here:
            if self.process is None:
                return ProcessIdentity.of(self.pid) is None
            return not self.process.lives()
        return self.where.is_over(here)


@dataclass(frozen=True, slots=True)
class Entry:
    """A process that was started; `identity` is None if it never got written, or not so that it
    can be believed: then it is known by its token."""

    token: str
    what: str
    directory: str
    identity: ProcessIdentity | None


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that is no process and has to be removed."""

    kind: str
    name: str


@dataclass(slots=True)
class LedgerFile:
    """`trouble`: what of it cannot be read, as the end of a sentence; None: all of it can."""

    owner: Owner | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    resources: list[Resource] = field(default_factory=list)
    trouble: str | None = None
    is_gone: bool = False


def read_ledger(path: Path) -> LedgerFile:
    """Never raises, and never waits."""
    found = LedgerFile()
    try:
        data = _read_bytes(path)
    except FileNotFoundError:
        # Its owner has just ended well, or it is a link to nothing.
        found.is_gone = not path.is_symlink()
        found.trouble = "is a link to nothing"
        return found
    except (OSError, ValueError) as error:
        found.trouble = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        return found
    lines = data.split(b"\n")
    lines.pop()  # behind the last end of a line: nothing, or what its owner died over
    for number, line in enumerate(lines, start=1):
        try:
            _take(found, json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            found.trouble = found.trouble or f"has no row of a ledger in line {number}"
    if found.owner is None and found.trouble is None:
        found.trouble = "does not say whose it is"
    return found


def _read_bytes(path: Path) -> bytes:
    """Raises OSError, ValueError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is no file")
        data = file.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise ValueError("it is too large")
    return data


def _take(found: LedgerFile, row: dict[str, Any]) -> None:
    """Raises ValueError, TypeError, KeyError, AttributeError where it is no row."""
    if "owner" in row:
        if found.owner is None:
            found.owner = _owner(row["owner"])
    elif "intent" in row:
        token = _text(row, "intent")
        what, directory = _text(row, "what"), _text(row, "directory")
        found.entries[token] = Entry(token, what, directory, None)
    elif "resource" in row:
        found.resources.append(Resource(_text(row, "resource"), _text(row, "name")))
    else:
        known = found.entries[_text(row, "token")]
        identity = None
        if found.owner is not None and found.owner.where is not None and "start_ticks" in row:
            boot = found.owner.where.boot
            identity = ProcessIdentity(_number(row, "pid"), _number(row, "start_ticks"), boot)
        found.entries[known.token] = Entry(known.token, known.what, known.directory, identity)


def _owner(row: Mapping[str, Any]) -> Owner:
    where = None
    if "boot" in row:
        where = Whereabouts(_text(row, "host"), _text(row, "boot"), _text(row, "pids"))
    process = None
    pid = _number(row, "pid")
    if "start_ticks" in row and where is not None:
        process = ProcessIdentity(pid, _number(row, "start_ticks"), where.boot)
    elif not isinstance(row["started"], int | float):
        raise ValueError("started")
    return Owner(pid, process, where)


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise ValueError(name)
    return value


def _number(row: Mapping[str, Any], name: str) -> int:
    value = row[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(name)
    return value
