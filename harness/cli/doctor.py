"""What this machine can do, and what is missing: each part with how to get it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts.faketime import find_library
from neaptide.clusters.hosts.host import NodeName
from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.hosts.place import HOSTS, describe_place
from neaptide.clusters.hosts.toxiproxy import find_server
from neaptide.clusters.hosts.zookeeper import zookeeper_class_path
from neaptide.clusters.kafka.artifacts import where
from neaptide.results.store import runs_directory

_CLIENTS = ("confluent_kafka", "pyspark", "pyarrow", "duckdb", "kazoo", "kio")
_SPACE_NEEDED_GIB = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    part: str
    needed_for: str
    present: bool
    detail: str
    required: bool = True


def examine() -> list[Finding]:
    return [
        _python(),
        _asked("Java 17 or later", "ZooKeeper and Spark", lambda: str(find_java())),
        _asked("ZooKeeper's jars", "coordination (from PySpark)", _jars),
        *(_package(name) for name in _CLIENTS),
        _runs(),
        _tool("kcat", "a further client in the tests", "apt-get install kcat"),
        _tool("chromium", "looking at reports as pictures", "apt-get install chromium"),
        _tool("mvn", "Apache Kafka as a system", "apt-get install maven"),
        _kafka(),
        _tool("strace", "disks that fail under a broker", "apt-get install strace"),
        _asked("libfaketimeMT", "clocks that are set", lambda: str(find_library()), required=False),
        _asked("Toxiproxy", "toxics on links", lambda: str(find_server()), required=False),
        Finding("a system of your own", "--system FILE.toml", True, "docs/own-system.md", False),
        *(_host(name) for name in HOSTS),
    ]


def _python() -> Finding:
    version = platform.python_version()
    return Finding("Python 3.11 or later", "everything", sys.version_info >= (3, 11), version)


def _asked(part: str, needed_for: str, ask: Callable[[], str], *, required: bool = True) -> Finding:
    try:
        return Finding(part, needed_for, True, ask(), required)
    except MissingPartError as error:
        return Finding(part, needed_for, False, str(error), required)


def _host(name: NodeName) -> Finding:
    try:
        present, detail = True, describe_place(name)
    except MissingPartError as error:
        present, detail = False, str(error)
    return Finding(f"host {name}", f"--host {name}", present, detail, required=False)


def _jars() -> str:
    return f"{len(zookeeper_class_path().split(':'))} jars"


def _kafka() -> Finding:
    """What Maven fetches once stays there, and its class paths beside."""
    return Finding("Apache Kafka's jars", "--system kafka:VERSION", True, where(), required=False)


def _package(name: str) -> Finding:
    found = importlib.util.find_spec(name) is not None
    return Finding(name, "everything", found, "installed" if found else f"pip install {name}")


def _runs() -> Finding:
    directory = runs_directory()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free_gib = shutil.disk_usage(existing).free / 2**30
    writable = os.access(existing, os.W_OK)
    good = writable and free_gib >= _SPACE_NEEDED_GIB
    detail = f"{directory}, {free_gib:.1f} GiB free"
    if not writable:
        detail += ": not writable; set NEAPTIDE_RUNS to a directory that is"
    return Finding("the directory of runs", "results", good, detail)


def _tool(name: str, needed_for: str, remedy: str) -> Finding:
    path = shutil.which(name)
    return Finding(name, needed_for, path is not None, path or remedy, required=False)
