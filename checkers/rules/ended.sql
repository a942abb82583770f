-- ended: markers that were sent before a write that they end: they are of a transaction before, of
-- the same producer and epoch, and commit or abort what is not theirs (KAFKA-19446, KIP-890).
--
-- A marker ends what was written since the one before, if its leader has acknowledged it: one that
-- comes late is refused where its epoch is another one (KIP-1228).
WITH numbered AS (
    SELECT
        transactional.*,
        sum(CASE kind WHEN 'marker' THEN 1 ELSE 0 END) OVER (
            PARTITION BY run, topic, partition, broker, producer_id, producer_epoch
            ORDER BY at_ns, kind DESC ROWS UNBOUNDED PRECEDING
        ) - CASE kind WHEN 'marker' THEN 1 ELSE 0 END AS markers_before
    FROM transactional
    WHERE is_acknowledged
),
with_writes AS (
    SELECT
        numbered.*,
        max(CASE kind WHEN 'write' THEN sent_ns END) OVER (
            PARTITION BY run, topic, partition, broker, producer_id, producer_epoch, markers_before
        ) AS write_sent_ns
    FROM numbered
)
SELECT
    run, topic, partition, CAST(broker AS INT) AS leader, CAST(producer_id AS BIGINT) AS producer_id,
    CAST(producer_epoch AS INT) AS producer_epoch, committed = '1' AS committed,
    sent_ns AS marker_sent_ns, write_sent_ns, at_ns AS marker_delivered_ns,
    coalesce(sent_ns < write_sent_ns, false) AS protocol_violation
FROM with_writes
WHERE kind = 'marker'
