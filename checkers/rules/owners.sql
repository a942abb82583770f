-- owners: members to whom a partition was assigned while another member of the group owned it.
--
-- A member owns a partition from when it is assigned until the moment at which it lets go. One that
-- lost it, or ended without a word, owned it no longer than its last acknowledged commit was asked
-- for.
WITH turns AS (
    SELECT
        run, topic, partition, key AS consumer_group, process, operation, f, completed_ns AS since_ns,
        lead(f) OVER by_member AS next_f,
        lead(invoked_ns) OVER by_member AS next_ns
    FROM said
    WHERE f IN ('assigned', 'revoked', 'lost')
    WINDOW by_member AS (
        PARTITION BY run, topic, partition, key, process ORDER BY invoked_ns, operation
    )
),
spans AS (
    SELECT * FROM turns WHERE f = 'assigned'
),
last_commits AS (
    SELECT
        spans.run, spans.topic, spans.partition, spans.operation, max(invoked_ns) AS committed_ns
    FROM spans
    JOIN operations
        ON operations.run = spans.run AND operations.topic = spans.topic
        AND operations.partition = spans.partition AND operations.process = spans.process
        AND operations.key = spans.consumer_group
    WHERE operations.f = 'commit' AND operations.type = 'ok' AND invoked_ns >= since_ns
        AND (next_ns IS NULL OR invoked_ns < next_ns)
    GROUP BY spans.run, spans.topic, spans.partition, spans.operation
),
ends AS (
    SELECT
        spans.*, CASE WHEN next_f = 'revoked' THEN next_ns ELSE committed_ns END AS until_ns
    FROM spans
    LEFT JOIN last_commits USING (run, topic, partition, operation)
)
SELECT
    later.run, later.topic, later.partition, later.consumer_group, later.process, later.operation,
    later.since_ns, min(earlier.process) AS other_process,
    min(earlier.operation) AS other_operation, max(earlier.until_ns) AS other_until_ns,
    true AS owned_twice
FROM spans AS later
JOIN ends AS earlier
    ON earlier.run = later.run AND earlier.topic = later.topic
    AND earlier.partition = later.partition AND earlier.consumer_group = later.consumer_group
WHERE earlier.process <> later.process AND earlier.since_ns <= later.since_ns
    AND later.since_ns < earlier.until_ns
    AND (earlier.since_ns < later.since_ns OR earlier.operation < later.operation)
GROUP BY
    later.run, later.topic, later.partition, later.consumer_group, later.process, later.operation,
    later.since_ns
