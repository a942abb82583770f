-- gaps: offsets of the log behind which the next known one is not the very next (`next_known`;
-- null: there is none). Logs are nearly without such gaps.
WITH followed AS (
    SELECT
        run, topic, partition, log_offset,
        lead(log_offset) OVER (PARTITION BY run, topic, partition ORDER BY log_offset) AS next_known
    FROM log
)
SELECT * FROM followed WHERE next_known IS DISTINCT FROM log_offset + 1
