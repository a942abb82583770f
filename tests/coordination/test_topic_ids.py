"""Topic ids (KIP-516) in ZooKeeper: who gives one, and what keeps it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from kazoo.client import KazooClient

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.coordination.topic_ids import random_topic_id
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AssignmentWritten,
    CreateTopic,
    TopicCreated,
    TopicsChanged,
    WriteAssignment,
)
from neaptide.clusters.broker.replication.model import ReplicaAssignment, TopicConfiguration
from neaptide.clusters.broker.wire.topic_ids import text_of, uuid_of
from neaptide.clusters.kafka.members import ZooKeeperMembers
from tests.coordination.conftest import participant
from tests.coordination.plays import T0, TOPIC, created_topic

PATH = "/brokers/topics/t"
OLD = znodes.encode_assignment({0: (1, 2), 1: (2, 1)})


def _content(zookeeper: KazooClient) -> dict[str, Any]:
    data, _ = zookeeper.get(PATH)
    return dict(json.loads(data))


def test_c10_an_id_is_a_random_uuid_in_kafkas_text() -> None:
    ids = {random_topic_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)
    assert all(text_of(uuid_of(one)) == one for one in ids)


def test_c10_who_creates_a_topic_gives_it_an_id(connect: str, zookeeper: KazooClient) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            await one.becomes_controller(gives_topic_ids=True)
            two.ask(CreateTopic(1, "t", TOPIC, gives_topic_id=True))
            assert (await two.receives(TopicCreated)).error is None
            topic_id = _content(zookeeper)["topic_id"]
            topics = (await one.receives(TopicsChanged)).topics
            assert topics["t"].topic_id == topic_id
            assert _content(zookeeper) == {
                "version": 3,
                "topic_id": topic_id,
                "partitions": {"0": [1, 2], "1": [2, 1]},
                "adding_replicas": {},
                "removing_replicas": {},
            }

    asyncio.run(play())


def test_c10_a_controller_gives_ids_to_topics_that_have_none_and_leaves_the_others(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            kept = random_topic_id()
            zookeeper.create("/brokers/topics/kept", znodes.encode_assignment({0: (1,)}, kept))
            zookeeper.create(PATH, OLD)
            topics = (await one.becomes_controller(gives_topic_ids=True)).topics
            given = topics["t"].topic_id
            assert topics["kept"].topic_id == kept
            assert (_content(zookeeper)["topic_id"], _content(zookeeper)["version"]) == (given, 3)
            assert topics["t"].assignment == {0: (1, 2), 1: (2, 1)}
            zookeeper.create("/brokers/topics/later", znodes.encode_assignment({0: (1,)}))
            later = await one.receives(TopicsChanged, lambda event: "later" in event.topics)
            assert uuid_of(later.topics["later"].topic_id) is not None
            assert later.topics["t"].topic_id == given

    asyncio.run(play())


def test_c10_before_2_8_no_topic_gets_an_id(connect: str, zookeeper: KazooClient) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            zookeeper.create(PATH, OLD)
            topics = (await one.becomes_controller()).topics
            assert topics["t"].topic_id is None
            assert zookeeper.get(PATH)[0] == OLD
            await created_topic(one, "u")
            assert json.loads(zookeeper.get("/brokers/topics/u")[0])["version"] == 1

    asyncio.run(play())


def test_c10_the_next_controller_finds_the_same_id(connect: str, zookeeper: KazooClient) -> None:
    async def play() -> None:
        zookeeper.ensure_path("/brokers/topics")
        zookeeper.create(PATH, OLD)
        async with participant(connect, 1) as one:
            first = (await one.becomes_controller(gives_topic_ids=True)).topics["t"].topic_id
        async with participant(connect, 2) as two:
            topics = (await two.becomes_controller(gives_topic_ids=True)).topics
            assert topics["t"].topic_id == first

    asyncio.run(play())


def test_c10_reassignments_and_more_partitions_keep_the_id(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            zookeeper.create(PATH, OLD)
            first = (await one.becomes_controller(gives_topic_ids=True)).topics["t"].topic_id
            moved = ReplicaAssignment((3, 1, 2), (3,), (2,))
            one.ask(WriteAssignment(T0, moved, 1, names_moves=True, is_fenced=True))
            assert (await one.receives(AssignmentWritten)).error is Error.NONE
            more = {0: (3, 1, 2), 1: (2, 1), 2: (1, 2)}
            await asyncio.to_thread(ZooKeeperMembers(connect).add_partitions, "t", more)
            event = await one.receives(TopicsChanged, lambda e: len(e.topics["t"].assignment) == 3)
            expected = TopicConfiguration(more, {}, {0: (3,)}, {0: (2,)}, topic_id=first)
            assert event.topics["t"] == expected

    asyncio.run(play())


def test_c10_a_topic_that_is_made_again_has_another_id(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            zookeeper.create(PATH, OLD)
            first = (await one.becomes_controller(gives_topic_ids=True)).topics["t"].topic_id
            zookeeper.delete(PATH, recursive=True)
            zookeeper.create(PATH, OLD)
            event = await one.receives(
                TopicsChanged,
                lambda e: "t" in e.topics and e.topics["t"].topic_id not in (None, first),
            )
            assert event.topics["t"].topic_id == _content(zookeeper)["topic_id"]

    asyncio.run(play())


def test_c10_an_id_that_was_overwritten_is_given_anew_by_the_next_controller_only(
    connect: str, zookeeper: KazooClient
) -> None:
    """KAFKA-14190: an administrator of before 2.8 writes the znode as it always has."""

    async def play() -> None:
        more = {0: (1, 2), 1: (2, 1), 2: (1, 2)}
        async with participant(connect, 1) as one:
            zookeeper.create(PATH, OLD)
            first = (await one.becomes_controller(gives_topic_ids=True)).topics["t"].topic_id
            zookeeper.set(PATH, znodes.encode_assignment(more))
            event = await one.receives(TopicsChanged, lambda e: len(e.topics["t"].assignment) == 3)
            assert event.topics["t"].topic_id is None
        async with participant(connect, 2) as two:
            topics = (await two.becomes_controller(gives_topic_ids=True)).topics
            assert topics["t"].topic_id not in (None, first)

    asyncio.run(play())


def test_c10_a_controller_of_an_earlier_epoch_gives_no_id(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            await one.becomes_controller(gives_topic_ids=True)
            zookeeper.set("/controller_epoch", b"9")
            zookeeper.create(PATH, OLD)
            event = await one.receives(TopicsChanged, lambda e: "t" in e.topics)
            assert event.topics["t"].topic_id is None
            assert zookeeper.get(PATH)[0] == OLD

    asyncio.run(play())
