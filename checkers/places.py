"""Where each value was: one row per run, topic, partition, value and offset (null: not known).

The only pass over all records, after the only shuffle of their values. What became of a value is
told by its places together (`checkers.values`), what an offset held by the places there
(`checkers.offsets`).

The rule: only numbers are aggregated: a hash aggregation cannot hold strings, and would sort.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.frames import PARTITION, Frames

SEND: Final = "f = 'send'"
ACKED: Final = "(f = 'send' AND type = 'ok')"
READ: Final = "(f = 'poll' AND offset IS NOT NULL)"
FINAL_READ: Final = f"({READ} AND phase = 'final')"

# An acknowledgement or a read says that the value is there.
VOUCHED: Final = "((reads > 0 OR acked > 0) AND offset IS NOT NULL)"

# What a record tells of its value, as one small number: strings would be shuffled and compared.
_KIND: Final = (
    f"CASE WHEN {ACKED} THEN 0 WHEN {SEND} THEN IF(type = 'fail', 1, 2)"
    " ELSE IF(phase = 'final', 5, 3) + IF(type = 'ok', 0, 1) END"
)
_IS_ACKED: Final = "kind = 0"
_IS_SEND: Final = "kind < 3"
_IS_READ: Final = "kind >= 3"
_IS_MAIN_READ: Final = "kind IN (3, 4)"


def only(when: str, column: str) -> str:
    return f"min(IF({when}, {column}, NULL))"


def places(frames: Frames) -> DataFrame:
    """Places of the values that were sent or read."""
    records = frames.operations.where(f"({SEND} OR {READ}) AND value IS NOT NULL").selectExpr(
        *PARTITION, "value", "offset", "operation", "row", "process", "invoked_ns", "completed_ns",
        f"{_KIND} AS kind", "IF(acks = 'all', -1, try_cast(acks AS INT)) AS acks_number",
    )  # fmt: skip
    return aggregated(frames.spread(records), (*PARTITION, "value", "offset"), _PLACE)


def aggregated(frame: DataFrame, keys: tuple[str, ...], columns: Mapping[str, str]) -> DataFrame:
    return frame.groupBy(*keys).agg(*[F.expr(f"{how} AS {name}") for name, how in columns.items()])


_PLACE: Final = {
    "sent": f"count_if({_IS_SEND})",
    "acked": f"count_if({_IS_ACKED})",
    "failed": "count_if(kind = 1)",
    "send_operation": only(_IS_SEND, "operation"),
    "send_row": only(_IS_SEND, "row"),
    "process": only(_IS_SEND, "process"),
    "sent_ns": only(_IS_SEND, "invoked_ns"),
    "acknowledged_ns": only(_IS_ACKED, "completed_ns"),
    "acks_number": only(_IS_ACKED, "acks_number"),
    "reads": f"count_if({_IS_READ})",
    "ok_reads": "count_if(kind IN (3, 5))",
    "final_reads": "count_if(kind >= 5)",
    "read_operation": only(_IS_READ, "operation"),
    "first_read_ns": only(_IS_READ, "completed_ns"),
    "main_operation": only(_IS_MAIN_READ, "operation"),
}
