"""The Java of a Spark on this machine: in the ledger, with a directory of its own for what it keeps
for a while; and what its first check loaded is archived for the later ones.

The rule: both are a convenience. Whatever is wrong with them, Spark starts as it always did, and no
check fails for it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from neaptide.clusters import shared_archive
from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.hosts.ledger import TOKEN_VARIABLE, Ledger
from neaptide.harness.live.left_behind import SCRATCH, SCRATCH_PREFIX, remove_scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENDS_WITHIN_S: Final = 10.0
_LOOK_S: Final = 0.1  # nothing reports that a Java is about to be started


class SparkHome:
    """What a Spark of this process leaves should the process be killed: the next command ends it.

    `close` once Spark has been stopped; it is done at the end of the process otherwise. Made by the
    thread that starts Spark: should the process end before it has started, its Java ends, too.
    """

    def __init__(self) -> None:
        self._starter = threading.current_thread()
        self._has_started = False
        self._ledger: Ledger | None = None
        self._scratch: Path | None = None
        self._environment: dict[str, str] = {}
        with contextlib.suppress(MissingPartError, OSError):
            self._open()
        atexit.register(self._at_exit)

    def _open(self) -> None:
        self._ledger = Ledger()
        token = self._ledger.intend("Spark's Java", Path.cwd())
        scratch = Path(tempfile.gettempdir()) / f"{SCRATCH_PREFIX}{token}"
        self._ledger.intend_resource(SCRATCH, str(scratch))
        scratch.mkdir()
        self._scratch = scratch
        self._environment = {TOKEN_VARIABLE: token, "TMPDIR": str(scratch)}
        tempfile.tempdir = str(scratch)  # PySpark and Spark's settings ask there

    @property
    def java_options(self) -> tuple[str, ...]:
        return () if self._scratch is None else (f"-Djava.io.tmpdir={self._scratch}",)

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """What is started meanwhile, and what that starts, is known by the token it carries."""
        before = {name: os.environ.get(name) for name in self._environment}
        os.environ.update(self._environment)
        try:
            yield
            self._has_started = True
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def _at_exit(self) -> None:
        """A Java without its scratch directory neither starts nor ends."""
        deadline = time.monotonic() + _ENDS_WITHIN_S
        while not self._has_started and self._ledger is not None:
            found = self._ledger.end_processes()
            if not found and not self._starter.is_alive():
                break
            if time.monotonic() > deadline:
                return  # the next command ends it
            self._starter.join(_LOOK_S)
        self.close()

    def close(self) -> None:
        """Idempotent. What cannot be removed yet stays in the ledger."""
        if self._ledger is None:
            return
        ledger, self._ledger = self._ledger, None
        if self._scratch is not None:
            if tempfile.tempdir == str(self._scratch):
                tempfile.tempdir = None
            if not remove_scratch(str(self._scratch)):
                ledger.leave()
                return
        ledger.close()


# Raised when checks come to need other classes of Java: an archive of the former ones helps less.
_ASKED_OF_IT: Final = 2


@dataclass(frozen=True, slots=True)
class SparkJava:
    """A Java that Spark is started with."""

    java: Path
    archive: Path

    @classmethod
    def found(cls) -> Self | None:
        """None where there is no Java; whoever starts Spark says so."""
        import pyspark

        try:
            java = find_java()
        except MissingPartError:
            return None
        spark = f"{Path(pyspark.__file__).parent} {pyspark.__version__} {_ASKED_OF_IT}"
        return cls(java, shared_archive.archive_of(str(java), spark))

    @property
    def records(self) -> bool:
        """There is no archive yet, and what writes one is there."""
        return not self.archive.exists() and shared_archive.recorder_of(str(self.java)).exists()

    @property
    def options(self) -> tuple[str, ...]:
        if not self.archive.exists() and not self.records:
            return ()
        return shared_archive.options(self.archive)

    def remember(self, spark: SparkSession, say: Callable[[str], None]) -> None:
        """Write the archive if there is none; `say` is called before, since it takes seconds."""
        if not self.records:
            return
        say("writing down what Java has loaded, once: from now on checks start sooner")
        gateway: Any = spark.sparkContext._gateway
        java = gateway.jvm.java.lang.System
        java.setOut(java.err)  # it reports what it has written, and this process is what is asked
        with contextlib.suppress(OSError):
            asyncio.run(shared_archive.record(self.archive, str(self.java), gateway.proc.pid))
