"""Java takes the options that a session gives it, and says nothing on standard output."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from neaptide.checkers.pipeline import session
from neaptide.checkers.pipeline.limits import TASK_MEMORY


def test_java_starts_and_prints_nothing() -> None:
    settings = session._settings("1g", 2, "127.0.0.1", ("-Done=with a space",))
    options = settings["spark.driver.extraJavaOptions"]
    done = subprocess.run(
        ["java", *shlex.split(options), "-version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert "-Done=with a space" in shlex.split(options)
    assert _room_for_code(options) >= 200 * 2**20


@pytest.mark.parametrize(
    ("memory", "tasks", "heap", "task"),
    [("6g", 2, "2048m", "2048MiB"), ("900m", 1, "512m", "388MiB"), ("600m", 8, "512m", "100MiB")],
)
def test_memory_is_shared_out(memory: str, tasks: int, heap: str, task: str) -> None:
    settings = session._settings(memory, tasks, "127.0.0.1", ())
    assert (settings["spark.driver.memory"], settings[TASK_MEMORY]) == (heap, task)


@pytest.mark.parametrize(
    ("master", "tasks"),
    [
        ("local[4]", 4), ("local[4,3]", 4), ("local[4, 3]", 4), ("local", 1), ("spark://h:1", 1),
        ("local[*]", os.cpu_count()), ("local[*,2]", os.cpu_count()),
    ],
)  # fmt: skip
def test_tasks_at_once(master: str, tasks: int) -> None:
    assert session.tasks_at_once(master) == tasks


def test_what_java_logs_is_not_on_its_standard_output() -> None:
    own = ("-Xlog:gc*",)
    for settings, is_silent in (
        (session._settings("64m", 2, "127.0.0.1", own)["spark.driver.extraJavaOptions"], True),
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
