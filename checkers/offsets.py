"""What each offset held, as acknowledgements and reads tell it: `inconsistent-offsets`.

The rule is Jepsen's: all acknowledged sends and all polls must agree on the value at an offset.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from checkers.frames import OFFSET, case, found
from checkers.places import VOUCHED


def known_records(place: DataFrame) -> DataFrame:
    """Every (offset, value) that an acknowledgement or a read vouches for."""
    return place.where(VOUCHED).select(
        *OFFSET, "value", "acked", "reads", "send_operation", "read_operation"
    )


def neighbours(known: DataFrame) -> DataFrame:
    """Each of them with the one before and the one behind it in the log."""
    return known.selectExpr(
        *OFFSET,
        f"{_WITNESS} AS one",
        f"lead(struct(offset, {_WITNESS} AS witness)) OVER ({_IN_LOG_ORDER}) AS next",
        f"lag(offset) OVER ({_IN_LOG_ORDER}) AS previous_offset",
    )


def inconsistent_offsets(neighbour: DataFrame) -> DataFrame:
    """Offsets with two values, and who vouches for them: the least value and the next."""
    return found(neighbour, "one.value", _TWO_VALUES)


def next_known(neighbour: DataFrame) -> DataFrame:
    """Each known offset but the last with the next one."""
    return neighbour.where("next.offset > offset").selectExpr(*OFFSET, "next.offset AS next_known")


_WITNESS: Final = (
    "struct(value, IF(acked > 0, 'send', 'poll') AS f,"
    " IF(acked > 0, send_operation, read_operation) AS operation)"
)
_IN_LOG_ORDER: Final = "PARTITION BY partition, topic, run ORDER BY offset, value"
_TWO_VALUES: Final = case(
    "'inconsistent-offsets'",
    "next.offset = offset AND NOT coalesce(previous_offset = offset, false)",
    offset="offset",
    operation="one.operation",
    evidence="one, next.witness AS other",
)
