"""Whoever connects to the gate may send what he likes: it goes on, keeps little, closes its own."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import pytest

from neaptide.clusters.broker.wire.bounds import ELEMENTS_MAX, varint
from neaptide.nemesis.gate import decode
from neaptide.nemesis.gate import messages as m
from neaptide.nemesis.gate.frames import FrameSplitter, MalformedStreamError
from neaptide.nemesis.gate.half_frames import KEPT_BYTES_MAX, HalfFrames
from tests.gate import wire
from tests.gate.conftest import Play
from tests.gate.fakes import LEADER, World
from tests.gate.wire import Ask

FETCH_12 = struct.pack(">iiiiBii", 1, 500, 1, 1 << 20, 0, 0, -1)


def flexible(api_key: int, version: int, body: bytes) -> bytes:
    """Its header has no tagged fields."""
    return wire.request(api_key, version, b"\0" + body, client_id="broker-1-fetcher-0")


# 47 bytes of which kio made an array for 2³⁵ elements, and ended the process; and its kind.
CLAIMS = {
    "topics of Fetch v12": flexible(m.FETCH, 12, FETCH_12 + b"\xff\xff\xff\xff\x7f"),
    "topics of Fetch v11": wire.request(
        m.FETCH, 11, FETCH_12 + struct.pack(">i", 2**31 - 1), client_id="c"
    ),
    "forgotten topics of Fetch v12": flexible(
        m.FETCH, 12, FETCH_12 + b"\x01" + b"\xff\xff\xff\xff\x07"
    ),
    "topics of OffsetForLeaderEpoch v4": flexible(
        m.OFFSET_FOR_LEADER_EPOCH, 4, struct.pack(">i", 1) + b"\xff\xff\xff\xff\x0f"
    ),
    "topics of OffsetForLeaderEpoch v2": wire.request(
        m.OFFSET_FOR_LEADER_EPOCH, 2, struct.pack(">i", 2**31 - 1), client_id="c"
    ),
    "behind a tagged field of another size than it says": flexible(
        m.FETCH,
        17,
        FETCH_12[4:]
        + b"\x02"
        + bytes(16)
        + b"\x02"
        + struct.pack(">iiqiqi", 0, 0, 0, 0, 0, 10)
        + b"\x01\x00"
        + varint(40)
        + bytes(16)
        + b"\x00"
        + b"\xff\xff\xff\xff\x0f"
        + bytes(60),
    ),
}


@pytest.mark.live
def test_no_claim_of_a_frame_ends_the_gate(play: Play) -> None:
    async def story(w: World) -> None:
        good = await w.follower()
        await good.rounds(1)
        for frame in CLAIMS.values():
            mark = w.gate.mark()
            bad = await w.follower()
            bad.writer.write(frame)
            await w.gate.wait_for(lambda e: e["event"] == "malformed", 10, since=mark)
            bad.close()
            await good.rounds(1)

    play(story)


@pytest.mark.parametrize("what", CLAIMS)
def test_a_claim_of_more_than_follows_is_malformed(what: str) -> None:
    raw = CLAIMS[what]
    header = decode.request_header(raw)
    read = decode.fetch_request if header.api_key == m.FETCH else decode.epoch_request
    with pytest.raises(MalformedStreamError, match=r"claims|does not have"):
        read(raw, header)


def test_a_response_that_claims_more_than_follows_is_malformed() -> None:
    throttle = bytes(4)
    raw = wire.frame(struct.pack(">i", 1) + b"\0" + throttle + b"\xff\xff\xff\xff\x0f")
    with pytest.raises(MalformedStreamError, match="claims"):
        decode.epoch_response(raw, 4)


def test_elements_of_versions_that_kio_lacks_are_counted_too() -> None:
    entry = struct.pack(">ii", 0, 5)
    head = struct.pack(">i", 1) + wire.text("t")
    for many, is_read in ((ELEMENTS_MAX - 1, True), (ELEMENTS_MAX, False)):
        asked = head + struct.pack(">i", many) + entry * many
        raw = wire.request(m.OFFSET_FOR_LEADER_EPOCH, 0, asked, client_id="c")
        refused = contextlib.nullcontext() if is_read else pytest.raises(MalformedStreamError)
        with refused:
            decode.epoch_request(raw, decode.request_header(raw))


def test_a_null_topic_id_is_an_id_like_any_other() -> None:
    nobody = "00000000-0000-0000-0000-000000000000"
    raw = wire.fetch_request(17, [Ask(nobody, 0, 5, 1)])
    request = decode.fetch_request(raw, decode.request_header(raw))
    assert request is not None
    assert list(request.partitions) == [(nobody, 0)]


def test_tagged_fields_that_nobody_knows_are_no_reason_not_to_read() -> None:
    known = wire.fetch_request(12, [Ask("t", 0, 5, 1)])
    raw = wire.frame(known[4:-1] + b"\x01\x63\x02ab")
    request = decode.fetch_request(raw, decode.request_header(raw))
    assert request == decode.fetch_request(known, decode.request_header(known))


@pytest.mark.parametrize(
    ("client_id", "broker"),
    [("broker-" + "9" * 5000 + "-x", None), ("9" * 5000, None), ("٣", None), ("3", 3)],
)
def test_a_name_that_is_no_id_of_a_broker_is_nobodys(client_id: str, broker: int | None) -> None:
    header = m.RequestHeader(m.LEADER_AND_ISR, 0, 1, client_id, 0)
    assert decode.source_broker(header) == broker
    assert decode.quorum_node(header) == broker


@pytest.mark.live
@pytest.mark.parametrize("begin", [b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"])
@pytest.mark.parametrize("link", [f"replication-{LEADER}", "controller-100"])
def test_a_bad_frame_that_comes_at_once_leaves_no_connection_behind(
    play: Play, link: str, begin: bytes
) -> None:
    async def story(w: World) -> None:
        for tries in range(1, 6):
            mark = w.gate.mark()
            reader, writer = await asyncio.open_connection("127.0.0.1", w.gate.ports[link])
            writer.write(begin)
            await w.gate.wait_for(lambda e: e["event"] == "malformed", 10, since=mark)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            # The door has looked whether somebody is there, too: what counts is who stays.
            await w.leader.until(
                lambda n=tries: len(w.leader.writers) >= n and w.leader.open == 0  # type: ignore[misc]
            )
        assert (await w.gate.state())["connections"] == []

    play(story)


def test_the_largest_of_too_much_that_is_not_whole_is_let_go() -> None:
    kept: HalfFrames[str] = HalfFrames(100)
    assert kept.keep("a", 60) is None
    assert kept.keep("b", 40) is None
    assert kept.keep("b", 41) == "a"
    kept.keep("a", 0)
    assert kept.total_bytes == 41
    assert kept.keep("b", 0) is None
    assert kept.total_bytes == 0


def test_single_bytes_are_counted_with_what_keeps_them() -> None:
    splitter = FrameSplitter()
    splitter.feed(struct.pack(">i", 1000))
    for _ in range(100):
        splitter.feed(b"x")
    assert splitter.kept_bytes > 10 * splitter.partial_bytes


@pytest.mark.live
def test_halves_of_messages_do_not_pile_up_and_go_on_unread(play: Play) -> None:
    size, senders = 100 * 1024 * 1024, 4
    half = b"x" * (size - 100)

    async def story(w: World) -> None:
        good = await w.follower()
        mark = w.gate.mark()
        writers = []
        for _ in range(senders):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", w.gate.ports[f"replication-{LEADER}"]
            )
            writer.write(struct.pack(">i", size) + half)
            await writer.drain()
            writers.append(writer)
        for _ in range((senders * size - KEPT_BYTES_MAX) // size + 1):
            event = await w.gate.wait_for(lambda e: e["event"] == "malformed", 60, since=mark)
            assert event["reason"] == "too much is kept of messages that are not whole"
            mark += 1
        await good.rounds(2)
        for writer in writers:
            writer.close()

    play(story)
