"""What KRaft's metadata records add up to: brokers that live, leaders, epochs, ISRs, ELRs."""

from __future__ import annotations

from uuid import UUID

from neaptide.clusters.kafka.metadata_log import Image, PartitionState, Registration

TOPIC = UUID(int=7)
KEY = (TOPIC, 0)


def int32s(*values: int) -> bytes:
    return bytes([len(values) + 1]) + b"".join(v.to_bytes(4, "big", signed=True) for v in values)


def int32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def text(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def tagged(fields: dict[int, bytes]) -> bytes:
    parts = [bytes([tag, len(value)]) + value for tag, value in sorted(fields.items())]
    return bytes([len(parts)]) + b"".join(parts)


def record(kind: int, version: int, fields: bytes) -> bytes:
    return bytes([1, kind, version]) + fields


def registered(broker: int, epoch: int) -> bytes:
    endpoint = text("CLIENT") + text("127.0.0.1") + (9092).to_bytes(2, "big") + b"\0\0" + b"\0"
    feature = text("metadata.version") + b"\0\1\0\7" + b"\0"
    log_directories = {0: b"\2" + bytes(16)}
    body = int32(broker) + b"\0" + bytes(16) + epoch.to_bytes(8, "big")
    body += b"\2" + endpoint + b"\2" + feature + b"\0" + b"\1" + b"\0"
    return record(0, 3, body + tagged(log_directories))


def fencing(broker: int, epoch: int, change: int) -> bytes:
    fields = {0: change.to_bytes(1, "big", signed=True)}
    return record(17, 2, int32(broker) + epoch.to_bytes(8, "big") + tagged(fields))


def partition(isr: tuple[int, ...], leader: int, version: int = 2) -> bytes:
    body = int32(0) + TOPIC.bytes + int32s(1, 2, 3) + int32s(*isr) + int32s() + int32s()
    body += int32(leader) + int32(0) + int32(0)
    if version >= 1:
        body += b"\4" + bytes(48)  # a directory for each replica
    return record(3, version, body + tagged({}))


def change(**fields: object) -> bytes:
    tags = {"isr": 0, "leader": 1, "elr": 6}
    values = {
        tags[name]: int32(value) if isinstance(value, int) else int32s(*value)  # type: ignore[misc]
        for name, value in fields.items()
    }
    return record(5, 2, int32(0) + TOPIC.bytes + tagged(values))


def image(*records: bytes) -> Image:
    state = Image()
    for each in records:
        state = state.apply(each)
    return state


def test_a_broker_is_fenced_until_the_controllers_believe_in_it() -> None:
    assert image(registered(1, 20)).brokers == {1: Registration(20, fenced=True)}
    alive = image(registered(1, 20), fencing(1, 20, -1))
    assert alive.brokers == {1: Registration(20, fenced=False)}
    assert alive.apply(fencing(1, 20, 1)).brokers == {1: Registration(20, fenced=True)}


def test_a_change_that_is_of_something_else_leaves_it_as_it_is() -> None:
    alive = image(registered(1, 20), fencing(1, 20, -1))
    assert alive.apply(fencing(1, 20, 0)) == alive
    assert alive.apply(record(20, 0, b"\0")) == alive  # a no-op record


def test_each_election_is_a_new_epoch_and_a_change_of_the_isr_is_none() -> None:
    first = image(partition((1, 2, 3), leader=1))
    assert first.partitions[KEY] == PartitionState(1, 0, (1, 2, 3), (), (1, 2, 3))
    shrunk = first.apply(change(isr=(1, 2)))
    assert shrunk.partitions[KEY] == PartitionState(1, 0, (1, 2), (), (1, 2, 3))
    elected = shrunk.apply(change(isr=(2,), leader=2))
    assert elected.partitions[KEY] == PartitionState(2, 1, (2,), (), (1, 2, 3))
    assert elected.apply(change(leader=2)).partitions[KEY].leader_epoch == 2


def test_a_partition_without_leader_keeps_its_eligible_leader_replicas() -> None:
    left = image(partition((1,), leader=1), change(isr=(), leader=-1, elr=(1,)))
    assert left.partitions[KEY] == PartitionState(-1, 1, (), (1,), (1, 2, 3))


def test_older_versions_of_a_partition_have_no_directories() -> None:
    assert image(partition((2, 1), leader=2, version=0)).partitions[KEY].isr == (2, 1)


def test_topics_have_names_until_they_are_deleted_with_their_partitions() -> None:
    made = image(record(2, 0, text("t") + TOPIC.bytes + b"\0"), partition((1,), leader=1))
    assert made.topics == {TOPIC: "t"}
    gone = made.apply(record(9, 0, TOPIC.bytes + b"\0"))
    assert (gone.topics, gone.partitions) == ({}, {})


def test_features_have_the_level_that_was_set_last() -> None:
    name = "eligible.leader.replicas.version"
    level = record(12, 0, text(name) + b"\0\1" + b"\0")
    assert image(level).features == {name: 1}
