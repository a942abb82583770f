"""Does what a fault of members says to a running cluster, and what undoes it.

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

from neaptide.clusters.broker.server.apis.table import client_apis
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.errors import RefusedError
from neaptide.clusters.kafka.members import (
    ADMIN_SINCE,
    Members,
    OwnMembers,
    RefusedChangeError,
    Replicas,
    ZooKeeperMembers,
    move_controller,
)
from neaptide.clusters.kafka.versions import Mode, parse_release
from neaptide.harness.faults import Faults
from neaptide.harness.stage import Stage
from neaptide.harness.systems import generation_of
from neaptide.nemesis.drawn.members import MembersFault, without
from neaptide.nemesis.player import MissedError

Undo = Callable[[], Awaitable[str | None]]  # why it did not come about, if it did not
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

    async def begin(self, fault: MembersFault) -> list[Undo]:
        """What undoes it. Raises MissedError."""
        begun_ns = self._stage.recorder.now_ns()
        try:
            undo = await self._begin(fault)
        except RefusedChangeError as refused:
            raise MissedError(str(refused)) from None
        finally:
            fields = {"action": fault.action, "partition": fault.partition}
            self._stage.note_nemesis({"members": fields}, begun_ns)
        return undo

    async def _begin(self, fault: MembersFault) -> list[Undo]:
        first = fault.brokers[0]
        match fault.action:
            case "reassign":
                now = self._assigned[fault.partition]
                changed = without(first, {fault.partition: now}, fault.brokers)
                if not changed:
                    changed = {fault.partition: tuple(reversed(now))}
                await self._change("reassign", changed)
                return [partial(self._reassign_back, tuple(changed))]
            case "remove":
                return await self._remove(first, fault.brokers)
            case "elect":
                await self.elect(sorted(self._assigned))
                return [_nothing]
            case "controller":
                return await self._move_controller()
            case "voter":
                return await self._leave_quorum(self._drawn_voter(fault))
            case "partitions":
                return await self._add_partition(fault)
            case "settings":
                name, value = fault.setting
                await self._change("set", {name: value})
                return [partial(self._undo_change, "set", {name: None})]
            case "topic":
                return await self._make_topic(fault)

    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> None:
        """Raises RefusedChangeError."""
        await asyncio.to_thread(
            partial(self._members().elect, self._topic, partitions, unclean=unclean)
        )

    async def reassign(self, partition: int, replicas: Sequence[int]) -> None:
        """Raises RefusedChangeError."""
        wanted = {partition: tuple(replicas)}
        await self._asked_again(lambda: self._change("reassign", wanted))

    async def _asked_again(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Until the cluster takes it: what was asked for before may not be over by a hair. Raises
        RefusedChangeError."""
        deadline = time.monotonic() + _TAKEN_WITHIN_S
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
        await self._reassign_back(moved)

    async def restore_voters(self) -> dict[int, str]:
        """Between faults, and at the end: who left the quorum and could not come back does now. Why
        not, of each that does not."""
        gone = sorted(self._left_quorum - self._stage.observer.voters) if self._left_quorum else ()
        tried = {voter: await self._join_quorum(voter) for voter in gone}
        return {voter: why for voter, why in tried.items() if why is not None}

    # --- each ------------------------------------------------------------------------------------

    async def _remove(self, broker: int, brokers: Sequence[int]) -> list[Undo]:
        if not self._stage.is_reachable(broker):
            raise MissedError(f"broker {broker} is down already")
        changed = without(broker, self._assigned, brokers)
        await self._change("reassign", changed)
        undo: list[Undo] = [partial(self._reassign_back, tuple(changed))]
        await self._until_assigned({**self._assigned, **changed})
        if self._stage.is_reachable(broker):
            await self._faults.stop(broker)
            undo.append(partial(self._faults.restart, broker))
        return undo

    async def _reassign_back(self, partitions: Sequence[int]) -> None:
        """Asked for again until the cluster takes it: another reassignment may still go on."""
        wanted = {partition: self._assigned[partition] for partition in partitions}
        deadline = time.monotonic() + _DONE_WITHIN_S
        while time.monotonic() < deadline:
            try:
                await self._change("reassign", wanted)
            except RefusedChangeError:
                await asyncio.sleep(_LOOK_S)
                continue
            break
        await self._until_assigned(self._assigned)

    async def _until_assigned(self, wanted: Mapping[int, Sequence[int]]) -> None:
        """At most so long; the end of the run says what never came about."""
        deadline = time.monotonic() + _DONE_WITHIN_S
        while time.monotonic() < deadline:
            now = await self._stage.observer.assignment(self._topic)
            if all(set(now.get(one, ())) == set(brokers) for one, brokers in wanted.items()):
                return
            await asyncio.sleep(_LOOK_S)

    async def _move_controller(self) -> list[Undo]:
        """With ZooKeeper its znode is deleted. In KRaft an active controller that leaves the
        quorum resigns."""
        if not self._stage.cluster.quorum:
            await self.delete_controller()
            return [_nothing]
        active = self._stage.observer.controller
        if active is None:
            raise MissedError("no controller is active")
        undo = await self._leave_quorum(active)
        observer = self._stage.observer
        with contextlib.suppress(TimeoutError):  # the load shows what becomes of it
            await self._stage.until(
                lambda: observer.controller not in (None, active),
                _DONE_WITHIN_S,
                "another controller is active",
            )
        return undo

    def _drawn_voter(self, fault: MembersFault) -> int:
        self._check_quorum()
        stage = self._stage
        others = sorted(stage.observer.voters - {stage.observer.controller})
        if not others:
            raise MissedError("the quorum has no voter besides the active controller")
        return others[fault.brokers[0] % len(others)]

    def _check_quorum(self) -> None:
        if not self._stage.spec.changes_voters:
            raise MissedError("no voters can change here: that is Apache Kafka in KRaft")

    async def _leave_quorum(self, voter: int) -> list[Undo]:
        self._check_quorum()
        if len(self._stage.observer.voters) < _VOTERS_MIN:
            raise MissedError("the quorum has too few voters: one that leaves would be missed")
        try:
            await self._faults.remove_voter(voter)
        except RefusedError as refused:
            raise MissedError(str(refused)) from None
        finally:
            self._left_quorum.add(voter)
        return [partial(self._join_quorum, voter)]

    async def _join_quorum(self, voter: int) -> str | None:
        """Why it did not come back: the end of the run tries again."""
        try:
            await self._faults.add_voter(voter)
        except RefusedError as refused:
            return str(refused)
        self._left_quorum.discard(voter)
        return None

    async def _add_partition(self, fault: MembersFault) -> list[Undo]:
        now = await self._stage.observer.assignment(self._topic)
        more = {**now, len(now): tuple(fault.brokers[: len(now[0])])}
        await self._change("add_partitions", more)
        return [_nothing]

    async def _make_topic(self, fault: MembersFault) -> list[Undo]:
        self._others += 1
        name = f"{_OTHER_TOPIC}-{self._others}"
        replicas = {0: tuple(fault.brokers[:2]), 1: tuple(fault.brokers[1:3])}
        await asyncio.to_thread(self._members().create, name, replicas)
        return [partial(self._undo_topic, name)]

    async def _undo_topic(self, name: str) -> None:
        try:
            await asyncio.to_thread(self._members().delete, name)
        except RefusedChangeError:
            return  # another topic than that of the load: nothing depends on it

    async def _change(self, what: str, change: Replicas | Mapping[str, str | None]) -> None:
        if what == "reassign":
            self._reassigned |= {partition for partition in change if isinstance(partition, int)}
        await asyncio.to_thread(getattr(self._members(), what), self._topic, change)

    async def _undo_change(self, what: str, change: Mapping[str, str | None]) -> None:
        try:
            await self._change(what, change)
        except RefusedChangeError:
            return  # none of these settings loses anything

    # --- who is asked ----------------------------------------------------------------------------

    @property
    def _connect(self) -> str:
        stage = self._stage
        return f"{stage.machines.harness_address}:{stage.cluster.coordination_port}"

    def _members(self) -> Members:
        generation = generation_of(self._stage.system)
        if generation is not None:
            by_znodes = ZooKeeperMembers(self._connect)
            has_api = Api.ELECT_LEADERS in client_apis(generation.name)
            return OwnMembers(self._by_admin_api() if has_api else by_znodes, by_znodes)
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


async def _nothing() -> None:
    """What has nothing to be undone."""
