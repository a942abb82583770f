"""A Spark session on this machine.

Where others do the work: `cluster_session`. `check_runs` only uses DataFrames.
For few rows the time goes into starting Java and warming it up, so its second compiler stays off.
What Java and the tasks that judge keep in memory is shared out here: a third for Java, the rest for
the tasks that are done at once.

The rule: nothing is left behind, nothing listens beyond 127.0.0.1 unless executors elsewhere have
to reach it, nothing is printed. What Java writes to its standard error goes to a file without a
name, shown only if Java does not start.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import IO, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from neaptide.checkers.pipeline.limits import TASK_MEMORY
from neaptide.results.errors import MissingToolError

_PYTHONS: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
# They lead to another Spark or another Python; a local check has its own. Where it reads from (jars
# and keys of an object store) is in SPARK_CONF_DIR, HADOOP_CONF_DIR and PYSPARK_SUBMIT_ARGS.
_OF_OTHER_SPARKS: Final = (
    *("SPARK_HOME", "SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CLASSPATH", "SPARK_DIST_CLASSPATH"),
    *("SPARK_SUBMIT_OPTS", "SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP", "SPARK_DRIVER_MEMORY"),
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "YARN_CONF_DIR", *_PYTHONS),
)
_OF_CONNECT: Final = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE")
_SUBMIT_ARGS: Final = "PYSPARK_SUBMIT_ARGS"
_NEEDS_JAVA: Final = (
    "Spark needs Java 17 or later: install one (Debian: apt-get install openjdk-17-jre-headless), "
    "or set JAVA_HOME to where it is."
)
_TOO_OLD: Final = "UnsupportedClassVersionError"
_NEEDS_MEMORY: Final = (
    "Try again; if it was ended for want of memory, give it less (neaptide check --memory 900m)."
)
# What Java warns of would be on its standard output, where whoever called has the answer.
_JAVA_ALWAYS: Final = (
    "-XX:-UsePerfData -Xshare:auto"
    " -XX:+DisplayVMOutputToStderr -Xlog:disable -Xlog:all=error:stderr"
)
# With one compiler Java keeps room for so little code that three minutes of checks fill it: it then
# compiles no more.
_JAVA_CODE: Final = "-XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
_JAVA_FIRST_COMPILER: Final = "-XX:TieredStopAtLevel=1"
# Java compiles no method above 8000 bytes by itself; what Spark generates for `tables.misfit` is.
_JAVA_HUGE: Final = "-XX:-DontCompileHugeMethods"
# Who does the work is this same Java: it is silent only where all stood still, as on a laptop that
# sleeps, and is not to be given up.
# Defaults of a user's `spark-defaults.conf` that are for others.
_ONE_PROCESS: Final[Mapping[str, str]] = {
    "spark.submit.deployMode": "client",
    "spark.dynamicAllocation.enabled": "false",
    "spark.pyspark.python": sys.executable,
    "spark.pyspark.driver.python": sys.executable,
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.network.timeout": "7d",
    "spark.python.daemon.module": "neaptide.checkers.pipeline.worker_daemon",
}
LARGE_ROWS: Final = 8_000_000
COMPILED_ROWS: Final = 6_000_000  # from here on Java's second compiler pays
_MEMORY_SMALL: Final = "3g"
_MEMORY_LARGE: Final = "6g"
_HEAP_LEAST_MIB: Final = 512  # with less Spark does not start
_LOCAL: Final = re.compile(r"local\[(?P<cores>\d+|\*)(\s*,\s*\d+)?\]")  # cores, failures of a task


def local_session(
    master: str = "local[2]",
    *,
    rows: int = 0,
    memory: str | None = None,
    address: str | None = "127.0.0.1",
    java_options: Sequence[str] = (),
    cores_max: int | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
    given: Collection[str] = (),
) -> SparkSession:
    """Start, or find, a session in this process, made for so many rows.

    `memory`, as "4g", is for Java and the tasks together; executors elsewhere find the session at
    `address` (None: where Spark says); `java_options` come before those that are set here; of the
    cores of a standalone cluster it takes `cores_max` (None: all that are free); what is `given`
    elsewhere is not set. `more` settings come last.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    _require_java()
    forget_connect()
    is_local = master.startswith("local")
    if not is_local:
        _require_usable_variables()
    with _own_environment() if is_local else nullcontext():
        builder = SparkSession.Builder().master(master).appName("neaptide")
        whole = memory or (_MEMORY_LARGE if rows > LARGE_ROWS else _MEMORY_SMALL)
        compilers = [] if rows > COMPILED_ROWS else [_JAVA_FIRST_COMPILER]
        options = [*java_options, *compilers]
        settings = _settings(whole, tasks_at_once(master), address, options)
        here = _ONE_PROCESS if master.startswith("local") else {}
        for key, value in {**settings, **here, **more}.items():
            if key not in given:
                builder = builder.config(key, value)
        if cores_max is not None:
            builder = builder.config("spark.cores.max", str(cores_max))
        with tempfile.TemporaryFile() as said, _standard_error_to(said):
            try:
                return builder.getOrCreate()
            except PySparkException as error:
                if error.getCondition() != "JAVA_GATEWAY_EXITED":
                    raise
                said.seek(0)
                lines = said.read().decode(errors="replace").strip().splitlines()
                last = f" Its last words: {lines[-1]}" if lines else ""
                needs = _NEEDS_JAVA if any(_TOO_OLD in line for line in lines) else _NEEDS_MEMORY
                raise MissingToolError(
                    f"Spark's Java process ended while it started.{last} {needs}"
                ) from error


def forget_connect() -> None:
    """That a session of Spark Connect was in this process, or in the one that started it: PySpark
    writes it into the environment, and takes all later sessions for such."""
    for name in _OF_CONNECT:
        os.environ.pop(name, None)


@contextmanager
def _own_environment() -> Iterator[None]:
    """A Spark of this machine is the one of this installation, whatever others are asked for.

    Its tasks have the Python of this process, and its libraries.
    """
    others = [*_OF_OTHER_SPARKS, *(() if _are_arguments_usable() else (_SUBMIT_ARGS,))]
    before = {name: os.environ.pop(name) for name in others if name in os.environ}
    os.environ.update(dict.fromkeys(_PYTHONS, sys.executable))
    try:
        yield
    finally:
        for name in _PYTHONS:
            del os.environ[name]
        os.environ.update(before)


def _require_usable_variables() -> None:
    """Raises MissingToolError for what no Spark could be started with."""
    home = os.environ.get("SPARK_HOME")
    if home is not None and not os.path.exists(os.path.join(home, "bin", "spark-submit")):
        raise MissingToolError(
            f"SPARK_HOME is {home!r}, where there is no Spark (bin/spark-submit): correct it, or"
            " unset it."
        )
    if not _are_arguments_usable():
        raise MissingToolError(
            f"{_SUBMIT_ARGS} is {os.environ[_SUBMIT_ARGS]!r}: it must end with pyspark-shell, or be"
            " unset."
        )
    python = os.environ.get("PYSPARK_DRIVER_PYTHON")
    if python is not None and shutil.which(python) is None:
        raise MissingToolError(f"PYSPARK_DRIVER_PYTHON is {python!r}, which cannot be run.")


def _are_arguments_usable() -> bool:
    return os.environ.get(_SUBMIT_ARGS, "pyspark-shell").split()[-1:] == ["pyspark-shell"]


def tasks_at_once(master: str) -> int:
    """Of those on this machine."""
    local = _LOCAL.fullmatch(master)
    if local is None:
        return 1
    return (os.cpu_count() or 1) if local["cores"] == "*" else max(1, int(local["cores"]))


def _settings(
    memory: str, tasks: int, address: str | None, java_options: Sequence[str]
) -> dict[str, str]:
    scratch = tempfile.gettempdir()
    whole_mib = int(memory[:-1]) * (1024 if memory.endswith("g") else 1)
    heap_mib = max(_HEAP_LEAST_MIB, whole_mib // 3)
    found_at = {"spark.driver.bindAddress": address, "spark.driver.host": address}
    return {
        "spark.driver.memory": f"{heap_mib}m",
        TASK_MEMORY: f"{max(100, (whole_mib - heap_mib) // tasks)}MiB",
        **({key: at for key, at in found_at.items() if at is not None}),
        "spark.driver.extraJavaOptions": " ".join(
            [*(f'"{option}"' for option in java_options), _JAVA_ALWAYS, _JAVA_CODE, _JAVA_HUGE]
        ),
        "spark.executor.extraJavaOptions": _JAVA_HUGE,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": os.path.join(scratch, "neaptide-warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        # Thousands of small files: list them here, not in a job of their own.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    if shutil.which(java) is None:
        raise MissingToolError(f"There is no {java}. {_NEEDS_JAVA}")


@contextmanager
def _standard_error_to(file: IO[bytes]) -> Iterator[None]:
    """Java inherits its standard error when it starts, and keeps it."""
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)
