"""Messages between brokers by hand, from Kafka's protocol guide, and not by the code under test.

Of the versions that brokers of 0.10 to 2.1 send: Fetch v3 to v10, ListOffsets v1 to v4,
OffsetForLeaderEpoch v0 to v2, StopReplica v0, LeaderAndIsr v0 and v1.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, OFFSET_FOR_LEADER_EPOCH = 4, 5, 6, 23
Place = tuple[str, int]  # topic, partition

# Of Kafka's protocol guide.
UNKNOWN_ERROR = -1
NONE, OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, STALE_CONTROLLER = 0, 1, 3, 6, 11
SESSION_NOT_FOUND, WRONG_SESSION_EPOCH = 70, 71
STORAGE_ERROR, FENCED_EPOCH, UNKNOWN_EPOCH = 56, 74, 75
LATEST, EARLIEST = -1, -2


class Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _unpack(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return int(value)

    def int8(self) -> int:
        return self._unpack("b")

    def int16(self) -> int:
        return self._unpack("h")

    def int32(self) -> int:
        return self._unpack("i")

    def int64(self) -> int:
        return self._unpack("q")

    def data(self, size: int) -> bytes:
        self._at += max(size, 0)
        return self._data[self._at - max(size, 0) : self._at]

    def text(self) -> str:
        return self.data(self.int16()).decode()


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def by_topic(places: Mapping[Place, bytes]) -> bytes:
    """Topics with their partitions, in the order in which they come."""
    topics: dict[str, list[bytes]] = {}
    for (topic, _), content in places.items():
        topics.setdefault(topic, []).append(content)
    return array([text(topic) + array(contents) for topic, contents in topics.items()])


def request(api: int, version: int, correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">hhi", api, version, correlation_id) + text("by-hand") + body


# --- Fetch ---------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """Of one partition. `log_start`, `epoch`: -1 in versions that do not have them."""

    offset: int
    max_bytes: int = 1 << 20
    log_start: int = -1
    epoch: int = -1


@dataclass(frozen=True)
class Fetch:
    replica: int
    partitions: Mapping[Place, Asked]
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 10 << 20
    session: int = 0
    session_epoch: int = -1

    def encode(self, version: int) -> bytes:
        def one(place: Place, asked: Asked) -> bytes:
            epoch = struct.pack(">i", asked.epoch) if version >= 9 else b""
            start = struct.pack(">q", asked.log_start) if version >= 5 else b""
            return (
                struct.pack(">i", place[1])
                + epoch
                + struct.pack(">q", asked.offset)
                + start
                + struct.pack(">i", asked.max_bytes)
            )

        head = struct.pack(">iiii", self.replica, self.max_wait_ms, self.min_bytes, self.max_bytes)
        head += b"\0" if version >= 4 else b""
        head += struct.pack(">ii", self.session, self.session_epoch) if version >= 7 else b""
        topics = by_topic({place: one(place, asked) for place, asked in self.partitions.items()})
        return head + topics + (array([]) if version >= 7 else b"")


def read_fetch(reader: Reader, version: int) -> Fetch:
    replica, wait, least, most = (reader.int32() for _ in range(4))
    if version >= 4:
        reader.int8()
    session = (reader.int32(), reader.int32()) if version >= 7 else (0, -1)
    partitions: dict[Place, Asked] = {}
    for _ in range(reader.int32()):
        topic = reader.text()
        for _ in range(reader.int32()):
            number = reader.int32()
            epoch = reader.int32() if version >= 9 else -1
            offset = reader.int64()
            start = reader.int64() if version >= 5 else -1
            partitions[topic, number] = Asked(offset, reader.int32(), start, epoch)
    return Fetch(replica, partitions, wait, least, most, *session)


@dataclass(frozen=True)
class Fetched:
    """A leader's answer about one partition."""

    high_watermark: int = 0
    records: bytes = b""
    error: int = NONE
    log_start: int = 0

    @property
    def offsets(self) -> list[int]:
        return record_offsets(self.records)


def encode_fetched(
    answers: Mapping[Place, Fetched], version: int, session: int = 0, error: int = NONE
) -> bytes:
    """`session`, `error`: of the whole response, from v7 on."""

    def one(place: Place, answer: Fetched) -> bytes:
        later = struct.pack(">q", answer.high_watermark) if version >= 4 else b""
        later += struct.pack(">q", answer.log_start) if version >= 5 else b""
        later += array([]) if version >= 4 else b""
        return (
            struct.pack(">ihq", place[1], answer.error, answer.high_watermark)
            + later
            + struct.pack(">i", len(answer.records))
            + answer.records
        )

    head = struct.pack(">i", 0) + (struct.pack(">hi", error, session) if version >= 7 else b"")
    return head + by_topic({place: one(place, answer) for place, answer in answers.items()})


def read_fetched(reader: Reader, version: int) -> dict[Place, Fetched]:
    reader.int32()
    if version >= 7:
        assert reader.int16() == NONE
        reader.int32()
    found: dict[Place, Fetched] = {}
    for _ in range(reader.int32()):
        topic = reader.text()
        for _ in range(reader.int32()):
            number, error, mark = reader.int32(), reader.int16(), reader.int64()
            if version >= 4:
                reader.int64()
            start = reader.int64() if version >= 5 else -1
            if version >= 4:
                for _ in range(reader.int32()):
                    reader.data(16)
            found[topic, number] = Fetched(mark, reader.data(reader.int32()), error, start)
    return found


def record_offsets(records: bytes) -> list[int]:
    """Of whole batches, or of uncompressed messages of the formats before; a torn one is left."""
    found: list[int] = []
    at = 0
    while at + 17 <= len(records):
        offset, size = struct.unpack_from(">qi", records, at)
        if at + 12 + size > len(records):
            break
        last = 0
        if records[at + 16] == 2:
            (last,) = struct.unpack_from(">i", records, at + 23)
        found += range(offset, offset + last + 1)
        at += 12 + size
    return found


# --- ListOffsets, OffsetForLeaderEpoch -----------------------------------------------------------


def read_list_offsets(reader: Reader, version: int) -> dict[Place, int]:
    """The timestamp that is asked for: LATEST or EARLIEST."""
    reader.int32()
    if version >= 2:
        reader.int8()
    asked: dict[Place, int] = {}
    for _ in range(reader.int32()):
        topic = reader.text()
        for _ in range(reader.int32()):
            number = reader.int32()
            if version >= 4:
                reader.int32()
            asked[topic, number] = reader.int64()
    return asked


def encode_listed(offsets: Mapping[Place, int], version: int) -> bytes:
    def one(place: Place, offset: int) -> bytes:
        epoch = struct.pack(">i", -1) if version >= 4 else b""
        return struct.pack(">ihqq", place[1], NONE, -1, offset) + epoch

    head = struct.pack(">i", 0) if version >= 2 else b""
    return head + by_topic({place: one(place, offset) for place, offset in offsets.items()})


def encode_list_offsets(place: Place, timestamp: int, version: int = 1) -> bytes:
    assert version == 1
    return struct.pack(">i", -1) + by_topic({place: struct.pack(">iq", place[1], timestamp)})


def read_listed(reader: Reader) -> tuple[int, int]:
    """Error and offset of the one partition of a response v1."""
    assert reader.int32() == 1
    reader.text()
    assert reader.int32() == 1
    reader.int32()
    error = reader.int16()
    reader.int64()
    return error, reader.int64()


class EpochEnd(NamedTuple):
    """Where an epoch ends, and which one that is. -1, -1: not known."""

    epoch: int
    end: int
    error: int = NONE


def encode_epochs(place: Place, epoch: int, current_epoch: int = -1) -> bytes:
    """A request v2 for one partition."""
    return by_topic({place: struct.pack(">iii", place[1], current_epoch, epoch)})


def read_epochs(reader: Reader, version: int) -> dict[Place, int]:
    """The epochs that are asked for."""
    asked: dict[Place, int] = {}
    for _ in range(reader.int32()):
        topic = reader.text()
        for _ in range(reader.int32()):
            number = reader.int32()
            if version >= 2:
                reader.int32()
            asked[topic, number] = reader.int32()
    return asked


def encode_ended(answers: Mapping[Place, EpochEnd], version: int) -> bytes:
    def one(place: Place, answer: EpochEnd) -> bytes:
        epoch = struct.pack(">i", answer.epoch) if version >= 1 else b""
        return struct.pack(">hi", answer.error, place[1]) + epoch + struct.pack(">q", answer.end)

    head = struct.pack(">i", 0) if version >= 2 else b""
    return head + by_topic({place: one(place, answer) for place, answer in answers.items()})


def read_ended(reader: Reader) -> EpochEnd:
    """The one partition of a response v2."""
    reader.int32()
    assert reader.int32() == 1
    reader.text()
    assert reader.int32() == 1
    error, _ = reader.int16(), reader.int32()
    return EpochEnd(reader.int32(), reader.int64(), error)


# --- StopReplica ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class StopReplica:
    controller: int
    controller_epoch: int
    place: Place
    delete: bool = False

    def encode(self) -> bytes:
        head = struct.pack(">ii", self.controller, self.controller_epoch) + bytes([self.delete])
        return head + array([text(self.place[0]) + struct.pack(">i", self.place[1])])


# --- LeaderAndIsr --------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeaderAndIsr:
    """Of one partition; `isr` are its replicas too. `leader_port`: of a leader on this machine."""

    controller: int
    controller_epoch: int
    place: Place
    leader: int
    leader_epoch: int
    isr: Sequence[int]
    leader_port: int

    def encode(self, version: int) -> bytes:
        isr = array([struct.pack(">i", broker) for broker in self.isr])
        state = struct.pack(
            ">iiii", self.place[1], self.controller_epoch, self.leader, self.leader_epoch
        )
        state += isr + struct.pack(">i", 0) + isr
        port = struct.pack(">i", self.leader_port)
        live = array([struct.pack(">i", self.leader) + text("127.0.0.1") + port])
        head = struct.pack(">ii", self.controller, self.controller_epoch)
        is_new = b"\0" if version == 1 else b""
        return head + array([text(self.place[0]) + state + is_new]) + live
