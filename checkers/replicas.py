"""The replicas' logs against each other: `replica-divergence`.

Two replicas diverge where one offset holds a different key, value or kind of record, or the same
record under two leader epochs (Kafka compares logs by epoch, so these too are two records).

The rule of proof: replicas that were level have no excuse. Where they never became level, a tail
above the high watermark may differ and be cut off later, so only offsets below every checkpointed
high watermark prove anything; the others are `unproven-difference`, and the run cannot conclude.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.frames import OFFSET, Frames, case, found

UNPROVEN: Final = "unproven-difference"


def differences(frames: Frames) -> DataFrame:
    """Offsets at which two replicas differ, proof or not."""
    held = frames.replicas.where("offset IS NOT NULL").select(
        *OFFSET, "control", "key", "value", "leader_epoch", "broker", "high_watermark"
    )
    extremes = (
        frames.spread(held)
        .groupBy(*OFFSET)
        .agg(
            F.expr(f"min({_COPY}) AS one"),
            F.expr(f"max({_COPY}) AS other"),
            F.expr("min(leader_epoch) < max(leader_epoch) AS epochs_differ"),
            F.expr("min(coalesce(high_watermark, 0)) AS below"),
        )
    )
    judged = extremes.where(f"{_CONTENTS_DIFFER} OR epochs_differ").join(
        F.broadcast(frames.runs), "run", "left"
    )
    return found(judged, "one.value", _PROVEN, _UNPROVEN)


_COPY: Final = "struct(control, key, value, leader_epoch, broker)"
_CONTENTS_DIFFER: Final = (
    "struct(one.control, one.key, one.value) <> struct(other.control, other.key, other.value)"
)
_IS_PROOF: Final = "(coalesce(level, false) OR offset < below)"
_EVIDENCE: Final = f"IF({_CONTENTS_DIFFER}, 'record', 'leader_epoch') AS differs, one, other"

_PROVEN: Final = case(
    "'replica-divergence'", _IS_PROOF, offset="offset", operation="NULL", evidence=_EVIDENCE
)
_UNPROVEN: Final = case(
    f"'{UNPROVEN}'", f"NOT {_IS_PROOF}", offset="offset", operation="NULL", evidence=_EVIDENCE
)
