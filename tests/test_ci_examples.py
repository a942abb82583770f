"""The examples for CI do what they are for: their steps are run as that CI would run them.

In place of pip, apt-get and neaptide are programs that note what they were called with.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import DOCUMENTS, ROOT, name_of

YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOTED = "pip", "apt-get", "neaptide"
PINNED = "actions/setup-java", "actions/setup-python"
EXPRESSION = re.compile(r"\$\{\{ *([^}]+?) *\}\}")


def examples() -> Iterator[Any]:
    for document in DOCUMENTS:
        for number, body in enumerate(YAML.findall(document.read_text(encoding="utf-8"))):
            read = yaml.safe_load(body)
            if isinstance(read, dict) and ("jobs" in read or "neaptide" in read):
                yield pytest.param(read, id=f"{name_of(document)}-{number}")


class Machine:
    """A clean directory, and programs that note how they are called."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.notes = directory / "notes"
        self.programs = directory / "programs"
        self.programs.mkdir()
        for name in NOTED:
            script = f'#!/bin/sh\nprintf "%s\\n" {name} "$@" "" >> "{self.notes}"\n'
            (self.programs / name).write_text(script)
            (self.programs / name).chmod(0o700)

    def run(self, script: str, shell: str = "bash", **env: str) -> None:
        program = {"bash": ["bash", "-eo", "pipefail"], "python": [sys.executable]}[shell]
        subprocess.run(
            [*program, "-c", script],
            cwd=self.directory,
            env={**env, "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}"},
            check=True,
        )

    def calls(self) -> list[list[str]]:
        text = self.notes.read_text() if self.notes.exists() else ""
        return [call.split("\n") for call in text.removesuffix("\n\n").split("\n\n") if call]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def uses(steps: list[dict[str, Any]]) -> list[str]:
    return [str(step["uses"]).partition("@")[0] for step in steps if "uses" in step]


@pytest.mark.parametrize("example", list(examples()))
def test_each_example_installs_what_it_needs_and_runs_neaptide(
    machine: Machine, example: Mapping[str, Any]
) -> None:
    for job in example.get("jobs", {}).values():
        steps = job["steps"]
        for step in steps:
            if "run" in step:
                machine.run(step["run"])
        by_action = [step for step in steps if "/neaptide" in str(step.get("uses"))]
        for step in by_action:
            assert set(step["with"]) <= set(action()["inputs"])
            play_action(machine, **step["with"])
        if not by_action:
            assert set(PINNED) <= set(uses(steps))
    job = example.get("neaptide", {})
    machine.run("\n".join([*job.get("before_script", ()), *job.get("script", ())]))
    called = machine.calls()
    assert any(call[0] == "neaptide" for call in called)
    if "openjdk" in str(called):
        pytest.fail("not every Debian has this version of Java: default-jre-headless is on all")
    image = str(job.get("image", ""))
    assert "jobs" in example or "neaptide:" in image or any("jre" in str(call) for call in called)


# --- the action ----------------------------------------------------------------------------------


def action() -> Any:
    return yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


def play_action(machine: Machine, **given: str) -> str:
    """As GitHub does; the name of the artifact."""
    read = action()
    inputs = {name: one.get("default", "") for name, one in read["inputs"].items()} | given
    output = machine.directory / "output"
    output.write_text("")
    known = {f"inputs.{name}": value for name, value in inputs.items()}
    known |= {"github.job": "scenarios", "strategy.job-index": "0"}
    artifact = ""
    for step in read["runs"]["steps"]:
        if "run" in step:
            env = {name: filled(value, known) for name, value in step.get("env", {}).items()}
            machine.run(
                step["run"],
                step["shell"],
                GITHUB_ACTION_PATH="/the/action",
                GITHUB_OUTPUT=str(output),
                RUNNER_TEMP=str(machine.directory),
                **env,
            )
            for line in output.read_text().splitlines():
                name, _, value = line.partition("=")
                known[f"steps.{step.get('id')}.outputs.{name}"] = value
        elif "upload-artifact" in step["uses"]:
            artifact = filled(step["with"]["name"], known)
    return artifact


def filled(text: str, known: Mapping[str, str]) -> str:
    return EXPRESSION.sub(lambda found: known[found[1]], text)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("repro a --system b", ["repro", "a", "--system", "b"]),
        ("repro a\n  --system b\n", ["repro", "a", "--system", "b"]),
        ("repro a \\\n  --system b", ["repro", "a", "--system", "b"]),
        ("run \"my file.toml\" --set 'a=b c'", ["run", "my file.toml", "--set", "a=b c"]),
        ("run $HOME;ls *", ["run", "$HOME;ls", "*"]),  # no shell reads it
    ],
)
def test_the_command_of_the_action_is_all_that_was_given(
    machine: Machine, command: str, words: list[str]
) -> None:
    play_action(machine, command=command)
    assert machine.calls() == [["pip", "install", "/the/action"], ["neaptide", *words]]


def test_what_the_action_installs_and_how_its_artifacts_are_called(machine: Machine) -> None:
    first = play_action(machine, command="list", version="neaptide==0.1.0")
    second = play_action(machine, command="list")
    assert machine.calls()[0] == ["pip", "install", "neaptide==0.1.0"]
    assert (first, second) == ("neaptide-runs-scenarios-0-1", "neaptide-runs-scenarios-0-2")
    assert play_action(machine, command="list", artifact="mine") == "mine"
