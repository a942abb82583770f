"""Takes blocks of producer ids, so that no two brokers ever have the same id to give.

Rule: the znode names the latest block and who took it. The next one is written on condition of the
version that was read, so a block belongs to one broker, whoever else wants it at the same time.
Source: ProducerIdManager of Kafka from 0.11 on; the block is a thousand ids there too.
"""

from __future__ import annotations

from typing import Final

from kazoo.client import TransactionRequest

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.coordination.client import Client
from neaptide.clusters.broker.coordination.conditional import ConditionalWrite, Written
from neaptide.clusters.broker.replication.interface.coordination_service import ProducerIdsAllocated

BLOCK_SIZE: Final = 1_000


def allocate(client: Client, broker_id: int) -> ProducerIdsAllocated:
    while True:
        found = client.get(znodes.PRODUCER_IDS)
        if found is None:
            client.ensure(znodes.PRODUCER_IDS)
            continue
        first = znodes.decode_producer_ids(found.data)
        end = first + BLOCK_SIZE
        block = znodes.encode_producer_ids(broker_id, first, end - 1)

        def take(
            transaction: TransactionRequest, block: bytes = block, version: int = found.stat.version
        ) -> None:
            transaction.set_data(znodes.PRODUCER_IDS, block, version)

        result = ConditionalWrite(client, take, znodes.PRODUCER_IDS, block).result()
        if isinstance(result, Written):
            return ProducerIdsAllocated(first, end)
