"""A Spark session of the tests' own process, for a folder of them.

It begins with what an earlier Java had loaded (`clusters/shared_archive.py`), where a check has
written that down: half of a cold start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from neaptide.checkers.pipeline.session import local_session
from neaptide.harness.checking.spark_java import SparkJava


@contextmanager
def started_spark() -> Iterator[SparkSession]:
    java = SparkJava.found()
    is_archived = java is not None and java.archive.exists()
    session = local_session(java_options=java.options if java is not None and is_archived else ())
    yield session
    session.stop()
