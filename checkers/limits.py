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

from checkers.material import Material

# Below this, the time goes into starting tasks and planning, not into rows.
SMALL_ROWS: Final = 50_000
SCATTERED_RUNS: Final = 20
ROWS_PER_TASK: Final = 500_000
TASKS_MIN: Final = 4
# Up to here what Spark keeps of the rows is kept as it is: compressing it costs processor time.
PLAIN_ROWS: Final = 10_000_000
_AGAIN_S: Final = 0.1

# What is spread by partition may be joined by offset without a second shuffle.
_ALWAYS: Final[Mapping[str, str]] = {
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # A stage that is done again brings the same rows: they are never drawn by chance.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
}
_ONCE: Final[Mapping[str, str]] = {"spark.sql.execution.bypassPartialAggregation": "true"}
_SMALL: Final[Mapping[str, str]] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # To compile code takes longer than to interpret it for few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_LARGE: Final[Mapping[str, str]] = {
    # How much there is was counted before; to plan anew after every stage costs more than it saves.
    "spark.sql.adaptive.enabled": "false",
}


class TimeLimit:
    """A limit on the sum of all that is done inside `with`, however often it is entered."""

    def __init__(self, spark: SparkSession, limit_s: float | None) -> None:
        self.limit_s = limit_s if limit_s is not None else float("inf")
        self.expired = False
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
        self._over.clear()
        self._watch = threading.Thread(target=self._expire_after, args=(self._left_s,), daemon=True)
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


def is_small(materials: Sequence[Material]) -> bool:
    return _rows(materials) < SMALL_ROWS


def is_scattered(materials: Sequence[Material]) -> bool:
    """Whether to open the files again costs more than to keep their rows."""
    return len(materials) >= SCATTERED_RUNS and _rows(materials) <= SMALL_ROWS * len(materials)


def _rows(materials: Sequence[Material]) -> int:
    return sum(material.rows for material in materials)


@contextmanager
def sized_for(spark: SparkSession, materials: Sequence[Material]) -> Iterator[None]:
    """Set the session for this much input, and put it back."""
    with _set(spark, {**_ALWAYS, **(_SMALL if is_small(materials) else _large(materials))}):
        yield


@contextmanager
def aggregating_once(spark: SparkSession) -> Iterator[None]:
    """Have what is planned meanwhile aggregated in one step.

    Two steps, the first of which leaves less to be shuffled, pay for few groups. What is spread by
    partition already is not shuffled again, and nearly every record is a group of its own.
    """
    with _set(spark, _ONCE):
        yield


def _large(materials: Sequence[Material]) -> Mapping[str, str]:
    rows = _rows(materials)
    return {
        **_LARGE,
        "spark.sql.shuffle.partitions": str(TASKS_MIN + rows // ROWS_PER_TASK),
        "spark.sql.inMemoryColumnarStorage.compressed": str(rows > PLAIN_ROWS).lower(),
    }


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set, and put back what was there. A Spark that does not know a setting ignores it."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)
