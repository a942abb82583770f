"""A client's bytes end no broker (A10): the shell with a real log directory, in one process."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from kio.index import load_payload_module
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i32, i64

from neaptide.clusters.broker.replication.interface.events import TopicWanted
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache
from neaptide.clusters.broker.server.listener import Connection
from neaptide.clusters.broker.server.topic_creation import AutoTopicCreation
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.bounds import ELEMENTS_MAX, BoundsError, checked, varint
from neaptide.clusters.broker.wire.codec import (
    MalformedMessageError,
    decode_request,
    encode_request,
    entity_class,
    request_class,
    response_class,
)
from neaptide.clusters.broker.wire.reading import UnreadableError, read_entity
from tests.hardening.poison import POISONED, SOUND, record, sealed
from tests.live.raw import fetch_request
from tests.server.given import World
from tests.storage.batches import NOW_MS, batch
from tests.wire.hurt import HEADS, NULL, TEXT, Asked, Leader
from tests.wire.strategies import REPLICATION_APIS

_FETCH_17 = load_payload_module(1, 17, EntityType.request).FetchRequest


def frame(api: Api, version: int, body: bytes) -> bytes:
    return struct.pack(">hhih", api, version, 7, 1) + b"c" + body


@pytest.mark.parametrize("what", HEADS)
def test_a10_null_array_where_none_is_allowed_is_malformed(what: str) -> None:
    api, version, head = HEADS[what]
    with pytest.raises(MalformedMessageError, match="has the length -1"):
        decode_request(frame(api, version, head + NULL + bytes(8)), REPLICATION_APIS)


@pytest.mark.parametrize("what", HEADS)
@pytest.mark.parametrize("count", [2**31 - 1, 10_000])
def test_a10_array_that_claims_more_than_follows_is_malformed(what: str, count: int) -> None:
    api, version, head = HEADS[what]
    body = head + struct.pack(">i", count) + bytes(100)
    with pytest.raises(MalformedMessageError, match=f"claims {count} elements"):
        decode_request(frame(api, version, body), REPLICATION_APIS)


def test_a10_array_length_of_metadata_is_not_believed() -> None:
    """21 bytes, for which kio would ask for 17 GB."""
    asked = frame(Api.METADATA, 1, b"\x7f\xff\xff\xff")
    with pytest.raises(MalformedMessageError, match="claims 2147483647 elements"):
        decode_request(asked, REPLICATION_APIS)


def test_a10_null_array_that_is_allowed_means_all_topics() -> None:
    header, entity = decode_request(frame(Api.METADATA, 1, NULL), REPLICATION_APIS)
    assert (header.api, entity.topics) == (Api.METADATA, None)


def test_a10_arrays_together_have_a_limit_too() -> None:
    half = struct.pack(">i", ELEMENTS_MAX // 2 + 1) + bytes(12 * (ELEMENTS_MAX // 2 + 1))
    body = struct.pack(">i", -1) + struct.pack(">i", 2) + TEXT + half + TEXT + half
    with pytest.raises(MalformedMessageError, match="elements"):
        decode_request(frame(Api.LIST_OFFSETS, 1, body), REPLICATION_APIS)


# --- flexible versions (KIP-482): lengths are varints of what is one more -------------------------

_FETCH = struct.pack(">iiiibii", -1, 0, 0, 1, 0, 0, -1)
FLEXIBLE_HEADS = {
    "Fetch topics": (Api.FETCH, 12, _FETCH),
    "Fetch partitions": (Api.FETCH, 12, _FETCH + b"\x02" + b"\x02t"),
    "Fetch forgotten topics": (Api.FETCH, 12, _FETCH + b"\x01"),
    "Metadata topics": (Api.METADATA, 9, b""),
}


def flexible_frame(api: Api, version: int, body: bytes) -> bytes:
    """Its header has no tagged fields."""
    return frame(api, version, b"\0" + body)


@pytest.mark.parametrize("what", FLEXIBLE_HEADS)
@pytest.mark.parametrize("count", [2**31 - 1, 10_000])
def test_a10_flexible_array_that_claims_more_than_follows_is_malformed(
    what: str, count: int
) -> None:
    """kio would ask for 17 GB, and the broker's process would end."""
    api, version, head = FLEXIBLE_HEADS[what]
    body = head + varint(count + 1) + bytes(100)
    with pytest.raises(MalformedMessageError, match=f"claims {count} elements"):
        decode_request(flexible_frame(api, version, body), REPLICATION_APIS)


@pytest.mark.parametrize("what", [what for what in FLEXIBLE_HEADS if "Metadata" not in what])
def test_a10_flexible_null_array_where_none_is_allowed_is_malformed(what: str) -> None:
    api, version, head = FLEXIBLE_HEADS[what]
    with pytest.raises(MalformedMessageError, match="has the length -1"):
        decode_request(flexible_frame(api, version, head + b"\0" + bytes(8)), REPLICATION_APIS)


def test_a10_flexible_null_array_that_is_allowed_means_all_topics() -> None:
    asked = flexible_frame(Api.METADATA, 9, b"\0" + b"\1\0\0" + b"\0")
    assert decode_request(asked, REPLICATION_APIS)[1].topics is None


def test_a10_behind_tagged_fields_arrays_are_looked_at_too() -> None:
    """Also behind those that nobody knows."""
    tagged = b"\x01" + b"\x63" + varint(300) + bytes(300)  # one, of 300 bytes
    topics = b"\x02" + b"\x02t" + b"\x02" + bytes(32) + tagged + tagged
    cls = request_class(Api.FETCH, 12)
    unknown = _FETCH + topics + b"\x01" + b"\x01" + tagged
    assert len(checked(cls, unknown, 0)[0]) == len(unknown) - 3 * (len(tagged) - 1)
    for claimed in (_FETCH + topics, _FETCH + b"\x02" + b"\x02t" + b"\x01" + tagged):
        with pytest.raises(BoundsError, match="forgotten_topics_data claims 10000 elements"):
            checked(cls, claimed + varint(10_001), 0)


def test_tagged_fields_that_nobody_knows_are_ignored() -> None:
    tagged = b"\x01" + b"\x63" + b"\x02" + b"no"
    asked = b"\x03" + b"\x02t" + tagged + b"\x02u" + b"\0" + b"\1\0\0" + tagged
    _, entity = decode_request(flexible_frame(Api.METADATA, 9, asked), REPLICATION_APIS)
    assert [topic.name for topic in entity.topics] == ["t", "u"]
    known = b"\x02" + b"\x00\x02" + b"\x02c" + tagged[1:]  # the cluster's id, and another one
    fetch = _FETCH + b"\x01" + b"\x01" + b"\x01" + known
    _, entity = decode_request(flexible_frame(Api.FETCH, 12, fetch), REPLICATION_APIS)
    assert entity.cluster_id == "c"


def test_what_librdkafka_sends_for_all_topics_in_metadata_v9_is_understood() -> None:
    """As librdkafka 2.16 writes it: one tagged field of no bytes, and a byte behind all."""
    asked = bytes.fromhex("00000000" + "01000000")
    _, entity = decode_request(flexible_frame(Api.METADATA, 9, asked), REPLICATION_APIS)
    assert (entity.topics, entity.allow_auto_topic_creation) == (None, False)


# --- a leader alone -------------------------------------------------------------------------------


def play(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@pytest.mark.parametrize("what", POISONED)
def test_a10_poisoned_batch_is_refused_and_the_next_sound_one_taken(
    tmp_path: Path, what: str
) -> None:
    records, error = POISONED[what]

    async def run() -> None:
        leader = await Leader(tmp_path / "data").lead()
        assert await leader.produce(records) == (error, -1)
        assert leader.log.log_end_offset == 0
        assert await leader.produce(SOUND) == ("none", 0)
        assert leader.log.log_end_offset == 3
        assert await leader.look_up(NOW_MS + 1) == ("none", NOW_MS + 1, 1)

    play(run())


@pytest.mark.parametrize("generation", ["0.11", "2.1"])
def test_a10_poisoned_batch_is_a_corrupt_message_before_kip_467(
    tmp_path: Path, generation: str
) -> None:
    async def run() -> None:
        leader = await Leader(tmp_path / "data", generation).lead()
        records, _ = POISONED["more records than it has"]
        assert await leader.produce(records, version=5) == ("corrupt_message", -1)

    play(run())


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "snappy-java", "lz4", "zstd"])
def test_a10_sound_batches_of_every_compression_are_taken(tmp_path: Path, compression: str) -> None:
    values = [b"v" * size for size in (0, 1, 63, 64, 100, 8191, 8192, 70_000)] + [None]

    async def run() -> None:
        leader = await Leader(tmp_path / "data").lead()
        times = 4 if compression == "none" else 20  # others are large only when they are opened
        produced = batch(0, values * times, compression=compression)
        assert await leader.produce(produced) == ("none", 0)
        assert await leader.look_up(NOW_MS + 20) == ("none", NOW_MS + 20, 20)
        assert bytes((await leader.read()).records)[:8] == bytes(8)

    play(run())


def test_a10_zstd_needs_the_version_of_produce_that_has_it(tmp_path: Path) -> None:
    async def run() -> None:
        leader = await Leader(tmp_path / "data").lead()
        produced = batch(0, [b"a"], compression="zstd")
        assert await leader.produce(produced, 6) == ("unsupported_compression_type", -1)
        assert await leader.produce(produced, 7) == ("none", 0)

    play(run())


def test_a10_a_large_batch_is_validated_beside_all_else_and_keeps_its_place(
    tmp_path: Path,
) -> None:
    """It is answered, and who asks meanwhile is answered before it."""
    many = sealed(
        SOUND,
        last_offset_delta=29_999,
        count=30_000,
        body=b"".join(record(number) for number in range(30_000)),
    )

    async def run() -> None:
        leader = await Leader(tmp_path / "data").lead()
        large = asyncio.ensure_future(leader.produce(many))
        await asyncio.sleep(0)
        assert await leader.produce(SOUND) == ("none", 0)
        assert not large.done()
        assert await large == ("none", 3)
        assert leader.log.log_end_offset == 30_003

    play(run())


def test_a10_the_largest_time_of_a_batch_is_that_of_its_records(tmp_path: Path) -> None:
    """As Kafka puts it right: else a look-up by time would pass it by, or open it in vain."""

    async def run() -> None:
        leader = await Leader(tmp_path / "data").lead()
        assert await leader.produce(sealed(SOUND, max_timestamp=NOW_MS + 10**9)) == ("none", 0)
        assert leader.log.snapshot().headers().__next__().max_timestamp == NOW_MS + 2
        assert await leader.look_up(NOW_MS + 3) == ("none", -1, -1)

    play(run())


# --- what is damaged on disk ----------------------------------------------------------------------


async def damaged(directory: Path, position: int, data: bytes) -> Leader:
    """A leader with two batches, of which bytes of the first are others now."""
    leader = await Leader(directory).lead()
    assert await leader.produce(SOUND) == ("none", 0)
    assert await leader.produce(SOUND) == ("none", 3)
    with leader.log._segments[0].path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    return leader


def test_a10_damaged_records_are_an_error_of_a_look_up_alone(tmp_path: Path) -> None:
    async def run() -> None:
        leader = await damaged(tmp_path / "data", 61, b"\xff" * 30)
        assert await leader.look_up(NOW_MS + 1) == ("corrupt_message", -1, -1)
        assert await leader.produce(SOUND) == ("none", 6)
        assert not leader.failures

    play(run())


def test_a10_unknown_codec_on_disk_is_an_error_of_a_look_up_alone(tmp_path: Path) -> None:
    async def run() -> None:
        leader = await damaged(tmp_path / "data", 22, b"\x07")
        assert await leader.look_up(NOW_MS + 1) == ("corrupt_message", -1, -1)
        assert not leader.failures

    play(run())


def test_a10_damaged_header_is_an_error_of_its_partition_alone(tmp_path: Path) -> None:
    async def run() -> None:
        leader = await damaged(tmp_path / "data", 8, b"\xff" * 9)
        leader.log._segments[0].become_inactive()  # what is remembered of the tail is gone
        assert (await leader.read()).error_code.name == "corrupt_message"
        assert await leader.look_up(NOW_MS) == ("corrupt_message", -1, -1)
        assert not leader.failures

    play(run())


def test_a10_broker_starts_with_a_damaged_log(tmp_path: Path) -> None:
    async def run() -> None:
        leader = await damaged(tmp_path / "data", 8, b"\xff" * 9)
        leader.shell.shut_down()
        again = await Leader(tmp_path / "data").lead()
        assert not again.failures
        assert (await again.answer(fetch_request("t", 0))).responses

    play(run())


def test_a10_what_cannot_be_answered_costs_its_connection_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a look into a log raises, the event loop never sees it."""

    async def run() -> None:
        leader = await Leader(tmp_path / "data").lead()
        assert await leader.produce(SOUND) == ("none", 0)

        def broken(*_: object) -> None:
            raise struct.error("nobody thought of this")

        with monkeypatch.context() as patched:
            patched.setattr(leader.log, "read", broken)
            asked = Asked()
            leader.shell.on_opened(cast(Connection, asked))
            wire = encode_request(fetch_request("t", 0), correlation_id=5, client_id="test")
            leader.shell.handle(cast(Connection, asked), wire[4:])
            assert isinstance(asked.refused, struct.error)
        assert not leader.failures
        assert (await leader.read()).error_code.name == "none"

    play(run())


def test_a10_a_partition_named_twice_in_list_offsets_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        leader = await Leader(tmp_path / "data").lead()
        api, version = Api.LIST_OFFSETS, 1
        partition = entity_class(api, version, EntityType.request, "ListOffsetsPartition")(
            partition_index=i32(0), timestamp=i64(NOW_MS)
        )
        topic = entity_class(api, version, EntityType.request, "ListOffsetsTopic")(
            name=TopicName("t"), partitions=(partition, partition)
        )
        answer = await leader.answer(
            request_class(api, version)(replica_id=BrokerId(-1), topics=(topic,))
        )
        errors = [one.error_code.name for one in answer.topics[0].partitions]
        assert errors == ["invalid_request", "invalid_request"]

    play(run())


@pytest.mark.parametrize(("name", "partition"), [("../t", 0), ("..", 0), ("", 0), ("t", -1)])
def test_a10_no_replica_gets_a_directory_outside(tmp_path: Path, name: str, partition: int) -> None:
    """Not even from whoever speaks as a controller."""

    async def run() -> None:
        world = World(tmp_path / "data")
        connection = world.connection()
        with pytest.raises(MalformedMessageError):
            world.ask(connection, world.leader_and_isr(name, 0, partition), 1)
        assert not world.failures

    play(run())


def test_a11_a_fetch_is_answered_up_to_fetch_max_bytes(tmp_path: Path) -> None:
    """Whatever its max_bytes; a batch that is larger comes alone."""

    async def run() -> None:
        leader = await Leader(tmp_path / "data", fetch_max_bytes="1000").lead()
        size = len(batch(0, [b"x" * 300]))
        for offset in range(5):
            assert await leader.produce(batch(0, [b"x" * 300])) == ("none", offset)
        assert len(bytes((await leader.read()).records)) == 1000 // size * size
        assert await leader.produce(batch(0, [b"x" * 3000])) == ("none", 5)
        assert len(bytes((await leader.read(5)).records)) > 3000

    play(run())


def test_a11_while_many_answers_are_not_read_a_fetch_gets_one_batch(tmp_path: Path) -> None:
    async def run() -> None:
        leader = await Leader(tmp_path / "data").lead()
        size = len(batch(0, [b"x"]))
        for offset in range(5):
            assert await leader.produce(batch(0, [b"x"])) == ("none", offset)
        leader.crowd.keep_unread(1 << 27)
        assert len(bytes((await leader.read()).records)) == size
        leader.crowd.keep_unread(-(1 << 27))
        assert len(bytes((await leader.read()).records)) == 5 * size

    play(run())


def test_a11_names_of_topics_being_created_do_not_pile_up() -> None:
    """Those that came to nothing are forgotten; as many as are waited for are enough."""
    wanted: list[str] = []
    now = 1_000.0

    def submit(event: object) -> None:
        assert isinstance(event, TopicWanted)
        wanted.append(event.topic)

    creation = AutoTopicCreation(True, MetadataCache, submit, lambda: now)
    for number in range(3_000):
        creation.want(f"t{number}")
        creation.want(f"t{number}")
    assert len(creation.being_created) == len(wanted) == 1_000
    now += 31.0
    creation.want("another")
    assert list(creation.being_created) == ["another"]


# --- tagged fields --------------------------------------------------------------------------------


def _fetch_17(of_partition: bytes, behind: bytes = b"") -> bytes:
    """Fetch v17 of one topic with one partition, which has these tagged fields."""
    partition = struct.pack(">iiqiqi", 0, 0, 0, 0, 0, 10) + of_partition
    topics = b"\x02" + bytes(16) + b"\x02" + partition + b"\x00"
    return struct.pack(">iiibii", 0, 1, 1, 0, 0, -1) + topics + behind


def test_a10_a_tagged_field_is_not_longer_than_it_is() -> None:
    """kio does not look at its size: it read on where nobody had looked at the arrays."""
    directory = b"\x01" + b"\x00" + b"\x10" + b"d" * 16
    sound = _fetch_17(directory, b"\x01" + b"\x01" + b"\x00")
    [topic] = read_entity(_FETCH_17, sound)[0].topics
    assert topic.partitions[0].replica_directory_id.bytes == b"d" * 16
    claim = b"\xff\xff\xff\xff\x0f"
    for size in (3, 17, 40):
        tagged = b"\x01" + b"\x00" + varint(size) + b"d" * 16
        with pytest.raises(UnreadableError, match=f"the {size} bytes that it claims"):
            read_entity(_FETCH_17, _fetch_17(tagged, claim + bytes(60)))


def test_a10_arrays_in_tagged_fields_are_looked_at() -> None:
    api_versions = response_class(Api.API_VERSIONS, 3)
    head = bytes(2) + b"\x01" + bytes(4)
    feature = b"\x02" + b"\x02f" + bytes(4)  # one, named f
    for features, what in ((feature + b"\x00", None), (b"\xff\xff\xff\xff\x0f", "claims")):
        tagged = b"\x01" + b"\x00" + varint(len(features)) + features
        if what is None:
            [found] = read_entity(api_versions, head + tagged)[0].supported_features
            assert found.name == "f"
        else:
            with pytest.raises(UnreadableError, match=what):
                read_entity(api_versions, head + tagged)


def test_a10_what_nobody_knows_is_left_out_of_a_tagged_field_too_and_of_the_header() -> None:
    api_versions = response_class(Api.API_VERSIONS, 3)
    feature = b"\x02" + b"\x02f" + bytes(4) + b"\x01" + b"\x63" + b"\x02ab"
    message = bytes(2) + b"\x01" + bytes(4) + b"\x01" + b"\x00" + varint(len(feature)) + feature
    entity, left, end = read_entity(api_versions, message)
    assert [one.name for one in entity.supported_features] == ["f"]
    assert end == len(left) == len(message) - 4
    asked = frame(Api.METADATA, 9, b"\x01\x63\x02ab" + b"\0" + b"\1\0\0" + b"\0")
    assert decode_request(asked, REPLICATION_APIS)[1].topics is None


def test_a10_entities_that_may_be_null_are_passed_over() -> None:
    heartbeat = load_payload_module(68, 0, EntityType.response).ConsumerGroupHeartbeatResponse
    head = bytes(4) + bytes(2) + b"\0" + b"\0" + struct.pack(">ii", 1, 5000)
    assert read_entity(heartbeat, head + b"\xff" + b"\0")[0].assignment is None
    assert read_entity(heartbeat, head + b"\x01" + b"\x01\0" + b"\0")[0].assignment is not None
    with pytest.raises(UnreadableError, match="claims"):
        read_entity(heartbeat, head + b"\x01" + b"\xff\xff\xff\xff\x0f\0" + b"\0")


@pytest.mark.timeout(60)
def test_a10_tagged_fields_that_nobody_knows_cost_time_in_proportion() -> None:
    """Copied once for each of them, as they were, these are more than a terabyte."""
    topic = bytes(16) + b"\0" + b"\x01\x63\x00"
    many = 300_000
    metadata = request_class(Api.METADATA, 12)
    message = varint(many + 1) + topic * many + b"\0\0" + b"\0"
    left, end = checked(metadata, message, 0, None)
    assert end == len(left) == len(message) - 2 * many


def test_a10_nothing_but_one_function_reads_entities_of_strangers() -> None:
    root = Path(__file__).parents[2]
    readers = {
        path.relative_to(root).as_posix()
        for folder in ("clusters", "nemesis", "workloads", "harness", "results", "checkers")
        for path in (root / folder).rglob("*.py")
        if "entity_reader" in path.read_text(encoding="utf-8")
    }
    assert readers == {"clusters/broker/wire/reading.py"}
