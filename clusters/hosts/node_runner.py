"""Runs on a node of the host `ssh`: starts processes, signals them, packs files, and tidies up.

Not imported by the harness: its text is given to the node's `python -c`, so that nothing need be
installed for it; Python 3.8 and the standard library. One JSON object a line: commands on standard
input, answers and events on standard output. It lives as long as its standard input speaks: at its
end, or after a silence of a minute, every process that it has started is killed, what it was asked
to undo is undone, and its directory is removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

SILENCE_S = 60.0
STANDS_LOOK_S = 0.5
MARKED_WITHIN_S = 20.0  # at the end
PORT_FIRST, PORT_LAST = 10_000, 32_000  # below the ephemeral range
_PR_SET_PDEATHSIG = 1
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

say_lock = threading.Lock()
children: dict[int, subprocess.Popen[bytes]] = {}
undos: list[tuple[list[str], str]] = []
marks: set[str] = set()  # of what may be there and is no child
directory = ""


def say(document: Mapping[str, Any]) -> None:
    with say_lock:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()


def _environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    path = os.environ.get("PATH", "")
    return {**os.environ, "PATH": path + ":" + _SYSTEM_PATH, **(more or {})}


def do_hello(base: str, ports: int) -> dict[str, Any]:
    """Makes the directory of this run; what the harness must know of the node."""
    global directory
    directory = tempfile.mkdtemp(prefix="neaptide-", dir=base or None)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return {
        "directory": directory,
        "cache": os.path.join(cache, "neaptide", "files"),
        "uid": os.geteuid(),
        "ports": _free_ports(ports),
    }


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    port = PORT_FIRST + os.getpid() * 37 % (PORT_LAST - PORT_FIRST)
    for _ in range(PORT_LAST - PORT_FIRST):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                found.append(port)
            except OSError:
                pass
        if len(found) == count:
            return found
        port = port + 1 if port < PORT_LAST else PORT_FIRST
    raise OSError("no free ports")


def do_start(argv: list[str], cwd: str, env: Mapping[str, str], log: str) -> int:
    os.makedirs(cwd, exist_ok=True)
    os.makedirs(os.path.dirname(log), exist_ok=True)
    with open(log, "ab") as output:
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            env=_environment(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_die_with_runner,
        )
    children[child.pid] = child
    threading.Thread(target=_await_end, args=(child,), daemon=True).start()
    return child.pid


def _die_with_runner() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _await_end(child: subprocess.Popen[bytes]) -> None:
    """Says also when it begins to stand still, or goes on, whoever made it so."""
    stands = False
    while True:
        try:
            say({"event": "ended", "pid": child.pid, "status": child.wait(STANDS_LOOK_S)})
            return
        except subprocess.TimeoutExpired:
            if (_state_of(child.pid) == "T") != stands:
                stands = not stands
                say({"event": "stands", "pid": child.pid, "stands": stands})


def _state_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0].decode()
    except OSError:  # it is gone
        return ""


def do_signal(pid: int, number: int) -> bool:
    """For SIGSTOP: answered when it has stopped; False: it has ended."""
    child = children[pid]
    if child.poll() is not None:
        return False
    child.send_signal(number)
    if number != signal.SIGSTOP:
        return True
    state = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return state is not None and state.si_code == os.CLD_STOPPED


def _marked(mark: str) -> dict[int, str]:
    """What has this variable, as NAME=value, in its environment: by pid, how it does (T: stopped).

    Zombies are left out.
    """
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as environ:
                if mark.encode() not in environ.read().split(b"\0"):
                    continue
        except OSError:  # gone, or not ours to look into
            continue
        state = _state_of(int(name))
        if state not in "ZX":
            found[int(name)] = state
    return found


def do_signal_marked(mark: str, number: int, within_s: float) -> dict[str, Any]:
    """To all that has this mark, which is undone at the end too.

    What starts meanwhile is reached too. Answered when a look finds no new process and the signal
    has its effect on all, or when that has not come within this time. `there`: whether the last
    look found anything; `left`: what the signal had no effect on, by pid, how it does.
    """
    marks.add(mark)
    reached: set[int] = set()
    deadline = time.monotonic() + within_s
    while True:
        found = _marked(mark)
        new = found.keys() - reached
        for pid in new:
            _signal(pid, number)
        reached |= new
        left = {pid: s for pid, s in found.items() if pid in new or not _has_effect(number, s)}
        if number == 0:
            return {"there": bool(found), "left": {}}
        if not left or time.monotonic() >= deadline:
            return {"there": bool(found), "left": left}
        time.sleep(0.02)


def _has_effect(number: int, state: str) -> bool:
    """Whether a process that is there, and does so, has had this signal."""
    if number == signal.SIGSTOP:
        return state == "T"
    if number == signal.SIGCONT:
        return state != "T"
    return number != signal.SIGKILL


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def do_run(argv: list[str], stdin: str) -> dict[str, Any]:
    """A command to its end; never a shell."""
    done = subprocess.run(
        argv,
        input=stdin.encode(),
        capture_output=True,
        env=_environment(),
        timeout=30,
    )
    return {
        "status": done.returncode,
        "stdout": done.stdout.decode(errors="replace"),
        "stderr": done.stderr.decode(errors="replace"),
    }


def do_undo(argv: list[str], stdin: str) -> None:
    """To be run at the end."""
    undos.append((argv, stdin))


def do_pack(source: str, archive: str) -> None:
    """A directory (or nothing, where there is none) into an archive."""
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        if os.path.isdir(source):
            packed.add(source, arcname=".")


def do_unpack(archive: str, target: str) -> None:
    """The directory holds what the archive has, and nothing else."""
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    with tarfile.open(archive, "r:gz") as packed:
        packed.extractall(target)
    os.unlink(archive)


def do_missing(folder: str, names: list[str]) -> list[str]:
    os.makedirs(folder, exist_ok=True)
    return [name for name in names if not os.path.exists(os.path.join(folder, name))]


def do_ping() -> None:
    """To break the silence."""


COMMANDS: dict[str, Any] = {
    "hello": do_hello,
    "start": do_start,
    "signal": do_signal,
    "signal_marked": do_signal_marked,
    "run": do_run,
    "undo": do_undo,
    "pack": do_pack,
    "unpack": do_unpack,
    "missing": do_missing,
    "ping": do_ping,
}


def obey(line: bytes) -> None:
    command = json.loads(line)
    number, verb = command.pop("id"), command.pop("do")
    try:
        say({"id": number, "ok": True, "result": COMMANDS[verb](**command)})
    except Exception as error:  # every failure is the answer to its command
        say({"id": number, "ok": False, "error": type(error).__name__ + ": " + str(error)})


def serve() -> None:
    pending = b""
    while select.select([0], [], [], SILENCE_S)[0]:
        received = os.read(0, 65536)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            obey(line)


def tidy() -> None:
    for child in children.values():
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    for mark in marks:
        do_signal_marked(mark, signal.SIGKILL, MARKED_WITHIN_S)
    for argv, stdin in undos:
        subprocess.run(argv, input=stdin.encode(), env=_environment(), timeout=30)
    if directory:
        shutil.rmtree(directory, ignore_errors=True)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(1)


def main() -> None:
    for ending in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, _leave)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        serve()
    finally:
        tidy()


if __name__ == "__main__":
    main()
