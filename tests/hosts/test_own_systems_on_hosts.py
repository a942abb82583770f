"""Brokers of the user's own in namespaces and on machines: the same files, the same outcome."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from neaptide.clusters.own.process import MARK
from tests.harness.command import neaptide
from tests.hosts.machines import Machines
from tests.own.kafka import install, write_zookeeper_files
from tests.proof import proof_but

pytestmark = [
    pytest.mark.live,
    pytest.mark.spark,
    pytest.mark.needs("maven"),
    pytest.mark.timeout(600),
]


def left(directory: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").startswith(str(directory)):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("host", proof_but(["netns", "ssh"]))
def test_a_scenario_is_played_there(host: str, tmp_path: Path, three_machines: Machines) -> None:
    """`start` is a script that waits for Java: a kill of the script alone would kill no broker."""
    system = write_zookeeper_files(tmp_path, str(install(tmp_path)))
    there = ("--host", host, *(("--nodes", str(three_machines.nodes)) if host == "ssh" else ()))
    done, document = neaptide(
        tmp_path, "repro", "hw-truncation-loss", "--system", str(system), *there, "--json"
    )
    assert document is not None, done.stderr
    [result] = document["results"]
    assert (result["observed"], result["reasons"]) == ("held", [])
    assert json.loads((Path(result["run"]) / "run.json").read_text())["host"] == host
    assert left(tmp_path) == []
