"""Streams cut into frames."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.nemesis.gate.frames import FRAME_BYTES_MAX, FrameSplitter, MalformedStreamError
from tests.gate.wire import frame


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30)))
def test_frames_come_out_as_they_went_in_however_the_stream_is_chopped(
    bodies: list[bytes], cuts: list[int]
) -> None:
    frames = [frame(body) for body in bodies]
    stream = b"".join(frames)
    splitter = FrameSplitter()
    seen: list[bytes] = []
    for size in cuts:
        seen += splitter.feed(stream[:size])
        stream = stream[size:]
    assert [*seen, *splitter.feed(stream)] == frames
    assert splitter.partial_bytes == 0


def test_an_incomplete_frame_waits_for_its_rest() -> None:
    splitter = FrameSplitter()
    assert splitter.feed(frame(b"abc")[:-1]) == []
    assert splitter.partial_bytes == 6
    assert splitter.feed(b"c") == [frame(b"abc")]


@pytest.mark.parametrize("length", [-1, FRAME_BYTES_MAX + 1])
@pytest.mark.parametrize("before", [b"", frame(b"whole")])
def test_a_length_that_nobody_sends_is_an_error(length: int, before: bytes) -> None:
    with pytest.raises(MalformedStreamError, match=f"a frame of {length} bytes"):
        FrameSplitter().feed(before + struct.pack(">i", length) + b"x")
