"""At the end of a run every partition has the replicas that it began with."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from neaptide.clusters.kafka.members import RefusedChangeError, Replicas
from neaptide.harness import members
from neaptide.harness.members import MembersNemesis
from neaptide.harness.systems import parse_system
from neaptide.nemesis.drawn.members import MembersFault

BEGAN = {0: (0, 1, 2), 1: (1, 2, 0)}


class Cluster:
    """As its metadata says; it refuses so many reassignments first."""

    def __init__(self, refuses: int = 0) -> None:
        self.assigned: dict[int, tuple[int, ...]] = dict(BEGAN)
        self.asked: list[dict[int, tuple[int, ...]]] = []
        self.refuses = refuses
        self.observer = self.recorder = self
        self.spec = SimpleNamespace(topic=SimpleNamespace(name="t", assignment=BEGAN))

    def now_ns(self) -> int:
        return 0

    def note_nemesis(self, value: object, begun_ns: int) -> None: ...

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
    await nemesis.begin(MembersFault("reassign", (1, 0, 2), partition=0))


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
            return lambda *_: done.append((name, self.how))

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
    with pytest.raises(RefusedChangeError, match="deletes no topic"):
        own.delete("u")
    assert done == [
        ("reassign", asked),
        ("elect", asked),
        ("add_partitions", "znodes"),
        ("set", "znodes"),
        ("create", "znodes"),
    ]
