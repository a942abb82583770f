-- records: one row per record that was sent, or that a poll read.
--
-- A send counts as acknowledged where it was (`ok`), and where its transaction must have committed:
-- its end is not known, but one of its records was read (`committed`).
SELECT
    run, topic, partition, value, log_offset, operation, position, process,
    invoked_ns, completed_ns, acks, mop,
    f = 'send' AS is_send,
    f = 'send' AND type = 'ok' AS is_ok_send,
    f = 'send' AND committed AS is_acked,
    f = 'send' AND type = 'fail' AS is_failed,
    f = 'poll' AS is_seen,
    f = 'poll' AND type = 'ok' AS is_read,
    f = 'poll' AND phase = 'final' AS is_final
FROM operations
WHERE partition IS NOT NULL
    AND (f = 'send' OR (f = 'poll' AND (log_offset IS NOT NULL OR value IS NOT NULL)))
