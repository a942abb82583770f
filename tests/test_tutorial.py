"""Somebody follows the tutorial: its commands, pasted in order, do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.wheel import build_wheel, install

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pasted:
    """What is pasted into the shell, and lines of what the page says that it prints."""

    commands: str
    printed: tuple[str, ...]


def pasted(page: str) -> list[Pasted]:
    """`sh` is pasted; `text` right after it is what it prints. Other blocks are not run."""
    blocks = BLOCK.findall(page)
    found = []
    for at, (kind, body) in enumerate(blocks):
        if kind == "sh":
            next_kind, next_body = blocks[at + 1] if at + 1 < len(blocks) else ("", "")
            lines = next_body.splitlines() if next_kind == "text" else []
            found.append(Pasted(body, tuple(lines)))
    return found


def printed(line: str, output: str) -> bool:
    """`…` stands for anything in a line, and so do several spaces. A terminal shows lines between
    the columns of a table, and a pipe does not have them."""
    line, output = line.replace("│", " "), output.replace("│", " ")
    parts = [r"\s+".join(map(re.escape, part.split())) for part in line.split("…")]
    return (
        re.search(r"^\s*" + r".*?".join(rf"\s*{part}\s*" for part in parts), output, re.M)
        is not None
    )


def test_a_line_of_the_page_stands_for_lines_of_the_output() -> None:
    output = "│ anomalous │ lost    │ 3          │ unseen 1  │\nexit status 1\n"
    assert printed("│ anomalous │ lost … │ … │ unseen 1 … │", output)
    assert printed("│ anomalous │ lost … │", "anomalous  lost  3\n")
    assert printed("exit status 1", output)
    assert not printed("│ valid │ held … │", output)
    assert not printed("status 1", output)


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.spark
@pytest.mark.needs("maven")
@pytest.mark.timeout(900)
def test_the_tutorial_leads_to_an_own_scenario_on_a_real_kafka(tmp_path: Path) -> None:
    """From the wheel, in an empty directory."""
    install(build_wheel(tmp_path), tmp_path / "venv")
    here = tmp_path / "tutorial"
    here.mkdir()
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= {
        "PATH": f"{tmp_path / 'venv' / 'bin'}:{env['PATH']}",
        "NEAPTIDE_STATE": str(tmp_path / "state"),
    }
    env.pop("NEAPTIDE_RUNS", None)
    steps = pasted(PAGE.read_text(encoding="utf-8"))
    assert [step for step in steps if "kafka:" in step.commands and step.printed]
    for step in steps:
        done = subprocess.run(
            ["bash", "-c", step.commands],
            cwd=here,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{step.commands}\n{done.stdout}"
        for line in step.printed:
            assert printed(line, done.stdout), f"{step.commands}\n{line}\n{done.stdout}"
    assert {"my.toml", "runs", "safe.toml"} <= {path.name for path in here.iterdir()}
    assert len(list(here.glob("runs/2*/report.html"))) == 5
