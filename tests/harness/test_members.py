"""At the end of a run every partition has the replicas, and the quorum the voters, that they began
with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from neaptide.clusters.errors import RefusedError
from neaptide.clusters.kafka.members import RefusedChangeError, Replicas
from neaptide.harness.live import members
from neaptide.harness.live.members import MembersNemesis, without
from neaptide.harness.play.timed_target import TimedTarget, Undo
from neaptide.harness.scenarios.systems import parse_system
from neaptide.nemesis import steps
from neaptide.nemesis.player import MissedError

BEGAN = {0: (0, 1, 2), 1: (1, 2, 0)}


class Cluster:
    """As its metadata says; it refuses so many reassignments first."""

    def __init__(self, refuses: int = 0) -> None:
        self.assigned: dict[int, tuple[int, ...]] = dict(BEGAN)
        self.asked: list[dict[int, tuple[int, ...]]] = []
        self.refuses = refuses
        self.observer = self.recorder = self
        self.registered = frozenset({0, 1, 2})
        self.spec = SimpleNamespace(topic=SimpleNamespace(name="t", assignment=BEGAN))

    def now_ns(self) -> int:
        return 0

    def note_nemesis(self, value: object, begun_ns: int) -> None: ...

    async def until(self, is_true: Callable[[], bool], within_s: float, what: str) -> None:
        assert is_true(), what

    async def assignment(self, topic: str) -> dict[int, tuple[int, ...]]:
        return self.assigned

    def reassign(self, topic: str, replicas: Replicas) -> None:
        self.asked.append({partition: tuple(of) for partition, of in replicas.items()})
        if self.refuses:
            self.refuses -= 1
            raise RefusedChangeError("another reassignment goes on")
        self.assigned |= self.asked[-1]


class Changed(MembersNemesis):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cast(Any, cluster), cast(Any, None))
        self.cluster = cluster

    def _members(self) -> Any:
        return self.cluster


async def _reassigned(nemesis: Changed) -> None:
    await nemesis.reassign(0, (0, 2))


def test_where_all_have_a_replica_there_is_one_less() -> None:
    assert without(1, BEGAN, (0, 1, 2)) == {0: (0, 2), 1: (2, 0)}


def test_who_has_none_gets_the_place_of_who_gives_it_away() -> None:
    assert without(1, BEGAN, (3, 0, 1, 2)) == {0: (0, 3, 2), 1: (3, 2, 0)}


def test_only_what_changes_is_asked_for_and_nothing_is_left_without_a_replica() -> None:
    assert without(3, BEGAN, (0, 1, 2, 3)) == {}
    assert without(0, {0: (0,)}, (0,)) == {}
    assert without(0, {0: (0,), 1: (1,)}, (0, 1)) == {0: (1,)}


def test_what_was_not_undone_is_restored_even_if_it_is_refused_at_first() -> None:
    cluster = Cluster()
    nemesis = Changed(cluster)

    async def play() -> None:
        await _reassigned(nemesis)
        assert cluster.assigned == {0: (0, 2), 1: (1, 2, 0)}
        cluster.refuses = 1
        await nemesis.restore()

    asyncio.run(play())
    assert cluster.assigned == BEGAN
    assert cluster.asked[1:] == [{0: (0, 1, 2)}] * 2  # what was never moved is left alone


def test_nothing_is_asked_for_where_nothing_was_moved_or_all_is_back() -> None:
    untouched, undone = Cluster(), Cluster()
    asyncio.run(Changed(untouched).restore())
    nemesis = Changed(undone)

    async def play() -> None:
        await _reassigned(nemesis)
        undone.assigned = dict(BEGAN)
        await nemesis.restore()

    asyncio.run(play())
    assert untouched.asked == []
    assert len(undone.asked) == 1


# --- the quorum of KRaft -------------------------------------------------------------------------


class Voters:
    """A quorum, as a stage and its faults show it; it refuses so many of them first."""

    def __init__(self, *voters: int, changes: bool = True) -> None:
        self.voters = frozenset(voters)
        self.all = frozenset(voters)
        self.refuses = 0
        self.controller = min(voters, default=None)
        self.problems: list[str] = []
        self.observer = self.recorder = self.cluster = self
        self.quorum = dict.fromkeys(voters, 1)
        topic = SimpleNamespace(name="t", assignment=BEGAN)
        self.spec = SimpleNamespace(topic=topic, changes_voters=changes)

    def now_ns(self) -> int:
        return 0

    def note_nemesis(self, value: object, begun_ns: int) -> None: ...

    async def until(self, condition: Callable[[], bool], within_s: float, what: str) -> None:
        assert condition(), what

    async def remove_voter(self, node: int) -> None:
        self._maybe_refuse()
        self.voters -= {node}
        self.controller = min(self.voters)

    async def add_voter(self, node: int) -> None:
        self._maybe_refuse()
        self.voters |= {node}

    def _maybe_refuse(self) -> None:
        if self.refuses:
            self.refuses -= 1
            raise RefusedError("the quorum does not change its voters: nobody answers")


STANDBY, ACTIVE = steps.RemoveVoter("standby"), steps.RemoveVoter(steps.ActiveController())


def begun(voters: Voters, step: steps.Step = STANDBY) -> tuple[MembersNemesis, list[Undo]]:
    stand_in = cast(Any, voters)
    nemesis = MembersNemesis(stand_in, stand_in)
    target = TimedTarget(stand_in, stand_in, nemesis, {}, stand_in)
    return nemesis, asyncio.run(target.begin(step, 1.0))


def test_a_voter_that_is_not_active_leaves_and_comes_back() -> None:
    voters = Voters(100, 101, 102)
    _, [undo] = begun(voters)
    assert voters.voters == {100, 102}
    assert voters.controller == 100
    asyncio.run(_awaited(undo))
    assert voters.voters == voters.all


def test_in_kraft_the_controller_moves_as_the_active_one_leaves() -> None:
    voters = Voters(100, 101, 102)
    _, [undo] = begun(voters, ACTIVE)
    assert (set(voters.voters), voters.controller) == ({101, 102}, 101)
    asyncio.run(_awaited(undo))
    assert voters.voters == voters.all


@pytest.mark.parametrize(("refuses", "is_back"), [(2, True), (3, False)])
def test_who_did_not_come_back_does_at_the_end_or_the_run_is_unknown(
    refuses: int, is_back: bool
) -> None:
    voters = Voters(100, 101, 102)
    nemesis, [undo] = begun(voters)
    voters.refuses = refuses
    with pytest.raises(MissedError, match="nobody answers"):
        asyncio.run(_awaited(undo))
    assert list(asyncio.run(nemesis.restore_voters())) == [101]  # before the next phase
    assert voters.problems == []
    asyncio.run(nemesis.restore())
    assert (voters.voters == voters.all) is is_back
    said = "; ".join(voters.problems)
    assert ("controller 101 is no voter again: the quorum does not" in said) is not is_back


@pytest.mark.parametrize(
    ("voters", "says"),
    [
        (Voters(100, 101), "too few voters"),
        (Voters(100), "no voter besides the active controller"),
        (Voters(100, 101, 102, changes=False), "no voters can change here"),
    ],
)
def test_a_voter_that_cannot_leave_is_a_miss(voters: Voters, says: str) -> None:
    """The twins are above."""
    with pytest.raises(MissedError, match=says):
        begun(voters)
    assert voters.voters == voters.all


def test_a_quorum_that_refuses_is_a_miss_and_is_asked_again_only_if_a_voter_is_gone() -> None:
    voters = Voters(100, 101, 102)
    voters.refuses = 1
    nemesis = MembersNemesis(cast(Any, voters), cast(Any, voters))
    with pytest.raises(MissedError, match="nobody answers"):
        asyncio.run(nemesis.leave_quorum(101))
    voters.refuses = 1
    asyncio.run(nemesis.restore())
    assert (voters.refuses, voters.problems) == (1, [])
    voters.voters -= {101}  # it was done after all
    voters.refuses = 0
    asyncio.run(nemesis.restore())
    assert voters.voters == voters.all


async def _awaited(undo: Undo) -> None:
    await undo()


# --- our own broker ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "asked"),
    [
        ("neaptide:0.10", "znodes"),
        ("neaptide:2.1", "znodes"),
        ("neaptide:2.8", "admin API"),
        ("neaptide:4.0", "admin API"),
    ],
)
def test_own_brokers_are_asked_as_kafka_of_their_age(
    system: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []

    class Recorded:
        def __init__(self, how: str) -> None:
            self.how = how

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: done.append((name, self.how))

    monkeypatch.setattr(members, "ZooKeeperMembers", lambda _: Recorded("znodes"))
    monkeypatch.setattr(MembersNemesis, "_by_admin_api", lambda _: Recorded("admin API"))
    stage = SimpleNamespace(
        system=parse_system(system),
        spec=Cluster().spec,
        machines=SimpleNamespace(harness_address="127.0.0.1"),
        cluster=SimpleNamespace(coordination_port=1),
    )
    own = MembersNemesis(cast(Any, stage), cast(Any, None))._members()
    own.reassign("t", BEGAN)
    own.elect("t", [0])
    own.add_partitions("t", BEGAN)
    own.set("t", {})
    own.create("u", BEGAN)
    own.delete("u")
    assert done == [
        ("reassign", asked),
        ("elect", asked),
        ("add_partitions", asked),
        ("set", asked),
        ("create", asked),
        ("delete", asked),
    ]
