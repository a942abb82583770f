"""Which client compresses how, on a broker of which age."""

from __future__ import annotations

from tests.storage.batches import COMPRESSIONS

# What each can do with what is installed beside it, and with a broker of this age: librdkafka takes
# lz4 for granted only where consumer groups are, zstd only from Kafka 2.1 on.
COMPRESSES = {
    "confluent-kafka": ("none", "gzip", "snappy"),
    "kafka-python": ("none", "gzip"),
    "aiokafka": ("none", "gzip", "snappy", "lz4"),
    "kcat": ("none", "gzip", "snappy"),
}
OF_THIS_AGE = tuple(name for name in COMPRESSIONS if name != "zstd")
