"""The ledger: what a harness has started, on disk, so that a later one can end what it left.

Not a supervisor: it never restarts anything. One file per owning harness process, JSON lines,
each on disk before the next thing happens:

    {"owner": {"pid": 1, "started": 2.5, "host": …, "boot": …, "pids": …}}        first line
    {"intent": "…token…", "what": "broker 1", "directory": "…"}    before the process runs
    {"token": "…", "pid": 7, "started": 3.5}                       as soon as its pid is known
    {"resource": "namespace", "name": "…"}                         before it exists

A pid alone proves nothing, for pids are used again: a process is (pid, start time), and that on one
machine, since one boot, in one PID namespace: containers and machines may share a ledger's
directory, and whether an owner elsewhere lives cannot be seen from here. A process
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
import select
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

import psutil

from neaptide.clusters.errors import MissingPartError

TOKEN_VARIABLE: Final = "NEAPTIDE_PROCESS"
_START_TOLERANCE_S: Final = 0.02  # a start time is counted in clock ticks of 10 ms
_DEAD_WITHIN_S: Final = 5.0  # what was sent a SIGKILL
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_PIDS: Final = Path("/proc/self/ns/pid")
_FIRST_PIDS: Final = "pid:[4026531836]"  # the namespace that a machine boots with, on every Linux


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
class Whereabouts:
    """Where a pid means something."""

    host: str
    boot: str
    pids: str  # the PID namespace

    @classmethod
    def here(cls) -> Whereabouts:
        return cls(
            socket.gethostname(), _BOOT.read_text(encoding="ascii").strip(), os.readlink(_PIDS)
        )

    def is_over(self, here: Whereabouts) -> bool:
        """This machine was there, and has been started anew since."""
        was_here = self.host == here.host and self.pids == here.pids == _FIRST_PIDS
        return was_here and self.boot != here.boot


@dataclass(frozen=True, slots=True)
class Owner:
    """Who wrote a ledger. `where` is None in those of earlier versions: it was here."""

    process: ProcessIdentity
    where: Whereabouts | None

    def is_dead(self, here: Whereabouts) -> bool:
        """Surely: of one that cannot be seen from here nothing is known."""
        if self.where is None or self.where == here:
            return not self.process.lives()
        return self.where.is_over(here)


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
    """The ledger file of this process: append only, every line synced.

    Raises MissingPartError where it cannot be written.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or state_directory() / "ledger"
        owner = ProcessIdentity.of(os.getpid())
        if owner is None:
            raise RuntimeError("this process cannot find itself among the running processes")
        self._count = 0
        self._prefix = f"{owner.pid}-{int(owner.started * 1000)}"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self.path, self._file = self._create_file()
        except OSError as error:
            raise _unwritable(self._directory, error) from error
        try:
            self._write({"owner": {**asdict(owner), **asdict(Whereabouts.here())}})
        except MissingPartError:
            self.close()
            raise

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

    def end_processes(self) -> int:
        """Kill what was intended and still runs, as the next command would; how many these were.

        What is started meanwhile may be left: there is none left once there was none.
        """
        _, entries, _ = _read(self.path)
        return len(list(_end(entries)))

    def close(self) -> None:
        """Forget the file, once nothing that it names is left."""
        if not self._file.closed:
            with contextlib.suppress(OSError):  # of a last line that could not be written
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
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _unwritable(self._directory, error) from error


def _unwritable(directory: Path, error: OSError) -> MissingPartError:
    return MissingPartError(
        f"What is started cannot be written down in {directory} ({error.strerror}): free some space"
        " there, or set NEAPTIDE_STATE to a directory that you may write to."
    )


def reap_orphans(
    directory: Path | None = None, removers: Mapping[str, Remover] | None = None
) -> list[str]:
    """End what dead owners left, and say what it was; what others own stays.

    Raises MissingPartError where there is something to end, and the ledger cannot be written.
    """
    folder = directory or state_directory() / "ledger"
    here = Whereabouts.here()
    if not any(_is_dead(path, here) for path in folder.glob("*.jsonl")):
        return []
    try:
        with folder.with_suffix(".lock").open("w") as lock:
            # Or another's new namespace could be taken for an old one.
            fcntl.flock(lock, fcntl.LOCK_EX)
            return list(_reap_all(folder, here, removers or {}))
    except OSError as error:
        raise _unwritable(folder, error) from error


def _reap_all(folder: Path, here: Whereabouts, removers: Mapping[str, Remover]) -> Iterator[str]:
    """An owner that is ended here was started by another one, and leaves a ledger itself."""
    seen: set[Path] = set()
    while dead := {p for p in folder.glob("*.jsonl") if p not in seen and _is_dead(p, here)}:
        seen |= dead
        for path in sorted(dead):
            yield from _reap(path, removers)


def _is_dead(path: Path, here: Whereabouts) -> bool:
    owner, _, _ = _read(path)
    return owner is not None and owner.is_dead(here)


def _reap(path: Path, removers: Mapping[str, Remover]) -> list[str]:
    _, entries, resources = _read(path)
    reaped = list(_end(entries))
    left = [each for each in reversed(resources) if not _remove(each, removers)]
    reaped.extend(f"{r.kind} {r.name}" for r in reversed(resources) if r not in left)
    if not left:
        path.unlink(missing_ok=True)
    return reaped


def _remove(resource: Resource, removers: Mapping[str, Remover]) -> bool:
    remover = removers.get(resource.kind)
    return remover is not None and remover(resource.name)


def _read(path: Path) -> tuple[Owner | None, list[Entry], list[Resource]]:
    """Owner and contents of a ledger; no owner: being written at this moment."""
    owner: Owner | None = None
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
            owner = _owner(row["owner"])
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


def _owner(row: Mapping[str, Any]) -> Owner:
    process = ProcessIdentity(row["pid"], row["started"])
    if "boot" not in row:
        return Owner(process, None)
    return Owner(process, Whereabouts(row["host"], row["boot"], row["pids"]))


def _end(entries: list[Entry]) -> Iterator[str]:
    """Kill the processes of these entries and all that carry their tokens; yield what they were.

    One that is killed may have started another since the look that found it: looks again until
    there is nothing new.
    """
    ended: set[int] = set()
    while found := {pid: entry for pid, entry in _found(entries) if pid not in ended}:
        for pid, entry in sorted(found.items()):
            with contextlib.suppress(ProcessLookupError):
                _kill(pid)
                yield f"{entry.what} (pid {pid})"
        ended.update(found)


def _found(entries: list[Entry]) -> Iterator[tuple[int, Entry]]:
    by_token = {entry.token: entry for entry in entries}
    for entry in entries:
        if entry.identity is not None and entry.identity.lives():
            yield entry.identity.pid, entry
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # gone, or not ours to look into
            entry_of = by_token.get(process.environ().get(TOKEN_VARIABLE, ""))
            if entry_of is not None:
                yield process.pid, entry_of


def _kill(pid: int) -> None:
    """Returns when it is dead, and writes no more, or does not die."""
    handle = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        select.select([handle], [], [], _DEAD_WITHIN_S)
    finally:
        os.close(handle)
