-- committed: transactions of which the end is not known, but that must have committed, since a poll
-- that succeeded read one of their records (Jepsen's must-have-committed?).
SELECT DISTINCT sent.run, sent.operation
FROM open_sends AS sent
JOIN reads
    ON reads.run = sent.run AND reads.topic = sent.topic AND reads.partition = sent.partition
    AND reads.value = sent.value
