-- resets: where the position of a group was reset on purpose, from where (null: it had none) to
-- where. One that nobody acknowledged (not `is_sure`) may be done at any later time, or never.
SELECT
    run, topic, partition, key AS consumer_group, operation, invoked_ns, type = 'ok' AS is_sure,
    TRY_CAST(value AS BIGINT) AS position_before, log_offset AS position
FROM operations
WHERE partition IS NOT NULL AND f = 'reset' AND type <> 'fail' AND log_offset IS NOT NULL
