"""A Spark that stays: one Spark Connect server for all commands of this user and of this code.

A process of its own keeps it (`python -m neaptide.harness.checking.warm_spark`). It starts Spark as
every command does, has a few checks done, so that Java has compiled what they need, and stops it
when nobody has used it for a while.

A command *leases* a session of it. A session has Python workers of its own, and they stay warm only
where the session is used again. It belongs to one command at a time, by a lock that the kernel
takes back however the command ends. A session that was not given back in order is never used again.

The rule: it is a convenience. It listens on loopback, and asks for a token that only this user can
read; where there is none, or another command's code is newer, each command starts its own Spark.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self

from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts.identity import ProcessIdentity
from neaptide.clusters.hosts.ports import LOOPBACK, reserve_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE_S: Final = 1800.0
MEMORY: Final = "4g"
STARTS_WITHIN_S: Final = 180.0
_SESSIONS: Final = 4  # that may be leased at once; each keeps a Python worker in memory
_STOPS_WITHIN_S: Final = 30.0
_LOOK_S: Final = 0.5  # nothing reports that a lock was given back long ago
_ANSWERS_WITHIN_S: Final = 5.0
_RECORD, _LOCK, _LOG, _SESSION = "spark.json", "lock", "log", "session-"
_TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # Spark's own, of server and client
_CODE: Final = ("checkers", "results")  # what Python workers have loaded
_PACKAGE: Final = Path(__file__).parents[2]
_WARMING: Final = (  # what Java compiles, it compiles after some repetitions
    ("repro", "hw-truncation-loss", "--system", "neaptide:0.10", "--host", "simulation"),
    ("check", "latest"),
    ("check", "latest", "latest"),
)
_SERVER: Final = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": LOOPBACK,
    "spark.connect.session.manager.defaultSessionTimeout": "30d",
    "spark.connect.execute.manager.detachedTimeout": "30s",  # what nobody waits for any more
}


@dataclass(frozen=True, slots=True)
class Kept:
    """The server that is kept, as its record on disk says."""

    keeper: ProcessIdentity
    port: int
    token: str
    idle_s: float  # after so long without a check it is stopped
    memory: str
    since_s: float  # of the wall clock
    warm: bool  # its first checks are done

    @property
    def address(self) -> str:
        """Without the token. gRPC sends a token without TLS to `localhost` alone."""
        return f"sc://localhost:{self.port}"


@dataclass(frozen=True, slots=True)
class Use:
    """How much a server is used."""

    leased: int  # sessions
    changed_s: float  # of the wall clock: when a session was last taken or given back; 0: never
    unused_s: float  # since then, or since the start: for people, for a clock may be set


class Lease:
    """A session of this command alone, until `release`."""

    def __init__(self, remote: str, keeper: int, file: IO[str], generation: int) -> None:
        """`keeper`: the pid of the process whose child Spark's Java is."""
        self.remote = remote
        self.keeper = keeper
        self._file = file
        self._generation = generation

    def release(self) -> None:
        """Give the session back in order: whatever was asked of it is answered. Idempotent."""
        if not self._file.closed:
            _write_session(self._file, self._generation, clean=True)
            self.close()

    def close(self) -> None:
        """Leave the session as it is: who leases its number next has another one. Idempotent."""
        self._file.close()


# --- where it is ---------------------------------------------------------------------------------


def home() -> Path | None:
    """The directory of this user's servers, which nobody else can look into; None: there is none
    that is safe."""
    user = os.getuid()
    of_user = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}")
    path = of_user / "neaptide" if of_user.is_dir() else Path(f"/tmp/neaptide-{user}")
    with suppress(OSError):
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if path.is_dir() and not path.is_symlink() and found.st_uid == user:
            path.chmod(0o700)
            return path
    return None


def identity() -> str:
    """Of the code that Python workers load, and the Python that they run in."""
    digest = hashlib.sha256(f"{sys.prefix} {sys.version}".encode())
    for package in _CODE:
        for folder, _, names in sorted(os.walk((_PACKAGE / package).resolve())):
            for name in sorted(names):
                if name.endswith((".py", ".sql", ".toml", ".txt")):
                    found = os.stat(os.path.join(folder, name))
                    digest.update(f"{folder}/{name} {found.st_mtime_ns} {found.st_size}".encode())
    return digest.hexdigest()[:16]


def directory() -> Path | None:
    """Of the server for this code, whether or not there is one."""
    base = home()
    return None if base is None else base / f"spark-{identity()}"


def kept(of: Path) -> Kept | None:
    """The server of this directory, if its keeper lives."""
    try:
        row = json.loads((of / _RECORD).read_text(encoding="utf-8"))
        record = Kept(**{**row, "keeper": ProcessIdentity(**row["keeper"])})
        return record if record.keeper.lives() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def all_kept() -> list[tuple[Path, Kept]]:
    """Also those for other code, such as that of yesterday."""
    base = home()
    found = [] if base is None else [(path, kept(path)) for path in sorted(base.glob("spark-*"))]
    return [(path, record) for path, record in found if record is not None]


def use_of(of: Path) -> Use:
    with _locked(of, fcntl.LOCK_EX):
        return _use_of(of)


def _use_of(of: Path) -> Use:
    """Of a directory that is locked: to look at a session takes its lock for a moment."""
    leased, last_s = 0, 0.0
    for path in of.glob(f"{_SESSION}*"):
        with path.open("r+") as file:
            leased += not _try_lock(file)
        last_s = max(last_s, path.stat().st_mtime)
    record = kept(of)
    return Use(leased, last_s, time.time() - max(last_s, record.since_s if record else 0.0))


# --- leasing -------------------------------------------------------------------------------------


def lease() -> Lease | None:
    """A session of the server for this code; None where there is no server, or all are taken."""
    of = directory()
    if of is None or not (of / _RECORD).exists():
        return None
    with _locked(of, fcntl.LOCK_SH):
        record = kept(of)
        if record is None:
            return None
        for number in range(_SESSIONS):
            file = _opened(of / f"{_SESSION}{number}")
            if _try_lock(file):
                return _leased(record, number, file)
            file.close()
    return None


def _leased(record: Kept, number: int, file: IO[str]) -> Lease:
    generation, clean = _read_session(file)
    generation += not clean
    _write_session(file, generation, clean=False)
    name = hashlib.sha256(f"{record.token} {number} {generation}".encode()).digest()
    session = uuid.UUID(bytes=name[:16], version=4)
    remote = f"{record.address}/;token={record.token};session_id={session}"
    return Lease(remote, record.keeper.pid, file, generation)


def _opened(path: Path) -> IO[str]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="ascii")


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_session(file: IO[str]) -> tuple[int, bool]:
    """Which session of this number it is, and whether it was given back in order."""
    generation, _, state = file.read().partition(" ")
    return (int(generation), state == "clean") if generation.isdigit() else (0, True)


def _write_session(file: IO[str], generation: int, *, clean: bool) -> None:
    file.seek(0)
    file.truncate()
    file.write(f"{generation} {'clean' if clean else 'leased'}")
    file.flush()


@contextmanager
def _locked(of: Path, how: int) -> Iterator[None]:
    """Shared: who looks for a session. Alone: who decides that the server ends."""
    with _opened(of / _LOCK) as lock:
        fcntl.flock(lock, how)
        yield


# --- starting and stopping -----------------------------------------------------------------------


def start(idle_s: float, memory: str, report: Callable[[str], None]) -> tuple[Kept, bool]:
    """The server for this code, warm, and whether it was started now. Raises MissingPartError."""
    of = directory()
    if of is None:
        raise MissingPartError("There is no directory under /tmp or /run/user that only you use.")
    of.mkdir(mode=0o700, exist_ok=True)
    with _locked(of, fcntl.LOCK_EX):
        record = kept(of)
        if record is not None and record.warm:
            return record, False
        report("starting Spark, and having it do its first checks")
        keeper = None if record is not None else _start_keeper(of, idle_s, memory)
    return _until_warm(of, keeper), True


def _start_keeper(of: Path, idle_s: float, memory: str) -> subprocess.Popen[bytes]:
    (of / _RECORD).unlink(missing_ok=True)
    with os.fdopen(os.open(of / _LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(of), str(idle_s), memory],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )


def _until_warm(of: Path, keeper: subprocess.Popen[bytes] | None) -> Kept:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        record = kept(of)
        if record is not None and record.warm:
            return record
        if keeper is not None and keeper.poll() is not None:
            break
        time.sleep(_LOOK_S)
    if keeper is not None and keeper.poll() is None:
        keeper.terminate()
    lines = (of / _LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    why = lines[-1] if lines else f"it was not there within {STARTS_WITHIN_S:g} s"
    raise MissingPartError(f"No Spark could be kept: {why.removeprefix('neaptide: ')}")


def stop(record: Kept) -> bool:
    """Returns when the keeper has ended, and with it Spark; False: it goes on."""
    try:
        handle = os.pidfd_open(record.keeper.pid)
    except ProcessLookupError:
        return True
    try:
        if record.keeper.lives():  # asked once the handle is held: nobody else's pid by now
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            ended, _, _ = select.select([handle], [], [], _STOPS_WITHIN_S)
            return bool(ended)
        return True
    finally:
        os.close(handle)


# --- keeping -------------------------------------------------------------------------------------


class _Keeper:
    """Starts the server, keeps it while it is used, stops it."""

    def __init__(self, of: Path, idle_s: float, memory: str) -> None:
        self._of = of
        self._idle_s = idle_s
        self._memory = memory
        self._asked_to_end = threading.Event()
        self._port = reserve_port()
        self._token = secrets.token_hex(32)
        self._since_s = time.time()
        self._changed_s = 0.0  # as of the last look
        self._used = time.monotonic()  # no step of the clock makes it idle

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._asked_to_end.set())
        return self

    def __exit__(self, *_: object) -> None:
        (self._of / _RECORD).unlink(missing_ok=True)
        self._port.close()

    def keep(self) -> None:
        from neaptide.harness.checking.spark_java import SparkHome, SparkJava

        java, place = SparkJava.found(), SparkHome()
        try:
            spark = self._started(java.options if java else (), place)
            try:
                self._write(warm=False)
                self._warm_up()
                if java is not None:
                    java.remember(spark, print)
                self._write(warm=True)
                while not self._asked_to_end.wait(_LOOK_S) and self._is_needed():
                    pass
            finally:
                spark.stop()
        finally:
            place.close()

    def _started(self, options: tuple[str, ...], place: Any) -> SparkSession:
        from neaptide.checkers.pipeline.session import local_session

        more = {**_SERVER, "spark.connect.grpc.binding.port": str(self._port.release_socket())}
        os.environ[_TOKEN_VARIABLE] = self._token  # arguments can be read by everybody
        try:
            with place.starting():
                return local_session(
                    "local[*]",
                    memory=self._memory,
                    java_options=(*options, *place.java_options),
                    more=more,
                )
        finally:
            del os.environ[_TOKEN_VARIABLE]
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # Spark has its own
                signal.signal(number, lambda *_: self._asked_to_end.set())

    def _warm_up(self) -> None:
        """As a user's commands would; what they print says only that they work."""
        with tempfile.TemporaryDirectory() as runs:
            env = {**os.environ, "NEAPTIDE_RUNS": runs}
            for words in _WARMING:
                if not self._asked_to_end.is_set():
                    command = [sys.executable, "-m", "neaptide.harness.cli", "--isolated", *words]
                    subprocess.run(
                        command, env=env, cwd=runs, stdin=subprocess.DEVNULL, check=False
                    )

    def _is_needed(self) -> bool:
        with _locked(self._of, fcntl.LOCK_EX):
            use = _use_of(self._of)
            if use.leased > 0 or use.changed_s != self._changed_s:
                self._changed_s, self._used = use.changed_s, time.monotonic()
            is_idle = time.monotonic() - self._used >= self._idle_s
            needed = use.leased > 0 or (not is_idle and self._answers())
            if not needed or not (self._of / _RECORD).exists():
                (self._of / _RECORD).unlink(missing_ok=True)
                return False
            return True

    def _answers(self) -> bool:
        """Not where its Java has ended."""
        try:
            socket.create_connection((LOOPBACK, self._port.port), _ANSWERS_WITHIN_S).close()
        except OSError:
            return False
        return True

    def _write(self, *, warm: bool) -> None:
        me = ProcessIdentity.of(os.getpid())
        assert me is not None
        record = Kept(
            me, self._port.port, self._token, self._idle_s, self._memory, self._since_s, warm
        )
        fresh = self._of / f".{_RECORD}"
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(record), file)
        fresh.replace(self._of / _RECORD)


def _main() -> int:
    from neaptide.harness.terminal.exits import Exit, status_of

    of, idle_s, memory = sys.argv[1:]
    try:
        with _Keeper(Path(of), float(idle_s), memory) as keeper:
            keeper.keep()
    except Exception as error:
        status = status_of(error)
        if status is None:
            raise
        print(f"neaptide: {error}", file=sys.stderr)
        return int(status)
    return int(Exit.AGREES)


if __name__ == "__main__":
    sys.exit(_main())
