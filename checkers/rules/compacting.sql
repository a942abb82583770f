-- compacting: partitions whose older values of a key may be removed.
SELECT DISTINCT run, topic, partition
FROM said
WHERE f = 'setting' AND key = 'cleanup.policy' AND value LIKE '%compact%'
