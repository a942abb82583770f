"""F13: how much replicas that catch up may send or fetch."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.server.replication_quota import ReplicationQuota


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def quota(rate: int | None, listed: str = "*", clock: Clock | None = None) -> ReplicationQuota:
    return ReplicationQuota(7, lambda: rate, lambda topic: listed, clock or Clock())


@pytest.mark.parametrize(
    ("listed", "is_named"),
    [("*", True), ("0:1,3:7", True), ("3:1,0:7", False), ("", False), ("none", False)],
)
def test_f13_a_topic_names_its_throttled_replicas(listed: str, is_named: bool) -> None:
    place = TopicPartition("t", 3)
    assert quota(10, listed).is_throttled(place) is is_named
    assert not quota(None, listed).is_throttled(place)


def test_f13_it_is_exceeded_until_the_rate_is_kept_again() -> None:
    clock = Clock()
    one = quota(10, clock=clock)
    assert not one.is_exceeded
    one.record(10)
    assert not one.is_exceeded
    one.record(25)
    assert one.is_exceeded
    clock.now += 3.4
    assert one.is_exceeded
    clock.now += 0.2
    assert not one.is_exceeded
    clock.now += 20
    one.record(10)
    assert not one.is_exceeded  # what is long ago does not count


def test_f13_without_a_rate_nothing_is_exceeded() -> None:
    one = quota(None)
    one.record(1 << 40)
    assert not one.is_exceeded
