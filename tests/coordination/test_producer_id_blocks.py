"""P4: brokers take blocks of producer ids, and no id is in two of them."""

from __future__ import annotations

import asyncio
import json

import pytest
from kazoo.client import KazooClient

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.coordination.producer_id_blocks import BLOCK_SIZE
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AllocateProducerIds,
    ProducerIdsAllocated,
)
from tests.coordination.conftest import participant


@pytest.mark.live
def test_p4_no_two_brokers_get_the_same_producer_ids(zookeeper: KazooClient, connect: str) -> None:
    """Two brokers ask for five blocks each, at once."""

    async def play() -> list[ProducerIdsAllocated]:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            for broker in (one, two):
                broker.ask(*[AllocateProducerIds()] * 5)
            return [
                await broker.receives(ProducerIdsAllocated)
                for broker in (one, two)
                for _ in range(5)
            ]

    blocks = asyncio.run(play())
    assert {block.end - block.first for block in blocks} == {BLOCK_SIZE}
    assert sorted(block.first for block in blocks) == [n * BLOCK_SIZE for n in range(10)]
    kept = json.loads(zookeeper.get(znodes.PRODUCER_IDS)[0])
    assert kept.pop("broker") in (1, 2)
    assert kept == {"version": 1, "block_start": "9000", "block_end": "9999"}


def test_p4_the_first_block_comes_after_none_and_nonsense_is_an_error() -> None:
    assert znodes.decode_producer_ids(b"") == 0
    assert znodes.decode_producer_ids(znodes.encode_producer_ids(3, 5000, 5999)) == 6000
    with pytest.raises(znodes.MalformedZnodeError, match="producer ids"):
        znodes.decode_producer_ids(b'{"version":1}')
