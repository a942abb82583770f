"""Who else saw it: the replicas and fetch rounds that bear witness of an anomaly's offset.

Added to the evidence of anomalies that count, at the first `WITNESSED` offsets of a partition:

- `replicas`: what each broker's log had at that offset at the end (`broker`, `value`,
  `leader_epoch`). Empty: the logs were read, and none has the offset.
- `rounds`: of each leader epoch and follower, the first fetch round that asked for what is behind
  the offset, so that the follower had it (`had_in_round`), and the first delivered one that told
  a high watermark above it (`told_in_round`). At most `ROUNDS`, the earliest epochs first.

Not the finding of anomalies. The rule: only where something was found.
"""

from __future__ import annotations

from typing import Final

from neaptide.checkers.anomalies import ANOMALIES
from neaptide.checkers.cases import json_of, packed

WITNESSED: Final = 50
ROUNDS: Final = 24

_COUNTING: Final = ", ".join(
    f"'{one.name}'" for one in ANOMALIES.values() if one.counts or one.doubt
)
# The offsets that are witnessed: a bounded number a partition.
PLACES: Final = f"""
    SELECT part, log_offset FROM (
        SELECT DISTINCT part, log_offset FROM anomalies
        WHERE log_offset IS NOT NULL AND anomaly IN ({_COUNTING})
    ) QUALIFY row_number() OVER (PARTITION BY part ORDER BY log_offset) <= {WITNESSED}
"""

_COPY: Final = json_of("broker, value, leader_epoch")
_REPLICAS: Final = f"""
    SELECT part, log_offset, list({_COPY} ORDER BY broker, value, leader_epoch) AS replicas
    FROM replicas SEMI JOIN witnessed USING (part, log_offset) GROUP BY part, log_offset
"""

_HAD: Final = "rounds.fetch_offset > witnessed.log_offset"
_TOLD: Final = "rounds.high_watermark > witnessed.log_offset AND rounds.delivered_ns IS NOT NULL"
_SEEN: Final = json_of("leader_epoch, leader, follower, had_in_round, told_in_round")
_ROUNDS: Final = f"""
    SELECT part, log_offset, list_slice(
        list({_SEEN} ORDER BY leader_epoch NULLS FIRST, leader, follower), 1, {ROUNDS}) AS seen
    FROM (
        SELECT part, witnessed.log_offset, leader_epoch, leader, follower,
            min(round) FILTER ({_HAD}) AS had_in_round,
            min(round) FILTER ({_TOLD}) AS told_in_round
        FROM rounds JOIN witnessed USING (part) WHERE ({_HAD}) OR ({_TOLD}) GROUP BY ALL
    ) GROUP BY part, log_offset
"""
_TOLD_BY: Final = packed(
    "CASE WHEN written THEN coalesce(replicas, []) END AS replicas, seen AS rounds"
)
# The same anomalies, with more evidence. Whether replicas' logs were read is said of the run.
WITH_WITNESSES: Final = f"""
    SELECT part, anomaly, log_offset, value, operation, CASE WHEN witnessed.part IS NULL
        THEN evidence ELSE CAST(json_merge_patch(evidence, to_json({_TOLD_BY})) AS VARCHAR) END
        AS evidence
    FROM anomalies
        LEFT JOIN witnessed USING (part, log_offset)
        LEFT JOIN ({_REPLICAS}) USING (part, log_offset)
        LEFT JOIN ({_ROUNDS}) USING (part, log_offset)
        LEFT JOIN parts USING (part)
        LEFT JOIN (SELECT run, replicas_read AS written FROM runs) USING (run)
"""
