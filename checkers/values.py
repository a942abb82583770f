"""What became of each value: lost, unseen, duplicated, aborted, invented, out of order.

The places of a value (`checkers.places`) make its profile: how it was sent, where it was
acknowledged, where it was read before healing and in the final reads. Each rule is then a condition
on one profile.

The rules of lost-write and unseen are those of `jepsen.tests.kafka`, sharpened where final reads
reached the log end: what they do not hold is gone, even if someone had read it earlier. Where they
did not reach it, nothing is said. Records below a log start offset were deleted on purpose.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.frames import PARTITION, Frames, case, found
from checkers.places import ACKED, FINAL_READ, READ, SEND, VOUCHED, aggregated, only


def partitions(frames: Frames) -> DataFrame:
    """One row per partition: how far it was read, and whether that is all there is to read.

    Final reads that claim to have reached an end above 0 but left no record are not believed.
    """
    seen = frames.operations.groupBy(*PARTITION).agg(
        F.expr("count_if(row = 0 AND process >= 0) AS operations"),
        F.expr(f"count_if({SEND}) AS sends"),
        F.expr(f"count_if({ACKED}) AS acked"),
        F.expr("count_if(f IN ('commit', 'committed')) AS commits"),
        F.expr(f"count_if({FINAL_READ}) AS final_records"),
        F.expr(f"max(IF({READ}, offset, NULL)) AS highest_read"),
        F.expr("max(coalesce(completed_ns, invoked_ns)) AS last_ns"),
        F.expr(f"{only('completed_ns < invoked_ns', 'operation')} AS backward_operation"),
    )
    return (
        seen.join(F.broadcast(frames.runs), "run", "left")
        .join(F.broadcast(frames.final_reads), list(PARTITION), "left")
        .selectExpr(
            *PARTITION,
            "operations",
            "sends",
            "acked",
            "commits",
            "final_records",
            "highest_read",
            "last_ns",
            "backward_operation",
            "whole",
            "coalesce(transactions, false) AS transactions",
            "coalesce(complete, false) AND (final_records > 0 OR coalesce(end_offset, 0) = 0)"
            " AS complete",
            "coalesce(start_offset, 0) AS start_offset",
            "end_offset",
        )
    )


def profiles(place: DataFrame, partition_facts: DataFrame) -> DataFrame:
    """One row per value, with all that happened to it and the facts of its partition."""
    in_order = aggregated(place, (*PARTITION, "value"), _PROFILE).selectExpr(
        "*",
        "CASE acks_number WHEN -1 THEN 'all' ELSE CAST(acks_number AS STRING) END AS acks",
        f"last(IF({_STANDS}, struct(value, final_least), NULL), true)"
        f" OVER ({_SENT_IN_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS sent_before",
        f"lag(struct(value, {_PLACE} AS place, send_operation AS operation))"
        f" OVER ({_SENT_IN_ORDER}) AS previous_send",
    )
    facts = partition_facts.select(*PARTITION, *_FACTS)
    return in_order.join(F.broadcast(facts), list(PARTITION))


def value_anomalies(profile: DataFrame) -> DataFrame:
    """All anomalies that profiles show, in one pass."""
    return found(profile, "value", *_CASES)


_FACTS: Final = (
    "whole", "transactions", "complete", "highest_read", "last_ns", "start_offset", "end_offset"
)  # fmt: skip

_MAIN: Final = "reads > final_reads"
_FINAL: Final = "final_reads > 0"
_PROFILE: Final = {
    "sent": "sum(sent)",
    "acked": "sum(acked)",
    "failed": "sum(failed)",
    "send_operation": "min(send_operation)",
    "send_row": "min(send_row)",
    "process": "min(process)",
    "sent_ns": "min(sent_ns)",
    "acknowledged_ns": "min(acknowledged_ns)",
    "acked_offset": only("acked > 0", "offset"),
    "acks_number": "min(acks_number)",
    "reads": "sum(reads)",
    "ok_reads": "sum(ok_reads)",
    "final_reads": "sum(final_reads)",
    "read_operation": "min(read_operation)",
    "first_read_ns": "min(first_read_ns)",
    "main_operation": "min(main_operation)",
    "main_least": only(_MAIN, "offset"),
    "main_greatest": f"max(IF({_MAIN}, offset, NULL))",
    "final_least": only(_FINAL, "offset"),
    "final_greatest": f"max(IF({_FINAL}, offset, NULL))",
    "least": only(VOUCHED, "offset"),
    "greatest": f"max(IF({VOUCHED}, offset, NULL))",
}

# Acknowledged and still there: only among these can `reordered` be told.
_STANDS: Final = "(acked > 0 AND final_reads > 0)"
# Perhaps there: among these Jepsen tells the order of a process's sends.
MAY_STAND: Final = "sent > failed"
_SENT_IN_ORDER: Final = (
    f"PARTITION BY process, partition, topic, run, {MAY_STAND} "
    "ORDER BY sent_ns, send_operation, send_row"
)
_PLACE: Final = "coalesce(acked_offset, least)"

# Without an acknowledged offset (acks=0) it can only be told where nothing was deleted.
_GONE: Final = (
    "acked > 0 AND complete AND final_reads = 0 AND coalesce(acked_offset, 0) >= start_offset"
)
_ABOVE_ALL_READS: Final = "reads = 0 AND coalesce(acked_offset > coalesce(highest_read, -1), false)"
_OF_A_LOSS: Final = "acks, acknowledged_ns, first_read_ns, highest_read, end_offset"

# Read before healing at an offset outside those of its final reads, and not deleted since.
_MOVED: Final = (
    "(main_greatest >= start_offset AND (final_reads = 0 OR main_greatest > final_greatest))"
    " OR (main_least >= start_offset AND main_least < final_least)"
)

_CASES: Final = (
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
        evidence="acks, acknowledged_ns, first_read_ns, final_least, end_offset",
    ),
    case(
        "'duplicate'",
        "least < greatest",
        offset="greatest",
        operation="send_operation",
        evidence="least, greatest, reads",
    ),
    case(
        "'G1a'",
        "failed > 0 AND failed = sent AND ok_reads > 0",
        offset="least",
        operation="read_operation",
        evidence="send_operation, reads",
    ),
    case(
        "'phantom'",
        "whole AND sent = 0 AND reads > 0",
        offset="least",
        operation="read_operation",
        evidence="reads, first_read_ns",
    ),
    case(
        "'reordered'",
        f"{_STANDS} AND final_least < sent_before.final_least",
        offset="final_least",
        operation="send_operation",
        evidence="process, sent_before.value AS sent_before, "
        "sent_before.final_least AS sent_before_offset",
    ),
    case(
        "IF(send_operation = previous_send.operation, 'int-nonmonotonic-send', "
        "'nonmonotonic-send')",
        f"{MAY_STAND} AND {_PLACE} < previous_send.place",
        offset=_PLACE,
        operation="send_operation",
        evidence="process, previous_send.value AS previous_value, "
        "previous_send.place AS previous_offset, previous_send.operation AS previous_operation",
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
