"""How many bytes a second replicas that catch up may send, or fetch (KIP-73).

While more than the rate has gone out, a leader gives a throttled replica that is not in sync no
records; a follower leaves throttled partitions of which it is behind out of its requests. Topics
name the replicas (`leader.replication.throttled.replicas`), brokers the rates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from neaptide.clusters.broker.replication.model import TopicPartition

_SAMPLES: Final = 11  # replication.quota.window.num, of a second each
_ALL: Final = "*"


class ReplicationQuota:
    """Of a leader, or of a follower. `rate`: bytes a second, None: without limit. `listed`: what a
    topic says of its throttled replicas. `now` is in seconds of a clock that goes on."""

    def __init__(
        self,
        broker_id: int,
        rate: Callable[[], int | None],
        listed: Callable[[str], str],
        now: Callable[[], float],
    ) -> None:
        self._broker_id = broker_id
        self._rate = rate
        self._listed = listed
        self._now = now
        self._samples: deque[tuple[float, int]] = deque()  # when each second began, and its bytes

    def is_throttled(self, place: TopicPartition) -> bool:
        """Whether this broker's replica is among those that are named, as `partition:broker`."""
        if self._rate() is None:
            return False
        listed = self._listed(place.topic)
        return listed == _ALL or f"{place.partition}:{self._broker_id}" in listed.split(",")

    def record(self, count: int) -> None:
        now = self._now()
        if not self._samples or now - self._samples[-1][0] >= 1:
            self._samples.append((now, 0))
        began, before = self._samples[-1]
        self._samples[-1] = began, before + count

    @property
    def is_exceeded(self) -> bool:
        rate = self._rate()
        if rate is None:
            return False
        now = self._now()
        while self._samples and now - self._samples[0][0] >= _SAMPLES:
            self._samples.popleft()
        if not self._samples:
            return False
        sent = sum(count for _, count in self._samples)
        return sent / max(1.0, now - self._samples[0][0]) > rate
