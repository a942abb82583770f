"""What the tests need of the machine beyond Python and Java: had, started, stopped, or left out.

`python -m tests.environment run -- pytest …` installs on Debian, as root, what is missing, starts a
Docker where none answers and one Spark for all checks, runs the command, and stops what it started,
however the command ends.
Elsewhere it only runs the command; `tests/conftest.py` leaves out the tests whose parts are not
there and prints the table of them. With NEAPTIDE_NOTHING_LEFT_OUT set that is a failure.

Not here: what neaptide itself can do on this machine (`neaptide doctor`).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket as sockets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from neaptide.clusters.cache import cache_directory
from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts import netns, toxiproxy
from neaptide.clusters.hosts.faketime import find_library
from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.kafka.versions import kafka_class_path

NOTHING_LEFT_OUT: Final = "NEAPTIDE_NOTHING_LEFT_OUT"
DOCKER_SOCKET: Final = Path("/var/run/docker.sock")
MISSING: Final = 69
_SYSTEM_DIRECTORIES: Final = ("/usr/sbin", "/sbin")  # not in everybody's PATH
_DOCKER_DEADLINE_S: Final = 60.0
_NO_SERVICES: Final = Path("/usr/sbin/policy-rc.d")  # asked by Debian's packages, as they come
_CGROUPS: Final = Path("/sys/fs/cgroup")
KAFKAS: Final = ("0.8.2.2", "0.10.2.2", "3.9.1", "4.4.0")  # that tests start
# Debian's package of each command.
PACKAGES: Final[Mapping[str, str]] = {
    "kcat": "kcat",
    "mvn": "maven",
    "mount": "mount",
    "ip": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "sshd": "openssh-server",
    "faketime": "faketime",
    "strace": "strace",
    "ssh-keygen": "openssh-client",
    "dockerd": "docker.io",
    "debootstrap": "debootstrap",
    "chromium": "chromium",
}


@dataclass(frozen=True, slots=True)
class Part:
    """Something that some tests need. `check` raises MissingPartError, which says how to get it."""

    name: str
    commands: tuple[str, ...]  # that are installed where they are missing
    check: Callable[[], object]


def _commands(*names: str) -> Callable[[], None]:
    def check() -> None:
        for name in names:
            if shutil.which(name) is None:
                raise MissingPartError(
                    f"The command {name} is missing: install {PACKAGES[name]} (Debian's name)."
                )

    return check


def _docker() -> None:
    from neaptide.clusters.hosts import docker_host

    docker_host.describe(cache_directory() / "docker")


def _kafka() -> None:
    """Its jars come from Maven Central, once; where they have come, nothing is asked."""
    for version in KAFKAS:
        kafka_class_path(version)


def _hadoop_aws() -> None:
    from tests.object_store import jars

    jars()


def _mounts() -> None:
    _commands("mount", "unshare")()
    mounting = ("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
    done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or "no reason given").splitlines()[0]
        raise MissingPartError(f"Mounting a small disk needs root ({said}): run as root.")


PARTS: Final[Mapping[str, Part]] = {
    part.name: part
    for part in (
        Part("kcat", ("kcat",), _commands("kcat")),
        Part("maven", ("mvn",), _kafka),
        Part("hadoop-aws", ("mvn",), _hadoop_aws),
        Part("mounts", ("mount",), _mounts),
        Part("netns", ("ip", "nft", "nsenter"), netns.check),
        Part("sshd", ("sshd", "ssh-keygen"), _commands("sshd", "ssh-keygen")),
        Part("faketime", ("faketime",), find_library),
        Part("chromium", ("chromium",), _commands("chromium")),
        Part("strace", ("strace",), _commands("strace")),
        Part("toxiproxy", (), toxiproxy.find_server),
        Part("docker", ("dockerd", "debootstrap"), _docker),
    )
}


def lacking(name: str) -> str | None:
    """Why a part is not there and how to get it; None where it is."""
    try:
        PARTS[name].check()
    except MissingPartError as error:
        return str(error)
    return None


# --- tests that are left out ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Tests that cannot run here, by the part that they lack first."""

    part: str
    tests: int
    why: str


def divided(
    needed: Sequence[Sequence[str]], why_lacking: Callable[[str], str | None]
) -> tuple[list[int], list[LeftOut]]:
    """What each test needs in; the numbers of those that can run, and what is left out, out.

    A test that lacks two parts counts under both: getting one would not do.
    """
    asked = {name: why_lacking(name) for name in sorted({n for names in needed for n in names})}
    kept = [at for at, names in enumerate(needed) if not any(asked[name] for name in names)]
    left_out = [
        LeftOut(name, sum(name in names for names in needed), why)
        for name, why in asked.items()
        if why is not None
    ]
    return kept, left_out


def table(left_out: Iterable[LeftOut]) -> list[str]:
    """Lines: what was left out, and how to get it."""
    rows = [("part", "tests", "how to get it")]
    rows += [(each.part, str(each.tests), each.why) for each in left_out]
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{part:{wide[0]}}  {tests:>{wide[1]}}  {why}" for part, tests, why in rows]
    return [*lines, "As root on Debian, `make test` installs and starts all of it."]


# --- installing ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Machine:
    """What of a machine decides whether anything is installed or started on it."""

    root: bool
    debian: bool
    docker_answers: bool
    present: frozenset[str]  # commands


def this_machine(socket: Path) -> Machine:
    return Machine(
        os.geteuid() == 0,
        shutil.which("apt-get") is not None and Path("/etc/debian_version").exists(),
        "DOCKER_HOST" in os.environ or answers(socket),
        frozenset(name for name in PACKAGES if shutil.which(name)),
    )


def packages_to_install(machine: Machine) -> list[str]:
    """In no case those of a machine that is not ours to change."""
    if not (machine.root and machine.debian):
        return []
    there = machine.present | ({"dockerd"} if machine.docker_answers else set())
    wanted = [name for part in PARTS.values() for name in part.commands if name not in there]
    return sorted({PACKAGES[name] for name in wanted})


def _install(packages: Sequence[str]) -> None:
    """What cannot be installed is found missing later, by the tests that need it."""
    _report(f"installing {', '.join(packages)} with apt-get")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    get = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages)
    with _services_stay_stopped():
        for command in (("apt-get", "update", "-qq"), get):
            done = subprocess.run(
                command, env=env, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False
            )
            if done.returncode != 0:
                _report(f"{' '.join(command)} ended with {done.returncode}")


@contextmanager
def _services_stay_stopped() -> Iterator[None]:
    """Nobody asked for an sshd of the whole machine: what packages bring is not started."""
    if _NO_SERVICES.exists():
        yield
        return
    _NO_SERVICES.write_text("#!/bin/sh\nexit 101\n")
    try:
        _NO_SERVICES.chmod(0o755)
        yield
    finally:
        _NO_SERVICES.unlink()


# --- building ------------------------------------------------------------------------------------


def build_toxiproxy(go: str | None) -> None:
    """Its server, once, where Go is there; what cannot be built is found missing by its tests."""
    if go is None or lacking("toxiproxy") is None:
        return
    _report(f"building Toxiproxy's server {toxiproxy.VERSION} with {go}, about a minute")
    env = {**os.environ, "GOBIN": str(toxiproxy.server_directory())}
    command = (go, "install", toxiproxy.MODULE)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-5:]
        _report("\n".join((f"{' '.join(command)} ended with {done.returncode}:", *last)))


def find_go() -> str | None:
    """Also where Go puts itself, which is not in everybody's PATH."""
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


# --- Docker --------------------------------------------------------------------------------------


def answers(socket: Path) -> bool:
    with sockets.socket(sockets.AF_UNIX) as client:
        try:
            client.connect(str(socket))
        except OSError:
            return False
    return True


@contextmanager
def docker(machine: Machine, socket: Path) -> Iterator[None]:
    """A Docker answers if it can be had; one that was started here is stopped after.

    It is in a session of its own, so that Ctrl-C does not take it from tests that still tidy up.
    """
    if machine.docker_answers or not machine.root or shutil.which("dockerd") is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="neaptide-docker-") as scratch, _cgroups():
        log = Path(scratch) / "log"
        with log.open("wb") as output:
            daemon = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "TERM", "dockerd"),
                    *("--host", f"unix://{socket}", "--pidfile", f"{scratch}/pid"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            if not _until_answered(daemon, socket):
                last = log.read_text(errors="replace").splitlines()[-20:]
                _report("\n".join(("dockerd does not answer; it says:", *last)))
            yield
        finally:
            _stop(daemon)


def _until_answered(daemon: subprocess.Popen[bytes], socket: Path) -> bool:
    deadline = time.monotonic() + _DOCKER_DEADLINE_S
    while not answers(socket):
        if daemon.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _stop(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(timeout=30)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


@contextmanager
def _cgroups() -> Iterator[None]:
    """Mounted, as an init does; a container often has none."""
    if os.path.ismount(_CGROUPS):
        yield
        return
    subprocess.run(["mount", "-t", "cgroup2", "none", str(_CGROUPS)], check=False)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(_CGROUPS)], check=False, capture_output=True)


# --- Spark ---------------------------------------------------------------------------------------


@contextmanager
def warm_spark() -> Iterator[None]:
    """One for all commands of the tests that check runs; without it each starts its own.

    In a runtime directory of its own: that of whoever runs the tests is not touched.
    """
    command = (sys.executable, "-m", "neaptide.harness.cli", "spark")
    with tempfile.TemporaryDirectory(prefix="neaptide-runtime-") as directory:
        os.environ["XDG_RUNTIME_DIR"] = directory
        _report("starting one Spark for all checks")
        subprocess.run([*command, "start", "--idle", "2h"], stdin=subprocess.DEVNULL, check=False)
        try:
            yield
        finally:
            subprocess.run([*command, "stop"], stdin=subprocess.DEVNULL, check=False)


# --- the command ---------------------------------------------------------------------------------


class _Signalled(BaseException):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _on_signal(number: int, _: FrameType | None) -> None:
    raise _Signalled(number)


_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(command: Sequence[str], socket: Path = DOCKER_SOCKET) -> int:
    """The command's exit status; 128 + N where signal N came before it."""
    os.environ["PATH"] = os.pathsep.join((os.environ["PATH"], *_SYSTEM_DIRECTORIES))
    try:
        find_java()
    except MissingPartError as error:
        _report(str(error))
        return MISSING
    for number in _ENDING:
        signal.signal(number, _on_signal)
    try:
        packages = packages_to_install(this_machine(socket))
        if packages:
            _install(packages)
        build_toxiproxy(find_go())
        with docker(this_machine(socket), socket), warm_spark():
            try:
                return _passing_on_signals(command)
            finally:
                for number in _ENDING:
                    signal.signal(number, signal.SIG_IGN)  # what was started is stopped first
    except _Signalled as ended:
        return 128 + ended.number


def _passing_on_signals(command: Sequence[str]) -> int:
    """Each signal reaches the command and its children once, whoever sent it to whom."""
    child = subprocess.Popen(command, process_group=0)

    def pass_on(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)

    for number in _ENDING:
        signal.signal(number, pass_on)
    return child.wait()


def _report(text: str) -> None:
    print(f"tests: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", "--", *command] if command:
            sys.exit(run(command))
        case _:
            sys.exit("python -m tests.environment run -- COMMAND …")
