-- sums: what a reader had read when it had read all below an offset, added up.
--
-- A value is an amount, and behind a slash what makes it unique; the amounts of one transaction add
-- up to 0. A transaction counts where the last of its records lies below that offset: one that
-- reaches beyond it may still be open. The final reads are added up at their end.
WITH audited AS (
    SELECT DISTINCT run, topic, partition FROM said WHERE f = 'sum'
),
transfers AS (
    SELECT
        run, topic, partition, value, send_operation,
        max(greatest) OVER (PARTITION BY run, topic, partition, send_operation) AS last_place
    FROM profiles
    SEMI JOIN audited USING (run, topic, partition)
),
seen AS (
    SELECT
        run, topic, partition, process, log_offset, send_operation, last_place,
        min(TRY_CAST(split_part(value, '/', 1) AS DECIMAL(19, 0))) AS amount,
        max(CASE WHEN is_final THEN operation END) AS final_operation
    FROM records
    JOIN transfers USING (run, topic, partition, value)
    WHERE is_read AND log_offset IS NOT NULL
    GROUP BY run, topic, partition, process, log_offset, send_operation, last_place
),
events AS (
    SELECT
        run, topic, partition, process, last_place AS place, 1 AS turn, sum(amount) AS amount,
        CAST(NULL AS BIGINT) AS operation, min(send_operation) AS transfer
    FROM seen
    GROUP BY run, topic, partition, process, send_operation, last_place
    UNION ALL
    SELECT run, topic, partition, process, log_offset, 0, 0, operation, CAST(NULL AS BIGINT)
    FROM said
    WHERE f = 'sum'
    UNION ALL
    SELECT
        run, topic, partition, process, max(last_place) + 1, 0, 0, max(final_operation),
        CAST(NULL AS BIGINT)
    FROM seen
    WHERE final_operation IS NOT NULL
    GROUP BY run, topic, partition, process
),
added AS (
    SELECT
        events.*,
        sum(amount) OVER reading AS total,
        max(CASE WHEN amount <> 0 THEN transfer END) OVER reading AS transfer_off
    FROM events
    WINDOW reading AS (
        PARTITION BY run, topic, partition, process ORDER BY place, turn, transfer
        ROWS UNBOUNDED PRECEDING
    )
)
SELECT
    run, topic, partition, process, place, operation, total <> 0 AS wrong_sum,
    TRY_CAST(total AS BIGINT) AS total, transfer_off
FROM added
WHERE operation IS NOT NULL
