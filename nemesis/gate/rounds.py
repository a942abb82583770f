"""Counts fetch rounds, and remembers which leader epoch each broker is in. Pure: no clock.

Fetch round n of a follower = its n-th Fetch request for that partition to that leader since it
entered that leader epoch, with its response. The epoch is the one that the request itself names
(Fetch v9 on), else the last in which a LeaderAndIsr made the follower follow that
leader; unknown until then.
"""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.nemesis.gate.messages import LeaderEpoch, TopicPartition


class RoundCounter:
    """The round and the epoch of each (follower, leader, partition)."""

    __slots__ = ("_epochs", "_rounds")

    def __init__(self) -> None:
        # (broker, partition) → leader → the newest epoch that it received of that leader
        self._epochs: dict[tuple[int, TopicPartition], dict[int, int]] = {}
        self._rounds: dict[tuple[int, int, TopicPartition], tuple[int | None, int]] = {}

    def learn(
        self, broker: int, states: Mapping[TopicPartition, LeaderEpoch]
    ) -> dict[TopicPartition, LeaderEpoch]:
        """A broker received who leads; what of it is new to that broker is returned."""
        news: dict[TopicPartition, LeaderEpoch] = {}
        for partition, state in states.items():
            known = self._epochs.setdefault((broker, partition), {})
            if state.leader_epoch > known.get(state.leader, -1):
                known[state.leader] = state.leader_epoch
                news[partition] = state
        return news

    def next_round(
        self, follower: int, leader: int, partition: TopicPartition, epoch: int | None
    ) -> tuple[int | None, int]:
        """The leader epoch and the number of the round that a request starts."""
        if epoch is None:
            epoch = self._epochs.get((follower, partition), {}).get(leader)
        key = (follower, leader, partition)
        last_epoch, last_round = self._rounds.get(key, (epoch, 0))
        counted = (epoch, last_round + 1 if last_epoch == epoch else 1)
        self._rounds[key] = counted
        return counted
