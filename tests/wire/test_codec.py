"""What is written is read again; bytes that are no message are said to be malformed, no more."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.metadata.v1.request import MetadataRequest

from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import (
    LENGTH_BYTES,
    MalformedMessageError,
    UnsupportedVersionError,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    make,
    request_class,
)
from tests.proof import proof_but
from tests.wire import strategies
from tests.wire.strategies import CLIENT_APIS, REPLICATION_APIS

few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
spoken = pytest.mark.parametrize(
    ("api", "version"),
    proof_but(strategies.SPOKEN, *strategies.OLDEST_AND_NEWEST),
    ids=strategies.NAMES,
)


def body(frame: bytes) -> bytes:
    """A frame without its length, which says how long the rest is."""
    assert int.from_bytes(frame[:LENGTH_BYTES], "big") == len(frame) - LENGTH_BYTES
    return frame[LENGTH_BYTES:]


@pytest.mark.slow
@spoken
@few
@given(data=st.data())
def test_a_request_is_read_as_it_was_written(api: Api, version: int, data: st.DataObject) -> None:
    entity = data.draw(strategies.requests(api, version))
    frame = encode_request(entity, correlation_id=77, client_id="somebody")
    header, read = decode_request(body(frame), REPLICATION_APIS)
    assert (header.api, header.version) == (api, version)
    assert (header.correlation_id, header.client_id) == (77, "somebody")
    assert read == entity


@pytest.mark.slow
@spoken
@few
@given(data=st.data())
def test_a_response_is_read_as_it_was_written(api: Api, version: int, data: st.DataObject) -> None:
    entity = data.draw(strategies.responses(api, version))
    correlation_id, read = decode_response(body(encode_response(entity, 77)), api, version)
    assert (correlation_id, read) == (77, entity)


@pytest.mark.slow
@spoken
@few
@given(data=st.data())
def test_a_damaged_request_is_malformed_or_another_request(
    api: Api, version: int, data: st.DataObject
) -> None:
    entity = data.draw(strategies.requests(api, version))
    frame = bytearray(body(encode_request(entity, correlation_id=1, client_id="c")))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(frame) - 1))
        what = data.draw(st.sampled_from(["cut", "change", "insert"]))
        if what == "cut" and at > 0:
            del frame[at:]
        elif what == "change":
            frame[at] = data.draw(st.integers(0, 255))
        else:
            frame[at:at] = data.draw(st.binary(min_size=1, max_size=4))
    try:
        decode_request(bytes(frame), REPLICATION_APIS)
    except (MalformedMessageError, UnsupportedVersionError):
        return


@settings(max_examples=200, deadline=None)
@given(frame=st.binary(max_size=200), api=st.sampled_from(list(REPLICATION_APIS)))
def test_noise_behind_a_header_is_malformed_and_nothing_else(frame: bytes, api: Api) -> None:
    version = CLIENT_APIS[api].highest if api in CLIENT_APIS else REPLICATION_APIS[api].highest
    noise = struct.pack(">hhih", api, version, 1, -1) + frame
    for bytes_of_a_peer in (frame, noise):
        try:
            decode_request(bytes_of_a_peer, REPLICATION_APIS)
        except (MalformedMessageError, UnsupportedVersionError):
            continue


@settings(max_examples=200, deadline=None)
@given(frame=st.binary(max_size=200), spoken_version=st.sampled_from(strategies.SPOKEN))
def test_a_response_of_noise_is_malformed_and_nothing_else(
    frame: bytes, spoken_version: tuple[Api, int]
) -> None:
    try:
        decode_response(frame, *spoken_version)
    except MalformedMessageError:
        return


def test_every_cut_of_a_request_is_malformed() -> None:
    """The twin of the whole one, which is not."""
    entity = MetadataRequest(topics=None)
    frame = body(encode_request(entity, correlation_id=1, client_id="c"))
    assert decode_request(frame, CLIENT_APIS)[1] == entity
    for size in range(len(frame)):
        with pytest.raises(MalformedMessageError):
            decode_request(frame[:size], CLIENT_APIS)
    with pytest.raises(MalformedMessageError, match="bytes left over"):
        decode_request(frame + b"\x00", CLIENT_APIS)


def test_a_version_that_is_not_spoken_is_distinguished_with_its_header() -> None:
    frame = struct.pack(">hhih", Api.API_VERSIONS, 99, 42, -1)
    with pytest.raises(UnsupportedVersionError) as raised:
        decode_request(frame, CLIENT_APIS)
    assert raised.value.header.correlation_id == 42


def test_what_brokers_say_to_brokers_is_not_answered_to_clients() -> None:
    frame = struct.pack(">hhih", Api.STOP_REPLICA, 1, 1, -1) + b"\x00" * 21
    with pytest.raises(MalformedMessageError, match="not answered on this listener"):
        decode_request(frame, CLIENT_APIS)


def test_make_leaves_out_what_a_version_does_not_have() -> None:
    cls = request_class(Api.METADATA, 1)
    assert make(cls, topics=None, allow_auto_topic_creation=False) == MetadataRequest(topics=None)
