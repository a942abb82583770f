-- rests: partitions with which a share group (KIP-932) was done at the end: a member had polled in
-- vain for longer than a record may be acquired, in that time nobody was given anything of the
-- partition, and before that somebody was given its last record: so the group could be given more.
WITH seen AS (
    SELECT run, topic, partition, key AS share_group, f, invoked_ns, completed_ns, log_offset
    FROM said
    WHERE f IN ('acquire', 'share-rest')
),
last_given AS (
    SELECT
        run, topic, partition, share_group, max(completed_ns) AS given_ns,
        max(log_offset) AS given_offset
    FROM seen
    WHERE f = 'acquire'
    GROUP BY run, topic, partition, share_group
),
last_logged AS (
    SELECT run, topic, partition, max(log_offset) AS logged_offset
    FROM log
    GROUP BY run, topic, partition
)
SELECT seen.run, seen.topic, seen.partition, seen.share_group
FROM seen
LEFT JOIN last_given USING (run, topic, partition, share_group)
LEFT JOIN last_logged USING (run, topic, partition)
WHERE f = 'share-rest' AND coalesce(invoked_ns >= given_ns, true)
    AND (logged_offset IS NULL OR coalesce(given_offset >= logged_offset, false))
GROUP BY seen.run, seen.topic, seen.partition, seen.share_group
