-- places: profiles of values, with how far their partition was read.
--
-- `moved`: acknowledged at one offset, and read at another one only.
SELECT
    profiles.*, complete, whole, transactions, start_offset, end_offset,
    coalesce(
        NOT is_repeated AND acked_offset = acked_greatest AND seen_least = seen_greatest AND acked_offset <> seen_least,
        false
    ) AS moved,
    compacted.value IS NOT NULL AS may_be_compacted
FROM profiles
JOIN partitions USING (run, topic, partition)
LEFT JOIN compacted USING (run, topic, partition, value)
