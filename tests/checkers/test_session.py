"""Java takes the options that a session gives it, and says nothing on standard output."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from checkers import session

FILE = "CompilerDirectivesFile"


@pytest.mark.parametrize("rows", [0, session.MANY_ROWS, session.LARGE_ROWS + 1])
def test_java_starts_and_prints_nothing(rows: int) -> None:
    settings = session._settings("64m", rows, "127.0.0.1", ("-Done=with a space",))
    options = settings["spark.driver.extraJavaOptions"]
    done = subprocess.run(
        ["java", *shlex.split(options), "-version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert "-Done=with a space" in shlex.split(options)
    assert _room_for_code(options) >= 200 * 2**20
    assert (FILE in options) == (rows >= session.MANY_ROWS)


def test_what_is_compiled_twice_is_named_and_everything_else_is_not() -> None:
    file = Path(session.__file__).with_name("java_compiler.json")
    rows, rest = json.loads(file.read_text(encoding="utf-8"))
    assert not rows["c2"]["Exclude"]
    assert (rest["match"], rest["c2"]["Exclude"]) == (["*.*"], True)


def test_what_java_logs_is_not_on_its_standard_output() -> None:
    own = ("-Xlog:gc*",)
    for settings, is_silent in (
        (session._settings("64m", 0, "127.0.0.1", own)["spark.driver.extraJavaOptions"], True),
        (" ".join(own), False),
    ):
        done = subprocess.run(
            ["java", *shlex.split(settings), "-version"], capture_output=True, text=True, check=True
        )
        assert (done.stdout == "") is is_silent


def _room_for_code(options: str) -> int:
    """In bytes: as much as Java keeps where nobody turns a compiler off."""
    done = subprocess.run(
        ["java", *shlex.split(options), "-XX:+PrintFlagsFinal", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    [line] = [one for one in (done.stdout + done.stderr).splitlines() if "ReservedCodeCache" in one]
    return int(line.split()[3])
