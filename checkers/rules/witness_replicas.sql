-- witness_replicas: what each replica's log had at the end at the offset of an anomaly.
SELECT run, topic, partition, log_offset, broker, value, leader_epoch
FROM replicas
SEMI JOIN witnessed USING (run, topic, partition, log_offset)
