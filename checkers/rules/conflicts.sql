-- conflicts: offsets that hold two values, and the first operation that sent or read each.
SELECT
    run, topic, partition, log_offset,
    min(log.value) AS value,
    min(log.other_value) AS other_value,
    min(CASE WHEN records.value = log.value AND is_acked THEN operation END) AS sent_by,
    min(CASE WHEN records.value = log.value AND is_seen THEN operation END) AS read_by,
    min(CASE WHEN records.value = log.other_value AND is_acked THEN operation END) AS other_sent_by,
    min(CASE WHEN records.value = log.other_value AND is_seen THEN operation END) AS other_read_by,
    coalesce(sent_by, read_by) AS operation,
    true AS inconsistent_offsets
FROM log
JOIN records USING (run, topic, partition, log_offset)
WHERE log.value <> log.other_value
GROUP BY run, topic, partition, log_offset
