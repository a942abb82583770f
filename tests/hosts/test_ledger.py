"""The ledger ends what a dead owner left, and nothing else."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts.identity import ProcessIdentity, boot_id, ticks_since_boot
from neaptide.clusters.hosts.ledger import TOKEN_VARIABLE, Ledger, reap_orphans
from neaptide.clusters.hosts.ledger_file import Owner, Whereabouts, read_ledger

_SLEEP = [sys.executable, "-c", "import signal; signal.pause()"]

_OWNER = """
import asyncio, sys
from pathlib import Path
from neaptide.clusters.hosts.local import LocalHost, ProcessSpec

async def main():
    host = LocalHost()
    for name in ("broker 1", "broker 2"):
        spec = ProcessSpec(name, sys.argv[2:], Path(sys.argv[1]), Path(sys.argv[1]) / "log")
        print((await host.start(spec)).pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path))
    return tmp_path / "ledger"


def _owner(tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    argv = [sys.executable, "-c", _OWNER, str(tmp_path), *_SLEEP]
    owner = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout as pids:
        return owner, [int(pids.readline()) for _ in range(2)]


@pytest.mark.live
def test_what_a_killed_owner_left_is_ended_and_what_a_living_one_owns_is_not(
    state: Path, tmp_path: Path
) -> None:
    dead, orphans = _owner(tmp_path)
    alive, children = _owner(tmp_path)
    try:
        dead.kill()
        dead.wait()
        watched = [psutil.Process(pid) for pid in orphans]
        reaped = reap_orphans()
        assert sorted(reaped) == sorted(
            f"broker {n} (pid {pid})" for n, pid in enumerate(orphans, start=1)
        )
        assert psutil.wait_procs(watched, timeout=10)[1] == []
        assert all(psutil.pid_exists(pid) for pid in children)
        assert len(list(state.glob("*.jsonl"))) == 1
        assert reap_orphans() == []
    finally:
        alive.kill()
        alive.wait()
        assert len(reap_orphans()) == 2


def _dead_owner(state: Path, *rows: dict[str, Any]) -> Path:
    """A ledger file whose owner is a pid that runs, but started at another time."""
    state.mkdir(parents=True, exist_ok=True)
    path = state / "dead.jsonl"
    mine = {"pid": os.getpid(), "start_ticks": 1, **asdict(Whereabouts.here())}
    first = {"owner": mine}
    path.write_text("".join(json.dumps(row) + "\n" for row in (first, *rows)))
    return path


@pytest.mark.live
def test_a_pid_that_was_used_again_is_left_alone(state: Path) -> None:
    with subprocess.Popen(_SLEEP) as stranger:
        intent = {"intent": "t", "what": "broker 1", "directory": "/"}
        path = _dead_owner(state, intent, {"token": "t", "pid": stranger.pid, "start_ticks": 5})
        assert reap_orphans() == []
        assert stranger.poll() is None
        assert not path.exists()
        stranger.kill()


@pytest.mark.live
def test_a_process_whose_pid_was_never_written_is_found_by_its_token(state: Path) -> None:
    with subprocess.Popen(_SLEEP, env={**os.environ, TOKEN_VARIABLE: "t-1"}) as orphan:
        started = psutil.Process(orphan.pid)
        while started.environ().get(TOKEN_VARIABLE) != "t-1":  # until exec(2) has happened
            pass
        _dead_owner(state, {"intent": "t-1", "what": "gate", "directory": "/"})
        assert reap_orphans() == [f"gate (pid {orphan.pid})"]
        assert orphan.wait() == -9


_FORKS_ON = """
import os, signal, time
for _ in range(2000):
    if os.fork() == 0:
        signal.pause()
    time.sleep(0.001)
"""


@pytest.mark.live
def test_what_a_process_starts_while_it_is_being_ended_is_ended_too(state: Path) -> None:
    """As a broker's start script does, which has not come to its Java yet."""
    mine = {**os.environ, TOKEN_VARIABLE: "t-2"}
    with subprocess.Popen([sys.executable, "-c", _FORKS_ON], env=mine) as orphan:
        started = psutil.Process(orphan.pid)
        while not started.children():
            pass
        _dead_owner(state, {"intent": "t-2", "what": "broker 1", "directory": "/"})
        reaped = reap_orphans()
        assert f"broker 1 (pid {orphan.pid})" in reaped
    assert reap_orphans() == []
    assert carrying("t-2") == []


def carrying(token: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(TOKEN_VARIABLE) == token:
                found.append(process.pid)
    return found


@pytest.mark.live
@pytest.mark.parametrize("name", ["0-first", "z-last"])
def test_an_owner_that_another_owner_has_started_leaves_nothing_either(
    state: Path, tmp_path: Path, name: str
) -> None:
    """Whose ledger is read first does not matter."""
    child, brokers = _owner(tmp_path)
    identity = ProcessIdentity.of(child.pid)
    assert identity is not None
    path = _dead_owner(
        state,
        {"intent": "t-3", "what": "run", "directory": "/"},
        {"token": "t-3", "pid": child.pid, "start_ticks": identity.start_ticks},
    )
    path.rename(path.with_stem(name))
    watched = [psutil.Process(pid) for pid in brokers]
    # A child of this test stays a zombie until it is waited for, as one of init's does not.
    threading.Thread(target=child.wait, daemon=True).start()
    reaped = reap_orphans()
    assert reaped[0] == f"run (pid {child.pid})"
    assert len(reaped) == 3
    assert not psutil.wait_procs(watched, timeout=60)[1]
    assert list(state.glob("*.jsonl")) == []


def test_a_half_written_last_line_does_not_hide_the_lines_before_it(state: Path) -> None:
    path = _dead_owner(state, {"intent": "t-2", "what": "gate", "directory": "/"})
    with path.open("a") as file:
        file.write('{"token": "t-2", "pi')
    assert reap_orphans() == []
    assert not path.exists()


def test_a_closed_ledger_leaves_no_file_and_two_of_one_owner_do_not_clash(state: Path) -> None:
    first, second = Ledger(), Ledger()
    first.intend("broker 1", Path("/"))
    assert first.path != second.path
    assert reap_orphans() == []  # their owner, this process, lives
    first.close()
    second.close()
    second.close()
    assert list(state.glob("*")) == []


def test_a_process_is_a_pid_and_a_start_time() -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    assert me.lives()
    assert not replace(me, start_ticks=me.start_ticks - 60).lives()
    assert not replace(me, boot="another").lives()
    assert me.start_ticks <= ticks_since_boot()
    assert me.boot == boot_id()


def _left_by_the_dead(directory: Path, *rows: dict[str, Any]) -> Path:
    """The ledger of an owner that is no more."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "1-1-0.jsonl"
    owner = {"owner": {"pid": 1, "start_ticks": 7, **asdict(Whereabouts.here())}}
    file.write_text("".join(json.dumps(row) + "\n" for row in (owner, *rows)))
    return file


_NETWORK = {"resource": "network", "name": "n"}
_NODE = {"resource": "node", "name": "a"}


def test_resources_of_the_dead_are_removed_last_made_first(tmp_path: Path) -> None:
    file = _left_by_the_dead(tmp_path, _NETWORK, _NODE)
    removed: list[str] = []

    def remove(name: str) -> bool:
        removed.append(name)
        return True

    said = reap_orphans(tmp_path, {"network": remove, "node": remove})
    assert removed == ["a", "n"]
    assert said == ["node a", "network n"]
    assert not file.exists()


def test_what_cannot_be_removed_now_stays_in_the_ledger(tmp_path: Path) -> None:
    file = _left_by_the_dead(tmp_path, _NETWORK, _NODE)
    removers = {"network": lambda _: True, "node": lambda _: False}
    assert reap_orphans(tmp_path, removers) == ["network n"]
    assert file.exists()
    assert reap_orphans(tmp_path, {"network": lambda _: True}) == ["network n"]
    assert reap_orphans(tmp_path, dict.fromkeys(("network", "node"), lambda _: True)) != []
    assert not file.exists()


def test_resources_of_the_living_are_left_alone(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.intend_resource("network", "n")
    assert reap_orphans(tmp_path, {"network": lambda _: pytest.fail("it is in use")}) == []
    ledger.close()


def _ledger_of(directory: Path, **owner: object) -> Path:
    """Of an owner whose pid and start are those of nobody here."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "7-7-0.jsonl"
    mine = {"pid": 7, "start_ticks": 7, **asdict(Whereabouts.here()), **owner}
    path.write_text(json.dumps({"owner": mine}) + "\n" + json.dumps(_NODE) + "\n")
    return path


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"host": "another", "boot": "another"},
        {"host": "another"},
        {"pids": "pid:[1]"},
        {"boot": "another", "pids": "pid:[1]"},
    ],
)
def test_an_owner_in_another_container_or_machine_is_left_alone(
    tmp_path: Path, elsewhere: dict[str, Any]
) -> None:
    path = _ledger_of(tmp_path, **elsewhere)
    assert reap_orphans(tmp_path, {"node": lambda _: pytest.fail("it may live there")}) == []
    assert path.exists()


def test_a_dead_owner_of_this_container_is_not(tmp_path: Path) -> None:
    path = _ledger_of(tmp_path)
    assert reap_orphans(tmp_path, {"node": lambda _: True}) == ["node a"]
    assert not path.exists()


def test_what_ran_before_a_machine_was_started_anew_is_over() -> None:
    here = Whereabouts("h", "now", "pid:[4026531836]")
    assert Whereabouts("h", "before", "pid:[4026531836]").is_over(here)
    assert not Whereabouts("h", "before", "pid:[5]").is_over(here)
    assert not Whereabouts("g", "before", "pid:[4026531836]").is_over(here)
    assert not here.is_over(here)


def test_a_ledger_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MissingPartError, match="set NEAPTIDE_STATE to a directory"):
        Ledger(tmp_path / "file" / "ledger")


def test_a_ledger_on_a_full_disk_is_one_sentence_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", full)
        with pytest.raises(MissingPartError, match="No space left on device"):
            Ledger(tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- a clock that is set, and files that are no ledgers -------------------------------------------


@pytest.mark.live
def test_a_step_of_the_clock_ends_nothing_that_lives(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NTP or a resumed machine does it: what psutil says of a start moves with the clock."""
    owner, children = _owner(tmp_path)
    told = psutil.Process.create_time
    try:
        for step_s in (-3600.0, -2.0, 2.0, 86_400.0):
            with monkeypatch.context() as stepped:
                stepped.setattr(
                    psutil.Process,
                    "create_time",
                    lambda process, by=step_s: told(process) + by,
                )
                assert reap_orphans() == []
            assert owner.poll() is None
            assert all(ProcessIdentity.of(pid) is not None for pid in children)
    finally:
        owner.kill()
        owner.wait()
        assert len(reap_orphans()) == 2


def test_nothing_of_ours_asks_when_a_process_started_by_the_clock() -> None:
    root = Path(__file__).parents[2]
    folders = ("clusters", "harness", "workloads", "nemesis", "results", "checkers")
    for path in (path for folder in folders for path in (root / folder).rglob("*.py")):
        assert "create_time()" not in path.read_text(encoding="utf-8"), path


@pytest.mark.live
def test_of_an_earlier_version_only_what_has_its_token_is_ended(state: Path) -> None:
    """It wrote what the clock showed. Its owner counts as living while anybody has its pid."""
    state.mkdir(parents=True)
    path = state / "old.jsonl"
    with subprocess.Popen(_SLEEP) as stranger:
        rows = [
            {"intent": "t", "what": "broker 1", "directory": "/"},
            {"token": "t", "pid": stranger.pid, "started": 5.0},
        ]
        for pid, stays in ((stranger.pid, True), (2**22 + 1, False)):
            owner: dict[str, object] = {"owner": {"pid": pid, "started": 1.0}}
            path.write_text("".join(json.dumps(row) + "\n" for row in (owner, *rows)))
            assert reap_orphans() == []
            assert path.exists() is stays
            assert stranger.poll() is None
        stranger.kill()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _written(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


_OWNED = {"pid": 7, "start_ticks": 7, "host": "h", "boot": "b", "pids": "p"}


def _owned_by(pid: object) -> Callable[[Path], object]:
    return _written(json.dumps({"owner": {**_OWNED, "pid": pid}}).encode() + b"\n")


NO_LEDGERS: dict[str, Callable[[Path], object]] = {
    "a number": _written(b"5\n"),
    "a list": _written(b"[]\n"),
    "null": _written(b"null\n"),
    "a text": _written(b'"owner"\n'),
    "an empty row": _written(b"{}\n"),
    "nothing": _written(b""),
    "a first line without its end": _written(b'{"owner": {"pid": 7'),
    "an owner that is a list": _written(b'{"owner": [7]}\n'),
    "an owner of another version": _written(b'{"owner": {"process": "7@b"}}\n'),
    "a pid that is a text": _written(
        json.dumps({"owner": {**_OWNED, "pid": "7"}}).encode() + b"\n"
    ),
    "a pid below 0": _written(json.dumps({"owner": {**_OWNED, "pid": -1}}).encode() + b"\n"),
    "bytes": _written(bytes(range(256))),
    "no UTF-8": _written(b'{"owner": "\xff"}\n'),
    "nested": _written(b"[" * 200_000 + b"\n"),
    "a directory": Path.mkdir,
    "a FIFO": _fifo,
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to itself": _loop,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("what", NO_LEDGERS)
@pytest.mark.timeout(60)
def test_what_is_no_ledger_is_named_and_set_aside_and_the_others_go_on(
    tmp_path: Path, what: str
) -> None:
    good = _left_by_the_dead(tmp_path, _NODE)
    bad = tmp_path / "bad.jsonl"
    NO_LEDGERS[what](bad)
    said: list[str] = []
    assert reap_orphans(tmp_path, {"node": lambda _: True}, said.append) == ["node a"]
    assert not good.exists()
    assert not os.path.lexists(bad)
    [sentence] = said
    assert sentence.startswith(f"{bad} ")
    assert os.path.lexists(tmp_path / "bad.jsonl.set-aside-0")
    assert reap_orphans(tmp_path, {}, said.append) == []
    assert len(said) == 1


BAD_ROWS = [
    "5",
    "[]",
    "null",
    "{}",
    '{"token": "none"}',
    '{"intent": 5}',
    '{"resource": "node"}',
    "x",
]


@pytest.mark.parametrize("row", BAD_ROWS)
def test_a_row_that_is_none_hides_no_other(tmp_path: Path, row: str) -> None:
    path = _left_by_the_dead(tmp_path, _NETWORK)
    with path.open("a") as file:
        file.write(row + "\n" + json.dumps(_NODE) + "\n")
    said: list[str] = []
    removers = dict.fromkeys(("network", "node"), lambda _: True)
    assert reap_orphans(tmp_path, removers, said.append) == ["node a", "network n"]
    assert "has no row of a ledger in line 3" in said[0]
    assert not path.exists()


def test_a_remover_that_fails_is_asked_again_and_stops_no_other(tmp_path: Path) -> None:
    path = _left_by_the_dead(tmp_path, _NETWORK, _NODE)

    def fail(_: str) -> bool:
        raise KeyError("pid")

    assert reap_orphans(tmp_path, {"node": fail, "network": lambda _: True}) == ["network n"]
    assert path.exists()


def test_the_same_pid_and_ticks_of_another_boot_are_another_process(tmp_path: Path) -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    here = Whereabouts.here()
    path = tmp_path / "1-1-0.jsonl"
    for boot, is_me in ((here.boot, True), ("before", False)):
        owner = {"pid": me.pid, "start_ticks": me.start_ticks, **asdict(replace(here, boot=boot))}
        path.write_text(json.dumps({"owner": owner}) + "\n")
        found = read_ledger(path).owner
        assert isinstance(found, Owner)
        assert found.process is not None
        assert found.process.lives() is is_me


def test_a_lock_that_is_a_fifo_stops_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    _left_by_the_dead(folder, _NODE)
    os.mkfifo(folder.with_suffix(".lock"))
    assert reap_orphans(folder, {"node": lambda _: True}) == ["node a"]
