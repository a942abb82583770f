"""Sends that others' records came between: `send-skip`, `int-send-skip`; own reads before commit.

Sends that go back are told with the values (`checkers.values`). A skip never counts: several
producers write to one partition, and Kafka interleaves the writes of transactions.

The rules are Jepsen's, which looks at skips inside one operation only; `send-skip`, between two
operations of one process, is told once a process and partition, with how many there were.
"""

from __future__ import annotations

from typing import Final

from neaptide.checkers.cases import case, found
from neaptide.checkers.offsets import with_next_known
from neaptide.checkers.relations import READ

# Sends over a record that is known to be there.
SKIPS: Final = f"""
    SELECT * FROM {
    with_next_known('''
        SELECT *, previous_send.place AS previous_offset FROM sends
        WHERE previous_send.place + 1 < place
    ''')
} WHERE next_known < place
"""

INSIDE: Final = found(
    "send_skips",
    "value",
    case(
        "'int-send-skip'",
        "send_operation = previous_send.operation",
        offset="place",
        operation="send_operation",
        evidence="process, previous_send.value AS previous_value, previous_offset,"
        " next_known AS skipped_offset",
    ),
)

_FIRST: Final = (
    "arg_min(struct_pack(value := value, place := place, operation := send_operation,"
    " skipped := next_known), send_operation)"
)
BETWEEN: Final = found(
    f"""(
        SELECT part, process, {_FIRST} AS earliest, count(*) AS skips FROM send_skips
        WHERE send_operation <> previous_send.operation GROUP BY part, process
    )""",
    "earliest.value",
    case(
        "'send-skip'",
        "true",
        offset="earliest.place",
        operation="earliest.operation",
        evidence="process, skips, earliest.skipped AS skipped_offset",
    ),
)

# Values that the transaction which sent them had read.
PRECOMMITTED: Final = found(
    f"""(
        SELECT part, value, operation, count(*) FILTER (kind < {READ}) AS sends,
            count(*) FILTER (kind >= {READ}) AS reads,
            min(log_offset) FILTER (kind >= {READ}) AS log_offset, min(process) AS process
        FROM records WHERE in_transaction AND value IS NOT NULL GROUP BY part, value, operation
    )""",
    "value",
    case(
        "'precommitted-read'",
        "sends > 0 AND reads > 0",
        offset="log_offset",
        operation="operation",
        evidence="process, reads",
    ),
)
