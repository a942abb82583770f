-- witnessed: the offsets of which the evidence says more: the first 50 of a partition at which
-- something was found that counts, or that leaves a doubt.
WITH offsets AS (
    SELECT DISTINCT run, topic, partition, log_offset
    FROM anomalies
    WHERE log_offset IS NOT NULL AND counts
),
ranked AS (
    SELECT
        run, topic, partition, log_offset,
        row_number() OVER (PARTITION BY run, topic, partition ORDER BY log_offset) AS turn
    FROM offsets
)
SELECT run, topic, partition, log_offset FROM ranked WHERE turn <= 50
