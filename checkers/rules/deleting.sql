-- deleting: partitions of which records may have been deleted on purpose, and below which offset
-- (null: any): by retention, where its topic has a limit, or by DeleteRecords.
WITH asked AS (
    SELECT
        run, topic, partition,
        coalesce(max(CASE WHEN key = 'cleanup.policy' THEN value END), 'delete') AS policy,
        count(
            CASE WHEN key IN ('retention.ms', 'retention.bytes') AND value NOT LIKE '-%' THEN 1 END
        ) AS limits,
        max(CASE WHEN f = 'delete-records' THEN log_offset END) AS requested
    FROM said
    WHERE f IN ('setting', 'delete-records')
    GROUP BY run, topic, partition
)
SELECT
    run, topic, partition, true AS deletes,
    CASE WHEN NOT (limits > 0 AND policy LIKE '%delete%') THEN requested END AS below
FROM asked
WHERE (limits > 0 AND policy LIKE '%delete%') OR requested IS NOT NULL
