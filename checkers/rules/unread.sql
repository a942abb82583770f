-- unread: how many acknowledged records nobody had read yet, at up to 200 moments of a run, where
-- the number changed.
WITH waits AS (
    SELECT run, topic, partition, acknowledged_ns, first_read_ns, greatest(last_ns, 1) AS last_ns
    FROM profiles
    JOIN partitions USING (run, topic, partition)
    WHERE acknowledged_ns IS NOT NULL AND coalesce(first_read_ns > acknowledged_ns, true)
),
changes AS (
    SELECT run, topic, partition, last_ns, acknowledged_ns AS at_ns, 1 AS more FROM waits
    UNION ALL
    SELECT run, topic, partition, last_ns, first_read_ns, -1
    FROM waits
    WHERE first_read_ns IS NOT NULL
),
points AS (
    SELECT
        run, topic, partition, last_ns, ceil(at_ns * 200.0 / last_ns) AS point, sum(more) AS more
    FROM changes
    GROUP BY run, topic, partition, last_ns, ceil(at_ns * 200.0 / last_ns)
)
SELECT
    run, topic, partition, CAST(more AS BIGINT) AS more,
    CAST(floor(point * last_ns / 200) AS BIGINT) AS at_ns,
    CAST(sum(more) OVER (PARTITION BY run, topic, partition ORDER BY point) AS BIGINT) AS unread,
    more <> 0 AS unseen_over_time
FROM points
