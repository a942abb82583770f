-- shared: records that a share group (KIP-932) passed over, or that one of its members was given
-- although a member had accepted or rejected them before, which the broker had acknowledged.
--
-- A record was passed over where no member was ever given it, although the group came to rest (see
-- rests). What a member has acknowledged, with whatever end, it was given.
WITH moments AS (
    SELECT
        run, topic, partition, key AS share_group, f, is_sure, operation, process, invoked_ns,
        completed_ns, log_offset, value
    FROM said
    WHERE f IN ('acquire', 'acknowledge', 'share-rest')
),
done AS (
    SELECT
        run, topic, partition, share_group, log_offset, min(completed_ns) AS acknowledged_ns,
        min(process) AS acknowledged_by, min(value) AS acknowledgement
    FROM moments
    WHERE f = 'acknowledge' AND is_sure AND value IN ('accept', 'reject')
    GROUP BY run, topic, partition, share_group, log_offset
),
again AS (
    SELECT
        done.run, done.topic, done.partition, done.share_group, done.log_offset,
        acknowledged_by, acknowledgement, min(moments.operation) AS operation,
        min(moments.process) AS process, max(moments.value) AS delivery_count, count(*) AS times
    FROM done
    JOIN moments
        ON moments.run = done.run AND moments.topic = done.topic
        AND moments.partition = done.partition AND moments.share_group = done.share_group
        AND moments.log_offset = done.log_offset
    WHERE f = 'acquire' AND moments.invoked_ns > acknowledged_ns
    GROUP BY
        done.run, done.topic, done.partition, done.share_group, done.log_offset,
        acknowledged_by, acknowledgement
),
given AS (
    SELECT DISTINCT run, topic, partition, share_group, log_offset, true AS is_given
    FROM moments
    WHERE f <> 'share-rest'
),
passed_over AS (
    SELECT rests.run, rests.topic, rests.partition, rests.share_group, log.log_offset
    FROM rests
    JOIN log USING (run, topic, partition)
    LEFT JOIN given
        ON given.run = rests.run AND given.topic = rests.topic
        AND given.partition = rests.partition AND given.share_group = rests.share_group
        AND given.log_offset = log.log_offset
    WHERE is_given IS NULL
),
found AS (
    SELECT
        run, topic, partition, share_group, log_offset, acknowledged_by, acknowledgement,
        operation, process, delivery_count, times, false AS is_passed_over
    FROM again
    UNION ALL
    SELECT
        run, topic, partition, share_group, log_offset, CAST(NULL AS INT), CAST(NULL AS STRING),
        CAST(NULL AS BIGINT), CAST(NULL AS INT), CAST(NULL AS STRING), CAST(NULL AS BIGINT), true
    FROM passed_over
)
SELECT
    found.*, log.value,
    NOT is_passed_over AS delivered_after_acknowledgement,
    is_passed_over AS skipped_by_share_group
FROM found
LEFT JOIN log USING (run, topic, partition, log_offset)
