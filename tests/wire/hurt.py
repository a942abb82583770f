"""Requests that are hurt, and a leader that is asked."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any, cast

from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i32, i64

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.server.listener import Connection
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import (
    decode_response,
    encode_request,
    entity_class,
    request_class,
)
from tests.live.raw import fetch_request, fetched, produce_request
from tests.server.given import World, turns

NULL = struct.pack(">i", -1)
TEXT = struct.pack(">h", 1) + b"t"
ONE = struct.pack(">i", 1)
HEADS = {
    # What comes before the array in question.
    "Produce topics": (Api.PRODUCE, 3, struct.pack(">hhi", -1, 1, 1000)),
    "Produce partitions": (Api.PRODUCE, 3, struct.pack(">hhi", -1, 1, 1000) + ONE + TEXT),
    "Fetch topics": (Api.FETCH, 4, struct.pack(">iiiib", -1, 0, 0, 1, 0)),
    "Fetch partitions": (Api.FETCH, 4, struct.pack(">iiiib", -1, 0, 0, 1, 0) + ONE + TEXT),
    "ListOffsets topics": (Api.LIST_OFFSETS, 1, struct.pack(">i", -1)),
    "ListOffsets partitions": (Api.LIST_OFFSETS, 1, struct.pack(">i", -1) + ONE + TEXT),
    "OffsetCommit topics": (
        Api.OFFSET_COMMIT,
        2,
        TEXT + struct.pack(">i", -1) + TEXT + struct.pack(">q", -1),
    ),
    "OffsetFetch topics": (Api.OFFSET_FETCH, 1, TEXT),
    "OffsetFetch partitions": (Api.OFFSET_FETCH, 1, TEXT + ONE + TEXT),
    "OffsetForLeaderEpoch topics": (Api.OFFSET_FOR_LEADER_EPOCH, 2, b""),
    "CreateTopics topics": (Api.CREATE_TOPICS, 2, b""),
    "CreateTopics assignments": (Api.CREATE_TOPICS, 2, ONE + TEXT + struct.pack(">ih", 1, 1)),
    "Metadata topics": (Api.METADATA, 0, b""),
}


class Asked:
    """Stands for a connection: keeps the frames that it is given."""

    def __init__(self) -> None:
        self.listener = "CLIENT"
        self.sasl = None
        self.is_logging_in = False
        self.must_log_in_again = False
        self.frames: list[bytes] = []
        self.refused: Exception | None = None

    def respond(self, frame: bytes | None) -> None:
        assert frame is not None
        self.frames.append(frame)

    def refuse(self, error: Exception) -> None:
        self.refused = error

    def close(self) -> None:
        pass


class Leader(World):
    """Broker 7 leads t-0 alone."""

    def __init__(self, directory: Path, generation: str = "4.0", **settings: str) -> None:
        super().__init__(directory, neaptide_generation=generation, **settings)

    async def lead(self) -> Leader:
        self.coordination.may_report["t"] = asyncio.Event()
        self.coordination.may_report["t"].set()
        self.ask(self.connection(), self.leader_and_isr("t", 0), 1)
        await turns()
        return self

    async def answer(self, entity: Any) -> Any:
        """The response, as soon as it is there; waits for threads too."""
        asked = Asked()
        connection = cast(Connection, asked)
        self.shell.on_opened(connection)
        wire = encode_request(entity, correlation_id=5, client_id="test")
        self.shell.handle(connection, wire[4:])
        while not asked.frames:
            assert asked.refused is None, asked.refused
            assert not self.failures, self.failures
            await asyncio.sleep(0.001)
        cls = type(entity)
        return decode_response(asked.frames[0][4:], Api(cls.__api_key__), cls.__version__)[1]

    async def produce(self, records: bytes, version: int = 7) -> tuple[str, int]:
        answer = await self.answer(produce_request("t", records, acks=1, version=version))
        partition = answer.responses[0].partition_responses[0]
        return partition.error_code.name, int(partition.base_offset)

    async def look_up(self, timestamp: int) -> tuple[str, int, int]:
        api, version = Api.LIST_OFFSETS, 1
        partition = entity_class(api, version, EntityType.request, "ListOffsetsPartition")(
            partition_index=i32(0), timestamp=i64(timestamp)
        )
        topic = entity_class(api, version, EntityType.request, "ListOffsetsTopic")(
            name=TopicName("t"), partitions=(partition,)
        )
        answer = await self.answer(
            request_class(api, version)(replica_id=BrokerId(-1), topics=(topic,))
        )
        found = answer.topics[0].partitions[0]
        return found.error_code.name, int(found.timestamp), int(found.offset)

    async def read(self, offset: int = 0) -> Any:
        return fetched(await self.answer(fetch_request("t", offset)))

    @property
    def log(self) -> Any:
        return self.logs.logs[TopicPartition("t", 0)]
