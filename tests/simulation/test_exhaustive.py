"""Every order of messages within small bounds: what is lost is found, what holds is exhausted."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.simulation.network import FETCH, Link
from neaptide.nemesis.search import priorities
from neaptide.nemesis.search.deliveries import (
    Counts,
    Deliver,
    Depose,
    Elect,
    Kill,
    Move,
    Produce,
    Reassign,
    Restart,
    State,
    first_state,
    replayed,
    try_move,
)
from neaptide.nemesis.search.exhaustive import Limits, Searched
from neaptide.nemesis.search.exhaustive_in_processes import run_in_processes
from neaptide.nemesis.search.priorities import run
from neaptide.nemesis.search.targets import Target, target_of
from tests.simulation.searches import searched, target
from tests.simulation.worlds import SETTINGS, A, B, C

pytestmark = pytest.mark.slow


def side_by_side(
    aimed: Target, bounds: Counts, workers: int = 2, states_max: int = 5_000
) -> Searched:
    return run_in_processes(aimed, Limits(bounds, states_max), workers, lambda searched: None)


def first(aimed: Target) -> State:
    state = first_state(aimed)
    assert isinstance(state, State)
    return state


def test_the_loss_of_0_10_is_found_with_one_record_and_two_deaths() -> None:
    aimed = target("0.10")
    found = searched(aimed, Counts(produces=1, kills=2))
    assert found.outcome == "lost"
    assert [move.broker for move in found.shortest if isinstance(move, Kill)] == [C, B]
    again = replayed(first(aimed), found.shortest, aimed)
    assert again is not None
    assert again.outcome == "lost"
    aimed = target("2.1")
    assert replayed(first(aimed), found.shortest, aimed) is None


def test_a_small_space_of_2_1_is_exhausted_and_silent() -> None:
    found = searched(target("2.1"), Counts(produces=1, kills=1))
    assert found.exhausted
    assert found.outcome == ""
    assert 100 < found.states < found.transitions


def test_a_limit_is_said_and_is_not_taken_for_the_end() -> None:
    found = searched(target("2.1"), Counts(produces=1, kills=1), states_max=20)
    assert not found.exhausted
    assert found.ended_by == "the limit of 20 states"


@pytest.mark.parametrize("workers", [2, 3])
def test_several_processes_exhaust_the_same_space(workers: int) -> None:
    alone = searched(target("2.1"), Counts(produces=1, kills=1))
    shared = side_by_side(target("2.1"), Counts(produces=1, kills=1), workers)
    assert shared.exhausted
    assert (shared.outcome, shared.ended_by) == ("", "")
    assert (shared.states, shared.transitions) == (alone.states, alone.transitions)


def test_what_one_of_several_processes_finds_happens_again() -> None:
    aimed = target("0.10")
    found = side_by_side(aimed, Counts(produces=1, kills=2))
    assert (found.outcome, found.ended_by, found.exhausted) == ("lost", "a find", False)
    assert [move.broker for move in found.shortest if isinstance(move, Kill)] == [C, B]
    for path in (found.path, found.shortest):
        again = replayed(first(aimed), path, aimed)
        assert again is not None
        assert again.outcome == "lost"


def test_a_limit_ends_all_processes() -> None:
    found = side_by_side(target("2.1"), Counts(produces=1, kills=1), states_max=60)
    assert (found.ended_by, found.exhausted) == ("the limit of 60 states", False)
    assert 60 <= found.states < 70


def test_a_process_that_dies_is_no_end_of_a_search() -> None:
    """Nor does it leave the others behind."""
    workers: list[psutil.Process] = []

    def kill_one(searched: Searched) -> None:
        if not workers:
            workers.extend(
                child
                for child in psutil.Process().children()
                if "--multiprocessing-fork" in child.cmdline()
            )
            workers[0].kill()

    aimed, limits = target("2.1", fetches_only=False), Limits(Counts(produces=2, kills=1), 100_000)
    with pytest.raises(RuntimeError, match="has ended"):
        run_in_processes(aimed, limits, 2, kill_one)
    assert [worker.is_running() for worker in workers] == [False, False]


def test_all_channels_have_more_orders_than_fetches_alone() -> None:
    few = searched(target("2.1"), Counts(kills=1))
    assert few.exhausted
    many = searched(target("2.1", fetches_only=False), Counts(kills=1), few.states + 1)
    assert not many.exhausted


def _after(state: State, order: list[Move], aimed: Target) -> State:
    for move in order:
        after, broken = try_move(state, move, aimed)
        assert after is not None
        assert broken is None
        state = after
    return state


def test_orders_that_do_not_matter_lead_to_one_state() -> None:
    aimed = target("2.1")
    ask: list[Move] = [Deliver(Link(A, C, FETCH)), Deliver(Link(B, C, FETCH)), Produce("m1")]
    asked = _after(first(aimed), ask, aimed)
    answers: list[Move] = [Deliver(Link(C, A, FETCH)), Deliver(Link(C, B, FETCH))]
    one, other = (_after(asked, order, aimed) for order in (answers, answers[::-1]))
    assert one.name() == other.name()
    assert one.name() != _after(asked, answers[:1], aimed).name()


@pytest.mark.parametrize("dead", [A, B, C])
def test_states_that_differ_have_different_names(dead: int) -> None:
    aimed = target("2.1")
    state = first(aimed)
    after, _ = try_move(state, Kill(dead), aimed)
    assert after is not None
    assert after.name() != state.name()


def test_a_broker_that_has_not_registered_yet_has_a_state_with_a_name() -> None:
    aimed = target("0.8", fetches_only=False)
    state = _after(first(aimed), [Kill(A), Restart(A)], aimed)
    assert state.world.brokers[A].broker_epoch is None
    assert state.name() != _after(first(aimed), [Kill(A)], aimed).name()


@pytest.mark.parametrize("move", [Elect(), Depose(), Reassign((B, A, C))], ids=repr)
def test_what_operators_ask_for_is_a_part_of_a_states_name(move: Elect | Depose | Reassign) -> None:
    aimed = replace(target("2.1", fetches_only=False), faults=("elect", "depose", "reassign"))
    state = first(aimed)
    before = state.name()
    after, broken = try_move(state, move, aimed)
    assert broken is None
    assert after is not None
    after.spent = state.spent
    assert after.name() != before


def test_idempotent_producers_are_searched_to_the_end() -> None:
    made = target_of(
        GENERATIONS["2.1"],
        SETTINGS,
        {"min.insync.replicas": "2"},
        ("all",),
        ("kill",),
        watched=True,
        idempotence=True,
    )
    found = searched(priorities.fetches_only(made), Counts(produces=2, kills=0))
    assert found.exhausted
    assert found.states > 100


def test_a_replica_that_is_deleted_as_it_asks_ends_no_run() -> None:
    """Found by priorities: what was sent to a broker before it registered is obeyed at once."""
    made = target_of(
        GENERATIONS["2.8"],
        SETTINGS,
        {"min.insync.replicas": "1"},
        ("all",),
        ("kill", "stop", "reassign", "elect", "depose"),
        watched=True,
    )
    assert run(first(made), made, 67111, priorities.drawn_bounds(made, 67111)).judged is None


def test_a_fetch_that_is_refused_breaks_no_rule() -> None:
    """Found by priorities, on 4.0: who led before asks from behind the new leader's log end."""
    made = target_of(
        GENERATIONS["4.0"],
        SETTINGS,
        {"min.insync.replicas": "2"},
        ("all",),
        ("kill", "stop", "elect", "depose"),
        watched=True,
    )
    assert run(first(made), made, 372, priorities.drawn_bounds(made, 372)).judged is None


def test_one_seed_is_one_run_by_priorities() -> None:
    aimed = target("0.10")
    bounds = Counts(produces=2, kills=2, restarts=1)
    runs = [run(first(aimed), aimed, seed, bounds, 3) for seed in (4, 4, 5)]
    assert runs[0] == runs[1] != runs[2]
