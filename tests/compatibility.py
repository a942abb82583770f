"""Other people's suites against our own brokers and a real Kafka beside them: `make compatibility`.

A suite is that of the client which is installed, and is told by its own switches where the brokers
are. It is played on each system on fresh brokers; the page is a table of what passed and
what failed there, with the first line of each failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from tests import kafka_tools
from tests.live.cluster import running

SYSTEMS: Final = ("kafka:3.9.1", "neaptide:2.1", "neaptide:4.0")
PAGE: Final = Path("docs/compatibility.md")
TOOLS: Final = "kafka-tools"
# What the suites want of brokers that they do not start themselves.
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
# By the suites' own choice of rules: as which Apache Kafka each system is to be taken.
TAKEN_FOR: Final = {"kafka:3.9.1": "3.9.1", "neaptide:2.1": "2.1.1", "neaptide:4.0": "3.9.1"}


@dataclass(frozen=True)
class Suite:
    """Where a client's tests come from, and how they are played on brokers that run already."""

    client: str  # as the package index names it
    tests: Sequence[str]  # files and directories, relative to the root of the sources
    left_out: str  # an expression of pytest's `-k`
    why_left_out: str
    prepare: Callable[[Path], None]  # of the unpacked sources
    switches: Callable[[Path, str, str], Mapping[str, str]]  # root, first broker, Kafka's version
    repository: str | None = None  # where the source distribution has no tests
    needs: Sequence[str] = ()  # other packages
    options: Sequence[str] = ()  # of pytest
    brokers: int = 3  # that it expects
    settings: Mapping[str, str] = field(default_factory=dict)  # beside SETTINGS


# The source distribution of kafka-python lacks this module, which starts services.
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
# In place of aiokafka's, which starts a container with one broker.
_AIOKAFKA_CONFTEST: Final = """\
import asyncio
import gc
import os

HOST, _, PORT = os.environ["SUITE_BROKER"].partition(":")


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if "setup_test_class" in item.fixturenames]


@pytest.fixture(scope="class")
def loop():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request, loop):
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request, loop):
    request.cls.loop = loop
    request.cls.kafka_host, request.cls.kafka_port = HOST, int(PORT)
    request.cls.hosts = [f"{HOST}:{PORT}"]
    request.cls.kafka_version = os.environ["SUITE_KAFKA"]
"""


def _prepare_kafka_python(root: Path) -> None:
    (root / "test" / "__init__.py").touch()
    (root / "test" / "service.py").write_text(_SERVICE, encoding="ascii")
    (root / "kafka-bin").mkdir()


def _prepare_aiokafka(root: Path) -> None:
    (root / "tests" / "conftest.py").write_text(_AIOKAFKA_CONFTEST, encoding="ascii")
    # What is tested is the client that is installed, not these sources.
    shutil.rmtree(root / "aiokafka")


SUITES: Final = (
    Suite(
        client="kafka-python",
        tests=("test/integration",),
        left_out="not ssl and not sasl",
        why_left_out="TLS and SASL, for which it starts brokers of its own",
        prepare=_prepare_kafka_python,
        switches=lambda root, broker, kafka: {
            "KAFKA_ROOT": str(root / "kafka-bin"),
            "KAFKA_URI": f"tcp://{broker}",
            "KAFKA_VERSION": kafka,
        },
    ),
    Suite(
        client="aiokafka",
        tests=("tests",),
        left_out="not ssl and not sasl",
        why_left_out="TLS and SASL, for which it needs files of a container; what needs no broker",
        prepare=_prepare_aiokafka,
        switches=lambda root, broker, kafka: {"SUITE_BROKER": broker, "SUITE_KAFKA": kafka},
        repository="https://github.com/aio-libs/aiokafka",
        needs=("async-timeout", "cramjam", "pytest-asyncio", "pytest-mock"),
        # Its warnings are errors, and its tests are for a pytest before ours.
        options=("-W", "ignore::pytest.PytestDeprecationWarning"),
        brokers=1,
        settings={"default.replication.factor": "1", "num.partitions": "2"},
    ),
    Suite(
        client="confluent-kafka",
        tests=tuple(
            f"tests/integration/{part}"
            for part in ("admin", "consumer", "producer", "serialization")
        ),
        left_out="not sasl",
        why_left_out="SASL, a schema registry and share groups",
        prepare=lambda root: None,
        switches=lambda root, broker, kafka: {"BROKERS": broker},
        repository="https://github.com/confluentinc/confluent-kafka-python",
        needs=(
            "confluent-kafka[schemaregistry,avro,json,protobuf,rules]",
            "trivup",
            "setuptools<81",  # of which trivup needs pkg_resources
            "pytest-asyncio",
        ),
    ),
)


class Outcome(NamedTuple):
    word: str  # passed, failed or skipped
    why: str = ""


def sources(suite: Suite, directory: Path, checkout: Path | None) -> Path:
    """The sources of the installed client with its tests: unpacked, cloned, or a copy."""
    root = directory / "sources"
    number = version(suite.client)
    if checkout is not None:
        shutil.copytree(checkout, root)
    elif suite.repository is not None:
        clone = ["git", "clone", "--quiet", "--depth", "1", "--branch", f"v{number}"]
        if subprocess.run([*clone, suite.repository, str(root)]).returncode != 0:
            raise SystemExit(f"Give the sources: --checkout {suite.client}=DIRECTORY.")
    else:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary"]
        wanted = f"{suite.client}=={number}"
        subprocess.run([*pip, ":all:", "--dest", str(directory), wanted], check=True)
        [archive] = directory.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(directory / "unpacked", filter="data")
        [unpacked] = (directory / "unpacked").iterdir()
        unpacked.rename(root)
    suite.prepare(root)
    return root


def packages(suite: Suite, directory: Path) -> Path:
    """A directory with what the suite needs beside what is installed here."""
    made = directory / "packages"
    made.mkdir()
    if suite.needs:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(made)]
        held = [f"{name}=={version(name)}" for name in ("pytest", suite.client)]
        subprocess.run([*pip, *suite.needs, *held], check=True)
    return made


def outcomes(
    suite: Suite, root: Path, path: Sequence[Path], system: str, directory: Path
) -> Mapping[str, Outcome]:
    """Of each test of the suite on brokers of that system."""
    report = directory / "report.xml"
    settings, members = {**SETTINGS, **suite.settings}, tuple(range(suite.brokers))
    with running(system, directory, settings, members) as cluster:
        first = cluster.bootstrap.partition(",")[0]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            **suite.switches(root, first, TAKEN_FOR[system]),
        }
        flags = ["-q", "-p", "no:neaptide", "-p", "no:cacheprovider", "--tb=native"]
        command = [sys.executable, "-m", "pytest", *flags, "--timeout", "120"]
        command += [*suite.options, "-k", suite.left_out, f"--junit-xml={report}", *suite.tests]
        with (directory / "output").open("wb") as output:
            subprocess.run(command, cwd=root, env=environment, stdout=output, stderr=output)
    if not report.exists():
        raise SystemExit(f"{suite.client} on {system} was not played: see {directory / 'output'}.")
    cases = ElementTree.parse(report).iter("testcase")
    return {_name(case): _outcome(case) for case in cases}


def outcomes_of_tools(system: str, directory: Path) -> Mapping[str, Outcome]:
    """Of each command of Kafka's on three brokers of that system."""
    with running(system, directory, SETTINGS) as cluster:
        return {
            one.command.name: Outcome("passed") if one.is_well else Outcome("failed", one.complaint)
            for one in kafka_tools.play(cluster.bootstrap, directory)
        }


def _name(case: ElementTree.Element) -> str:
    where = [part for part in case.get("classname", "").split(".") if part.startswith("test_")]
    file = where[0].removeprefix("test_").removesuffix("_integration") if where else ""
    return f"{file}: {case.get('name')}"


def _outcome(case: ElementTree.Element) -> Outcome:
    for tag, word in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            lines = (found.get("message") or found.text or "").strip().splitlines()
            return Outcome(word, lines[0] if lines else "")
    return Outcome("passed")


HEADING: Final = (
    "# Other people's suites on our own broker",
    "",
    "The tests that clients have for themselves, by their own switches, and Kafka's tools."
    " `make compatibility` plays them and writes this page; `python -m tests.compatibility"
    " --suite NAME` plays one.",
    "",
    "Applications that run on them: Kafka Streams 3.9.1, exactly once although it is killed, and"
    " Spark's Kafka source and sink, although a leader and then Spark are killed"
    " (`tests/live/test_word_counts.py`); Kafka Connect 3.9.1"
    " (`tests/live/test_kafka_connect.py`).",
    "",
)


def section(heading: str, what: str, found: Mapping[str, Mapping[str, Outcome]]) -> str:
    """Markdown: counts, then each test that did not pass on all systems."""
    systems = list(found)
    lines = [
        f"## {heading}",
        "",
        what,
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


def with_section(page: str, name: str, new: str) -> str:
    """The page with that section in the place of the old one of that name, or at its end."""
    head = f"## {name} "
    parts = page.split("\n## ")
    kept = [parts[0].rstrip("\n")]
    kept += [f"## {part}".rstrip("\n") for part in parts[1:]]
    there = [part.startswith(head) for part in kept]
    if any(there):
        kept[there.index(True)] = new.rstrip("\n")
    else:
        kept.append(new.rstrip("\n"))
    return "\n\n".join(kept) + "\n"


def _cell(one: Outcome) -> str:
    why = one.why.replace("|", "\\|").replace("<", "&lt;")[:120]
    return f"{one.word}: {why}" if why else one.word


def main(arguments: Sequence[str] | None = None) -> None:
    of = {suite.client: suite for suite in SUITES}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", action="append", choices=SYSTEMS)
    parser.add_argument("--suite", action="append", choices=[*of, TOOLS])
    parser.add_argument(
        "--checkout", action="append", default=[], metavar="SUITE=DIRECTORY", help="its sources"
    )
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--keep", type=Path, help="a new directory for what the suites print")
    given = parser.parse_args(arguments)
    pairs = (one.partition("=") for one in given.checkout)
    checkouts = {name: Path(directory) for name, _, directory in pairs}
    page = given.page.read_text(encoding="utf-8") if given.page.exists() else "\n".join(HEADING)
    with tempfile.TemporaryDirectory() as made:
        for name in given.suite or [*of, TOOLS]:
            directory = (given.keep or Path(made)) / name
            for system in given.system or SYSTEMS:
                (directory / system).mkdir(parents=True)
            if name == TOOLS:
                heading = f"{TOOLS} {kafka_tools.VERSION}"
                what = "Each has to print what it is called for (`tests/kafka_tools.py`)."
                play = outcomes_of_tools
            else:
                suite = of[name]
                heading = f"{name} {version(name)}"
                what = f"Left out: {suite.why_left_out}."
                root = sources(suite, directory, checkouts.get(name))
                play = partial(outcomes, suite, root, (root, packages(suite, directory)))
            found = {system: play(system, directory / system) for system in given.system or SYSTEMS}
            page = with_section(page, name, section(heading, what, found))
            given.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
