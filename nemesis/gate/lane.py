"""One direction of one connection: what waits in it, in order, and why.

Not a socket: it is given something to write to. A parcel leaves when it is first in its lane, is
not held, its time has come, and the lane is open. Whatever is behind a parcel that may not leave
waits too, as in TCP.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from neaptide.nemesis.gate.model import Endpoint
from neaptide.nemesis.gate.said import Message

QUEUED_BYTES_MAX: Final = 8 * 1024 * 1024  # beyond that the sender is no longer read
HoldEnd = Literal["released", "discarded", "closed"]


@dataclass(slots=True)
class Hold:
    """A message that a rule holds. `sender_closed`: its sender has closed the connection since,
    yet the message is on its way, like any that was sent."""

    id: int
    rule: str
    message: Message
    started_ns: int
    sender_closed: bool = False
    ended: HoldEnd | None = None
    closed_by: Endpoint | None = None


@dataclass(slots=True)
class Parcel:
    """Bytes that wait, with the message that they are, if the gate has read it."""

    data: bytes
    message: Message | None = None
    not_before_ns: int = 0
    hold: Hold | None = None

    @property
    def held(self) -> bool:
        return self.hold is not None and self.hold.ended is None


class Lane:
    """Parcels in order. `blocked` and `delay_ns` are set by whoever knows the network."""

    __slots__ = (
        "_clock_ns",
        "_drained",
        "_ending",
        "_left",
        "_timer",
        "_write",
        "blocked",
        "delay_ns",
        "queue",
        "queued_bytes",
    )

    def __init__(
        self,
        clock_ns: Callable[[], int],
        write: Callable[[bytes], None],
        left: Callable[[Parcel, int], None],
        drained: Callable[[], None],
    ) -> None:
        self._clock_ns = clock_ns
        self._write = write
        self._left = left  # a parcel with a message was written, at this time
        self._drained = drained  # the sender has ended and all is written
        self._ending = False
        self._timer: asyncio.TimerHandle | None = None
        self.queue: deque[Parcel] = deque()
        self.queued_bytes = 0
        self.blocked = True  # until both ends are connected
        self.delay_ns = 0

    @property
    def clear(self) -> bool:
        """Whether bytes may pass straight through."""
        return not self.queue and not self.blocked and not self.delay_ns

    @property
    def full(self) -> bool:
        return self.queued_bytes > QUEUED_BYTES_MAX

    def push(self, parcel: Parcel) -> None:
        """Take a parcel; it leaves at once if it may."""
        if self.clear and parcel.hold is None and not parcel.not_before_ns:
            self._let_go(parcel, self._clock_ns())
            return
        if self.delay_ns:
            arrived_ns = max(parcel.not_before_ns, self._clock_ns())
            parcel.not_before_ns = arrived_ns + self.delay_ns
        self.queue.append(parcel)
        self.queued_bytes += len(parcel.data)
        self.pump()

    def pump(self) -> None:
        """Let go whatever may leave now."""
        while self.queue and not self.blocked and not self.queue[0].held:
            now_ns = self._clock_ns()
            parcel = self.queue[0]
            if parcel.not_before_ns > now_ns:
                self._wake_after(parcel.not_before_ns - now_ns)
                return
            self.queue.popleft()
            self.queued_bytes -= len(parcel.data)
            self._let_go(parcel, now_ns)
        if self._ending and not self.queue and not self.blocked:
            self._ending = False
            self._drained()

    def _let_go(self, parcel: Parcel, now_ns: int) -> None:
        self._write(parcel.data)
        if parcel.message is not None:
            self._left(parcel, now_ns)

    def end(self) -> None:
        """The sender will send no more: say so behind all that waits."""
        self._ending = True
        for parcel in self.queue:
            if parcel.hold is not None:
                parcel.hold.sender_closed = True
        self.pump()

    def purge(self) -> list[Parcel]:
        """Take out all that waits. Nothing more leaves, not even the end."""
        parcels = list(self.queue)
        self.queue.clear()
        self.queued_bytes = 0
        self._ending = False
        self._stop_timer()
        return parcels

    def hurry(self) -> None:
        """Forget all delays."""
        self.delay_ns = 0
        for parcel in self.queue:
            parcel.not_before_ns = 0
        self._stop_timer()

    def _wake_after(self, delay_ns: int) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_ns / 1e9, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.pump()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
