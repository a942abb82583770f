-- places: profiles of values, with how far their partition was read.
--
-- `moved`: acknowledged at one offset, and read at another one only.
WITH placed AS (
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
)
SELECT
    placed.*,
    complete AND NOT may_be_compacted AND (
        (
            main_greatest >= start_offset
            AND (final_greatest IS NULL OR main_greatest > final_greatest)
        )
        OR (main_least >= start_offset AND main_least < final_least)
    ) AS committed_then_lost,
    least < greatest AND NOT moved AND NOT is_repeated AS duplicate,
    is_repeated AS sent_twice,
    failed > 0 AND failed = sent AND ok_reads > 0 AS G1a,
    whole AND sent = 0 AND reads > 0 AS phantom,
    sent > 0 AND NOT transactions AND first_read_ns < sent_ns AS G1c_realtime,
    least(main_least, final_least) AS read_at
FROM placed
