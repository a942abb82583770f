"""What operators ask by znodes, and what a controller writes of it, on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json

import pytest
from kazoo.client import KazooClient

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AssignmentWritten,
    ControllerChanged,
    DeletePreferredReplicaElection,
    PartitionReassignmentFound,
    PreferredReplicaElectionFound,
    SetPartitionReassignment,
    TopicsChanged,
    WriteAssignment,
)
from neaptide.clusters.broker.replication.model import ReplicaAssignment, TopicPartition
from neaptide.clusters.kafka.members import ZooKeeperMembers
from tests.coordination.conftest import participant
from tests.coordination.plays import T0, T1, TOPIC, created_topic, is_idle

pytestmark = pytest.mark.live
ELECTION, REASSIGN = znodes.PREFERRED_REPLICA_ELECTION, znodes.REASSIGN_PARTITIONS
MOVING = ReplicaAssignment((3, 1, 2), (3,), (2,))


def test_c5_an_election_is_reported_again_and_again(connect: str, zookeeper: KazooClient) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            await one.becomes_controller()
            for partitions in ((T0,), (T1, T0)):
                zookeeper.create(ELECTION, znodes.encode_partitions(partitions))
                found = await one.receives(PreferredReplicaElectionFound)
                assert found.partitions == partitions
                one.ask(DeletePreferredReplicaElection(1), DeletePreferredReplicaElection(1))
                await is_idle(one)
                assert zookeeper.exists(ELECTION) is None

    asyncio.run(play())


def test_c5_what_was_asked_for_before_there_was_a_controller_is_reported_to_it(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            targets = {T0: (2, 3), T1: (1,)}
            zookeeper.create(ELECTION, znodes.encode_partitions((T0,)))
            zookeeper.create(REASSIGN, znodes.encode_reassignments(targets))
            await one.becomes_controller()
            await one.receives(PreferredReplicaElectionFound)
            assert (await one.receives(PartitionReassignmentFound)).targets == targets
            await two.receives(ControllerChanged, lambda e: e.controller_id == 1)
            assert not [e for e in two.unread if isinstance(e, PartitionReassignmentFound)]

    asyncio.run(play())


@pytest.mark.parametrize("path", [ELECTION, REASSIGN])
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"partitions":[{"topic":"t"}]}'])
def test_c5_what_cannot_be_read_is_deleted(
    connect: str, zookeeper: KazooClient, path: str, data: bytes
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            await one.becomes_controller()
            zookeeper.create(path, data)
            for _ in range(200):
                await is_idle(one)
                if zookeeper.exists(path) is None:
                    break
            assert zookeeper.exists(path) is None

    asyncio.run(play())


def test_c5_what_is_left_of_a_reassignment_is_written_and_its_end_deletes_it(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            await one.becomes_controller()
            zookeeper.create(REASSIGN, znodes.encode_reassignments({T0: (2,), T1: (1,)}))
            await one.receives(PartitionReassignmentFound)
            one.ask(SetPartitionReassignment({T1: (1,)}, 1))
            assert (await one.receives(PartitionReassignmentFound)).targets == {T1: (1,)}
            one.ask(SetPartitionReassignment({}, 1), SetPartitionReassignment({T0: (1,)}, 1))
            await is_idle(one)
            assert zookeeper.exists(REASSIGN) is None  # what is gone is not written again

    asyncio.run(play())


@pytest.mark.parametrize("names_moves", [False, True])
def test_c5_an_assignment_is_written_beside_what_else_there_is(
    connect: str, zookeeper: KazooClient, names_moves: bool
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            await one.becomes_controller()
            await created_topic(one)
            await one.receives(TopicsChanged)
            one.ask(WriteAssignment(T0, MOVING, 1, names_moves, True))
            assert await one.receives(AssignmentWritten) == AssignmentWritten(T0, MOVING)
            topic = (await one.receives(TopicsChanged)).topics["t"]
            assert topic.assignment == {0: (3, 1, 2), 1: TOPIC.assignment[1]}
            assert topic.settings == TOPIC.settings
            assert topic.adding == ({0: (3,)} if names_moves else {})
            assert topic.removing == ({0: (2,)} if names_moves else {})
            content = json.loads(zookeeper.get("/brokers/topics/t")[0])
            assert content["version"] == (2 if names_moves else 1)
            one.ask(WriteAssignment(T0, ReplicaAssignment((3, 1)), 1, names_moves, True))
            topic = (await one.receives(TopicsChanged)).topics["t"]
            assert (topic.assignment[0], topic.adding, topic.removing) == ((3, 1), {}, {})

    asyncio.run(play())


@pytest.mark.parametrize("is_fenced", [False, True])
def test_c5_a_controller_of_an_earlier_epoch_writes_no_assignment_if_it_is_fenced(
    connect: str, zookeeper: KazooClient, is_fenced: bool
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            await one.becomes_controller()
            await created_topic(one)
            zookeeper.set("/controller_epoch", b"2")
            one.ask(WriteAssignment(T0, MOVING, 1, True, is_fenced))
            expected = Error.NOT_CONTROLLER if is_fenced else Error.NONE
            assert (await one.receives(AssignmentWritten)).error is expected
            gone = TopicPartition("gone", 0)
            one.ask(WriteAssignment(gone, MOVING, 1, True, False))
            answer = await one.receives(AssignmentWritten, lambda e: e.partition == gone)
            assert answer.error is Error.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(play())


# --- znodes --------------------------------------------------------------------------------------


def test_c5_the_znodes_are_kafkas() -> None:
    assert json.loads(znodes.encode_reassignments({T0: (2, 3)})) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3]}],
    }
    # As Kafka 2.8 writes a topic while one of its partitions is reassigned.
    before = (
        b'{"removing_replicas":{"1":[1]},"partitions":{"0":[1,2],"1":[2,1]},"topic_id":"abc",'
        b'"adding_replicas":{},"version":3}'
    )
    after = json.loads(znodes.with_assignment(T0, before, MOVING, names_moves=True))
    assert after == {
        "version": 3,
        "topic_id": "abc",
        "partitions": {"0": [3, 1, 2], "1": [2, 1]},
        "adding_replicas": {"0": [3]},
        "removing_replicas": {"0": [2], "1": [1]},
    }
    assert znodes.partition_of_state_path(znodes.state_path(T1)) == T1


@pytest.mark.parametrize("data", [b"{}", b"[]", b'{"partitions":{}}', b'{"partitions":3}'])
def test_a_topic_that_is_none_gets_no_assignment(data: bytes) -> None:
    with pytest.raises(znodes.MalformedZnodeError, match="topic t"):
        znodes.with_assignment(T0, data, MOVING, names_moves=True)


@pytest.mark.parametrize("is_fenced", [False, True])
@pytest.mark.parametrize("in_the_term", [1, 2])
def test_c5_a_controller_of_an_earlier_epoch_takes_nothing_out_if_it_is_fenced(
    connect: str, zookeeper: KazooClient, is_fenced: bool, in_the_term: int
) -> None:
    """What it thinks is done may have been refused, or be asked for anew; its successor sees it."""

    async def play() -> None:
        async with participant(connect, 1) as one:
            await one.becomes_controller()
            wanted = znodes.encode_reassignments({T0: (2,), T1: (1,)})
            zookeeper.create(REASSIGN, wanted)
            zookeeper.create(ELECTION, znodes.encode_partitions((T0,)))
            zookeeper.set("/controller_epoch", b"2")
            one.ask(DeletePreferredReplicaElection(in_the_term, is_fenced))
            one.ask(SetPartitionReassignment({T1: (1,)}, in_the_term, is_fenced))
            await is_idle(one)
            assert (zookeeper.exists(ELECTION) is not None) == is_fenced
            assert (zookeeper.get(REASSIGN)[0] == wanted) == is_fenced
            one.ask(SetPartitionReassignment({}, in_the_term, is_fenced))
            await is_idle(one)
            assert (zookeeper.exists(REASSIGN) is not None) == is_fenced

    asyncio.run(play())


def test_an_operator_who_sets_one_setting_leaves_the_others(
    connect: str, zookeeper: KazooClient
) -> None:
    path = znodes.topic_config_path("t")
    before = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    zookeeper.create(path, znodes.encode_settings(before), makepath=True)
    zookeeper.ensure_path("/config/changes")
    operator = ZooKeeperMembers(connect)
    operator.set("t", {"segment.ms": "1"})
    assert znodes.decode_settings(path, zookeeper.get(path)[0]) == {**before, "segment.ms": "1"}
    operator.set("t", {"segment.ms": None})
    assert znodes.decode_settings(path, zookeeper.get(path)[0]) == before
    [change, _] = sorted(zookeeper.get_children("/config/changes"))
    written = json.loads(zookeeper.get(f"/config/changes/{change}")[0])
    assert written == {"version": 2, "entity_path": "topics/t"}
