-- transactional: what producers and coordinators say to a partition's leader, as the gate recorded
-- it: writes of transactions that it acknowledged, and markers, with whether it acknowledged them.
--
-- `sent_ns`: when its sender had said it, first; `at_ns`: when it came to who it is for.
WITH spoken AS (
    SELECT
        run, topic, partition, api, message, correlation_id, received_ns, forwarded_ns,
        CASE message WHEN 'request' THEN destination ELSE source END AS broker,
        regexp_extract(fields, '"producer_id": ([0-9]+)', 1) AS producer_id,
        regexp_extract(fields, '"producer_epoch": ([0-9]+)', 1) AS producer_epoch,
        regexp_extract(fields, '"sequence": ([0-9]+)', 1) AS sequence,
        regexp_extract(fields, '"committed": ([01])', 1) AS committed,
        fields LIKE '%"error": 0%' AS is_acknowledged
    FROM messages
    WHERE api = 'write_txn_markers' OR (api = 'produce' AND fields LIKE '%"transactional_id": "%')
)
SELECT
    'write' AS kind, run, topic, partition, broker, producer_id, producer_epoch,
    CAST(NULL AS STRING) AS committed,
    min(CASE message WHEN 'request' THEN received_ns END) AS sent_ns,
    min(CASE message WHEN 'request' THEN forwarded_ns END) AS at_ns,
    true AS is_acknowledged
FROM spoken
WHERE api = 'produce' AND producer_id <> ''
GROUP BY run, topic, partition, broker, producer_id, producer_epoch, sequence
HAVING max(CASE WHEN message = 'response' AND is_acknowledged THEN 1 ELSE 0 END) = 1
UNION ALL
SELECT
    'marker', run, topic, partition, broker, producer_id, producer_epoch, committed,
    min(CASE message WHEN 'request' THEN received_ns END),
    min(CASE message WHEN 'request' THEN forwarded_ns END),
    max(CASE WHEN message = 'response' AND is_acknowledged THEN 1 ELSE 0 END) = 1
FROM spoken
WHERE api = 'write_txn_markers'
GROUP BY
    run, topic, partition, broker, producer_id, producer_epoch, committed, correlation_id
HAVING min(CASE message WHEN 'request' THEN forwarded_ns END) IS NOT NULL
