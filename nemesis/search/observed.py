"""What conditions ask, answered from a world as the wire shows it (nemesis.conditions.Observed).

As in a live run, a follower's LEO and HW are what its fetch rounds showed, and only while the
leader that they name is the leader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.model import (
    NO_LEADER,
    LeaderAndIsr,
    TopicConfiguration,
    TopicPartition,
)
from neaptide.clusters.simulation.blocking import is_matched
from neaptide.clusters.simulation.network import CLIENT, CLIENTS, REPLICATION
from neaptide.clusters.simulation.parts import FetchPosition
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.gate.model import CLIENT as CLIENT_END


class WorldObserved:
    """About one partition of the world's topic."""

    def __init__(self, world: World, named: Mapping[str, int] | None = None) -> None:
        self._world = world
        self._named = named or {}

    # --- clients ---

    def acked(self, record: str) -> bool:
        return self._world.clients.is_acked(record)

    def failed(self, record: str) -> bool:
        found = self._world.clients.sends.get(record)
        return found is not None and found[1].kind == "fail"

    def consumed(self, record: str) -> bool:
        return record in self._world.clients.consumed

    def committed(self, group: str) -> int | None:
        """What it last committed of this partition."""
        return self._world.clients.committed.get((group, self._world.partition.partition))

    def error(self, record: str) -> str | None:
        found = self._world.clients.sends.get(record)
        return found[1].error if found is not None else None

    # --- brokers ---

    def up(self, broker: int) -> bool:
        return broker in self._world.brokers

    def registered(self, broker: int) -> bool:
        return broker in self._world.service.sessions

    def checkpointed(self, broker: int) -> int | None:
        disk = self._world.disks.get(broker)
        return disk.high_watermarks.get(self._world.partition) if disk else None

    def flushed(self, broker: int) -> int | None:
        disk = self._world.disks.get(broker)
        log = disk.logs.get(self._world.partition) if disk else None
        return log.recovery_point if log else None

    # --- what is not there in the simulation: scenarios that ask for it are not played here ---

    def voters(self) -> Collection[int]:
        return ()

    def hits(self, rule: str) -> int:
        return 0

    def cleaned(self, broker: int, partition: int) -> int | None:
        return None

    def handled(self, record: str) -> int:
        return 0

    def taken(self, client: str, record: str) -> bool:
        return False

    def assigned(self, client: str) -> int:
        return 0

    def notified(self, client: str) -> str | None:
        return None

    # --- the coordination service ---

    def leader(self) -> int | None:
        state = self._world.service.states.get(self._world.partition)
        return None if state is None or state.leader == NO_LEADER else state.leader

    def leader_epoch(self) -> int | None:
        state = self._world.service.states.get(self._world.partition)
        return None if state is None else state.leader_epoch

    def isr(self) -> Collection[int]:
        state = self._world.service.states.get(self._world.partition)
        return () if state is None else state.isr

    def replicas(self) -> tuple[int, ...]:
        return assigned(self._world, self._world.partition)

    def isr_changes(self) -> int:
        return self._world.service.isr_changes.get(self._world.partition, 0)

    def controller(self) -> int | None:
        return self._world.service.controller

    def controller_epoch(self) -> int | None:
        return self._world.service.controller_epoch

    def named(self, name: str) -> int | None:
        return self._named.get(name)

    # --- the disks ---

    def log_start_offset(self, broker: int) -> int | None:
        log = self._world.disks[broker].logs.get(self._world.partition)
        return log.start_offset if log else None

    def log_end_offset_on_disk(self, broker: int) -> int | None:
        log = self._world.disks[broker].logs.get(self._world.partition)
        return log.end_offset if log else None

    # --- the wire ---

    def refused(self, broker: int) -> bool:
        """Whether a broker has refused this one's requests as those of an earlier controller."""
        return broker in self._world.network.shown.refused

    def obeyed(self, broker: int) -> bool:
        """Whether a broker has accepted a request of this one as that of its controller."""
        return broker in self._world.network.shown.obeyed

    def fenced(self, broker: int) -> bool:
        """Whether its last answer says that it and whom it follows are not in one epoch."""
        return broker in self._world.network.shown.fenced

    def sender_gone(self, rule: str) -> bool:
        network = self._world.network
        hold = network.holds.get(rule)
        return hold is not None and any(
            link is not None and is_matched(network, hold, link, body)
            for _, _, link, body in network.abandoned
        )

    def held(self, source: int | str, destination: int | str) -> bool:
        world = self._world
        ends = tuple(CLIENT if one == CLIENT_END else one for one in (source, destination))
        return any(
            link is not None
            and (link.source, link.target) == ends
            and link.channel in (*REPLICATION, CLIENTS)
            and destination in world.brokers  # else its connection is broken, and nothing on it
            and any(
                is_matched(world.network, rule, link, body, world.partition)
                for rule in world.network.holds.values()
            )
            for _, _, link, body in world.network.waiting
        )

    def _position(self, broker: int) -> FetchPosition | None:
        position = self._world.network.shown.positions.get(broker)
        if position is None or position.leader != self.leader():
            return None
        return position if position.leader_epoch == self.leader_epoch() else None

    def log_end_offset(self, broker: int) -> int | None:
        position = self._position(broker)
        return position.log_end_offset if position else None

    def high_watermark(self, broker: int) -> int | None:
        position = self._position(broker)
        return position.high_watermark if position else None

    def round(self, broker: int) -> int | None:
        position = self._position(broker)
        return position.round if position else None

    def is_reachable(self, broker: int) -> bool:
        return broker in self._world.brokers and broker not in self._world.network.paused

    def level(self) -> bool:
        """Every reachable follower has all that was acknowledged, and knows it to be committed."""
        ends = [offset for offset in self._acked_here() if offset is not None]
        return self.settled_at(max(ends, default=-1) + 1)

    def _acked_here(self) -> list[int | None]:
        clients, number = self._world.clients, self._world.partition.partition
        sends = clients.sends
        return [at for value, at in clients.acked.items() if sends[value][0].partition == number]

    def commits_level(self) -> bool:
        """Every reachable follower has all of `__consumer_offsets` that was acknowledged, as much
        as its leader, and knows it to be committed."""
        done = self._world.clients.group_operations
        commits = sum(one.f == "commit" and one.kind == "ok" for one in done)
        return self.commits_settled() and self._commits_written() >= commits

    def commits_settled(self) -> bool:
        """Every reachable follower has all that its leader has of the internal topics, and knows
        it to be committed; whatever was lost of it."""
        return all(
            self._is_level(TopicPartition(topic, number))
            for topic, configuration in self._world.spec.internal_topics.items()
            for number in configuration.assignment
        )

    def others_settled(self, *, in_sync: bool = False) -> bool:
        """The same of the topic's other partitions; `in_sync`: with all replicas in the ISR."""
        spec, main = self._world.spec, self._world.partition
        others = (TopicPartition(spec.topic, number) for number in spec.configuration.assignment)
        return all(
            self._is_level(one) and (not in_sync or self._is_in_sync(one))
            for one in others
            if one != main
        )

    def _is_in_sync(self, partition: TopicPartition) -> bool:
        isr = self._world.service.states[partition].isr
        return len(isr) == len(assigned(self._world, partition))

    def _commits_written(self) -> int:
        led = ((self._world.service.states[one].leader, one) for one in self._of_commits())
        return sum(self._world.disks[leader].logs[one].end_offset for leader, one in led)

    def _of_commits(self) -> tuple[TopicPartition, ...]:
        offsets = self._world.spec.offsets
        numbers = () if offsets is None else tuple(offsets.assignment)
        return tuple(TopicPartition(OFFSETS_TOPIC, number) for number in numbers)

    def _is_level(self, partition: TopicPartition) -> bool:
        state: LeaderAndIsr | None = self._world.service.states.get(partition)
        if state is None or not self.is_reachable(state.leader):
            return False
        led = self._world.brokers[state.leader].led(partition)
        if led is None:
            return False
        for replica in assigned(self._world, partition):
            if not self.is_reachable(replica):
                continue
            held = self._world.brokers[replica].partitions.get(partition)
            if held is None or held.leader_epoch != led.leader_epoch:
                return False
            if not led.log.end_offset == held.log.end_offset == held.high_watermark:
                return False
        return True

    def settled_at(self, least: int) -> bool:
        """The reachable followers have the same LEO, at least this, and the same HW."""
        leader = self.leader()
        if leader is None or not self.is_reachable(leader):
            return False
        ends = {least}
        for replica in assigned(self._world, self._world.partition):
            if replica == leader or not self.is_reachable(replica):
                continue
            end = self.log_end_offset(replica)
            if end is None or end < least or self.high_watermark(replica) != end:
                return False
            ends.add(end)
        return len(ends - {least}) <= 1


def assigned(world: World, partition: TopicPartition) -> tuple[int, ...]:
    """The replicas of a partition now; while a reassignment goes on, the old and the new ones."""
    of = world.service.topics.get(partition.topic) or _first(world, partition.topic)
    return tuple(of.assignment[partition.partition])


def _first(world: World, topic: str) -> TopicConfiguration:
    return world.spec.internal_topics.get(topic, world.spec.configuration)


def is_reassigning(world: World) -> bool:
    """Whether a reassignment is asked for that is not over, or one goes on."""
    service = world.service
    return bool(service.reassignments) or any(
        any(one.adding.values()) or any(one.removing.values()) for one in service.topics.values()
    )
