"""What became of each value: lost, unseen, duplicated, aborted, invented, out of order.

All records of a value make its profile: how it was sent, where it was acknowledged, where it was
read before healing and in the final reads. Each rule is then a condition on one profile.

The rules of lost-write and unseen are those of `jepsen.tests.kafka`, sharpened where final reads
reached the log end: what they do not hold is gone, even if someone had read it earlier. Where they
did not reach it, nothing is said. Records below a log start offset were deleted on purpose.
"""

from __future__ import annotations

from typing import Final

from neaptide.checkers.cases import case, found
from neaptide.checkers.relations import ACKED, FAILED, FINAL, FINAL_UNSURE, READ, READ_UNSURE

_IS_SEND: Final = f"kind < {READ}"
_IS_ACKED: Final = f"kind = {ACKED}"
_IS_READ: Final = f"kind >= {READ}"
_IS_MAIN: Final = f"kind IN ({READ}, {READ_UNSURE})"
_IS_FINAL: Final = f"kind >= {FINAL}"
assert FINAL_UNSURE > FINAL > READ_UNSURE > READ

# An acknowledgement or a read says that the value is there.
IS_VOUCHED: Final = f"({_IS_ACKED} OR {_IS_READ})"
# Perhaps there: among these Jepsen tells the order of a process's sends.
_MAY_STAND: Final = "sent > failed"


def _only(when: str, column: str) -> str:
    return f"min({column}) FILTER ({when})"


# One row per part and value.
PROFILES: Final = f"""
    SELECT part, value,
        count(*) FILTER ({_IS_SEND}) AS sent,
        count(*) FILTER ({_IS_ACKED}) AS acked,
        count(*) FILTER (kind = {FAILED}) AS failed,
        {_only(_IS_SEND, "operation")} AS send_operation,
        {_only(_IS_SEND, '"row"')} AS send_row,
        {_only(_IS_SEND, "process")} AS process,
        {_only(_IS_SEND, "invoked_ns")} AS sent_ns,
        {_only(_IS_ACKED, "completed_ns")} AS acknowledged_ns,
        {_only(_IS_ACKED, "log_offset")} AS acked_offset,
        {_only(_IS_ACKED, "acks")} AS acks_number,
        count(*) FILTER ({_IS_READ}) AS times_read,
        count(*) FILTER (kind IN ({READ}, {FINAL})) AS ok_reads,
        count(*) FILTER ({_IS_FINAL}) AS final_reads,
        {_only(_IS_READ, "operation")} AS read_operation,
        {_only(_IS_READ, "completed_ns")} AS first_read_ns,
        {_only(_IS_MAIN, "operation")} AS main_operation,
        {_only(_IS_MAIN, "log_offset")} AS main_least,
        max(log_offset) FILTER ({_IS_MAIN}) AS main_greatest,
        {_only(_IS_FINAL, "log_offset")} AS final_least,
        max(log_offset) FILTER ({_IS_FINAL}) AS final_greatest,
        {_only(IS_VOUCHED, "log_offset")} AS least,
        max(log_offset) FILTER ({IS_VOUCHED}) AS greatest
    FROM records WHERE value IS NOT NULL
    GROUP BY part, value
"""

_SENT_IN_ORDER: Final = "PARTITION BY process, part ORDER BY sent_ns, send_operation, send_row"

# Values that may be there in the order in which each process sent them, with the one sent before,
# and the last one before that was acknowledged and is still there.
SENDS: Final = f"""
    SELECT part, process, value, send_operation, stands, final_least, place,
        last_value(CASE WHEN stands THEN struct_pack(value := value, place := final_least) END
            IGNORE NULLS) OVER ({_SENT_IN_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
            AS sent_before,
        lag(struct_pack(value := value, place := place, operation := send_operation))
            OVER ({_SENT_IN_ORDER}) AS previous_send
    FROM (
        SELECT *, acked > 0 AND final_reads > 0 AS stands, coalesce(acked_offset, least) AS place
        FROM profiles WHERE {_MAY_STAND}
    )
"""

# Without an acknowledged offset (acks=0) it can only be told where nothing was deleted.
_GONE: Final = (
    "acked > 0 AND complete AND final_reads = 0 AND coalesce(acked_offset, 0) >= start_offset"
)
_ABOVE_ALL_READS: Final = (
    "times_read = 0 AND coalesce(acked_offset > coalesce(highest_read, -1), false)"
)
_OF_A_LOSS: Final = (
    "CASE acks_number WHEN -1 THEN 'all' ELSE CAST(acks_number AS VARCHAR) END AS acks,"
    " acknowledged_ns, first_read_ns, highest_read, end_offset"
)

# Read before healing at an offset outside those of its final reads, and not deleted since.
_MOVED: Final = (
    "(main_greatest >= start_offset AND (final_reads = 0 OR main_greatest > final_greatest))"
    " OR (main_least >= start_offset AND main_least < final_least)"
)

ANOMALIES: Final = found(
    "profiles JOIN facts USING (part)",
    "value",
    case(
        "'lost-write'",
        f"{_GONE} AND NOT ({_ABOVE_ALL_READS})",
        offset="acked_offset",
        operation="send_operation",
        evidence=_OF_A_LOSS,
    ),
    case(
        "'unseen'",
        f"{_GONE} AND {_ABOVE_ALL_READS}",
        offset="acked_offset",
        operation="send_operation",
        evidence=_OF_A_LOSS,
    ),
    case(
        "'committed-then-lost'",
        f"complete AND ({_MOVED})",
        offset="main_greatest",
        operation="main_operation",
        evidence="CASE acks_number WHEN -1 THEN 'all' ELSE CAST(acks_number AS VARCHAR) END AS acks"
        ", acknowledged_ns, first_read_ns, final_least, end_offset",
    ),
    case(
        "'duplicate'",
        "least < greatest",
        offset="greatest",
        operation="send_operation",
        evidence="least, greatest, times_read AS reads",
    ),
    case(
        "'G1a'",
        "failed > 0 AND failed = sent AND ok_reads > 0",
        offset="least",
        operation="read_operation",
        evidence="send_operation, times_read AS reads",
    ),
    case(
        "'phantom'",
        "whole AND sent = 0 AND times_read > 0",
        offset="least",
        operation="read_operation",
        evidence="times_read AS reads, first_read_ns",
    ),
    # The shortest cycle of wr and real time; where there are transactions, cycles are searched.
    case(
        "'G1c-realtime'",
        "sent > 0 AND NOT transactions AND first_read_ns < sent_ns",
        offset="least(main_least, final_least)",
        operation="read_operation",
        evidence="send_operation, sent_ns, first_read_ns",
    ),
)

OUT_OF_ORDER: Final = found(
    "sends",
    "value",
    case(
        "'reordered'",
        "stands AND final_least < sent_before.place",
        offset="final_least",
        operation="send_operation",
        evidence="process, sent_before.value AS sent_before,"
        " sent_before.place AS sent_before_offset",
    ),
    case(
        "CASE WHEN send_operation = previous_send.operation THEN 'int-nonmonotonic-send'"
        " ELSE 'nonmonotonic-send' END",
        "place < previous_send.place",
        offset="place",
        operation="send_operation",
        evidence="process, previous_send.value AS previous_value,"
        " previous_send.place AS previous_offset, previous_send.operation AS previous_operation",
    ),
)
