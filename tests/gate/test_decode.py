"""What the gate reads out of messages, against what kio wrote."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.nemesis.gate import decode
from neaptide.nemesis.gate import messages as m
from neaptide.nemesis.gate.fetch_answer import fetch_response
from neaptide.nemesis.gate.frames import MalformedStreamError
from neaptide.nemesis.gate.parts import parts_of
from tests.gate import wire
from tests.gate.wire import Answer, Ask

_offsets = st.integers(0, 2**62)
_topics = st.text("abc._-", min_size=1, max_size=20)


def _name(version: int, topic: str) -> str:
    return topic if version < 13 else str(wire.topic_id(topic))


@given(st.integers(4, 18), _topics, st.integers(0, 1000), _offsets, st.integers(0, 2**30))
def test_a_fetch_request_shows_who_asks_and_from_where(
    version: int, topic: str, partition: int, offset: int, epoch: int
) -> None:
    raw = wire.fetch_request(
        version,
        [Ask(topic, partition, offset, epoch)],
        replica_id=7,
        correlation_id=42,
        session_id=5,
        session_epoch=2,
        forgotten=[(topic, 9)],
    )
    header = decode.request_header(raw)
    assert (header.api_key, header.api_version, header.correlation_id) == (1, version, 42)
    request = decode.fetch_request(raw, header)
    assert request is not None
    assert request.replica_id == 7
    name = _name(version, topic)
    known = epoch if version >= 9 else None
    assert request.partitions == {(name, partition): m.FetchPartition(offset, known)}
    if version >= 7:
        assert (request.session_id, request.session_epoch) == (5, 2)
        assert request.forgotten == ((name, 9),)
    else:
        assert (request.session_epoch, request.forgotten) == (-1, ())


@given(st.integers(4, 18), _topics, _offsets, st.binary(max_size=200), st.sampled_from([0, 1, 74]))
def test_a_fetch_response_shows_the_high_watermark_and_the_size_of_its_records(
    version: int, topic: str, high_watermark: int, records: bytes, error: int
) -> None:
    answer = Answer(topic, 3, high_watermark, records, log_start_offset=2, error=error)
    raw = wire.fetch_response(version, [answer], correlation_id=9, session_id=4)
    assert decode.correlation_id(raw) == 9
    response = fetch_response(raw, version)
    start = 2 if version >= 5 else None
    assert response.partitions == {
        (_name(version, topic), 3): m.FetchedPartition(error, high_watermark, start, len(records))
    }
    assert response.session_id == (4 if version >= 7 else 0)


def test_a_high_watermark_of_minus_one_is_none() -> None:
    raw = wire.fetch_response(12, [Answer("t", 0, -1, error=3)])
    assert fetch_response(raw, 12).partitions[("t", 0)].high_watermark is None


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_fetch_versions_that_kio_does_not_have(version: int) -> None:
    sizes = struct.pack(">iii", 2, 500, 1) + (b"\0\0\1\0" if version >= 3 else b"")
    asked = struct.pack(">i", 1) + wire.text("t") + struct.pack(">iiqi", 1, 5, 77, 1024)
    raw = wire.request(1, version, sizes + asked, client_id="ReplicaFetcherThread-0-1")
    header = decode.request_header(raw)
    assert decode.source_broker(header) is None  # this name says the leader, not the follower
    request = decode.fetch_request(raw, header)
    assert request == m.FetchRequest(2, 0, -1, {("t", 5): m.FetchPartition(77)}, ())
    head = struct.pack(">i", 1) + (b"\0\0\0\0" if version >= 1 else b"")
    entry = struct.pack(">iihqi", 1, 5, 0, 78, 4) + b"rrrr"
    response = wire.frame(head + struct.pack(">i", 1) + wire.text("t") + entry)
    assert fetch_response(response, version).partitions == {
        ("t", 5): m.FetchedPartition(0, 78, None, 4)
    }


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_epoch_request_and_its_answer(version: int) -> None:
    raw = wire.epoch_request(version, "t", 1, 6, replica_id=2)
    request = decode.epoch_request(raw, decode.request_header(raw))
    assert request == m.EpochRequest(2 if version >= 3 else None, {("t", 1): 6})
    answer = wire.epoch_response(version, "t", 1, 74)
    assert decode.epoch_response(answer, version).partitions == {("t", 1): 74}


@pytest.mark.parametrize("version", [0, 1])
def test_the_epoch_versions_that_kio_does_not_have(version: int) -> None:
    asked = struct.pack(">i", 1) + wire.text("t") + struct.pack(">iii", 1, 4, 6)
    raw = wire.request(23, version, asked, client_id="broker-2-fetcher-0")
    header = decode.request_header(raw)
    assert decode.source_broker(header) == 2
    assert decode.epoch_request(raw, header) == m.EpochRequest(None, {("t", 4): 6})
    epoch = struct.pack(">i", 5) if version >= 1 else b""
    entry = struct.pack(">ihi", 1, 6, 4) + epoch + struct.pack(">q", 7)
    answer = wire.frame(struct.pack(">ii", 1, 1) + wire.text("t") + entry)
    assert decode.epoch_response(answer, version).partitions == {("t", 4): 6}


@pytest.mark.parametrize("version", [0, 1, 2, 5])
def test_leader_and_isr_shows_the_leader_epoch_and_its_client_id_the_controller(
    version: int,
) -> None:
    if version == 5:
        raw = wire.flexible_leader_and_isr("t", 3, leader=2, leader_epoch=8, controller=1)
    else:
        raw = wire.leader_and_isr(version, "t", 3, leader=2, leader_epoch=8, controller=1)
    header = decode.request_header(raw)
    assert decode.source_broker(header) == 1
    states = decode.leader_and_isr(raw, header)
    assert states == {("t", 3): m.LeaderEpoch(leader=2, leader_epoch=8)}


@pytest.mark.parametrize(
    ("api_key", "client_id", "broker"),
    [
        (1, "broker-12-fetcher-3", 12),
        (23, "broker-2-fetcher-0", 2),
        (4, "7", 7),
        (6, "7", 7),
        (1, "7", None),  # a client may call itself by a number
        (1, "consumer-1", None),
        (0, "", None),
    ],
)
def test_who_sends_a_request(api_key: int, client_id: str, broker: int | None) -> None:
    header = decode.request_header(wire.request(api_key, 0, b"", client_id=client_id))
    assert decode.source_broker(header) == broker


def test_versions_that_are_in_no_table_are_not_read() -> None:
    fetch = decode.request_header(wire.request(1, 19, b"\0", client_id="c"))
    assert decode.fetch_request(b"", fetch) is None
    isr = decode.request_header(wire.request(4, 3, b"", client_id="1"))
    assert decode.leader_and_isr(b"", isr) is None


@given(st.integers(0, 18), st.binary(max_size=60))
def test_rubbish_is_at_worst_an_error_of_one_kind(version: int, body: bytes) -> None:
    raw = wire.request(1, version, b"\0" * (version >= 12) + b"\x7f" + body, client_id="c")
    response = wire.frame(b"\0\0\0\1" + b"\x7f" + body)
    for read in (
        lambda: decode.fetch_request(raw, decode.request_header(raw)),
        lambda: fetch_response(response, version),
        lambda: decode.leader_and_isr(raw, m.RequestHeader(4, version % 6, 1, "1", 12)),
        lambda: decode.request_header(wire.frame(body[:7])),
    ):
        with contextlib.suppress(MalformedStreamError):  # anything else would fail the test
            read()


def test_markers_of_kafka_up_to_2_7_are_read() -> None:
    """Frames that the classes of kafka-clients 2.1.1 have made; kio begins with version 1."""
    request = _framed(
        "001b00000000000700016300000001000000000000000900020100000001000174000000010000000300000004"
    )
    header = decode.request_header(request)
    entity = decode.request_entity(request, header)
    assert parts_of(entity).about == (
        (("t", 3), {"producer_id": 9, "producer_epoch": 2, "committed": 1}),
    )
    response = _framed("000000070000000100000000000000090000000100017400000001000000030000")
    answer = decode.response_entity(response, 27, 0)
    assert parts_of(answer).about == ((("t", 3), {"producer_id": 9, "error": 0}),)


def _framed(message: str) -> bytes:
    return struct.pack(">i", len(message) // 2) + bytes.fromhex(message)
