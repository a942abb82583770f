"""What is wrong with Spark's processes is named, and nobody waits for one that stands still."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from neaptide.harness.checking import spark_watch
from neaptide.harness.checking.spark_watch import SparkWatch

DEADLINE_S = 60.0


def started(tmp_path: Path) -> Path:
    """A script that becomes a process like Spark's: named java, with SparkSubmit as an argument."""
    named = tmp_path / "java"
    named.symlink_to("/bin/sleep")
    script = tmp_path / "start"
    script.write_text('#!/bin/bash\nexec -a SparkSubmit "$0.d/java" 3600\n')
    script.chmod(0o700)
    (tmp_path / "start.d").mkdir()
    named.rename(tmp_path / "start.d" / "java")
    return script


@pytest.fixture
def java(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([str(started(tmp_path))])
    deadline = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{process.pid}/comm").read_text().strip() != "java":
        assert time.monotonic() < deadline
    yield process
    process.kill()
    process.wait()


def seen(watch: SparkWatch, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        watch.look()
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (signal.SIGKILL, "was ended by SIGKILL."),
        (signal.SIGTERM, "was ended by SIGTERM."),
        (signal.SIGSTOP, "stood still: somebody sent it a SIGSTOP. It was ended."),
    ],
)
def test_a_java_that_is_not_well_is_named_and_has_ended(
    java: subprocess.Popen[bytes], number: signal.Signals, says: str
) -> None:
    said: list[str] = []
    watch = SparkWatch(said.append, is_java=lambda process: process.pid == java.pid)
    try:
        seen(watch, lambda: watch.watches == java.pid)
        assert spark_watch.trouble() is None
        os.kill(java.pid, number)
        seen(watch, lambda: watch.trouble is not None)
        assert said == [f"Spark's Java (pid {java.pid}) {says}"]
        assert java.wait(DEADLINE_S) in (-number, -signal.SIGKILL)
    finally:
        watch.close()
    assert spark_watch.trouble() == said[0]  # also once it is closed: whoever reports comes later
    next_one = SparkWatch(said.append)
    next_one.close()
    assert spark_watch.trouble() is None  # of another Spark


def test_of_a_spark_that_was_stopped_in_order_nothing_is_said(
    java: subprocess.Popen[bytes],
) -> None:
    said: list[str] = []
    watch = SparkWatch(said.append, is_java=lambda process: process.pid == java.pid)
    seen(watch, lambda: watch.watches == java.pid)
    watch.close()
    java.kill()
    java.wait()
    assert spark_watch.trouble() is None
    assert said == []


def test_what_puts_the_command_of_java_together_is_not_watched(tmp_path: Path) -> None:
    """It is a Java, too, with the same arguments, of the script; and it ends at once."""
    script = subprocess.Popen(
        ["bash", "-c", f"{started(tmp_path)} & echo $!; wait"], stdout=subprocess.PIPE
    )
    assert script.stdout is not None
    pid = int(script.stdout.readline())
    watch = SparkWatch(lambda _: None)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
            assert time.monotonic() < deadline
        watch.look()
        assert watch.watches != pid  # the process of tests may have a Spark of its own
    finally:
        os.kill(pid, signal.SIGKILL)
        script.communicate()
        watch.close()
    assert spark_watch.trouble() is None
