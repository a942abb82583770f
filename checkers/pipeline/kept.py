"""What is worked out once and looked at often: kept by Spark, and planned no more.

Spark's cache would not do: the plan of each relation has those below it, once for each look, and
grows faster than Spark can read it. A checkpoint cuts the plan, and, worked out at once, what every
later task would carry with it.

The rule: on executors that may leave, a checkpoint is in `spark.checkpoint.dir`, which all share; a
cluster without one keeps two copies on its executors. Where both are gone, the check is repeated.
"""

from __future__ import annotations

from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from neaptide.checkers.pipeline.limits import is_local

DIRECTORY: Final = "spark.checkpoint.dir"
_LOST: Final = ("CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND", "Checkpoint block rdd_")


def kept(rows: DataFrame) -> DataFrame:
    """The same rows, under names of their own: Spark cannot join a stored relation with what it
    came from."""
    spark = rows.sparkSession
    named = rows.toDF(*rows.columns)
    if spark.conf.get(DIRECTORY, None):
        return named.checkpoint()
    if is_local(spark):
        return named.localCheckpoint()
    return named.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK_2)


def is_lost(error: Exception) -> bool:
    """Whether a check failed because executors have left, and with them what they kept."""
    return any(sign in str(error) for sign in _LOST)
