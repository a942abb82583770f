"""Where each consumer went: back, or over a record that it should have read.

A consumer's reads of one partition are taken in the order in which it did them; a seek, and the
beginning of the final reads, start a new sequence. The rules are Jepsen's: `int-` inside one poll
or transaction, without the prefix between two; a poll that is not known to have succeeded moves
nobody; what was reassigned during an operation is not judged inside it. A gap in the offsets is no
skip by itself, since transaction markers take offsets that no consumer sees: only a record that is
known to lie in the gap proves one.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.frames import PARTITION, Frames, case, found
from checkers.offsets import with_next_known
from checkers.places import READ


def steps(frames: Frames) -> DataFrame:
    """Each read with the read before it in its sequence; none after a seek."""
    moves = frames.operations.where(f"({READ} OR f = 'seek') AND partition IS NOT NULL").selectExpr(
        *PARTITION, "process", "operation", "row", "value", "rebalanced", "invoked_ns",
        "IF(f = 'poll', offset, NULL) AS offset", "type = 'ok' AS ok", "phase = 'final' AS final",
    )  # fmt: skip
    with_previous = frames.spread(moves).selectExpr(
        *PARTITION, "process", "operation", "offset", "value", "rebalanced",
        f"lag({_MOVE}) OVER ({_DONE_IN_ORDER}) AS inside",
        f"last(IF(ok, {_MOVE}, NULL), true) OVER ({_DONE_IN_ORDER} {_BEFORE}) AS settled",
    )  # fmt: skip
    return (
        with_previous.where("offset IS NOT NULL")
        .selectExpr("*", "IF(operation = inside.operation, inside, settled) AS previous")
        .where("previous.offset IS NOT NULL AND NOT (operation = previous.operation AND "
               "coalesce(rebalanced, false))")
    )  # fmt: skip


def odd_steps(step: DataFrame) -> DataFrame:
    """Those that do not lead to the very next offset."""
    return step.where("offset <> previous.offset + 1").selectExpr(
        "*",
        "previous.offset AS previous_offset",
        "previous.operation AS previous_operation",
        "IF(operation = previous.operation, 'int-', '') AS prefix",
    )


def backward(odd: DataFrame) -> DataFrame:
    """Steps that go back or stay."""
    return found(odd, "value", _BACK)


def skips(odd: DataFrame, broken: DataFrame, final_reads: DataFrame) -> DataFrame:
    """Steps over a record that is known to be there.

    A step to the log start or to what lies below it is over records that were deleted meanwhile.
    """
    starts = final_reads.select(*PARTITION, "start_offset")
    judged = with_next_known(odd.where("previous.known"), broken).join(
        F.broadcast(starts), list(PARTITION), "left"
    )
    return found(judged, "value", _SKIP)


# Numbers first: rows are told apart sooner.
_DONE_IN_ORDER: Final = (
    "PARTITION BY process, partition, topic, run, final ORDER BY invoked_ns, operation, row"
)

# Of a seek without an offset. A record without a value proves none to be there.
_MOVE: Final = "struct(offset, operation, value IS NOT NULL AS known)"
_BEFORE: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"

_BACK: Final = case(
    "concat(prefix, 'nonmonotonic-poll')",
    "offset <= previous_offset",
    offset="offset",
    operation="operation",
    evidence="process, previous_offset, previous_operation",
)
_SKIP: Final = case(
    "concat(prefix, 'poll-skip')",
    "next_known < offset AND offset > coalesce(start_offset, 0)",
    offset="offset",
    operation="operation",
    evidence="process, previous_offset, previous_operation, next_known AS skipped_offset",
)
