-- ended: markers that were sent before a write that they end: they are of a transaction before, of
-- the same producer and epoch, and commit or abort what is not theirs (KAFKA-19446, KIP-890).
--
-- Of writes those count that the same broker acknowledged. A marker ends what was written since the
-- one before.
WITH spoken AS (
    SELECT
        run, topic, partition, api, message, received_ns, forwarded_ns,
        CASE message WHEN 'request' THEN destination ELSE source END AS broker,
        regexp_extract(fields, '"producer_id": ([0-9]+)', 1) AS producer_id,
        regexp_extract(fields, '"producer_epoch": ([0-9]+)', 1) AS producer_epoch,
        regexp_extract(fields, '"sequence": ([0-9]+)', 1) AS sequence,
        regexp_extract(fields, '"committed": ([01])', 1) AS committed,
        fields LIKE '%"error": 0%' AS is_acknowledged
    FROM messages
    WHERE api = 'write_txn_markers' OR (api = 'produce' AND fields LIKE '%"transactional_id": "%')
),
events AS (
    SELECT
        run, topic, partition, broker, producer_id, producer_epoch, 0 AS markers,
        CAST(NULL AS STRING) AS committed,
        min(CASE message WHEN 'request' THEN received_ns END) AS sent_ns,
        min(CASE message WHEN 'request' THEN forwarded_ns END) AS at_ns
    FROM spoken
    WHERE api = 'produce' AND producer_id <> ''
    GROUP BY run, topic, partition, broker, producer_id, producer_epoch, sequence
    HAVING max(CASE WHEN message = 'response' AND is_acknowledged THEN 1 ELSE 0 END) = 1
    UNION ALL
    SELECT
        run, topic, partition, broker, producer_id, producer_epoch, 1, committed,
        received_ns, forwarded_ns
    FROM spoken
    WHERE api = 'write_txn_markers' AND message = 'request' AND forwarded_ns IS NOT NULL
),
numbered AS (
    SELECT
        events.*,
        sum(markers) OVER (
            PARTITION BY run, topic, partition, broker, producer_id, producer_epoch
            ORDER BY at_ns, markers ROWS UNBOUNDED PRECEDING
        ) - markers AS markers_before
    FROM events
),
with_writes AS (
    SELECT
        numbered.*,
        max(CASE markers WHEN 0 THEN sent_ns END) OVER (
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
WHERE markers = 1
