"""What an interrupted command says is what is so: of its run, and of nothing where it had none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from neaptide.harness.play.run_record import new_run
from neaptide.harness.scenarios.systems import parse_systems
from neaptide.harness.terminal import interrupted
from neaptide.results.run import Status
from neaptide.results.store import create_run, write_run
from neaptide.results.verdicts import VERDICT_FILE

[SYSTEM] = parse_systems(["neaptide:2.1"])


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    begun: list[Path] = []
    monkeypatch.setattr(interrupted, "_runs", begun)
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return begun


def test_where_nothing_was_recorded_nothing_is_said_of_it() -> None:
    assert interrupted.said() == "Interrupted."


@pytest.mark.parametrize(
    ("status", "verdict", "says"),
    [
        ("running", None, "What was recorded is kept, and its verdict is unknown: `neaptide check"),
        ("interrupted", None, "kept, and its verdict is unknown: `neaptide check"),
        ("not started", None, "The run had not begun"),
        ("finished", None, "has no verdict yet: `neaptide check"),
        ("finished", ("valid", "held"), "The verdict was written before, and stands: valid (held)"),
        ("finished", ("anomalous", "lost"), "stands: anomalous (lost)"),
        ("interrupted", ("unknown", "unknown"), "stands: unknown (unknown)"),
    ],
)
def test_of_its_last_run_it_says_what_the_files_say(
    status: Status, verdict: tuple[str, str] | None, says: str
) -> None:
    run = create_run("append", "neaptide:2.1", 1, datetime.now(UTC))
    write_run(run, replace(new_run("append", SYSTEM, 1, "random"), status=status))
    if verdict is not None:
        document = {"verdict": verdict[0], "outcome": verdict[1]}
        (run / VERDICT_FILE).write_text(json.dumps(document))
    interrupted.begun(run)
    assert says in interrupted.said()
    assert run.name in interrupted.said()
    assert ("unknown" in interrupted.said()) == ("unknown" in says)


_AT_IMPORT = """
import importlib.abc, os, signal, sys

class AtImport(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "neaptide.harness.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, AtImport())
sys.argv = ["neaptide", "--version"]
from neaptide.harness.cli.__main__ import main
main()
"""


def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_word() -> None:
    done = subprocess.run([sys.executable, "-c", _AT_IMPORT], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_in_the_background_of_a_shell_ctrl_c_is_of_others() -> None:
    ignored = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{_AT_IMPORT}"
    done = subprocess.run([sys.executable, "-c", ignored], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
