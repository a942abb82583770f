"""Changes the members of a running cluster, and changes them back.

What the cluster refuses, or nobody was there to be asked for, is a miss. A reassignment is undone
only when the cluster's own metadata says so: the run's end waits for every replica that it began
with.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.errors import RefusedError
from neaptide.clusters.kafka.members import (
    ADMIN_SINCE,
    Members,
    RefusedChangeError,
    Replicas,
    ZooKeeperMembers,
    move_controller,
)
from neaptide.clusters.kafka.versions import Mode, parse_release
from neaptide.harness.live.faults import Faults
from neaptide.harness.live.stage import Stage
from neaptide.harness.scenarios.systems import generation_of
from neaptide.nemesis.player import MissedError

_DONE_WITHIN_S: Final = 30.0
_TAKEN_WITHIN_S: Final = 10.0
_LOOK_S: Final = 0.25  # nothing reports that a reassignment is over, or may be asked for again
_VOTERS_MIN: Final = 3
_OTHER_TOPIC: Final = "neaptide-other"


class MembersNemesis:
    def __init__(self, stage: Stage, faults: Faults) -> None:
        self._stage = stage
        self._faults = faults
        self._topic = stage.spec.topic.name
        self._assigned = dict(stage.spec.topic.assignment)
        self._others = 0
        self._reassigned: set[int] = set()
        self._left_quorum: set[int] = set()

    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> None:
        """Raises RefusedChangeError."""
        await asyncio.to_thread(
            partial(self._members().elect, self._topic, partitions, unclean=unclean)
        )

    async def reassign(self, partition: int, replicas: Sequence[int]) -> None:
        """Raises RefusedChangeError."""
        wanted = {partition: tuple(replicas)}
        await self._asked_again(lambda: self._change("reassign", wanted), _TAKEN_WITHIN_S)

    async def _asked_again(self, ask: Callable[[], Awaitable[None]], within_s: float) -> None:
        """Until the cluster takes it: what was asked for before may not be over by a hair. Raises
        RefusedChangeError."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                await ask()
            except RefusedChangeError:
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(_LOOK_S)
            else:
                return

    async def delete_controller(self) -> None:
        """Of ZooKeeper. Raises RefusedChangeError."""
        await asyncio.to_thread(move_controller, self._connect)

    async def restore(self) -> None:
        """At the end, when all brokers are started: what was reassigned in the run is where it
        began, and who was a voter is one. An undo gives up after a while."""
        for voter, why in (await self.restore_voters()).items():
            self._stage.problems.append(f"controller {voter} is no voter again: {why}")
        if not self._reassigned:
            return
        now = await self._stage.observer.assignment(self._topic)
        moved = tuple(
            partition
            for partition in sorted(self._reassigned)
            if set(now.get(partition, ())) != set(self._assigned[partition])
        )
        if not moved:
            return
        # Kafka 0.8 drops a reassignment to a broker that is not registered yet.
        replicas = {broker for partition in moved for broker in self._assigned[partition]}
        with contextlib.suppress(TimeoutError):  # the end of the run reports what is not level
            await self._stage.until(
                lambda: replicas <= self._stage.observer.registered,
                _DONE_WITHIN_S,
                "the replicas to reassign to are registered",
            )
        await self.reassign_back(moved)

    async def restore_voters(self) -> dict[int, str]:
        """Between faults, and at the end: who left the quorum and could not come back does now. Why
        not, of each that does not."""
        gone = sorted(self._left_quorum - self._stage.observer.voters) if self._left_quorum else ()
        problems = {}
        for voter in gone:
            try:
                await self.join_quorum(voter)
            except MissedError as missed:
                problems[voter] = str(missed)
        return problems

    # --- each ------------------------------------------------------------------------------------

    async def remove_broker(self, broker: int) -> None:
        """Raises MissedError, RefusedChangeError."""
        if not self._stage.is_reachable(broker):
            raise MissedError(f"broker {broker} is down already")
        changed = without(broker, self._assigned, self._stage.spec.brokers)
        await self._change("reassign", changed)
        await self._until_assigned({**self._assigned, **changed})
        if self._stage.is_reachable(broker):
            await self._faults.stop(broker)

    async def return_broker(self, broker: int) -> None:
        if not self._stage.cluster.is_up(broker):
            await self._faults.restart(broker)
        await self.reassign_back([p for p, of in self._assigned.items() if broker in of])

    async def reassign_back(self, partitions: Sequence[int]) -> None:
        """Asked for again until the cluster takes it: another reassignment may still go on."""
        wanted = {partition: self._assigned[partition] for partition in partitions}
        with contextlib.suppress(RefusedChangeError):
            await self._asked_again(lambda: self._change("reassign", wanted), _DONE_WITHIN_S)
        await self._until_assigned(self._assigned)

    async def _until_assigned(self, wanted: Mapping[int, Sequence[int]]) -> None:
        """At most so long; the end of the run says what never came about."""
        deadline = time.monotonic() + _DONE_WITHIN_S
        while time.monotonic() < deadline:
            now = await self._stage.observer.assignment(self._topic)
            if all(set(now.get(one, ())) == set(brokers) for one, brokers in wanted.items()):
                return
            await asyncio.sleep(_LOOK_S)

    def standby(self) -> int | None:
        """A voter that is not the active controller."""
        observer = self._stage.observer
        return min(observer.voters - {observer.controller}, default=None)

    def check_quorum(self) -> None:
        """Raises MissedError."""
        if not self._stage.spec.changes_voters:
            raise MissedError("no voters can change here: that is Apache Kafka in KRaft")

    async def leave_quorum(self, voter: int) -> None:
        """Raises MissedError."""
        if len(self._stage.observer.voters) < _VOTERS_MIN:
            raise MissedError("the quorum has too few voters: one that leaves would be missed")
        try:
            await self._faults.remove_voter(voter)
        except RefusedError as refused:
            raise MissedError(str(refused)) from None
        finally:
            self._left_quorum.add(voter)

    async def join_quorum(self, voter: int) -> None:
        """Raises MissedError: the end of the run tries again."""
        try:
            await self._faults.add_voter(voter)
        except RefusedError as refused:
            raise MissedError(str(refused)) from None
        self._left_quorum.discard(voter)

    async def add_partition(self) -> None:
        now = await self._stage.observer.assignment(self._topic)
        more = {**now, len(now): tuple(self._stage.spec.brokers[: len(now[0])])}
        await self._change("add_partitions", more)

    async def create_topic(self) -> str:
        self._others += 1
        name, brokers = f"{_OTHER_TOPIC}-{self._others}", self._stage.spec.brokers
        replicas = {0: tuple(brokers[:2]), 1: tuple(brokers[1:3])}
        await asyncio.to_thread(self._members().create, name, replicas)
        return name

    async def delete_topic(self, name: str) -> None:
        with contextlib.suppress(RefusedChangeError):  # nothing depends on it
            await asyncio.to_thread(self._members().delete, name)

    async def set_topic(self, name: str, value: str) -> None:
        await self._change("set", {name: value})

    async def unset_topic(self, name: str) -> None:
        with contextlib.suppress(RefusedChangeError):  # none of these settings loses anything
            await self._change("set", {name: None})

    async def _change(self, what: str, change: Replicas | Mapping[str, str | None]) -> None:
        if what == "reassign":
            self._reassigned |= {partition for partition in change if isinstance(partition, int)}
        await asyncio.to_thread(getattr(self._members(), what), self._topic, change)

    # --- who is asked ----------------------------------------------------------------------------

    @property
    def _connect(self) -> str:
        stage = self._stage
        return f"{stage.machines.harness_address}:{stage.cluster.coordination_port}"

    def _members(self) -> Members:
        generation = generation_of(self._stage.system)
        if generation is not None:
            from neaptide.clusters.broker.server.apis.table import client_apis  # a whole broker

            has_api = Api.ELECT_LEADERS in client_apis(generation.name)
            return self._by_admin_api() if has_api else ZooKeeperMembers(self._connect)
        release = parse_release(str(self._stage.system.release))
        if release.mode is Mode.ZOOKEEPER and release.version < ADMIN_SINCE:
            return ZooKeeperMembers(self._connect)
        return self._by_admin_api()

    def _by_admin_api(self) -> Members:
        from neaptide.clusters.kafka.admin import AdminMembers

        stage = self._stage
        there = [broker for broker in stage.spec.brokers if stage.is_reachable(broker)]
        if not there:
            raise RefusedChangeError("no broker is there to be asked")
        return AdminMembers(",".join(stage.client_address(broker) for broker in there))


def without(
    broker: int, assignment: Mapping[int, Sequence[int]], brokers: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Where the replicas of one broker go: to the next that has none, or nowhere if all have one.

    Only partitions that change; a partition is left with one replica at least.
    """
    changed: dict[int, tuple[int, ...]] = {}
    for partition, replicas in assignment.items():
        free = [other for other in brokers if other != broker and other not in replicas]
        rest = tuple(free[0] if one == broker and free else one for one in replicas)
        rest = tuple(one for one in rest if one != broker)
        if broker in replicas and rest:
            changed[partition] = rest
    return changed
