-- log: one row per offset that an acknowledgement or a read vouches for, with the least and the
-- greatest value that it was said to hold.
SELECT run, topic, partition, log_offset, min(value) AS value, max(value) AS other_value
FROM records
WHERE (is_acked OR is_seen) AND log_offset IS NOT NULL AND value IS NOT NULL
GROUP BY run, topic, partition, log_offset
