-- said: what a run says of its partitions and its clients' state, beside what was sent and read:
-- settings, log ends, what was deleted or processed, who owns what. Few runs have any of it.
-- What is not known to be so (an assignment that a member learned too late) says nothing.
SELECT
    run, topic, partition, f, operation, process, invoked_ns, completed_ns, log_offset, key, value,
    phase = 'final' AS is_final, type = 'ok' AS is_sure
FROM operations
WHERE partition IS NOT NULL AND (
    f = 'setting'
    OR (f IN ('delete-records', 'acknowledge') AND type <> 'fail')
    OR (
        f IN (
            'stable', 'sum', 'source', 'process', 'assigned', 'revoked', 'lost', 'acquire',
            'share-rest'
        ) AND type = 'ok'
    )
)
