-- leaps: steps ahead, with the next offset that is known to be in the log behind the read before.
--
-- A gap in the offsets is no skip by itself, since transaction markers take offsets that no
-- consumer sees: only a record that is known to lie in the gap proves one. A step to the log start
-- or to what lies below it is over records that were deleted meanwhile,
-- and in a compacted partition any step ahead may be.
WITH ahead AS (
    SELECT steps.*, start_offset
    FROM steps
    JOIN partitions USING (run, topic, partition)
    ANTI JOIN compacting USING (run, topic, partition)
    WHERE steps.log_offset > previous_offset
),
judged AS (
    SELECT
        ahead.run, ahead.topic, ahead.partition, process, operation, value, ahead.log_offset,
        previous_operation, previous_offset, inside, start_offset,
        CASE WHEN gaps.log_offset IS NULL THEN previous_offset + 1 ELSE next_known END AS next_known
    FROM ahead
    LEFT JOIN gaps
        ON gaps.run = ahead.run AND gaps.topic = ahead.topic AND gaps.partition = ahead.partition
        AND gaps.log_offset = ahead.previous_offset
    WHERE previous_known
    UNION ALL
    SELECT
        run, topic, partition, process, operation, value, log_offset,
        previous_operation, previous_offset, inside, start_offset, between_them.next_known
    FROM ahead
    JOIN (
        SELECT
            ahead.run, ahead.topic, ahead.partition, ahead.process, ahead.operation, ahead.log_offset,
            previous_offset, min(log.log_offset) AS next_known
        FROM ahead
        JOIN log
            ON log.run = ahead.run AND log.topic = ahead.topic AND log.partition = ahead.partition
        WHERE NOT previous_known AND log.log_offset > previous_offset
            AND log.log_offset < ahead.log_offset
        GROUP BY
            ahead.run, ahead.topic, ahead.partition, ahead.process, ahead.operation, ahead.log_offset,
            previous_offset
    ) AS between_them
        USING (run, topic, partition, process, operation, log_offset, previous_offset)
    WHERE NOT previous_known
)
SELECT
    judged.*,
    next_known < log_offset AND log_offset > start_offset AND NOT inside AS poll_skip,
    next_known < log_offset AND log_offset > start_offset AND inside AS int_poll_skip
FROM judged
