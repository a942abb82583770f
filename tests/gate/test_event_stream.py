"""What the gate reports when nobody reads: rounds are left out, and that they were is said."""

from __future__ import annotations

import asyncio
import json
from typing import cast

from neaptide.nemesis.gate.process import UNREPORTED_BYTES_MAX, EventStream

ROUND, HELD = {"event": "round"}, {"event": "hold_started"}
LEFT_OUT = {"event": "rounds_not_reported", "at_ns": 7, "count": 2}


class _Pipe:
    """As much of a transport as is written to."""

    def __init__(self) -> None:
        self.unread_bytes = 0
        self.reported: list[dict[str, object]] = []

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def write(self, line: bytes) -> None:
        self.reported.append(json.loads(line))


def _stream() -> tuple[EventStream, _Pipe]:
    pipe = _Pipe()
    return EventStream(cast(asyncio.WriteTransport, pipe), lambda: 7), pipe


def test_all_is_reported_while_it_is_read() -> None:
    stream, pipe = _stream()
    pipe.unread_bytes = UNREPORTED_BYTES_MAX
    for event in (ROUND, HELD, ROUND):
        stream.emit(event)
    assert pipe.reported == [ROUND, HELD, ROUND]


def test_that_rounds_were_left_out_is_reported_before_what_comes_next() -> None:
    stream, pipe = _stream()
    pipe.unread_bytes = UNREPORTED_BYTES_MAX + 1
    for event in (ROUND, ROUND, HELD, HELD):
        stream.emit(event)
    assert pipe.reported == [LEFT_OUT, HELD, HELD]


def test_it_is_reported_before_the_round_that_comes_again() -> None:
    stream, pipe = _stream()
    pipe.unread_bytes = UNREPORTED_BYTES_MAX + 1
    for event in (ROUND, ROUND):
        stream.emit(event)
    pipe.unread_bytes = 0
    stream.emit(ROUND)
    assert pipe.reported == [LEFT_OUT, ROUND]
