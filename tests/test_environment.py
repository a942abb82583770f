"""`make test` sets itself up: what is installed, started and stopped, and what is left out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from neaptide.clusters.hosts import toxiproxy
from tests import environment
from tests.environment import PACKAGES, LeftOut, Machine, divided, packages_to_install, table

REPOSITORY = Path(__file__).parent.parent
ALL = frozenset(PACKAGES)
# Listens where it is asked to, says who it is, and says when it has ended in order.
FAKE_DOCKERD = """\
#!{python}
import os, signal, socket, sys
path = sys.argv[sys.argv.index("--host") + 1].removeprefix("unix://")
server = socket.socket(socket.AF_UNIX)
def end(*_):
    open(path + ".ended", "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
open(path + ".pid", "w").write(str(os.getpid()))
server.bind(path)
server.listen()
while True:
    server.accept()
"""
Running = Callable[..., subprocess.Popen[str]]
RUN = """\
import contextlib, sys
from dataclasses import replace
from pathlib import Path
from tests import environment
environment.packages_to_install = lambda machine: []
environment.build_toxiproxy = lambda go: None
environment.warm_spark = contextlib.nullcontext
machine = environment.this_machine
environment.this_machine = lambda socket: replace(machine(socket), root=True)
sys.exit(environment.run(sys.argv[2:], Path(sys.argv[1])))
"""


# --- what is installed ---------------------------------------------------------------------------


def test_as_root_on_debian_exactly_what_is_missing_is_installed() -> None:
    bare = Machine(root=True, debian=True, docker_answers=False, present=frozenset())
    assert packages_to_install(bare) == sorted(PACKAGES.values())
    some = Machine(root=True, debian=True, docker_answers=False, present=ALL - {"kcat", "nft"})
    assert packages_to_install(some) == ["kcat", "nftables"]


def test_a_docker_that_answers_needs_no_daemon_of_ours() -> None:
    machine = Machine(root=True, debian=True, docker_answers=True, present=ALL - {"dockerd"})
    assert packages_to_install(machine) == []


@pytest.mark.parametrize(("root", "debian"), [(False, True), (True, False), (False, False)])
def test_nothing_is_installed_elsewhere(root: bool, debian: bool) -> None:
    assert packages_to_install(Machine(root, debian, False, frozenset())) == []


# --- what is left out ----------------------------------------------------------------------------


def test_a_test_runs_where_all_its_parts_are() -> None:
    needed = [(), ("kcat",), ("kcat", "maven"), ("maven",)]
    assert divided(needed, {"kcat": "get it", "maven": None}.__getitem__) == (
        [0, 3],
        [LeftOut("kcat", 2, "get it")],
    )
    assert divided(needed, lambda name: None) == ([0, 1, 2, 3], [])


def test_the_table_says_how_to_get_what_is_missing() -> None:
    lines = table([LeftOut("kcat", 12, "Install it.")])
    assert lines[0].split() == ["part", "tests", "how", "to", "get", "it"]
    assert lines[1].split(maxsplit=2) == ["kcat", "12", "Install it."]


def test_a_command_that_is_missing_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    executable(tmp_path / "sshd", "#!/bin/sh\n")
    assert "install openssh-client" in (environment.lacking("sshd") or "")
    executable(tmp_path / "ssh-keygen", "#!/bin/sh\n")
    assert environment.lacking("sshd") is None


def test_kafkas_that_cannot_be_fetched_are_lacking(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "Install Maven" in (environment.lacking("maven") or "")
    executable(tmp_path / "mvn", "#!/bin/sh\necho '[ERROR] Unknown host'; exit 1\n")
    assert "network" in (environment.lacking("maven") or "")


FAKE_GO = """\
#!/bin/sh
test "$1" = install || exit 3
echo "$2" >> "{asked}"
mkdir -p "$GOBIN" && printf '#!/bin/sh\n' > "$GOBIN/server" && chmod 755 "$GOBIN/server"
"""


def test_toxiproxy_is_built_once_where_go_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(toxiproxy, "ON_THE_PATH", "no-such-server")
    environment.build_toxiproxy(None)
    assert "go install github.com/Shopify/toxiproxy" in (environment.lacking("toxiproxy") or "")
    executable(tmp_path / "go", FAKE_GO.format(asked=tmp_path / "asked"))
    for _ in range(2):
        environment.build_toxiproxy(str(tmp_path / "go"))
    assert environment.lacking("toxiproxy") is None
    assert (tmp_path / "asked").read_text() == f"{toxiproxy.MODULE}\n"


def test_a_toxiproxy_that_cannot_be_built_is_lacking_and_it_is_said_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(toxiproxy, "ON_THE_PATH", "no-such-server")
    executable(tmp_path / "go", "#!/bin/sh\necho no such network >&2; exit 1\n")
    environment.build_toxiproxy(str(tmp_path / "go"))
    assert environment.lacking("toxiproxy") is not None
    assert "no such network" in capsys.readouterr().err


def pytest_run(path: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Tests of clients, of which some need kcat, collected on a machine that has what is in `path`
    only."""
    clients = "tests/live/test_clients.py"
    command = (sys.executable, "-m", "pytest", "--collect-only", "-q", clients, *arguments)
    kept = {k: v for k, v in os.environ.items() if k != environment.NOTHING_LEFT_OUT}
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**kept, "PATH": str(path), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_tests_that_lack_a_part_are_left_out_and_it_is_said(tmp_path: Path) -> None:
    done = pytest_run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "[kafka-python" in done.stdout
    assert "[kcat" not in done.stdout
    assert "deselected" in done.stdout
    assert "left out: what this machine lacks" in done.stdout
    assert "The command kcat is missing: install kcat" in done.stdout


@pytest.mark.slow
def test_where_nothing_may_be_left_out_that_is_a_failure(tmp_path: Path) -> None:
    done = pytest_run(tmp_path, **{environment.NOTHING_LEFT_OUT: "1"})
    assert done.returncode != 0
    assert "The command kcat is missing: install kcat" in done.stderr


@pytest.mark.slow
def test_where_everything_is_there_nothing_is_left_out_or_said(tmp_path: Path) -> None:
    executable(tmp_path / "kcat", "#!/bin/sh\n")
    done = pytest_run(tmp_path, **{environment.NOTHING_LEFT_OUT: "1"})
    assert done.returncode == 0, done.stderr
    assert "[kcat" in done.stdout
    assert "left out" not in done.stdout


@pytest.mark.slow
def test_workers_leave_out_and_the_table_is_printed_once(tmp_path: Path) -> None:
    chosen = ("-k", "kcat_reads", "-n", "2")
    done = pytest_run(tmp_path, *chosen, "-o", "addopts=")
    assert done.stdout.count("The command kcat is missing") == 1, done.stdout


@pytest.mark.slow
def test_a_part_that_nobody_knows_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        'import pytest\n@pytest.mark.needs("moon")\ndef test_it(): pass\n'
    )
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "needs ['moon']" in done.stderr


# --- what is started -----------------------------------------------------------------------------


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the Docker of a machine would be; its dockerd is a fake."""
    (tmp_path / "bin").mkdir()
    executable(tmp_path / "bin" / "dockerd", FAKE_DOCKERD.format(python=sys.executable))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.chdir(REPOSITORY)
    return tmp_path / "docker.sock"


def ended(socket: Path) -> bool:
    return Path(f"{socket}.ended").exists()


@pytest.fixture
def running(socket: Path) -> Iterator[Running]:
    """Starts commands with a Docker for them; ends what a failed test has left."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(socket), *command],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("status", [0, 1])
def test_docker_is_there_for_the_command_and_stopped_after_it(
    socket: Path, running: Running, status: int
) -> None:
    there = f"test -S {socket} && echo there; exit {status}"
    process = running("sh", "-c", there)
    said, complaints = process.communicate()
    assert (process.returncode, said) == (status, "there\n"), complaints
    assert ended(socket)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_command_once_and_docker_ends_after_it(
    socket: Path, running: Running, number: signal.Signals
) -> None:
    """What the command still says about Docker when it tidies up is printed last."""
    program = f"""
import os, signal, sys
received = []
woken, wakes = os.pipe()
os.set_blocking(wakes, False)
signal.set_wakeup_fd(wakes)
signal.signal({int(number)}, lambda *_: received.append(1))
print("ready", flush=True)
os.read(woken, 1)
print(len(received), os.path.exists({str(socket) + ".ended"!r}), flush=True)
sys.exit(5)
"""
    process = running(sys.executable, "-c", program)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    said, complaints = process.communicate()
    assert (process.returncode, said) == (5, "1 False\n"), complaints
    assert ended(socket)


@pytest.mark.slow
def test_a_docker_that_answers_already_is_left_alone(socket: Path, running: Running) -> None:
    program = [sys.executable, str(socket.parent / "bin" / "dockerd")]
    with subprocess.Popen([*program, "--host", f"unix://{socket}"]) as theirs:
        while not environment.answers(socket):
            assert theirs.poll() is None
        process = running("true")
        process.communicate()
        assert process.returncode == 0
        assert theirs.poll() is None
        assert Path(f"{socket}.pid").read_text() == str(theirs.pid)
        theirs.terminate()


@pytest.mark.slow
def test_a_docker_that_does_not_start_is_said_and_the_command_runs(
    socket: Path, running: Running
) -> None:
    executable(socket.parent / "bin" / "dockerd", "#!/bin/sh\necho no cgroups here\nexit 1\n")
    process = running("echo", "ran")
    said, complaints = process.communicate()
    assert (process.returncode, said) == (0, "ran\n")
    assert "no cgroups here" in complaints
