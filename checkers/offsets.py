"""What each offset held, as acknowledgements and reads tell it: `inconsistent-offsets`.

The rule is Jepsen's: all acknowledged sends and all polls must agree on the value at an offset.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from checkers.frames import OFFSET, PARTITION, case, found
from checkers.places import VOUCHED


def known_records(place: DataFrame) -> DataFrame:
    """Every (offset, value) that an acknowledgement or a read vouches for."""
    return place.where(VOUCHED).select(
        *OFFSET, "value", "acked", "reads", "send_operation", "read_operation"
    )


def breaks(known: DataFrame) -> DataFrame:
    """Known offsets behind which the next known one (null: none) is not the very next.

    An offset with two records is behind itself. Logs are nearly without breaks, and the window
    over all that is known carries numbers alone.
    """
    following = known.selectExpr(
        *OFFSET, "lead(offset) OVER (PARTITION BY partition, topic, run ORDER BY offset) AS next"
    )
    return following.where("NOT next <=> offset + 1")


def with_next_known(step: DataFrame, broken: DataFrame) -> DataFrame:
    """Add to steps from a known `previous_offset` the next known one; null: there is none."""
    gaps = broken.where("next IS NULL OR next > offset").selectExpr(
        *PARTITION, "offset AS previous_offset", "next", "true AS is_break"
    )
    return step.join(gaps, [*PARTITION, "previous_offset"], "left").selectExpr(
        "*", "IF(is_break, next, previous_offset + 1) AS next_known"
    )


def inconsistent_offsets(known: DataFrame, broken: DataFrame) -> DataFrame:
    """Offsets with two values, and who vouches for them: the least value and the next."""
    twice = broken.where("next = offset").select(*OFFSET)
    held = known.join(twice, list(OFFSET), "left_semi").selectExpr(
        *OFFSET,
        f"{_WITNESS} AS one",
        f"lead({_WITNESS}) OVER ({_BY_VALUE}) AS other",
        f"row_number() OVER ({_BY_VALUE}) AS rank",
    )
    return found(held, "one.value", _TWO_VALUES)


_WITNESS: Final = (
    "struct(value, IF(acked > 0, 'send', 'poll') AS f,"
    " IF(acked > 0, send_operation, read_operation) AS operation)"
)
_BY_VALUE: Final = "PARTITION BY offset, partition, topic, run ORDER BY value"
_TWO_VALUES: Final = case(
    "'inconsistent-offsets'",
    "rank = 1",
    offset="offset",
    operation="one.operation",
    evidence="one, other",
)
