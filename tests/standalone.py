"""A Spark cluster on this machine out of PySpark's own jars: a master and a worker, or a Connect
server.

For tests that want the work done elsewhere. All listen on 127.0.0.1 only; they end with the
`with`, and with the thread that has started them, whatever ends it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pyspark

_HOME: Final = Path(pyspark.__file__).parent
_WITHIN_S: Final = 180.0
_LOOK_S: Final = 0.1  # a log notifies nobody that it grew
_HIDING: Final = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
_CONNECT: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class Daemon:
    """One Java process and what it logged."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self, pattern: str) -> str:
        """What its log says, once it says so."""
        deadline = time.monotonic() + _WITHIN_S
        while time.monotonic() < deadline:
            text = self.log.read_text(errors="replace")
            found = re.search(pattern, text)
            if found is not None:
                return found[1]
            assert self.process.poll() is None, text[-2_000:]
            time.sleep(_LOOK_S)
        raise AssertionError(f"{self.log} never said {pattern!r}")


@dataclass(frozen=True)
class Cluster:
    master: Daemon
    worker: Daemon
    url: str

    def executors(self) -> list[psutil.Process]:
        """Those that run now. (The script that became the worker leaves a dead child behind.)"""
        children = psutil.Process(self.worker.process.pid).children(recursive=True)
        return [child for child in children if _runs(child)]

    def wait_for_executors(self, *, some: bool) -> None:
        """Until there are some, or none any more."""
        deadline = time.monotonic() + _WITHIN_S
        while bool(self.executors()) is not some:
            assert time.monotonic() < deadline, self.executors()
            time.sleep(_LOOK_S)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def standalone_cluster(
    directory: Path, *, cores: int = 2, memory: str = "1g", hidden: Path | None = None
) -> Iterator[Cluster]:
    """A master with one worker; where a directory is `hidden`, the worker and all that it starts
    have an empty one of their own in its place (needs root)."""
    directory.mkdir(parents=True, exist_ok=True)
    deploy = "org.apache.spark.deploy"
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with _daemon(directory / "master.log", f"{deploy}.master.Master", *here) as master:
        url = master.said(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        size = ("--cores", str(cores), "--memory", memory, "--work-dir", str(directory / "work"))
        worker_class = f"{deploy}.worker.Worker"
        log = directory / "worker.log"
        with _daemon(log, worker_class, *here, *size, url, hidden=hidden) as worker:
            worker.said(r"(Successfully registered) with master")
            yield Cluster(master, worker, url)


@contextmanager
def another_worker(cluster: Cluster, directory: Path) -> Iterator[Daemon]:
    """One more worker, of one core."""
    directory.mkdir(parents=True, exist_ok=True)
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    size = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / "work"))
    worker_class = "org.apache.spark.deploy.worker.Worker"
    with _daemon(directory / "worker.log", worker_class, *here, *size, cluster.url) as worker:
        worker.said(r"(Successfully registered) with master")
        yield worker


@contextmanager
def connect_server(directory: Path, *, master: str = "local[1]") -> Iterator[str]:
    """A Spark Connect server; its address."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
    }
    confs = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    submit = ("org.apache.spark.deploy.SparkSubmit", "--master", master)
    with _daemon(
        directory / "connect.log", *submit, *confs, "--class", _CONNECT, "spark-internal"
    ) as server:
        port = server.said(r"Spark Connect server started at:? \S*?:(\d+)")
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _daemon(log: Path, *arguments: str, hidden: Path | None = None) -> Iterator[Daemon]:
    env = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,  # what this Python has, tasks have
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(log.parent),
        "SPARK_DAEMON_MEMORY": "1g",
        # Otherwise the master also listens on one port that is always the same.
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false",
        "SPARK_NO_DAEMONIZE": "1",
        # Executors, too: for the small work of tests the second compiler costs more than it saves.
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    started = (str(_HOME / "bin" / "spark-class"), *arguments)
    if hidden is not None:
        started = ("unshare", "--mount", "sh", "-c", _HIDING, str(hidden), *started)
    command = ("setpriv", "--pdeathsig", "TERM", *started)
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=log.parent
        )
    try:
        yield Daemon(process, log)
    finally:
        process.terminate()
        process.wait(_WITHIN_S)
