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

from neaptide.checkers.cases import case, found
from neaptide.checkers.offsets import with_next_known

# Of a seek without an offset. A record without a value proves none to be there.
_MOVE: Final = "struct_pack(log_offset := last_offset, operation := operation, is_known := known)"
_DONE_IN_ORDER: Final = 'PARTITION BY process, part, final ORDER BY invoked_ns, operation, "row"'

# Moves that do not lead from the one before in their sequence to the very next offset.
ODD_STEPS: Final = f"""
    SELECT part, process, operation, value, first_offset AS log_offset,
        previous.log_offset AS previous_offset, previous.operation AS previous_operation,
        previous.is_known AS previous_known,
        CASE WHEN operation = previous.operation THEN 'int-' ELSE '' END AS prefix
    FROM (
        SELECT *, CASE WHEN operation = inside.operation THEN inside ELSE settled END AS previous
        FROM (
            SELECT part, process, operation, value, first_offset, rebalanced,
                lag({_MOVE}) OVER ({_DONE_IN_ORDER}) AS inside,
                last_value(CASE WHEN ok THEN {_MOVE} END IGNORE NULLS) OVER (
                    {_DONE_IN_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS settled
            FROM moves
        ) WHERE first_offset IS NOT NULL
    )
    WHERE previous.log_offset IS NOT NULL AND first_offset <> previous.log_offset + 1
        AND NOT (operation = previous.operation AND rebalanced)
"""

BACKWARD: Final = found(
    "odd_steps",
    "value",
    case(
        "concat(prefix, 'nonmonotonic-poll')",
        "log_offset <= previous_offset",
        offset="log_offset",
        operation="operation",
        evidence="process, previous_offset, previous_operation",
    ),
)

# A step to the log start or to what lies below it is over records that were deleted meanwhile.
SKIPS: Final = found(
    f"{with_next_known('SELECT * FROM odd_steps WHERE previous_known')} JOIN facts USING (part)",
    "value",
    case(
        "concat(prefix, 'poll-skip')",
        "next_known < log_offset AND log_offset > start_offset",
        offset="log_offset",
        operation="operation",
        evidence="process, previous_offset, previous_operation, next_known AS skipped_offset",
    ),
)
