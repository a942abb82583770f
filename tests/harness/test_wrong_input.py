"""Wrong input: one sentence that says what to do, the documented status, no traceback."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from neaptide.harness.cli.main import main
from neaptide.harness.terminal import output

USAGE, MISSING = 64, 69
Done = subprocess.CompletedProcess[str]


def neaptide(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "neaptide.harness.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=120,
    )


@pytest.fixture
def here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Done]]:
    """The command in this process, which it leaves with the signals that were there."""
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments: str, **env: str) -> Done:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["neaptide", *arguments])
        monkeypatch.setattr(output.err, "file", sys.stderr)
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), out, err)

    yield run
    for number, handler in signals.items():
        signal.signal(number, handler)


def assert_one_sentence(done: Done, status: int, says: str) -> None:
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert says in last


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("repro", "no-such-scenario"), "There is no scenario 'no-such-scenario'; `neaptide list`"),
        (
            ("repro", "hw-trunction-loss"),
            "There is no scenario 'hw-trunction-loss'; did you mean 'hw-truncation-loss'?",
        ),
        (("run", "hw-trunction-loss"), "did you mean 'hw-truncation-loss'?"),
        (
            ("run", "hw-truncation-loss", "--nemesis", "kill", "--time", "30", "--acks", "1"),
            "--nemesis, --time, --acks: nothing of this is used where a scenario is played",
        ),
        (("run", "apend"), "There is no workload 'apend'; did you mean 'append'?"),
        (("repro", "--system", "neaptide:9"), "There is no system 'neaptide:9'; it must be one of"),
        (("repro", "--host", "moon"), "There is no host 'moon'; it must be one of local"),
        (("run", "shop"), "There is no workload 'shop'; it must be one of append"),
        (("run", "append", "--nemesis", "boom"), "There is no fault 'boom'; it must be one of"),
        (
            ("run", "append", "--brokers", "1", "--nemesis", "kill,cut"),
            "--nemesis cut needs --brokers 2 or more, not 1",
        ),
        (("run", "append", "--acks", "2"), "--acks '2' must be 0, 1 or all"),
        (("run", "append", "--idempotence", "--acks", "1"), "--idempotence needs --acks all"),
        (
            ("run", "append", "--idempotence", "--system", "neaptide:0.10"),
            "neaptide:0.10 has no idempotent producers",
        ),
        (
            ("explore", "-s", "neaptide:0.10", "--idempotence"),
            "neaptide:0.10 has no idempotent producers",
        ),
        (("explore", "mutants", "--idempotence"), "No such option: --idempotence"),
        (
            ("explore", "-s", "neaptide:0.10", "--nemesis", "transact"),
            "no transactions, which came",
        ),
        (("explore", "--nemesis", "kill,late"), "name transact beside it"),
        (("explore", "exhaustive", "--transactions", "3"), "goes with --nemesis transact"),
        (("explore", "priorities", "--operations", "1"), "goes with --nemesis reassign, elect"),
        (("explore", "mutants", "-s", "neaptide:9"), "There are no mutants of 'neaptide:9'"),
        (
            ("explore", "swarm", "--set", "min.insync.replicas=1"),
            "--set min.insync.replicas: every seed of a swarm draws it",
        ),
        (("explore", "swarm", "--brokers", "5"), "No such option: --brokers"),
        (
            ("explore", "--brokers", "2", "--set", "min.insync.replicas=3"),
            "min.insync.replicas=3 needs as many replicas",
        ),
        (("explore", "--acks", "0,2"), "--acks '0,2' must be 0, 1 or all, or several: 0,1,all"),
        (("explore", "--mutants", "--retention"), "No such option: --retention"),
        (("explore", "--swarm", "--priorities"), "Choose one of priorities and swarm"),
        (("explore", "swarm", "--priorities"), "--priorities: the mode is swarm; choose one"),
        (("explore", "warm"), "No such command 'warm'"),
        (("run", "append", "--set", "x"), "--set 'x' is not of the form name=value"),
        (
            ("run", "append", "--set", "min.insync.replica=2"),
            "no release of Kafka has a setting 'min.insync.replica'; did you mean"
            " 'min.insync.replicas'?",
        ),
        (
            ("run", "append", "--system", "neaptide:2.1", "--set", "my.own.plugin=x"),
            "--set: no release of Kafka has a setting 'my.own.plugin'.",
        ),
        (("run", "missing.toml"), "missing.toml: cannot be read"),
        (("nightly", "no.toml"), "The plan no.toml cannot be read"),
        (("nightly", "--budget", "soon"), "'soon' is no duration, as 90s, 30m"),
        (("nightly", "--budget", "20s", "--nights", "/tmp/no-nights"), "20 s is too short: one"),
        (("nightly", "--fail-on", "bad"), "--fail-on 'bad' must be one of anomaly, new"),
        (("nightly", "--resume", "--seed", "1"), "--resume goes on with the plan and seed"),
        (("nightly", "--resume", "--nights", "/tmp/no-nights"), "There is no night in /tmp/no-n"),
        (("check", "r", "--relation", "gon"), "There is no relation 'gon'; did you mean 'gone'?"),
        (("check", "r", "s", "--relation", "gone"), "--relation shows one run: name one."),
        (("check", "no-such-run"), "There is no run 'no-such-run'"),
        (
            ("check", __file__),
            "is a file, and a run is a directory; a history of Jepsen's must end",
        ),
        (("explore", "--save", f"{__file__}/here"), "cannot write there; name another directory"),
        (("run", "append", "--time", "soon"), "Invalid value for '--time'"),
        (("frobnicate",), "No such command 'frobnicate'"),
    ],
)
def test_wrong_arguments(
    here: Callable[..., Done], tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = here(*arguments, NEAPTIDE_RUNS=str(tmp_path), NEAPTIDE_STATE=str(tmp_path / "s"))
    assert_one_sentence(done, USAGE, says)


@pytest.mark.live
def test_a_process_says_what_its_command_says_here(here: Callable[..., Done]) -> None:
    alone, same = neaptide("run", "shop"), here("run", "shop")
    assert (alone.returncode, alone.stdout, alone.stderr) == (
        *(same.returncode, same.stdout, same.stderr),
    )


@pytest.mark.live
def test_a_state_directory_that_cannot_be_written_is_said_before_anything_starts(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    stores = {"NEAPTIDE_RUNS": str(tmp_path / "runs"), "NEAPTIDE_STATE": str(tmp_path / "file")}
    done = neaptide("run", "append", "--time", "5", **stores)
    assert_one_sentence(done, MISSING, "set NEAPTIDE_STATE to a directory that you may write to")
    assert not (tmp_path / "runs").exists()


def test_a_broken_toml_file_names_its_line(here: Callable[..., Done], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("title = \n", encoding="utf-8")
    done = here("run", str(file), NEAPTIDE_RUNS=str(tmp_path))
    assert_one_sentence(done, USAGE, f"{file}: is not valid TOML")
    assert "line 1" in done.stderr


def test_a_step_that_is_none_names_its_line(here: Callable[..., Done], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'title = "t"\n[cluster]\nbrokers = ["A"]\ntopics.t = { assignment = [["A"]] }\n'
        '[[step]]\nexplode = { broker = "A" }\n',
        encoding="utf-8",
    )
    done = here("run", str(file), NEAPTIDE_RUNS=str(tmp_path))
    assert_one_sentence(done, USAGE, f"{file}:5: step 1: 'explode' is no step; must be one of")


def fake_java(directory: Path, version: str) -> Path:
    directory.mkdir()
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return directory


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_392"])
def test_an_old_java(here: Callable[..., Done], tmp_path: Path, version: str) -> None:
    path = fake_java(tmp_path / "bin", version)
    done = here(
        "repro",
        "hw-truncation-loss",
        PATH=f"{path}:/usr/bin:/bin",
        JAVA_HOME="",
        NEAPTIDE_RUNS=str(tmp_path / "runs"),
    )
    assert_one_sentence(done, MISSING, "17")


def test_no_java(here: Callable[..., Done], tmp_path: Path) -> None:
    done = here(
        "repro",
        "hw-truncation-loss",
        PATH=str(tmp_path),
        JAVA_HOME="",
        NEAPTIDE_RUNS=str(tmp_path / "runs"),
    )
    assert_one_sentence(done, MISSING, "Java")


@pytest.mark.slow
def test_a_directory_of_runs_that_cannot_be_made(tmp_path: Path) -> None:
    """In a process of its own: it is found out while a Spark is starting."""
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    done = neaptide("repro", "hw-truncation-loss", NEAPTIDE_RUNS=str(blocked / "runs"))
    assert_one_sentence(done, MISSING, "set NEAPTIDE_RUNS to a directory that you may write to")
