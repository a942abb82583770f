-- edges: which operation comes before which, as the records show it.
--
-- wr: from the sender of a record to everyone who read it. ww: from the sender of a record to the
-- sender of the next in the log. rw: from a reader to the sender of the record behind the last that
-- it read. Where nobody is known to have sent a record, no edge goes there or on from there. Only
-- runs with transactions have any.
WITH writers AS (
    SELECT run, topic, partition, value, send_operation AS writer
    FROM profiles
    JOIN runs USING (run)
    WHERE transactions AND send_operation IS NOT NULL AND NOT is_repeated
),
ordered AS (
    SELECT
        run, topic, partition, log_offset, value, writer,
        lead(writer) OVER log_order AS next_writer,
        lead(value) OVER log_order AS next_value
    FROM log
    JOIN runs USING (run)
    LEFT JOIN writers USING (run, topic, partition, value)
    WHERE transactions
    WINDOW log_order AS (PARTITION BY run, topic, partition ORDER BY log_offset)
),
last_reads AS (
    SELECT run, topic, partition, operation, max(log_offset) AS log_offset
    FROM records
    WHERE is_seen
    GROUP BY run, topic, partition, operation
)
SELECT DISTINCT run, topic, partition, value, 'wr' AS kind, writer AS source, operation AS target
FROM records
JOIN writers USING (run, topic, partition, value)
WHERE is_seen AND writer <> operation
UNION ALL
SELECT run, topic, partition, next_value, 'ww', writer, next_writer
FROM ordered
WHERE writer <> next_writer
UNION ALL
SELECT run, topic, partition, next_value, 'rw', operation, next_writer
FROM last_reads
JOIN ordered USING (run, topic, partition, log_offset)
WHERE operation <> next_writer
