"""What became of each value: lost, unseen, duplicated, aborted, invented, out of order.

One grouped pass over all operations makes a profile of every (run, topic, partition, value): how
it was sent, where it was acknowledged, where it was read before healing and in the final reads.
Each rule is then a condition on one profile.

The rules of lost-write and unseen are those of `jepsen.tests.kafka`, sharpened where final reads
reached the log end: what they do not hold is gone, even if someone had read it earlier. Where they
did not reach it, nothing is said. Records below a log start offset were deleted on purpose.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.frames import PARTITION, Frames, case, found

SEND: Final = "f = 'send'"
ACKED: Final = "(f = 'send' AND type = 'ok')"
READ: Final = "(f = 'poll' AND offset IS NOT NULL)"
MAIN_READ: Final = f"({READ} AND phase = 'main')"
FINAL_READ: Final = f"({READ} AND phase = 'final')"


def partitions(frames: Frames) -> DataFrame:
    """One row per partition: how far it was read, and whether that is all there is to read.

    Final reads that claim to have reached an end above 0 but left no record are not believed.
    """
    seen = frames.operations.groupBy(*PARTITION).agg(
        F.expr("count_if(row = 0 AND process >= 0) AS operations"),
        F.expr(f"count_if({SEND}) AS sends"),
        F.expr(f"count_if({ACKED}) AS acked"),
        F.expr(f"count_if({FINAL_READ}) AS final_records"),
        F.expr(f"max(IF({READ}, offset, NULL)) AS highest_read"),
        F.expr("max(coalesce(completed_ns, invoked_ns)) AS last_ns"),
    )
    return (
        seen.join(F.broadcast(frames.runs), "run", "left")
        .join(F.broadcast(frames.final_reads), list(PARTITION), "left")
        .selectExpr(
            *PARTITION,
            "operations",
            "sends",
            "acked",
            "final_records",
            "highest_read",
            "last_ns",
            "whole",
            "coalesce(transactions, false) AS transactions",
            "coalesce(complete, false) AND (final_records > 0 OR coalesce(end_offset, 0) = 0)"
            " AS complete",
            "coalesce(start_offset, 0) AS start_offset",
            "end_offset",
        )
    )


def profiles(frames: Frames, partition_facts: DataFrame) -> DataFrame:
    """One row per value, with all that happened to it and the facts of its partition."""
    about_values = frames.operations.where(f"({SEND} OR {READ}) AND value IS NOT NULL")
    by_value = (
        frames.spread(about_values)
        .groupBy(*PARTITION, "value")
        .agg(*[F.expr(f"{how} AS {name}") for name, how in _PROFILE.items()])
    )
    facts = partition_facts.select(*PARTITION, *_FACTS)
    return by_value.join(F.broadcast(facts), list(PARTITION)).selectExpr(
        "*",
        "CASE acks_number WHEN -1 THEN 'all' ELSE CAST(acks_number AS STRING) END AS acks",
        f"lag(struct(value, final_least)) OVER ({_STANDING_IN_ORDER}) AS sent_before",
        f"lag(struct(value, {_PLACE} AS place, send_operation AS operation))"
        f" OVER ({_SENT_IN_ORDER}) AS previous_send",
    )


def value_anomalies(profile: DataFrame) -> DataFrame:
    """All anomalies that profiles show, in one pass."""
    return found(profile, "value", *_CASES)


def _only(when: str, column: str) -> str:
    return f"min(IF({when}, {column}, NULL))"


_FACTS: Final = (
    "whole", "transactions", "complete", "highest_read", "last_ns", "start_offset", "end_offset"
)  # fmt: skip

# Only numbers are aggregated: a hash aggregation cannot hold strings, and would sort instead.
_PROFILE: Final = {
    "sent": f"count_if({SEND})",
    "acked": f"count_if({ACKED})",
    "failed": f"count_if({SEND} AND type = 'fail')",
    "send_operation": _only(SEND, "operation"),
    "send_row": _only(SEND, "row"),
    "process": _only(SEND, "process"),
    "sent_ns": _only(SEND, "invoked_ns"),
    "acknowledged_ns": _only(ACKED, "completed_ns"),
    "acked_offset": _only(ACKED, "offset"),
    "acks_number": _only(ACKED, "IF(acks = 'all', -1, try_cast(acks AS INT))"),
    "reads": f"count_if({READ})",
    "ok_reads": f"count_if({READ} AND type = 'ok')",
    "final_reads": f"count_if({FINAL_READ})",
    "read_operation": _only(READ, "operation"),
    "first_read_ns": _only(READ, "completed_ns"),
    "main_operation": _only(MAIN_READ, "operation"),
    "main_least": _only(MAIN_READ, "offset"),
    "main_greatest": f"max(IF({MAIN_READ}, offset, NULL))",
    "final_least": _only(FINAL_READ, "offset"),
    "final_greatest": f"max(IF({FINAL_READ}, offset, NULL))",
    "least": _only(f"{READ} OR {ACKED}", "offset"),
    "greatest": f"max(IF({READ} OR {ACKED}, offset, NULL))",
}

# Acknowledged and still there: only among these can an order be told.
_STANDS: Final = "(acked > 0 AND final_reads > 0)"
_STANDING_IN_ORDER: Final = (
    f"PARTITION BY run, topic, partition, process, {_STANDS} "
    "ORDER BY sent_ns, send_operation, send_row"
)
# Perhaps there: among these Jepsen tells the order of a process's sends.
MAY_STAND: Final = "sent > failed"
_SENT_IN_ORDER: Final = (
    f"PARTITION BY run, topic, partition, process, {MAY_STAND} "
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
