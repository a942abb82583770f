"""What conditions ask, answered from what the stage has seen (nemesis.conditions.Observed)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from neaptide.clusters.broker.replication.errors import FENCED, Error
from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.cluster import PartitionView, TopicSpec
from neaptide.harness.live.stage import Stage
from neaptide.nemesis.gate.client import FetchPosition

_REFUSALS = (Error.STALE_CONTROLLER_EPOCH, Error.STALE_BROKER_EPOCH)


class StageObserved:
    """About partition 0 of the scenario's topic, unless another one is named."""

    def __init__(self, stage: Stage, partition: int = 0, topic: TopicSpec | None = None) -> None:
        self._stage = stage
        self._partition = partition
        self._topic = topic or stage.spec.topic

    def _view(self) -> PartitionView | None:
        return self._stage.view(self._partition, self._topic.name)

    # --- clients ---

    def acked(self, record: str) -> bool:
        return record in self._stage.sends.acked

    def failed(self, record: str) -> bool:
        return record in self._stage.sends.failed

    def consumed(self, record: str) -> bool:
        return record in self._stage.sends.consumed

    def committed(self, group: str) -> int | None:
        """What it last committed of this partition."""
        return self._stage.sends.committed.get((group, self._partition))

    def commits_level(self) -> bool:
        """Every reachable follower has all of `__consumer_offsets` that was acknowledged, as much
        as the others have, and knows it to be committed."""
        offsets = self._stage.spec.offsets
        partitions = () if offsets is None else offsets.assignment.items()
        ends = [self._end_of_commits(*one) for one in partitions]
        known = [end for end in ends if end is not None]
        return len(known) == len(ends) and sum(known) >= self._stage.sends.commits

    def _end_of_commits(self, partition: int, replicas: Collection[int]) -> int | None:
        """Where all that can be reached have the end and the high watermark of one partition."""
        positions = {
            replica: self._stage.gate.positions.get((replica, OFFSETS_TOPIC, partition))
            for replica in replicas
            if self._stage.is_reachable(replica)
        }
        return self._stage.sends.commits if len(positions) == 1 else level_end(positions)

    def handled(self, record: str) -> int:
        return self._stage.sends.handled.get(record, 0)

    def taken(self, client: str, record: str) -> bool:
        return record in self._stage.sends.taken.get(client, ())

    def assigned(self, client: str) -> int:
        return self._stage.sends.assigned.get(client, 0)

    def notified(self, client: str) -> str | None:
        return self._stage.sends.notified.get(client)

    def error(self, record: str) -> str | None:
        """Kafka's name of the error that the producer was given, definite or not."""
        sends = self._stage.sends
        return sends.failed.get(record) or sends.unknown.get(record)

    # --- brokers ---

    def up(self, broker: int) -> bool:
        return self._stage.cluster.is_up(broker)

    def registered(self, broker: int) -> bool:
        return broker in self._stage.observer.registered

    def checkpointed(self, broker: int) -> int | None:
        return self._stage.cluster.high_watermark_checkpoint(broker, self._partition)

    def flushed(self, broker: int) -> int | None:
        return self._stage.cluster.recovery_point_checkpoint(broker, self._partition)

    def cleaned(self, broker: int, partition: int) -> int | None:
        return self._stage.cluster.cleaner_checkpoint(broker, partition)

    def log_start_offset(self, broker: int) -> int | None:
        offsets = self._stage.cluster.log_offsets(broker, self._partition)
        return offsets[0] if offsets else None

    def log_end_offset_on_disk(self, broker: int) -> int | None:
        offsets = self._stage.cluster.log_offsets(broker, self._partition)
        return offsets[1] if offsets else None

    # --- the coordination service ---

    def leader(self) -> int | None:
        view = self._view()
        return view.leader if view else None

    def leader_epoch(self) -> int | None:
        view = self._view()
        return view.leader_epoch if view else None

    def isr(self) -> Collection[int]:
        view = self._view()
        return view.isr if view else ()

    def replicas(self) -> Sequence[int]:
        """Those that the topic was created with, until the cluster has shown any."""
        seen = self._stage.observer.replicas(self._topic.name)
        return seen.get(self._partition) or self._topic.assignment[self._partition]

    def isr_changes(self) -> int:
        return self._stage.isr_changes.get(self._partition, 0)

    def controller(self) -> int | None:
        return self._stage.observer.controller

    def controller_epoch(self) -> int | None:
        return self._stage.observer.controller_epoch

    def voters(self) -> Collection[int]:
        return self._stage.observer.voters

    def named(self, name: str) -> int | None:
        return self._stage.named.get(name)

    # --- the wire ---

    def refused(self, broker: int) -> bool:
        """Whether a broker has refused this one's requests: those of an earlier controller, or for
        an earlier process of that broker."""
        answered = self._stage.controllers_answered
        return any(broker in answered.get(error, ()) for error in _REFUSALS)

    def obeyed(self, broker: int) -> bool:
        """Whether a broker has accepted a request of this one as that of its controller."""
        return broker in self._stage.controllers_answered.get(Error.NONE, ())

    def fenced(self, broker: int) -> bool:
        """Whether its last answer says that it and whom it follows are not in one epoch."""
        key = (broker, self._topic.name, self._partition)
        return self._stage.gate.answered.get(key) in FENCED

    def hits(self, rule: str) -> int:
        return self._stage.hits[rule]

    def sender_gone(self, rule: str) -> bool:
        """Whether all that a rule holds is of senders that have closed their connections."""
        held = self._stage.gate.held_by(rule)
        return bool(held) and all(event["sender_closed"] for event in held)

    def held(self, source: int | str, destination: int | str) -> bool:
        return any(
            event["source"] == source and event["destination"] == destination
            for event in self._stage.gate.held.values()
        )

    def _position(self, broker: int) -> FetchPosition | None:
        topic = self._topic.name
        position = self._stage.gate.positions.get((broker, topic, self._partition))
        if position is None or position.leader != self.leader():
            return None  # of an earlier leader: it says nothing of now
        if position.leader_epoch not in (None, self.leader_epoch()):
            return None
        return position

    def log_end_offset(self, broker: int) -> int | None:
        position = self._position(broker)
        return position.log_end_offset if position else None

    def high_watermark(self, broker: int) -> int | None:
        position = self._position(broker)
        return position.high_watermark if position else None

    def round(self, broker: int) -> int | None:
        position = self._position(broker)
        return position.round if position else None

    def level(self) -> bool:
        """Every reachable follower has all that was acknowledged, and knows it to be committed."""
        ends = [offset for offset in self._stage.sends.acked.values() if offset is not None]
        return self.settled_at(max(ends, default=-1) + 1)

    def settled_at(self, least: int) -> bool:
        """The reachable followers have the same LEO, at least this, and the same HW."""
        leader = self.leader()
        if leader is None or not self._stage.is_reachable(leader):
            return False
        for replica in self.replicas():
            if replica == leader or not self._stage.is_reachable(replica):
                continue
            end = self.log_end_offset(replica)
            if end is None or end < least or self.high_watermark(replica) != end:
                return False
            least = max(least, end)
        return all(
            self.log_end_offset(replica) == least
            for replica in self.replicas()
            if replica != leader and self._stage.is_reachable(replica)
        )


def level_end(positions: Mapping[int, FetchPosition | None]) -> int | None:
    """The log end that all followers have and know to be committed; None: they are not level.

    `positions`: of the replicas that can be reached, as the wire last showed them. Who leads is who
    is followed in the newest leader epoch; what the leader itself once was does not count.
    """
    known = [position for position in positions.values() if position is not None]
    newest = max(map(_epoch, known), default=-1)
    leaders = {position.leader for position in known if _epoch(position) == newest}
    if len(leaders) != 1:
        return None
    [leader] = leaders
    ends: set[int | None] = set()
    for replica, position in positions.items():
        if replica == leader:
            continue
        if position is None or (position.leader, _epoch(position)) != (leader, newest):
            return None
        ends |= {position.log_end_offset, position.high_watermark}
    return ends.pop() if len(ends) == 1 else None


def _epoch(position: FetchPosition) -> int:
    return -1 if position.leader_epoch is None else position.leader_epoch
