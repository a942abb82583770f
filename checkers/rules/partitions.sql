-- partitions: one row per topic partition of a run, and one without a partition for what is about
-- none: how much there is, how far it was read, and whether that is all there is to read.
--
-- Final reads that claim to have reached an end above the log start but left no record are not
-- believed (`complete`).
WITH counted AS (
    SELECT
        run, topic, partition,
        count(CASE WHEN position = 0 AND process >= 0 THEN 1 END) AS operations,
        count(CASE WHEN f = 'send' THEN 1 END) AS sends,
        count(CASE WHEN f = 'send' AND type = 'ok' THEN 1 END) AS acked,
        count(CASE WHEN f = 'poll' AND log_offset IS NOT NULL THEN 1 END) AS polled,
        count(CASE WHEN f = 'poll' AND phase = 'final' AND partition IS NOT NULL THEN 1 END)
            AS final_records,
        max(CASE WHEN f = 'poll' AND type = 'ok' AND phase = 'final' THEN log_offset END)
            AS highest_final,
        max(CASE WHEN f = 'send' AND type = 'ok' THEN log_offset END) AS highest_acked,
        max(coalesce(completed_ns, invoked_ns)) AS last_ns,
        min(CASE WHEN completed_ns < invoked_ns THEN operation END) AS backward_operation
    FROM operations
    GROUP BY run, topic, partition
)
SELECT
    counted.*, whole, level, transactions,
    whole AND coalesce(reached, false)
        AND (final_records > 0 OR coalesce(end_offset, 0) <= coalesce(start_offset, 0))
        AS complete,
    coalesce(start_offset, 0) AS start_offset,
    end_offset
FROM counted
JOIN runs USING (run)
LEFT JOIN final_reads USING (run, topic, partition)
