"""The disks of brokers, ours or Apache Kafka's, as the harness sees them: read, cut, damaged.

Not what a broker does with its own disk: see broker/storage, whose readers are used here.
"""
