-- profiles: one row per value of a partition: how it was sent, where it was acknowledged, where it
-- was read before healing (`main_`) and in the final reads (`final_`).
--
-- A send whose end is not known but whose value was read counts as acknowledged. `least` and
-- `greatest` are the offsets that an acknowledgement or a read, also an unsure one, vouches for.
-- `is_repeated`: it was sent more than once, so that nobody knows which of them a read has found
-- (Jepsen's checker takes them for one).
SELECT
    run, topic, partition, value,
    count(CASE WHEN is_send THEN 1 END) AS sent,
    count(CASE WHEN is_ok_send THEN 1 END) AS ok_sent,
    CASE
        WHEN count(CASE WHEN is_read THEN 1 END) = 0 THEN count(CASE WHEN is_acked THEN 1 END)
        ELSE count(CASE WHEN is_send AND NOT is_failed THEN 1 END)
    END AS acked,
    count(CASE WHEN is_failed THEN 1 END) AS failed,
    coalesce(
        min(CASE WHEN is_send AND NOT is_failed THEN operation END),
        min(CASE WHEN is_send THEN operation END)
    ) AS send_operation,
    count(CASE WHEN is_send AND NOT is_failed THEN 1 END) > 1 AND NOT bool_or(by_jepsen)
        AS is_repeated,
    min(CASE WHEN is_send THEN invoked_ns END) AS sent_ns,
    min(CASE WHEN is_acked THEN completed_ns END) AS acknowledged_ns,
    min(CASE WHEN is_acked THEN log_offset END) AS acked_offset,
    max(CASE WHEN is_acked THEN log_offset END) AS acked_greatest,
    min(CASE WHEN is_acked THEN acks END) AS acks,
    count(CASE WHEN is_seen THEN 1 END) AS reads,
    count(CASE WHEN is_read THEN 1 END) AS ok_reads,
    count(CASE WHEN is_read AND is_final THEN 1 END) AS final_reads,
    min(CASE WHEN is_seen THEN operation END) AS seen_operation,
    min(CASE WHEN is_read THEN operation END) AS read_operation,
    min(CASE WHEN is_read THEN completed_ns END) AS first_read_ns,
    min(CASE WHEN is_seen THEN log_offset END) AS seen_least,
    max(CASE WHEN is_seen THEN log_offset END) AS seen_greatest,
    min(CASE WHEN is_seen AND NOT is_final THEN operation END) AS main_operation,
    min(CASE WHEN is_seen AND NOT is_final THEN log_offset END) AS main_least,
    max(CASE WHEN is_seen AND NOT is_final THEN log_offset END) AS main_greatest,
    min(CASE WHEN is_read AND is_final THEN log_offset END) AS final_least,
    max(CASE WHEN is_read AND is_final THEN log_offset END) AS final_greatest,
    min(CASE WHEN is_acked OR is_seen THEN log_offset END) AS least,
    max(CASE WHEN is_acked OR is_seen THEN log_offset END) AS greatest
FROM records
JOIN (SELECT run, by_jepsen FROM runs) AS judged USING (run)
WHERE value IS NOT NULL
GROUP BY run, topic, partition, value
