-- gone: acknowledged values that no final read found, although the final reads are all there is,
-- and which compaction may not have removed.
--
-- `above_all_reads`: nobody read it, nor anything behind it. `deleted`: retention or
-- DeleteRecords took it; `may_be_deleted`: it has no offset, and these took something, or nobody
-- knows whether there is retention. `on_disk`: replicas that have the
-- record at its offset.
WITH reach AS (
    SELECT run, topic, partition, max(least) AS highest_read
    FROM profiles
    WHERE ok_reads > 0
    GROUP BY run, topic, partition
),
missing AS (
    SELECT
        profiles.*, highest_read, end_offset,
        coalesce(greatest > coalesce(highest_read, -1), false) AS above_all_reads,
        coalesce(greatest < start_offset, false) AND start_is_sure AS deleted,
        CASE WHEN greatest IS NULL THEN start_offset > 0
            ELSE greatest < start_offset AND NOT start_is_sure END AS may_be_deleted
    FROM profiles
    JOIN partitions USING (run, topic, partition)
    LEFT JOIN reach USING (run, topic, partition)
    ANTI JOIN compacted USING (run, topic, partition, value)
    WHERE complete AND profiles.acked > 0 AND profiles.final_reads = 0
),
found AS (
    SELECT run, topic, partition, value, count(*) AS on_disk
    FROM missing
    JOIN replicas USING (run, topic, partition, value)
    WHERE replicas.log_offset = missing.acked_offset AND NOT control
    GROUP BY run, topic, partition, value
),
judged AS (
    SELECT
        missing.*, coalesce(on_disk, 0) AS on_disk,
        may_be_deleted OR (on_disk IS NOT NULL AND coalesce(acked_offset >= end_offset, true))
            AS is_unproven
    FROM missing
    LEFT JOIN found USING (run, topic, partition, value)
)
SELECT
    judged.*,
    NOT deleted AND NOT is_unproven AND NOT above_all_reads
        AND (ok_sent > 0 OR (greatest IS NOT NULL AND ok_reads = 0)) AS lost_write,
    NOT deleted AND NOT is_unproven AND above_all_reads AND ok_sent > 0 AS unseen,
    NOT deleted AND is_unproven AND ok_sent > 0 AS unproven_loss
FROM judged
