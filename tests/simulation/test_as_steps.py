"""What was found message by message is said in steps, where holds can do what the path did."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.simulation.network import FETCH, Link
from neaptide.nemesis import steps
from neaptide.nemesis.search.as_steps import as_schedule
from neaptide.nemesis.search.deliveries import Deliver, Kill, Path, Produce
from neaptide.nemesis.search.shrink import replay
from neaptide.nemesis.search.targets import Target, target_of
from neaptide.nemesis.search.worlds import ready_world
from tests.simulation.searches import SETTINGS
from tests.simulation.worlds import A, B, C

# Of 0.10, by priorities: A has m1 and does not know that it is committed; nor does B, who leads.
LOST: Path = (
    Deliver(Link(B, C, FETCH)),
    Deliver(Link(A, C, FETCH)),
    Produce("m1"),
    Deliver(Link(C, A, FETCH)),
    Deliver(Link(C, B, FETCH)),
    Deliver(Link(B, C, FETCH)),
    Deliver(Link(A, C, FETCH)),
    Kill(C),
    Kill(B),
)


def _target(generation: str) -> Target:
    rules, topic = GENERATIONS[generation], {"min.insync.replicas": "1"}
    return target_of(rules, SETTINGS, topic, ("all",), ("kill",), watched=False)


def test_a_path_that_loses_is_said_in_steps_that_lose_where_it_did() -> None:
    target = _target("0.10")
    schedule = as_schedule(LOST, target, ready_world(target.spec), "lost")
    assert schedule is not None
    assert [type(step) for step in schedule if not isinstance(step, steps.Hold)] == [
        steps.Produce,
        steps.Kill,
        steps.Kill,
    ]
    assert sum(isinstance(step, steps.Hold) for step in schedule) == 2
    later = _target("2.1")
    judged = replay(later, ready_world(later.spec), schedule)
    assert judged is not None
    assert judged.outcome == "held"


@pytest.mark.parametrize("path", [LOST[:4], ()])
def test_a_path_that_no_holds_make_lose_is_not_said_in_steps(path: Path) -> None:
    target = _target("0.10")
    assert as_schedule(path, target, ready_world(target.spec), "lost") is None
