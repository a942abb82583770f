"""The Java of a Spark on this machine: what its first check loaded is archived for the later ones.

The rule: an archive is a convenience. Whatever is wrong with it, Spark starts as it always did, and
no check fails for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from neaptide.clusters import shared_archive
from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        """Write the archive if there is none; `say` is told before, since it takes seconds."""
        if not self.records:
            return
        say("writing down what Java has loaded, once: from now on checks start sooner")
        gateway: Any = spark.sparkContext._gateway
        java = gateway.jvm.java.lang.System
        java.setOut(java.err)  # it tells of what it has written, and this process is what is asked
        with contextlib.suppress(OSError):
            asyncio.run(shared_archive.record(self.archive, str(self.java), gateway.proc.pid))
