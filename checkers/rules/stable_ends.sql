-- stable_ends: partitions whose last stable offset was below the high watermark when they were last
-- looked at, and how long it had stood there since the cluster was healed.
WITH looks AS (
    SELECT
        run, topic, partition, operation, process, completed_ns, log_offset,
        TRY_CAST(value AS BIGINT) AS high_watermark,
        row_number() OVER (
            PARTITION BY run, topic, partition ORDER BY completed_ns DESC, operation DESC
        ) AS turn
    FROM said
    WHERE f = 'stable' AND is_final
),
timeouts AS (
    SELECT
        run, topic, partition,
        least(max(TRY_CAST(value AS BIGINT)), 9000000000000) * 1000000 AS timeout_ns
    FROM said
    WHERE f = 'setting' AND key = 'transaction.timeout.ms'
    GROUP BY run, topic, partition
),
judged AS (
    SELECT
        run, topic, partition, log_offset, timeout_ns,
        max(CASE WHEN turn = 1 THEN operation END) AS operation,
        max(CASE WHEN turn = 1 THEN high_watermark END) AS high_watermark,
        max(completed_ns) - min(completed_ns) AS stood_ns
    FROM looks
    JOIN timeouts USING (run, topic, partition)
    GROUP BY run, topic, partition, log_offset, timeout_ns
    HAVING min(turn) = 1
)
SELECT
    judged.*,
    log_offset < high_watermark AND stood_ns > timeout_ns AS hanging_transaction
FROM judged
