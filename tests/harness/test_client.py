"""`neaptide client`: scenarios that depend on a client, by the clients that ship."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from neaptide.results.run import read_run
from tests.environment import find_go
from tests.harness.command import neaptide
from tests.wheel import REPOSITORY

NAMES: Final = ("retry-duplicate-idempotent", "commit-async-regress-retried", "aborted-read")
CHOSEN: Final = [word for name in NAMES for word in ("--scenario", name)]


@pytest.mark.live
@pytest.mark.spark
@pytest.mark.parametrize("client", ["kafka-python", "aiokafka", "java"])
def test_what_a_client_that_ships_keeps(tmp_path: Path, client: str) -> None:
    page = tmp_path / "page.html"
    done, said = neaptide(tmp_path, "client", client, *CHOSEN, "--page", str(page), "--json")
    assert done.returncode == 0, done.stderr
    assert said["client"].startswith(f"{client} ")
    assert {one["scenario"]: one["observed"] for one in said["cells"]} == {
        "retry-duplicate-idempotent": ["held"],
        "commit-async-regress-retried": ["duplicated"],
        "aborted-read": ["held"],
    }
    assert f"What {said['client']} keeps" in page.read_text()
    for cell in said["cells"]:
        run = read_run(Path(cell["runs"][0]))
        assert run.clients is not None
        assert run.clients["program"]["command"] == [client]
        report = Path(cell["runs"][0], "report.html").read_text(encoding="utf-8")
        assert f"<p>Client: {said['client']}.</p>" in report
        assert run.repeat.startswith(f"neaptide client --scenario {run.name} --system neaptide:4.0")


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.spark
def test_the_example_in_go_is_a_client(tmp_path: Path) -> None:
    """franz-go, by docs/clients.md alone."""
    built = tmp_path / "franz-go-client"
    example = REPOSITORY / "docs" / "examples" / "franz-go"
    subprocess.run([find_go() or "go", "build", "-o", str(built), "."], cwd=example, check=True)
    done, said = neaptide(tmp_path, "client", *CHOSEN, "--json", "--", str(built))
    assert done.returncode == 0, done.stderr
    assert said["client"].startswith("franz-go v1.")
    assert len(said["cells"]) == len(NAMES)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["no-such-client"], "There is no program no-such-client. Clients that ship: "),
        (["--", sys.executable, "-c", "print('hi')"], "is no JSON object with an id or an event"),
        (["kafka-python", "--scenario", "acks-1-loss"], "does not depend on a client"),
    ],
)
def test_what_is_no_client_is_refused_in_a_sentence(
    tmp_path: Path, asked: list[str], why: str
) -> None:
    done, _ = neaptide(tmp_path, "client", *asked)
    assert done.returncode == 64
    assert why in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_version_that_nobody_has_is_refused_in_a_sentence(tmp_path: Path) -> None:
    done, _ = neaptide(tmp_path, "client", "java:0.0.1")
    assert done.returncode == 69
    assert "has no org.apache.kafka:kafka-clients:0.0.1; choose a version" in done.stderr
