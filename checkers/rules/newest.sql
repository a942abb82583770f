-- newest: of each key of a compacted partition the newest acknowledged value, and the last place at
-- which the final reads found the key. `deletes`: that one has no value, so that the key may be gone
-- altogether.
WITH placed AS (
    SELECT
        run, topic, partition, key, operation, value,
        CASE WHEN f = 'send' THEN log_offset END AS acked_at,
        CASE WHEN f = 'poll' THEN log_offset END AS found_at
    FROM operations
    SEMI JOIN compacting USING (run, topic, partition)
    WHERE key IS NOT NULL AND log_offset IS NOT NULL AND (
        (f = 'send' AND committed) OR (f = 'poll' AND type = 'ok' AND phase = 'final')
    )
),
found AS (
    SELECT
        run, topic, partition, key, complete, start_offset, end_offset,
        max(acked_at) AS acked_offset,
        max(CASE WHEN acked_at = newest_at THEN value END) AS value,
        max(CASE WHEN acked_at = newest_at THEN operation END) AS operation,
        count(CASE WHEN acked_at = newest_at AND value NOT LIKE '⟨null%' THEN 1 END) = 0 AS deletes,
        max(found_at) AS final_offset,
        max(CASE WHEN found_at = last_found_at THEN value END) AS final_value
    FROM (
        SELECT
            placed.*, max(acked_at) OVER of_key AS newest_at, max(found_at) OVER of_key AS last_found_at
        FROM placed
        WINDOW of_key AS (PARTITION BY run, topic, partition, key)
    ) AS ranked
    JOIN partitions USING (run, topic, partition)
    GROUP BY run, topic, partition, key, complete, start_offset, end_offset
)
SELECT
    found.*,
    complete AND acked_offset >= start_offset
        AND coalesce(final_offset < acked_offset, NOT deletes) AS newest_lost
FROM found
