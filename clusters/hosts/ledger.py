"""The ledger: what a harness has started, on disk, so that a later one can end what it left.

Not a supervisor: it never restarts anything. One file per owning harness process, JSON lines,
each on disk before the next thing happens:

    {"owner": {"pid": 1, "start_ticks": 250, "host": …, "boot": …, "pids": …}}    first line
    {"intent": "…token…", "what": "broker 1", "directory": "…"}    before the process runs
    {"token": "…", "pid": 7, "start_ticks": 350}                   as soon as its pid is known
    {"resource": "namespace", "name": "…"}                         before it exists

A pid alone proves nothing, for pids are used again: see identity. It means something on one
machine, since one boot, in one PID namespace: containers and machines may share a ledger's
directory, and whether an owner elsewhere lives cannot be seen from here. A process
that ran while its pid was not yet written, and whatever a process started in its turn, is found
by the token in its environment. The end of a process is not written: whether it lives is asked.
What is no process (a network namespace, a container) is a *resource*: its kind says how it is
removed, and removing what is not there is no error. One that cannot be removed now stays in the
ledger for the next command. What lies there and is no ledger is set aside and named, once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final

import psutil

from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts.identity import ProcessIdentity
from neaptide.clusters.hosts.ledger_file import Entry, Resource, Whereabouts, read_ledger

TOKEN_VARIABLE: Final = "NEAPTIDE_PROCESS"
_DEAD_WITHIN_S: Final = 5.0  # what was sent a SIGKILL
_FILES: Final = "*.jsonl"
_SET_ASIDE: Final = ".set-aside"

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
        self._prefix = f"{owner.pid}-{owner.start_ticks}"
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path, self._file = self._create_file(
                {"owner": {**asdict(owner), **asdict(Whereabouts.here())}}
            )
        except OSError as error:
            raise _unwritable(self._directory, error) from error

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
            ticks = identity.start_ticks
            self._write({"token": token, "pid": pid, "start_ticks": ticks})

    def intend_resource(self, kind: str, name: str) -> None:
        """Write that a resource is about to exist. Its name belongs to this run alone."""
        self._write({"resource": kind, "name": name})

    def end_processes(self) -> int:
        """Kill what was intended and still runs, as the next command would; how many these were.

        What is started meanwhile may be left: there is none left once there was none.
        """
        return len(list(_end(read_ledger(self.path).entries.values())))

    def close(self) -> None:
        """Forget the file, once nothing that it names is left."""
        if not self._file.closed:
            _forget(self._file, self.path)

    def leave(self) -> None:
        """Write no more: what it names is for the next command to end."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _create_file(self, first: dict[str, Any]) -> tuple[Path, IO[str]]:
        """It gets its name when its first line is on disk: nobody finds it without its owner."""
        number = 0
        while True:
            path = self._directory / f"{self._prefix}-{number}.jsonl"
            unnamed = path.with_suffix(".new")
            number += 1
            with contextlib.suppress(FileExistsError):
                unnamed.touch(mode=0o600, exist_ok=False)
                file = unnamed.open("w", encoding="utf-8")
                if self._name(file, unnamed, path, first):
                    return path, file

    @staticmethod
    def _name(file: IO[str], unnamed: Path, path: Path, first: dict[str, Any]) -> bool:
        """Whoever has the unnamed one alone decides about the name; False: it is taken."""
        try:
            if not os.path.lexists(path):
                _append(file, first)
                unnamed.rename(path)
                return True
        except BaseException:
            _forget(file, unnamed)
            raise
        _forget(file, unnamed)
        return False

    def _write(self, entry: dict[str, Any]) -> None:
        try:
            _append(self._file, entry)
        except OSError as error:
            raise _unwritable(self._directory, error) from error


def _forget(file: IO[str], path: Path) -> None:
    with contextlib.suppress(OSError):  # of a last line that could not be written
        file.close()
    path.unlink(missing_ok=True)


def _append(file: IO[str], entry: dict[str, Any]) -> None:
    file.write(json.dumps(entry) + "\n")
    file.flush()
    os.fsync(file.fileno())


def _unwritable(directory: Path, error: OSError) -> MissingPartError:
    return MissingPartError(
        f"What is started cannot be written down in {directory} ({error.strerror}): free some space"
        " there, or set NEAPTIDE_STATE to a directory that you may write to."
    )


def reap_orphans(
    directory: Path | None = None,
    removers: Mapping[str, Remover] | None = None,
    complain: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """End what dead owners left, and say what it was; what others own stays.

    `complain` is called with a sentence for each file that is no ledger, and is set aside. Raises
    MissingPartError where there is something to end, and the ledger cannot be written.
    """
    folder = directory or state_directory() / "ledger"
    here = Whereabouts.here()
    if not any(_is_over(path, here) for path in folder.glob(_FILES)):
        return []
    try:
        with _locked(folder.with_suffix(".lock")):
            return list(_reap_all(folder, here, removers or {}, complain))
    except OSError as error:
        raise _unwritable(folder, error) from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Or another's new namespace could be taken for an old one. A FIFO locks, too."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _reap_all(
    folder: Path,
    here: Whereabouts,
    removers: Mapping[str, Remover],
    complain: Callable[[str], None],
) -> Iterator[str]:
    """An owner that is ended here was started by another one, and leaves a ledger itself."""
    seen: set[Path] = set()
    while over := {p for p in folder.glob(_FILES) if p not in seen and _is_over(p, here)}:
        seen |= over
        for path in sorted(over):
            yield from _reap(path, here, removers, complain)


def _is_over(path: Path, here: Whereabouts) -> bool:
    """Its owner is dead, or it is nobody's."""
    found = read_ledger(path)
    if found.owner is None:
        return not found.is_gone
    return found.owner.is_dead(here)


def _reap(
    path: Path,
    here: Whereabouts,
    removers: Mapping[str, Remover],
    complain: Callable[[str], None],
) -> list[str]:
    found = read_ledger(path)
    if found.is_gone:
        return []
    reaped: list[str] = []
    left: list[Resource] = []
    if found.owner is not None:
        reaped.extend(_end(found.entries.values()))
        left = [each for each in reversed(found.resources) if not _remove(each, removers)]
        reaped.extend(f"{r.kind} {r.name}" for r in reversed(found.resources) if r not in left)
    if found.trouble is not None:
        complain(_set_aside(path, found.trouble))
    elif not left:
        path.unlink(missing_ok=True)
    return reaped


def _set_aside(path: Path, trouble: str) -> str:
    """What is said of it: it has another name from now on, and nobody reads it again."""
    number = 0
    while os.path.lexists(aside := path.with_name(f"{path.name}{_SET_ASIDE}-{number}")):
        number += 1
    try:
        path.rename(aside)
    except OSError as error:
        return (
            f"{path} {trouble}, and is in the way of every command ({error.strerror}): remove it."
        )
    return f"{path} {trouble}. It is called {aside.name} now; what it may have named was not ended."


def _remove(resource: Resource, removers: Mapping[str, Remover]) -> bool:
    """Whatever a remover makes of a name, the others have their turn."""
    remover = removers.get(resource.kind)
    try:
        return remover is not None and remover(resource.name)
    except Exception:
        return False


def _end(entries: Iterable[Entry]) -> Iterator[str]:
    """Kill the processes of these entries and all that carry their tokens; yield what they were.

    One that is killed may have started another since the look that found it: looks again until
    there is nothing new.
    """
    ended: set[int] = set()
    entries = tuple(entries)
    while found := {pid: entry for pid, entry in _found(entries) if pid not in ended}:
        for pid, entry in sorted(found.items()):
            with contextlib.suppress(ProcessLookupError):
                _kill(pid)
                yield f"{entry.what} (pid {pid})"
        ended.update(found)


def _found(entries: tuple[Entry, ...]) -> Iterator[tuple[int, Entry]]:
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
