"""How long a check may take, and how Spark is set for the size of its input.

The rule: settings of a session that is not ours are put back. A time limit interrupts all that the
session is doing (Spark knows a tag only in the thread that set it), so give a check with a limit a
session of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final

from pyspark.sql import SparkSession

from neaptide.checkers.material import Material

# Below this, the time goes into starting tasks and planning, not into rows.
SMALL_ROWS: Final = 50_000
ROWS_PER_TASK: Final = 1_000_000
TASKS_MIN: Final = 4
# Anomalies that are brought to the driver and written from there, by all tasks together; each may
# bring its share, and some in any case.
FEW: Final = 20_000
FEW_PER_TASK: Final = 2_000
_AGAIN_S: Final = 0.1
# Tasks know when the time is over, and end with what they have found. Whoever does not is ended.
GRACE_S: Final = 2.0

TASK_MEMORY: Final = "spark.neaptide.task.memory"
SEES_FILES: Final = "spark.neaptide.files.shared"
TASK_MEMORY_DEFAULT: Final = "1500MB"

# To compile code takes longer than to interpret it for few rows, and to plan anew after a stage
# longer than the stage.
_SMALL: Final[Mapping[str, str]] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
# Tasks take columns, not rows: a batch is large, unless its values are.
_ALWAYS: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * 2**20),
}

# Rows that go with the check stay Arrow on their way: as rows of Spark, worked out by its planner,
# a few hundred thousand of them fill the memory of the driver's Java.
_SENT: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    ),
}


class TimeLimit:
    """A limit on the sum of all that is done inside `with`, however often it is entered."""

    def __init__(self, spark: SparkSession, limit_s: float | None) -> None:
        self.limit_s = limit_s if limit_s is not None else float("inf")
        self.expired = False
        self.deadline_s: float | None = None  # of the wall clock, for those who do the work
        self._spark = spark
        self._left_s = limit_s
        self._entered_s = 0.0
        self._over = threading.Event()
        self._watch: threading.Thread | None = None

    def __enter__(self) -> None:
        if self._left_s is None:
            return
        if self._left_s <= 0:
            self.expired = True
            raise TimeoutError("no time is left")
        self._entered_s = time.monotonic()
        self.deadline_s = time.time() + self._left_s
        self._over.clear()
        ended_s = self._left_s + GRACE_S
        self._watch = threading.Thread(target=self._expire_after, args=(ended_s,), daemon=True)
        self._watch.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watch is None or self._left_s is None:
            return
        self._over.set()
        self._watch.join()
        self._watch = None
        self._left_s -= time.monotonic() - self._entered_s

    def _expire_after(self, left_s: float) -> None:
        """Interrupt until it is over: between two jobs there is nothing to interrupt."""
        if self._over.wait(left_s):
            return
        self.expired = True
        while not self._over.wait(_AGAIN_S):
            self._spark.interruptAll()


def judging_tasks(materials: Sequence[Material]) -> int:
    """How many tasks judge: each has all rows of its topic partitions."""
    return 1 if is_small(materials) else max(TASKS_MIN, _rows(materials) // ROWS_PER_TASK)


def is_small(materials: Sequence[Material]) -> bool:
    """Whether rows take less time than what is planned and started for them."""
    return _rows(materials) < SMALL_ROWS


def threads_of_tasks(spark: SparkSession, materials: Sequence[Material]) -> int:
    """How many threads a task that judges may have: more than one where few partitions leave cores
    of this machine without a task."""
    if not is_local(spark):
        return 1
    partitions = sum(len(material.final_reads) for material in materials)
    busy = max(1, min(judging_tasks(materials), partitions))
    return max(1, spark.sparkContext.defaultParallelism // busy)


def anomalies_per_task(tasks: int) -> int:
    """How many rows of anomalies a task may bring to the driver."""
    return max(FEW_PER_TASK, FEW // tasks)


def is_elsewhere(spark: SparkSession) -> bool:
    """Whether Spark's Java is that of a Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(spark: SparkSession) -> bool:
    """Whether this process, and those that it started, do the work."""
    return not is_elsewhere(spark) and str(spark.sparkContext.master).startswith("local")


def sees_files(spark: SparkSession) -> bool:
    """Whether who does the work sees the files of this machine: it is this machine, or who runs the
    cluster says so."""
    return is_local(spark) or spark.conf.get(SEES_FILES, None) == "true"


NOT_SEEN: Final = (
    "The check failed: the executors do not see the files of this machine. Put the run where they"
    " do (a shared file system, or a URI such as s3a://…), or check it here with --master local[2]."
)


def not_seen(spark: SparkSession, error: Exception) -> bool:
    """Whether a check failed because executors look for files that only this machine has."""
    return not sees_files(spark) and "FileNotFoundException: File file:/" in str(error)


def task_memory(spark: SparkSession) -> str:
    """How much a task that judges keeps in memory; the rest it puts on disk."""
    return spark.conf.get(TASK_MEMORY, None) or TASK_MEMORY_DEFAULT


def _rows(materials: Sequence[Material]) -> int:
    return sum(material.rows for material in materials)


@contextmanager
def sized_for(spark: SparkSession, materials: Sequence[Material]) -> Iterator[None]:
    """Set the session for this much input, and put it back."""
    partitions = {"spark.sql.shuffle.partitions": str(judging_tasks(materials))}
    sized = _SMALL if is_small(materials) else partitions
    sent = {} if sees_files(spark) else _SENT
    with settings(spark, {**_ALWAYS, **sized, **sent}):
        yield


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Set, and put back what was there. A Spark that does not know a setting ignores it."""
    before = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)
