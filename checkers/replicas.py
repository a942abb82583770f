"""The replicas' logs against each other: `replica-divergence`.

Two replicas diverge where one offset holds a different key, value or kind of record, or the same
record under two leader epochs (Kafka compares logs by epoch, so these too are two records).

The rule of proof: replicas that were level have no excuse. Where they never became level, a tail
above the high watermark may differ and be cut off later, so only offsets below every checkpointed
high watermark prove anything; the others are `unproven-difference`, and the run cannot conclude.
"""

from __future__ import annotations

from typing import Final

from neaptide.checkers.cases import case, found, packed

UNPROVEN: Final = "unproven-difference"

_COPY: Final = packed("control, key, value, leader_epoch, broker")
# What is null comes first.
_IN_ORDER: Final = packed(
    "control, key IS NOT NULL AS has_key, key, value IS NOT NULL AS has_value, value,"
    " leader_epoch IS NOT NULL AS has_epoch, leader_epoch, broker"
)
_CONTENTS_DIFFER: Final = " OR ".join(
    f"one.{column} IS DISTINCT FROM other.{column}" for column in ("control", "key", "value")
)
_IS_PROOF: Final = "(level OR log_offset < below)"
_EVIDENCE: Final = (
    f"CASE WHEN {_CONTENTS_DIFFER} THEN 'record' ELSE 'leader_epoch' END AS differs, one, other"
)

# Offsets at which two replicas differ, proof or not.
DIFFERENCES: Final = found(
    f"""(
        SELECT * FROM (
            SELECT part, log_offset,
                arg_min({_COPY}, {_IN_ORDER}) AS one, arg_max({_COPY}, {_IN_ORDER}) AS other,
                min(leader_epoch) < max(leader_epoch) AS epochs_differ,
                min(coalesce(high_watermark, 0)) AS below
            FROM replicas WHERE log_offset IS NOT NULL
            GROUP BY part, log_offset
            HAVING count(DISTINCT hash(control, key, value, leader_epoch)) > 1
        ) JOIN parts USING (part) JOIN runs USING (run)
        WHERE {_CONTENTS_DIFFER} OR epochs_differ
    )""",
    "one.value",
    case(
        "'replica-divergence'", _IS_PROOF, offset="log_offset", operation="NULL", evidence=_EVIDENCE
    ),
    case(
        f"'{UNPROVEN}'",
        f"NOT {_IS_PROOF}",
        offset="log_offset",
        operation="NULL",
        evidence=_EVIDENCE,
    ),
)
