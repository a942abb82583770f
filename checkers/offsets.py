"""What each offset held, as acknowledgements and reads tell it: `inconsistent-offsets`.

The rule is Jepsen's: all acknowledged sends and all polls must agree on the value at an offset.
"""

from __future__ import annotations

from typing import Final

from neaptide.checkers.cases import case, found, packed
from neaptide.checkers.relations import ACKED, READ
from neaptide.checkers.values import IS_VOUCHED

_KNOWN: Final = f"{IS_VOUCHED} AND log_offset IS NOT NULL AND value IS NOT NULL"

# One row per part and offset that an acknowledgement or a read vouches for. Whether it holds two
# values is told by their hashes: numbers are quicker to compare, and pairs at one offset are few.
KNOWN: Final = f"""
    SELECT part, log_offset, min(hash(value)) <> max(hash(value)) AS is_twofold
    FROM records WHERE {_KNOWN}
    GROUP BY part, log_offset
"""

# Known offsets behind which the next known one (null: none) is not the very next: logs are nearly
# without such breaks.
BREAKS: Final = """
    SELECT * FROM (
        SELECT part, log_offset,
            lead(log_offset) OVER (PARTITION BY part ORDER BY log_offset) AS following
        FROM known
    ) WHERE following IS DISTINCT FROM log_offset + 1
"""


def with_next_known(steps: str) -> str:
    """Add to steps from a known `previous_offset` the next known one; null: there is none."""
    return f"""(
        SELECT steps.*, CASE WHEN breaks.part IS NULL THEN previous_offset + 1 ELSE following END
            AS next_known
        FROM ({steps}) AS steps LEFT JOIN breaks
        ON breaks.part = steps.part AND breaks.log_offset = previous_offset
    )"""


_WITNESS: Final = packed(
    f"value, CASE WHEN count(*) FILTER (kind = {ACKED}) > 0 THEN 'send' ELSE 'poll' END AS f,"
    f" CASE WHEN count(*) FILTER (kind = {ACKED}) > 0"
    f" THEN min(operation) FILTER (kind < {READ})"
    f" ELSE min(operation) FILTER (kind >= {READ}) END AS operation"
)

# Offsets with two values, and who vouches for them: the least value and the next.
INCONSISTENT: Final = found(
    f"""(
        SELECT part, log_offset, list(witness ORDER BY witness.value) AS held
        FROM (
            SELECT part, log_offset, {_WITNESS} AS witness
            FROM records SEMI JOIN (SELECT * FROM known WHERE is_twofold) USING (part, log_offset)
            WHERE value IS NOT NULL
            GROUP BY part, log_offset, value
            HAVING bool_or({IS_VOUCHED})
        ) GROUP BY part, log_offset
    )""",
    "held[1].value",
    case(
        "'inconsistent-offsets'",
        "len(held) > 1",
        offset="log_offset",
        operation="held[1].operation",
        evidence="held[1] AS one, held[2] AS other",
    ),
)
