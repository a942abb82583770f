-- torn: records of transactions that are gone, with what was read of the same transaction.
--
-- One of which the end is not known counts as committed only because one of its records was read,
-- here or in another partition; of one that was committed it is looked for in the same partition.
-- Only where a run says how long a transaction may last: who recorded it has recorded all of each.
WITH of_workloads AS (
    SELECT DISTINCT run, topic, partition
    FROM said
    WHERE f = 'setting' AND key = 'transaction.timeout.ms'
),
sent AS (
    SELECT
        run, topic, partition, value, operation, min(process) AS process,
        bool_or(is_ok_send) AS is_ok
    FROM records
    SEMI JOIN of_workloads USING (run, topic, partition)
    WHERE is_send AND mop IS NOT NULL AND value IS NOT NULL
    GROUP BY run, topic, partition, value, operation
),
others AS (
    SELECT
        run, topic, partition, operation,
        count(CASE WHEN ok_reads > 0 THEN 1 END) AS others_read,
        min(CASE WHEN ok_reads > 0 THEN value END) AS other_value
    FROM sent
    JOIN profiles USING (run, topic, partition, value)
    GROUP BY run, topic, partition, operation
)
SELECT
    gone.run, gone.topic, gone.partition, gone.value, gone.acked_offset, gone.end_offset, operation, process,
    others_read, other_value,
    NOT deleted AND NOT is_unproven AND (others_read > 0 OR NOT is_ok) AS torn_transaction
FROM gone
JOIN sent USING (run, topic, partition, value)
JOIN others USING (run, topic, partition, operation)
