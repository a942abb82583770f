"""A batch of a transaction is what brokers read as one, with a checksum that holds."""

from __future__ import annotations

from neaptide.clusters.broker.storage.record_batch import parse_batches, validate_checksum
from neaptide.nemesis.gate.parts import producer_of
from neaptide.workloads.raw_producer import transactional_batch


def test_a_batch_names_its_producer_and_is_of_a_transaction() -> None:
    batch = transactional_batch((b"k", b"m1"), 7, 3, 5)
    [header] = parse_batches(batch)
    validate_checksum(batch, 0, header)
    assert header.attributes & 0x10
    assert producer_of(batch) == {"producer_id": 7, "producer_epoch": 3, "sequence": 5}
