-- unasked: markers of a transaction that its producer has not asked to end: a request of before,
-- of the same producer and epoch, came to the coordinator after a write of it (KIP-890).
--
-- Of all requests to end that the coordinator had when it sent the marker, the last one was sent
-- before the write, and came after it was sent.
WITH asked AS (
    SELECT
        kind, run, topic, partition, broker, producer_id, producer_epoch, committed, sent_ns,
        CASE kind WHEN 'marker' THEN sent_ns ELSE at_ns END AS at_ns
    FROM transactional
    UNION ALL
    SELECT
        'end', run, NULL, NULL, NULL, producer_id, producer_epoch, NULL, sent_ns, at_ns
    FROM overtaken_ends
),
with_ends AS (
    SELECT
        asked.*,
        max(CASE kind WHEN 'end' THEN sent_ns END) OVER (
            PARTITION BY run, producer_id, producer_epoch
            ORDER BY at_ns, kind ROWS UNBOUNDED PRECEDING
        ) AS end_sent_ns,
        max(CASE kind WHEN 'end' THEN at_ns END) OVER (
            PARTITION BY run, producer_id, producer_epoch
            ORDER BY at_ns, kind ROWS UNBOUNDED PRECEDING
        ) AS end_delivered_ns
    FROM asked
),
with_writes AS (
    SELECT
        with_ends.*,
        max(CASE kind WHEN 'write' THEN sent_ns END) OVER (
            PARTITION BY run, topic, partition, broker, producer_id, producer_epoch
            ORDER BY at_ns, kind DESC ROWS UNBOUNDED PRECEDING
        ) AS write_sent_ns
    FROM with_ends
    WHERE kind <> 'end'
)
SELECT
    run, topic, partition, CAST(broker AS INT) AS leader, CAST(producer_id AS BIGINT) AS producer_id,
    CAST(producer_epoch AS INT) AS producer_epoch, committed = '1' AS committed,
    end_sent_ns, write_sent_ns, end_delivered_ns, sent_ns AS marker_sent_ns,
    coalesce(end_sent_ns < write_sent_ns AND write_sent_ns < end_delivered_ns, false)
        AS protocol_violation
FROM with_writes
WHERE kind = 'marker'
