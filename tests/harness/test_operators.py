"""What operators ask for in scenarios, of real brokers; and where it cannot be asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.clusters.kafka.members import RefusedChangeError, ZooKeeperMembers
from neaptide.harness.live import members
from neaptide.harness.live.members import MembersNemesis
from neaptide.harness.scenarios.systems import check_zookeeper, parse_system
from tests.harness.command import neaptide
from tests.proof import proof_but
from tests.simulation.searches import SCENARIO


@pytest.mark.live
@pytest.mark.spark
@pytest.mark.parametrize("system", proof_but(["neaptide:0.10", "neaptide:2.8"], "neaptide:2.8"))
def test_a_partition_a_leader_and_the_controller_move(system: str, tmp_path: Path) -> None:
    file = tmp_path / "moves.toml"
    file.write_text(SCENARIO, encoding="utf-8")
    done, verdict = neaptide(tmp_path, "run", str(file), "--system", system, "--json")
    assert (verdict["outcome"], verdict["reasons"]) == ("held", []), done.stderr


DELETING = """
title   = "Records that were deleted on purpose are not lost"
source  = ["KIP-107"]
teaches = "durability"

[cluster]
brokers = ["A", "B", "C"]
topics.t = { assignment = [["C", "B", "A"]], settings = { "min.insync.replicas" = 2 } }

[[step]]
produce = { record = "m1", acks = "all" }
until   = "acked(m1)"

[[step]]
produce = { record = "m2", acks = "all" }
until   = "acked(m2) and level"

[[step]]
delete_records = { before = 1 }

[[step]]
kill  = { broker = "C", in_flight = "discarded" }
until = "leader is B"

[expect]
held = ["neaptide:0.11+", "kafka:0.11+"]
"""


@pytest.mark.live
@pytest.mark.spark
@pytest.mark.parametrize(
    ("system", "outcome", "why"),
    proof_but(
        [
            ("kafka:3.9.1", "held", ""),
            ("neaptide:4.0", "held", ""),
            ("neaptide:0.10", "unknown", "no records were deleted"),  # it has no such API
        ]
    ),
)
def test_records_are_deleted_on_purpose(
    system: str, outcome: str, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "deletes.toml"
    file.write_text(DELETING, encoding="utf-8")
    done, verdict = neaptide(tmp_path, "run", str(file), "--system", system, "--json")
    assert verdict["outcome"] == outcome, done.stderr
    assert why in " ".join(verdict["reasons"])


@pytest.mark.parametrize("system", ["kafka:3.9.1-kraft", "kafka:4.1.0", "kafka:4.1.0-combined"])
def test_in_kraft_there_is_no_controller_to_delete(system: str) -> None:
    with pytest.raises(UsageError, match="there the step is remove_voter"):
        check_zookeeper(parse_system(system), "mine")


@pytest.mark.parametrize("system", ["kafka:3.9.1", "kafka:0.10.2.2", "neaptide:4.0"])
def test_with_zookeeper_there_is(system: str) -> None:
    check_zookeeper(parse_system(system), "mine")


def test_without_the_admin_api_nobody_asks_for_an_unclean_election() -> None:
    with pytest.raises(RefusedChangeError, match=r"before Kafka 2\.4"):
        ZooKeeperMembers("127.0.0.1:1").elect("t", [0], unclean=True)


class Busy:
    """A cluster that refuses so many reassignments."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.asked: list[dict[int, tuple[int, ...]]] = []

    def reassign(self, topic: str, replicas: dict[int, tuple[int, ...]]) -> None:
        self.asked.append(replicas)
        if len(self.asked) <= self.refusals:
            raise RefusedChangeError("create /admin/reassign_partitions: NodeExistsError")


def _of(cluster: Busy, monkeypatch: pytest.MonkeyPatch) -> MembersNemesis:
    monkeypatch.setattr(MembersNemesis, "_members", lambda _: cluster)
    stage: Any = _Stage()
    return MembersNemesis(stage, cast(Any, None))


class _Topic:
    name = "t"
    assignment = {0: (0, 1)}  # noqa: RUF012


class _Spec:
    topic = _Topic()


class _Stage:
    spec = _Spec()


def test_a_reassignment_is_asked_for_until_the_one_before_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Busy(2)
    asyncio.run(_of(cluster, monkeypatch).reassign(0, (1, 0)))
    assert cluster.asked == 3 * [{0: (1, 0)}]


def test_one_that_is_refused_for_good_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "_TAKEN_WITHIN_S", 0.0)
    with pytest.raises(RefusedChangeError, match="NodeExistsError"):
        asyncio.run(_of(Busy(9), monkeypatch).reassign(0, (1, 0)))


class _Returning(_Stage):
    """Broker 0 was started, and is registered once somebody has waited for that."""

    def __init__(self) -> None:
        self.observer = self
        self.registered = frozenset({1, 2})
        self.waited: list[str] = []

    async def until(self, is_true: Callable[[], bool], within_s: float, what: str) -> None:
        self.waited.append(what)
        self.registered |= {0}
        assert is_true()

    async def assignment(self, topic: str) -> dict[int, tuple[int, ...]]:
        return self.replicas

    replicas: dict[int, tuple[int, ...]]


class GivesUp:
    """A controller of 0.8, which drops a reassignment to a broker that is not there."""

    def __init__(self, stage: _Returning) -> None:
        self._stage = stage
        stage.replicas = {0: (0, 1)}

    def reassign(self, topic: str, replicas: dict[int, tuple[int, ...]]) -> None:
        if all(set(brokers) <= self._stage.registered for brokers in replicas.values()):
            self._stage.replicas |= replicas


def test_the_end_of_a_run_reassigns_back_once_the_replicas_are_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members, "_DONE_WITHIN_S", 0.5)
    stage = _Returning()
    cluster = GivesUp(stage)
    monkeypatch.setattr(MembersNemesis, "_members", lambda _: cluster)
    nemesis = MembersNemesis(cast(Any, stage), cast(Any, None))

    async def play() -> None:
        await nemesis.reassign(0, (2, 1))
        assert stage.replicas == {0: (2, 1)}
        await nemesis.restore()

    asyncio.run(play())
    assert stage.replicas == {0: (0, 1)}


def test_where_nothing_was_reassigned_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = _Returning()
    asyncio.run(MembersNemesis(cast(Any, stage), cast(Any, None)).restore())
    assert stage.waited == []
