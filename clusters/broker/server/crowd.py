"""All connections to a broker together: how many there may be, and what memory they may take.

The limits are Kafka's, with Kafka's names: max.connections, max.connections.per.ip,
connections.max.idle.ms, queued.max.requests, queued.max.request.bytes. Beyond them a new connection
is closed (Kafka lets it wait), and an old one is not read. Two are not Kafka's: no more connections
than the process has files for, and no large answers while many wait to be read.
"""

from __future__ import annotations

import logging
import resource
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

_log = logging.getLogger("listener")
_UNREAD_ANSWER_BYTES_MAX: Final = 1 << 26
_FILES_FOR_CONNECTIONS: Final = 0.6  # of those that the process may have; segments have a quarter
INT_MAX: Final = 2**31 - 1


class Member(Protocol):
    """A connection."""

    ip: str
    is_between_brokers: bool

    def idle_since(self) -> float | None:
        """In seconds of a clock that goes on; None while it waits for an answer of this broker."""

    def end_idle(self) -> None: ...

    def look_again(self) -> None:
        """There may be room for more of its requests now."""


@dataclass(frozen=True, slots=True)
class CrowdLimits:
    max_connections: int = INT_MAX
    max_connections_per_ip: int = INT_MAX
    connections_max_idle_ms: int = 600_000
    queued_max_requests: int = 500
    queued_max_request_bytes: int | None = None


class Crowd:
    """`clock` is in seconds, as that of its members."""

    def __init__(self, limits: CrowdLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._most = min(limits.max_connections, _files_for_connections())
        self._members: dict[Member, None] = {}
        self._by_ip: Counter[str] = Counter()
        self._waiting: dict[Member, None] = {}  # for room
        self._refuses = False
        self._requests = 0
        self._request_bytes = 0
        self._unread_bytes = 0

    # --- who is in -------------------------------------------------------------------------------

    def admit(self, member: Member) -> bool:
        """Brokers always: the cluster must not fall apart because of its clients."""
        is_full = len(self._members) >= self._most and not member.is_between_brokers
        if is_full or self._by_ip[member.ip] >= self._limits.max_connections_per_ip:
            if not self._refuses:
                _log.warning("refusing connections: there are %s", len(self._members))
            self._refuses = True
            return False
        self._refuses = False
        self._members[member] = None
        self._by_ip[member.ip] += 1
        return True

    def leave(self, member: Member) -> None:
        if member not in self._members:
            return
        del self._members[member]
        self._waiting.pop(member, None)
        self._by_ip[member.ip] -= 1
        if not self._by_ip[member.ip]:
            del self._by_ip[member.ip]

    def end_idle(self) -> int:
        """Ends the connections on which nothing has moved for connections.max.idle.ms."""
        long_ago = self._clock() - self._limits.connections_max_idle_ms / 1000
        idle = [
            member
            for member in self._members
            if (since := member.idle_since()) is not None and since <= long_ago
        ]
        for member in idle:
            member.end_idle()
        return len(idle)

    @property
    def idle_check_interval_s(self) -> float:
        return min(60.0, max(0.05, self._limits.connections_max_idle_ms / 4000))

    # --- requests that wait ----------------------------------------------------------------------

    def queue(self, requests: int, size: int) -> None:
        """So many more requests, of so many bytes together, are kept; less where negative."""
        self._requests += requests
        self._request_bytes += size
        if (requests < 0 or size < 0) and self._waiting:
            waiting, self._waiting = self._waiting, {}
            for member in waiting:
                member.look_again()

    def has_room(self, member: Member) -> bool:
        """Whether it may send another request; if not, it is asked to look again."""
        most_bytes = self._limits.queued_max_request_bytes
        has_room = self._requests < self._limits.queued_max_requests and (
            most_bytes is None or self._request_bytes < most_bytes
        )
        if not has_room:
            self._waiting[member] = None
        return has_room

    # --- answers that nobody reads ---------------------------------------------------------------

    def keep_unread(self, size: int) -> None:
        self._unread_bytes += size

    @property
    def may_answer_at_length(self) -> bool:
        return self._unread_bytes < _UNREAD_ANSWER_BYTES_MAX


def _files_for_connections() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return INT_MAX if soft == resource.RLIM_INFINITY else int(soft * _FILES_FOR_CONNECTIONS)
