"""G3: groups of the consumer protocol in Kafka's own record format: what Kafka 4.0.1 has written is
read, and written again to the byte."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.group.assignors import Partitions, TopicIdPartition
from neaptide.clusters.broker.replication.group.consumer_group import (
    ClassicProtocol,
    ConsumerGroupMember,
    ConsumerGroupRecord,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    GroupTopicsRecord,
    MemberMetadataRecord,
    MemberState,
    SubscribedTopic,
    TargetEpochRecord,
    TargetRecord,
    tombstones,
)
from neaptide.clusters.broker.storage.group_records import decode, encode, groups_of
from neaptide.clusters.broker.storage.record_batch import assign
from neaptide.clusters.broker.storage.record_writer import record_batch
from tests.storage.conftest import OpenLog

NEW = GENERATIONS["4.0"]
NOW_MS = 1_700_000_000_000
ID = "9ycOSwh7TeudWXv96wTzDQ"
X, Y, Z = "02ey7TyNR3u6+K+rYnvlAA", "WT6UNmqyRiKPT66T2pGXWg", "piTRPASyQGqkKzo6GJa5KQ"


def parts(*numbers: int) -> Partitions:
    return frozenset(TopicIdPartition(ID, number) for number in numbers)


METADATA = ConsumerGroupMember(
    Y, "y", "r", "y", "/127.0.0.1", 300_000, ("t",), "", server_assignor="range"
)
CLASSIC_ID = "i-ba1ff886-fa1b-48c1-8e9f-bc4b46965a89"
_SUBSCRIPTION = (
    "00030000000100017400000017000000010001740000000200000000000000010000000100000001000174000000"
    "020000000000000001000000010000"
)
CLASSIC = ConsumerGroupMember(
    CLASSIC_ID, "i", None, "c", "/127.0.0.1", 300_000, ("t",), "", server_assignor=None,
    classic=ClassicProtocol(6_000, (("cooperative-sticky", bytes.fromhex(_SUBSCRIPTION)),)),
)  # fmt: skip
OF_PATTERN = ConsumerGroupMember(
    Z, None, None, "z", "/127.0.0.1", 300_000, (), "(^t.*)", server_assignor=None
)
REVOKING = ConsumerGroupMember(
    X,
    member_epoch=1,
    previous_member_epoch=1,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned=parts(0, 1),
    revoking=parts(2, 3),
)
AWAY = ConsumerGroupMember(X, member_epoch=-2, previous_member_epoch=1, assigned=parts(0, 1))
_TOPIC = "f7270e4b087b4deb9d597bfdeb04f30d"
OF_KAFKA: list[tuple[ConsumerGroupRecord, str, str]] = [
    (GroupEpochRecord("g", 2), "0003000167", "00000000000200"),
    (
        GroupTopicsRecord("g", (SubscribedTopic("t", ID, 4),)),
        "0004000167",
        f"000002{_TOPIC}027400000004010000",
    ),
    (
        MemberMetadataRecord("g", Y, METADATA),
        "00050001670016575436554e6d717952694b5054363654327047585767",
        "00000279027202790b2f3132372e302e302e3102027401000493e00672616e676501000100",
    ),
    (
        MemberMetadataRecord("p", Z, OF_PATTERN),
        "0005000170001670695452504153795147716b4b7a6f36474a61354b51",
        "00000000027a0b2f3132372e302e302e310107285e742e2a29000493e00001000100",
    ),
    (
        MemberMetadataRecord("g", CLASSIC_ID, CLASSIC),
        f"00050001670026{CLASSIC_ID.encode().hex()}",
        "000002690002630b2f3132372e302e302e3102027401000493e00001005901000017700213636f6f706572617469"
        f"76652d737469636b793e{_SUBSCRIPTION}0000",
    ),
    (TargetEpochRecord("g", 2), "0006000167", "00000000000200"),
    (
        TargetRecord("g", Y, parts(2, 3)),
        "00070001670016575436554e6d717952694b5054363654327047585767",
        f"000002{_TOPIC}0300000002000000030000",
    ),
    (
        CurrentAssignmentRecord("g", X, REVOKING),
        "00080001670016303265793754794e523375362b4b2b72596e766c4141",
        f"000000000001000000010102{_TOPIC}0300000000000000010002{_TOPIC}0300000002000000030000",
    ),
    (
        CurrentAssignmentRecord("g", X, AWAY),
        "00080001670016303265793754794e523375362b4b2b72596e766c4141",
        f"0000fffffffe000000010002{_TOPIC}030000000000000001000100",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), OF_KAFKA)
def test_g3_what_kafka_has_written_is_read_and_written_again(
    record: ConsumerGroupRecord, key: str, value: str
) -> None:
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) == record
    assert encode(record, NOW_MS, NEW) == (bytes.fromhex(key), bytes.fromhex(value))


def test_g3_a_member_without_the_tagged_field_is_read_too() -> None:
    """As earlier versions of ours wrote it."""
    key, value = encode(MemberMetadataRecord("g", Y, METADATA), NOW_MS, NEW)
    assert value is not None
    assert decode(key, value.removesuffix(b"\x01\x00\x01\x00") + b"\x00") == OF_KAFKA[2][0]


def test_g3_what_a_later_kafka_writes_says_nothing() -> None:
    """Key 16: what a pattern matched (ConsumerGroupRegularExpression)."""
    assert decode(bytes.fromhex("00100001700006285e742e2a29"), b"\x00\x00") is None


@pytest.mark.parametrize("value", ["", "0001", "00000000", "000002f727"])
def test_g3_a_record_that_is_not_understood_is_an_error(value: str) -> None:
    for key in ("0003000167", "000800016700017a"):
        with pytest.raises((struct.error, ValueError)):
            decode(bytes.fromhex(key), bytes.fromhex(value))


def test_g3_a_log_says_what_became_of_a_group(open_log: OpenLog) -> None:
    records = [record for record, _, _ in OF_KAFKA]
    log, offset = open_log(), 0
    for record in records:
        data = bytearray(record_batch([encode(record, NOW_MS, NEW)], NOW_MS))
        log.append(data, assign(data, offset, 0))
        offset += 1
    _, _, found, _ = groups_of(log.snapshot())
    g, p = sorted(found, key=lambda one: one.group)
    assert (g.group, g.epoch, g.target_epoch) == ("g", 2, 2)
    assert g.topics == {"t": SubscribedTopic("t", ID, 4)}
    assert g.targets == {Y: parts(2, 3)}
    assert g.members == {Y: METADATA, CLASSIC_ID: CLASSIC, X: AWAY}
    assert p.members == {Z: OF_PATTERN}
    ended = [encode(record, NOW_MS, NEW) for record in tombstones(g)]
    data = bytearray(record_batch(ended, NOW_MS))
    log.append(data, assign(data, offset, 0))
    _, _, left, _ = groups_of(log.snapshot())
    assert left == (replace(p),)
