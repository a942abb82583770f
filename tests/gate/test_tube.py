"""Sockets that pass bytes on unseen: none is lost, doubled or out of its place."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

from nemesis.gate import tube
from nemesis.gate.tube import BULK_BYTES, Tube


def _pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
    near.setblocking(False)
    return near, far


@dataclass
class _Owner:
    """Sends what it receives on to another, unseen while `unseen_bytes` are left."""

    unseen_bytes: int = 0
    to: Tube | None = None
    seen: list[bytes] = field(default_factory=list)
    spliced: int = 0
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    source: Tube | None = None  # whoever must not be read while this one cannot write

    def data_received(self, data: bytes) -> None:
        self.seen.append(data)
        self.unseen_bytes = max(self.unseen_bytes - len(data), 0)
        if self.to is not None:
            self.to.write(data)

    def unseen(self) -> tuple[Tube, int] | None:
        return (self.to, self.unseen_bytes) if self.to is not None and self.unseen_bytes else None

    def passed_unseen(self, count: int) -> None:
        self.spliced += count
        self.unseen_bytes -= count

    def eof_received(self) -> None:
        self.has_ended.set()
        if self.to is not None:
            self.to.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def pause_writing(self) -> None:
        if self.source is not None:
            self.source.pause_reading()

    def resume_writing(self) -> None:
        if self.source is not None:
            self.source.resume_reading()


async def _passed(data: bytes, unseen_bytes: int, read: Callable[[int], int]) -> _Owner:
    """Send data through two tubes to a reader that takes `read(n)` bytes of its n-th turn."""
    loop = asyncio.get_running_loop()
    (sender, one), (two, receiver) = _pair(), _pair()
    receiver.setblocking(False)
    owner, other = _Owner(unseen_bytes), _Owner()
    near, far = Tube(owner, one), Tube(other, two)
    owner.to, other.source = far, near
    near.resume_reading()

    async def send() -> None:
        await loop.sock_sendall(sender, data)
        sender.close()

    sending = asyncio.create_task(send())
    digest, turn = hashlib.sha256(), 0
    while part := await loop.sock_recv(receiver, read(turn)):
        digest.update(part)
        turn += 1
    await sending
    assert digest.digest() == hashlib.sha256(data).digest()
    assert owner.has_ended.is_set()
    assert owner.spliced + sum(map(len, owner.seen)) == len(data)
    near.abort()
    await asyncio.wait_for(asyncio.gather(owner.lost.wait(), other.lost.wait()), 10)
    receiver.close()
    return owner


DATA = random.Random(7).randbytes(9_000_000)
slow = [1, 70_000, 3, 500_000, 9_000]


@pytest.mark.parametrize("unseen_bytes", [0, 100_000, 5_000_000, 1 << 40])
@pytest.mark.parametrize("sizes", [[1 << 20], slow], ids=["quick", "slow"])
def test_all_that_is_sent_arrives_in_order(unseen_bytes: int, sizes: list[int]) -> None:
    owner = uvloop.run(_passed(DATA, unseen_bytes, lambda turn: sizes[turn % len(sizes)]))
    assert owner.spliced <= unseen_bytes
    if unseen_bytes > len(DATA):  # else it may well have come in small parts
        assert owner.spliced > BULK_BYTES


def test_without_splice_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tube, "_SPLICE", None)
    owner = asyncio.run(_passed(DATA, 1 << 40, lambda _: 1 << 20))
    assert owner.spliced == 0


def test_what_is_written_after_a_pipe_leaves_after_it() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        (sender, one), (two, receiver) = _pair(), _pair()
        receiver.setblocking(False)
        owner, other = _Owner(1 << 40), _Owner()
        near, far = Tube(owner, one), Tube(other, two)
        owner.to = far
        sending = asyncio.create_task(loop.sock_sendall(sender, DATA))
        near.resume_reading()
        while far.idle or not owner.spliced:  # until the receiver takes no more
            await asyncio.sleep(0)
        near.pause_reading()
        before = owner.spliced + sum(map(len, owner.seen))
        far.write(b"after")
        far.close()
        received = b""
        while part := await loop.sock_recv(receiver, 1 << 20):
            received += part
        assert received == DATA[:before] + b"after"
        near.abort()
        with contextlib.suppress(ConnectionError):  # nobody reads what it sends
            await sending
        sender.close()
        receiver.close()

    uvloop.run(story())


def test_no_descriptor_is_left_behind() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    uvloop.run(_passed(DATA, 1 << 40, lambda _: 1 << 20))
    before = count()
    for _ in range(3):
        uvloop.run(_passed(DATA, 1 << 40, lambda _: 1 << 20))
    assert count() == before


def test_a_receiver_that_is_gone_ends_its_socket() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        (sender, one), (two, receiver) = _pair(), _pair()
        owner, other = _Owner(1 << 40), _Owner()
        near, far = Tube(owner, one), Tube(other, two)
        owner.to = far
        near.resume_reading()
        receiver.close()
        sending: Any = asyncio.create_task(loop.sock_sendall(sender, DATA))
        await asyncio.wait_for(other.lost.wait(), 10)
        assert far.is_closing()
        near.abort()
        with contextlib.suppress(ConnectionError):  # nobody reads what it sends
            await sending
        sender.close()

    uvloop.run(story())
