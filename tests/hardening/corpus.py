"""Frames that no client means: made of frames that clients do send, from a seed.

A frame is mutated behind its length, which stays right, but for some whose length is wrong too.
"""

from __future__ import annotations

import random
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from neaptide.clusters.broker.server.apis.table import client_apis, replication_apis
from neaptide.clusters.broker.wire.codec import CONTROL_APIS, encode_request
from tests.hardening.poison import random_poison
from tests.live.raw import epoch_request, fetch_request, produce_request
from tests.storage.batches import batch
from tests.wire import strategies

TOPICS: Final = ("hurt", "__consumer_offsets", "none-such")
LENGTH: Final = struct.Struct(">i")
_NUMBERS: Final = (-1, -2, 0, 1, 2, 255, 2**16, 2**24, 2**31 - 1, -(2**31))
_DRAWN: Final = 12  # of each API and version


@dataclass(frozen=True, slots=True)
class Corpus:
    """Frames without their length: of clients, and of controllers."""

    of_clients: tuple[bytes, ...]
    of_controllers: tuple[bytes, ...]


def corpus(generation: str, number: int) -> Corpus:
    of_clients = [*_sent_by_clients()]
    of_controllers: list[bytes] = []
    spoken = replication_apis(generation)
    for api, versions in sorted(spoken.items()):
        for version in range(versions.lowest, versions.highest + 1):
            drawn = _draw(strategies.requests(api, version), number)
            # What a controller says is believed: such a frame must be broken, or it is obeyed.
            (of_controllers if api in CONTROL_APIS else of_clients).extend(drawn)
    assert set(client_apis(generation)) <= set(spoken)
    return Corpus(tuple(of_clients), tuple(of_controllers))


def _body(entity: Any) -> bytes:
    return encode_request(entity, correlation_id=7, client_id="hurt")[LENGTH.size :]


def _sent_by_clients() -> list[bytes]:
    return [
        _body(request)
        for topic in TOPICS
        for request in (
            *(produce_request(topic, batch(0, [b"a", b"b"]), acks=acks) for acks in (0, 1, -1)),
            produce_request(topic, batch(0, [b"z" * 50] * 9, compression="lz4"), acks=1),
            produce_request(topic, batch(0, [b"i"], producer=(9, 0, 0)), acks=1),
            *(fetch_request(topic, 0, version=version) for version in (4, 5, 6)),
            fetch_request(topic, 0, max_wait_ms=50, min_bytes=1),
            epoch_request(topic, 0, -1),
        )
    ]


def _draw(strategy: st.SearchStrategy[Any], number: int) -> list[bytes]:
    found: list[bytes] = []

    @seed(number)
    @settings(
        max_examples=_DRAWN,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def keep(entity: Any) -> None:
        found.append(_body(entity))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keep()
    return found


# --- what becomes of a frame ----------------------------------------------------------------------


def _flip(chance: random.Random, frame: bytearray) -> None:
    for _ in range(chance.randrange(1, 4)):
        frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)


def _set_bytes(chance: random.Random, frame: bytearray) -> None:
    at = chance.randrange(len(frame))
    width = chance.choice((1, 2, 4, 8))
    frame[at : at + width] = chance.choice((b"\xff", b"\x7f", b"\x80", b"\x00")) * width


def _set_number(chance: random.Random, frame: bytearray) -> None:
    at = chance.randrange(len(frame))
    frame[at : at + LENGTH.size] = LENGTH.pack(chance.choice(_NUMBERS))


def _cut(chance: random.Random, frame: bytearray) -> None:
    del frame[chance.randrange(len(frame)) :]


def _repeat(chance: random.Random, frame: bytearray) -> None:
    at = chance.randrange(len(frame))
    frame[at:at] = frame[at : at + chance.randrange(1, 40)] * chance.randrange(1, 4)


def _add(chance: random.Random, frame: bytearray) -> None:
    frame += chance.randbytes(chance.randrange(1, 40))


def _change_version(chance: random.Random, frame: bytearray) -> None:
    frame[2:4] = struct.pack(">h", chance.choice((0, 1, 2, 3, 4, 5, 9, 13, 99, -1)))


MUTATIONS: Final[tuple[Callable[[random.Random, bytearray], None], ...]] = (
    _flip,
    _flip,
    _set_bytes,
    _set_number,
    _set_number,
    _cut,
    _repeat,
    _add,
    _change_version,
)


def malformed(chance: random.Random, known: Corpus) -> tuple[str, bytes]:
    """What kind of frame it is, and the frame with its length."""
    dice = chance.random()
    if dice < 0.25:
        request = produce_request(
            chance.choice(TOPICS), random_poison(chance), acks=chance.choice((0, 1, -1))
        )
        return "poisoned batch", _framed(_body(request))
    if dice < 0.30:
        return "noise", _framed(chance.randbytes(chance.randrange(1, 200)))
    if dice < 0.33:
        frame = bytearray(chance.choice(known.of_clients))
        length = chance.choice((-1, 0, 1, len(frame) // 2, len(frame) + 9, 2**31 - 1))
        return "wrong length", LENGTH.pack(length) + frame
    frame = bytearray(chance.choice(known.of_clients))
    for _ in range(chance.randrange(1, 3)):
        if frame:
            chance.choice(MUTATIONS)(chance, frame)
    return "mutated", _framed(bytes(frame))


def broken_control(chance: random.Random, known: Corpus) -> tuple[str, bytes]:
    """A controller's request that ends early, or too late: never one that can be obeyed."""
    frame = bytearray(chance.choice(known.of_controllers))
    if chance.random() < 0.5:
        del frame[chance.randrange(4, len(frame)) :]
    else:
        _add(chance, frame)
    return "broken control", _framed(bytes(frame))


def _framed(frame: bytes) -> bytes:
    return LENGTH.pack(len(frame)) + frame
