"""What each offset held, as acknowledgements and reads tell it: `inconsistent-offsets`.

The rule is Jepsen's: all acknowledged sends and all polls must agree on the value at an offset.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.frames import OFFSET, Frames, case, found
from checkers.values import ACKED, READ


def known_records(frames: Frames) -> DataFrame:
    """Every (offset, value) that an acknowledgement or a read vouches for."""
    vouched = f"({ACKED} OR {READ}) AND offset IS NOT NULL AND value IS NOT NULL"
    known = frames.operations.where(vouched).select(*OFFSET, "value", "f", "operation")
    return frames.spread(known)


def inconsistent_offsets(known: DataFrame) -> DataFrame:
    """Offsets with two values, and who vouches for them."""
    extremes = known.groupBy(*OFFSET).agg(
        F.expr("min(struct(value, f, operation)) AS one"),
        F.expr("max(struct(value, f, operation)) AS other"),
    )
    return found(extremes, "one.value", _TWO_VALUES)


def next_known(known: DataFrame) -> DataFrame:
    """Each known offset with the next one."""
    return (
        known.select(*OFFSET)
        .distinct()
        .selectExpr(
            *OFFSET,
            "lead(offset) OVER (PARTITION BY run, topic, partition ORDER BY offset) AS next_known",
        )
    )


_TWO_VALUES: Final = case(
    "'inconsistent-offsets'",
    "one.value < other.value",
    offset="offset",
    operation="one.operation",
    evidence="one, other",
)
