"""The ledger: what a harness has started, on disk, so that a later one can end what it left.

Not a supervisor: it never restarts anything. One file per owning harness process, JSON lines,
each on disk before the next thing happens:

    {"owner": {"pid": 1, "started": 2.5}}                          first line
    {"intent": "…token…", "what": "broker 1", "directory": "…"}    before the process runs
    {"token": "…", "pid": 7, "started": 3.5}                       as soon as its pid is known
    {"resource": "namespace", "name": "…"}                         before it exists

A pid alone proves nothing, for pids are used again: a process is (pid, start time). A process
that ran while its pid was not yet written, and whatever a process started in its turn, is found
by the token in its environment. The end of a process is not written: whether it lives is asked.
What is no process (a network namespace, a container) is a *resource*: its kind says how it is
removed, and removing what is not there is no error. One that cannot be removed now stays in the
ledger for the next command.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import psutil

TOKEN_VARIABLE: Final = "NEAPTIDE_PROCESS"
_START_TOLERANCE_S: Final = 0.02  # a start time is counted in clock ticks of 10 ms


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, for ever: a pid together with when it started."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The process that has this pid now, or None if there is none (or only a zombie)."""
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return cls(pid, process.create_time())
        except psutil.NoSuchProcess:
            return None

    def lives(self) -> bool:
        """Whether this very process, and not a later one with its pid, is running."""
        now = ProcessIdentity.of(self.pid)
        return now is not None and abs(now.started - self.started) <= _START_TOLERANCE_S


@dataclass(frozen=True, slots=True)
class Entry:
    """A process that was started; `identity` is None if its pid never got written."""

    token: str
    what: str
    directory: str
    identity: ProcessIdentity | None


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that is no process and has to be removed."""

    kind: str
    name: str


Remover = Callable[[str], bool]  # of a kind: removes by name; False: cannot be done now


def state_directory() -> Path:
    """Where neaptide keeps what outlives a run: `NEAPTIDE_STATE`, or below the XDG state home."""
    if override := os.environ.get("NEAPTIDE_STATE"):
        return Path(override)
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "neaptide"


class Ledger:
    """The ledger file of this process: append only, every line synced."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or state_directory() / "ledger"
        self._directory.mkdir(parents=True, exist_ok=True)
        owner = ProcessIdentity.of(os.getpid())
        if owner is None:
            raise RuntimeError("this process cannot find itself among the running processes")
        self._count = 0
        self._prefix = f"{owner.pid}-{int(owner.started * 1000)}"
        self.path, self._file = self._create_file()
        self._write({"owner": {"pid": owner.pid, "started": owner.started}})

    def intend(self, what: str, directory: Path) -> str:
        """Write that a process is about to run; the token goes into its environment."""
        self._count += 1
        token = f"{self.path.stem}-{self._count}"
        self._write({"intent": token, "what": what, "directory": str(directory)})
        return token

    def started(self, token: str, pid: int) -> None:
        """Write which process an intent became."""
        identity = ProcessIdentity.of(pid)
        if identity is not None:
            self._write({"token": token, "pid": pid, "started": identity.started})

    def intend_resource(self, kind: str, name: str) -> None:
        """Write that a resource is about to exist. Its name belongs to this run alone."""
        self._write({"resource": kind, "name": name})

    def close(self) -> None:
        """Forget the file, once nothing that it names is left."""
        if not self._file.closed:
            self._file.close()
            self.path.unlink(missing_ok=True)

    def _create_file(self) -> tuple[Path, IO[str]]:
        number = 0
        while True:
            path = self._directory / f"{self._prefix}-{number}.jsonl"
            with contextlib.suppress(FileExistsError):
                return path, path.open("x", encoding="utf-8")
            number += 1

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def reap_orphans(
    directory: Path | None = None, removers: Mapping[str, Remover] | None = None
) -> list[str]:
    """End what dead owners left, and say what it was; what living ones own stays."""
    folder = directory or state_directory() / "ledger"
    reaped: list[str] = []
    if not folder.is_dir():
        return reaped
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # or another's new namespace could be taken for an old one
        for path in sorted(folder.glob("*.jsonl")):
            owner, entries, resources = _read(path)
            if owner is None or owner.lives():
                continue
            reaped.extend(_end(entries))
            left = [each for each in reversed(resources) if not _remove(each, removers or {})]
            reaped.extend(f"{r.kind} {r.name}" for r in reversed(resources) if r not in left)
            if not left:
                path.unlink(missing_ok=True)
    return reaped


def _remove(resource: Resource, removers: Mapping[str, Remover]) -> bool:
    remover = removers.get(resource.kind)
    return remover is not None and remover(resource.name)


def _read(path: Path) -> tuple[ProcessIdentity | None, list[Entry], list[Resource]]:
    """Owner and contents of a ledger; no owner: being written at this moment."""
    owner: ProcessIdentity | None = None
    entries: dict[str, Entry] = {}
    resources: list[Resource] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:  # its owner has just ended well
        return None, [], []
    for line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:  # the owner died in the middle of its last line
            break
        if "owner" in row:
            owner = ProcessIdentity(**row["owner"])
        elif "intent" in row:
            token = row["intent"]
            entries[token] = Entry(token, row["what"], row["directory"], None)
        elif "resource" in row:
            resources.append(Resource(row["resource"], row["name"]))
        elif row.get("token") in entries:
            known = entries[row["token"]]
            identity = ProcessIdentity(row["pid"], row["started"])
            entries[known.token] = Entry(known.token, known.what, known.directory, identity)
    return owner, list(entries.values()), resources


def _end(entries: list[Entry]) -> Iterator[str]:
    """Kill the processes of these entries and all that carry their tokens; yield what they were."""
    by_token = {entry.token: entry for entry in entries}
    found = {
        entry.identity.pid: entry
        for entry in entries
        if entry.identity is not None and entry.identity.lives()
    }
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # gone, or not ours to look into
            entry = by_token.get(process.environ().get(TOKEN_VARIABLE, ""))
            if entry is not None:
                found[process.pid] = entry
    for pid, entry in sorted(found.items()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            yield f"{entry.what} (pid {pid})"
