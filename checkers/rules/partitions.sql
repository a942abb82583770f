-- partitions: one row per topic partition of a run, and one without a partition for what is about
-- none: how much there is, how far it was read, and whether that is all there is to read.
--
-- Final reads that claim to have reached an end above the log start but left no record are not
-- believed (`complete`), unless there was nothing to read: all that was sent was aborted, as its
-- sends say, or as every marker on the disks says where no end is known.
--
-- `start_offset`: what lies below was deleted, or may have been where `start_is_sure` is false,
-- because others have set up the brokers. Where nothing deletes it is 0, wherever the log starts.
WITH counted AS (
    SELECT
        run, topic, partition,
        count(CASE WHEN position = 0 AND process >= 0 THEN 1 END) AS operations,
        count(CASE WHEN f = 'send' THEN 1 END) AS sends,
        count(CASE WHEN f = 'send' AND type = 'ok' THEN 1 END) AS acked,
        count(CASE WHEN f = 'send' AND committed THEN 1 END) AS vouched,
        count(CASE WHEN f = 'send' AND type = 'fail' THEN 1 END) AS failed,
        count(CASE WHEN f = 'send' AND mop IS NOT NULL THEN 1 END) AS in_transactions,
        count(CASE WHEN f = 'send' AND mop IS NULL AND type <> 'fail' THEN 1 END) AS alone,
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
),
markers AS (
    SELECT run, topic, partition, bool_and(coalesce(value, '') = 'abort') AS all_abort
    FROM replicas
    WHERE control
    GROUP BY run, topic, partition
)
SELECT
    counted.*, whole, level, transactions, is_foreign,
    whole AND coalesce(reached, false)
        AND (
            final_records > 0 OR coalesce(end_offset, 0) <= coalesce(final_reads.start_offset, 0)
            OR (
                vouched = 0 AND polled = 0 AND in_transactions > 0 AND alone = 0
                AND (failed = sends OR coalesce(all_abort, false))
            )
        )
        AS complete,
    CASE
        WHEN deletes OR is_foreign
        THEN least(coalesce(final_reads.start_offset, 0), coalesce(below, 9223372036854775807))
        ELSE 0
    END AS start_offset,
    coalesce(deletes, false) AS start_is_sure,
    end_offset
FROM counted
JOIN runs USING (run)
LEFT JOIN final_reads USING (run, topic, partition)
LEFT JOIN deleting USING (run, topic, partition)
LEFT JOIN markers USING (run, topic, partition)
