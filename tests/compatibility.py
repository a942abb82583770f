"""Other people's suites against our own brokers and a real Kafka beside them: `make compatibility`.

A suite comes from the source distribution of the client that is installed, and is told by its own
switches where the brokers are. It is played on each system on three fresh brokers; the page is a
table of what passed and what failed there, with the first line of each failure.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

import pytest

from tests.live.cluster import LiveCluster

SYSTEMS: Final = ("kafka:3.9.1", "neaptide:2.1", "neaptide:4.0")
PAGE: Final = Path("docs/compatibility.md")
CLIENT: Final = "kafka-python"
# What the suite wants of brokers that it does not start itself.
SETTINGS: Final = {
    "auto.create.topics.enable": "true",
    "default.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "replica.fetch.wait.max.ms": "100",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}
# By the suite's own choice of rules: as which Apache Kafka each system is to be taken.
TAKEN_FOR: Final = {"kafka:3.9.1": "3.9.1", "neaptide:2.1": "2.1.1", "neaptide:4.0": "3.9.1"}
# Needs TLS or SASL on brokers that the suite starts itself.
LEFT_OUT: Final = "not ssl and not sasl"
# The source distribution lacks this module of the suite, which starts services; ours run already.
_SERVICE: Final = """\
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    pass
"""


class Outcome(NamedTuple):
    word: str  # passed, failed or skipped
    why: str = ""


def suite(directory: Path) -> Path:
    """The unpacked source distribution of the installed client."""
    wanted = f"{CLIENT}=={version(CLIENT)}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "--dest", str(directory), wanted], check=True)
    [archive] = directory.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(directory, filter="data")
    [root] = (path for path in directory.iterdir() if path.is_dir())
    (root / "test" / "__init__.py").touch()
    (root / "test" / "service.py").write_text(_SERVICE, encoding="ascii")
    (root / "kafka-bin").mkdir()
    return root


def outcomes(root: Path, system: str, directory: Path) -> Mapping[str, Outcome]:
    """Of each test of the suite on three brokers of that system."""
    kind, _, number = system.partition(":")
    is_own = kind == "neaptide"
    report = directory / "report.xml"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        cluster = LiveCluster(
            directory / "cluster",
            SETTINGS,
            generation=number if is_own else "0.11",
            kafka=None if is_own else number,
        )
        try:
            first = cluster.bootstrap.partition(",")[0]
            environment = {
                **os.environ,
                "KAFKA_ROOT": str(root / "kafka-bin"),
                "KAFKA_URI": f"tcp://{first}",
                "KAFKA_VERSION": TAKEN_FOR[system],
                "PYTHONPATH": str(root),
            }
            flags = ["-q", "-p", "no:neaptide", "-p", "no:cacheprovider", "--tb=native"]
            command = [sys.executable, "-m", "pytest", *flags, "--timeout", "120"]
            command += ["-k", LEFT_OUT, f"--junit-xml={report}", "test/integration"]
            subprocess.run(command, cwd=root, env=environment, stdout=subprocess.DEVNULL)
        finally:
            cluster.close()
    cases = ElementTree.parse(report).iter("testcase")
    return {_name(case): _outcome(case) for case in cases}


def _name(case: ElementTree.Element) -> str:
    file = case.get("classname", "").rpartition(".")[2]
    return f"{file.removeprefix('test_').removesuffix('_integration')}: {case.get('name')}"


def _outcome(case: ElementTree.Element) -> Outcome:
    for tag, word in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            lines = (found.get("message") or found.text or "").strip().splitlines()
            return Outcome(word, lines[0] if lines else "")
    return Outcome("passed")


def page(found: Mapping[str, Mapping[str, Outcome]]) -> str:
    """Markdown: counts, then each test that did not pass on all systems."""
    systems = list(found)
    lines = [
        "# Other people's suites on our own broker",
        "",
        f"The integration tests of {CLIENT} {version(CLIENT)}, from its source distribution and by"
        " its own switches, on three brokers. Those of TLS and SASL are left out."
        " `make compatibility` plays them and writes this page.",
        "",
        "| system | passed | failed | skipped |",
        "|---|---|---|---|",
    ]
    for system, of in found.items():
        words = [one.word for one in of.values()]
        counts = (str(words.count(word)) for word in ("passed", "failed", "skipped"))
        lines.append(f"| `{system}` | {' | '.join(counts)} |")
    lines += ["", f"| test | {' | '.join(f'`{system}`' for system in systems)} |"]
    lines.append(f"|---{'|---' * len(systems)}|")
    names = dict.fromkeys(name for of in found.values() for name in of)
    for name in names:
        cells = [found[system].get(name, Outcome("not there")) for system in systems]
        if any(one.word != "passed" for one in cells):
            lines.append(f"| {name} | {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines) + "\n"


def _cell(one: Outcome) -> str:
    why = one.why.replace("|", "\\|").replace("<", "&lt;")[:120]
    return f"{one.word}: {why}" if why else one.word


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", action="append", choices=SYSTEMS)
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        (directory / "suite").mkdir()
        root = suite(directory / "suite")
        found = {}
        for system in given.system or SYSTEMS:
            (directory / system).mkdir()
            found[system] = outcomes(root, system, directory / system)
    given.page.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
