"""Transactions in the simulation: what their producers do, and which mutant breaks what.

The documented scenarios of transactions are played in test_scenarios, and come to what they come to
on real Kafka. Each mutant is shown by a schedule under which the unbroken core is silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.model import (
    Batch,
    EndTransactionMarker,
    ProducerSequence,
    TopicConfiguration,
    TopicPartition,
)
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TRANSACTIONS_TOPIC,
    TransactionMetadata,
    TransactionState,
)
from neaptide.clusters.simulation import faults, transactional
from neaptide.clusters.simulation.clients import Outcome, Send, by_operation, sent_by
from neaptide.clusters.simulation.network import CLIENT, Hold
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.scenario import parse_scenario
from neaptide.nemesis.search import exhaustive
from neaptide.nemesis.search.deliveries import (
    Counts,
    End,
    Open,
    State,
    do,
    first_state,
    transactions,
    words,
)
from neaptide.nemesis.search.deliveries import (
    Send as Sends,
)
from neaptide.nemesis.search.ending import end
from neaptide.nemesis.search.episode import explore_seed
from neaptide.nemesis.search.exhaustive import Limits
from neaptide.nemesis.search.explore import watched_world
from neaptide.nemesis.search.invariants.transactions import open_in
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.mutants import BY_NAME, applied
from neaptide.nemesis.search.mutants.transactions import MUTANTS
from neaptide.nemesis.search.play import simulate
from neaptide.nemesis.search.priorities import drawn_bounds, fetches_only, run
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.shrink import Schedule, replay
from neaptide.nemesis.search.swarm import FAULTS_OF_A_SWARM, drawn
from neaptide.nemesis.search.targets import LATE, TRANSACT, Target, target_of
from neaptide.nemesis.search.transactions import decisions_of, is_lost, nearer
from neaptide.nemesis.search.worlds import ready_world
from tests.proof import proof_but
from tests.simulation.worlds import SETTINGS, A, B, C, run_for, spec, until

SERVED = [name for name, rules in GENERATIONS.items() if rules.idempotence is not None]
X = TopicPartition(TRANSACTIONS_TOPIC, 0)
TWO = {"min.insync.replicas": "2"}


def _ready(generation: str = "2.1", **settings: Any) -> World:
    """B coordinates, C leads the records."""
    topic = TopicConfiguration({0: (B, A, C)}, TWO)
    return ready_world(replace(spec(generation, **settings), transactions=topic))


def _quiet(world: World, client: str = "p") -> None:
    until(world, lambda: not world.clients.transactional[client].is_busy)


def _in_transaction(world: World, *records: str, client: str = "p", of: str = "x") -> None:
    transactional.open_producer(world.clients, client, of)
    _quiet(world, client)
    transactional.begin(world.clients, client)
    for record in records:
        transactional.send(world.clients, client, record)
    _quiet(world, client)


def _ended(world: World, *, commits: bool, client: str = "p") -> None:
    transactional.end(world.clients, client, commits=commits)
    _quiet(world, client)


def _kinds(world: World) -> dict[str, str]:
    return {value: outcome.kind for value, (_, outcome) in world.clients.sends.items()}


def _read(world: World) -> list[str]:
    return [value for _, value in end(world).final or ()]


# --- producers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", SERVED)
@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_is_one_operation(generation: str, commits: bool) -> None:
    world = _ready(generation)
    _in_transaction(world, "x1", "x2")
    assert _kinds(world) == {}  # nobody knows yet what becomes of them
    assert world.clients.is_acked("x2")
    _ended(world, commits=commits)
    assert set(_kinds(world).values()) == {"ok" if commits else "fail"}
    assert _read(world) == (["x1", "x2"] if commits else [])


def test_a_coordinator_dies_and_its_successor_goes_on() -> None:
    world = _ready()
    _in_transaction(world, "x1")
    faults.kill(world, B)
    _ended(world, commits=True)
    assert world.service.states[X].leader == A
    assert _kinds(world) == {"x1": "ok"}
    assert _read(world) == ["x1"]


def test_a_producer_that_has_a_successor_is_fenced() -> None:
    world = _ready()
    _in_transaction(world, "x1")
    transactional.open_producer(world.clients, "q", "x")
    _quiet(world, "q")
    _ended(world, commits=True)
    assert world.clients.transactional["p"].error == "PRODUCER_FENCED"
    assert _kinds(world) == {"x1": "info"}
    assert _read(world) == []


def test_a_transaction_takes_no_longer_than_its_producer_has_said() -> None:
    world = _ready()
    transactional.open_producer(world.clients, "p", "x", timeout_ms=5_000)
    _quiet(world)
    transactional.begin(world.clients, "p")
    transactional.send(world.clients, "p", "x1")
    run_for(world, 20_000)
    _ended(world, commits=True)
    assert world.clients.transactional["p"].error == "PRODUCER_FENCED"


def test_what_is_not_answered_in_time_is_given_up() -> None:
    world = _ready()
    _in_transaction(world, "x1")
    for other in (A, C):
        faults.cut(world, B, other, "replication", both=True)
    transactional.end(world.clients, "p", commits=True)
    run_for(world, 3_000)
    transactional.give_up(world.clients, "p")
    assert _kinds(world) == {"x1": "info"}
    assert _read(world) == ["x1"]


def test_a_request_arrives_when_its_sender_has_gone() -> None:
    """Only what a rule holds, and only by `deliver`."""
    world = _ready()
    _in_transaction(world, "x1")
    rule = Hold("late", "request", "produce", CLIENT, C)
    faults.hold(world, rule)
    transactional.send(world.clients, "p", "x2")
    run_for(world, 50)
    assert not faults.deliver(world, "late")  # who has sent it waits for the answer
    transactional.die(world.clients, "p")
    assert len(world.network.abandoned) == 1
    assert faults.deliver(world, "late")
    run_for(world, 50)
    assert "x2" in [value for _, _, value in world.disks[C].logs[world.partition].values()]


def test_what_its_sender_has_given_up_does_not_arrive_by_release() -> None:
    world = _ready()
    _in_transaction(world, "x1")
    faults.hold(world, Hold("late", "request", "produce", CLIENT, C))
    transactional.send(world.clients, "p", "x2")
    run_for(world, 50)
    transactional.die(world.clients, "p")
    faults.release(world, "late")
    run_for(world, 50)
    assert world.network.abandoned == ()
    assert "x2" not in [value for _, _, value in world.disks[C].logs[world.partition].values()]


def test_who_is_dead_is_sent_nothing_late() -> None:
    world = _ready()
    _in_transaction(world, "x1")
    faults.hold(world, Hold("late", "request", "produce", CLIENT, C))
    transactional.send(world.clients, "p", "x2")
    run_for(world, 50)
    transactional.die(world.clients, "p")
    faults.kill(world, C)
    assert world.network.abandoned == ()


def test_the_records_of_a_transaction_are_of_one_process() -> None:
    """As any producer, one is another process after an end that nobody knows."""
    sends = [
        Send(1, "x1", -1, 0, 1, client="p", transaction=1),
        Send(2, "y1", -1, 0, 1, client="q", transaction=2),
        Send(3, "x2", -1, 0, 1, client="p", transaction=1),
        Send(4, "x3", -1, 0, 1, client="p", transaction=3),
    ]
    kinds = {1: "info", 2: "ok", 3: "ok"}
    outcomes = [(one, Outcome(kinds[one.transaction or 0], 5 + one.number)) for one in sends]
    processes = sent_by(outcomes, 0, 1)
    assert processes[1] == processes[3] == 0
    assert len({processes[1], processes[2], processes[4]}) == 3
    together = [[send.value for send, _ in one] for one in by_operation(outcomes)]
    assert together == [["x1", "x2"], ["y1"], ["x3"]]


# --- logs ----------------------------------------------------------------------------------------


def _batch(offset: int, producer_id: int, value: str) -> Batch:
    return Batch(offset, 1, 0, 100, value, ProducerSequence(producer_id, 0, 0, True))


def _marker(offset: int, producer_id: int, *, commits: bool) -> Batch:
    marker = EndTransactionMarker(producer_id, 0, 0, commits)
    return Batch(offset, 1, 0, 78, (marker,), marker=marker)


LOG = (
    _batch(0, 7, "x1"),
    _batch(1, 8, "y1"),
    _marker(2, 7, commits=False),
    _batch(3, 7, "x2"),
    _marker(4, 8, commits=True),
)


def test_a_marker_decides_what_its_producer_wrote_before_it() -> None:
    assert decisions_of(LOG) == {"x1": False, "y1": True, "x2": None}
    assert open_in(LOG) == {7: 3}


def test_the_last_state_of_each_transactional_id_counts() -> None:
    world = _ready()
    _in_transaction(world, "x1")
    _ended(world, commits=True)
    run_for(world, 50)
    [state] = world.disks[B].logs[X].transactional_ids
    assert isinstance(state, TransactionMetadata)
    assert state.state is TransactionState.COMPLETE_COMMIT


def test_a_world_in_which_the_opposite_was_answered_is_suspect() -> None:
    world = _ready()
    _in_transaction(world, "x1")
    _ended(world, commits=True)
    run_for(world, 50)
    assert not is_lost(world)
    send, outcome = world.clients.sends["x1"]
    world.clients.sends["x1"] = send, replace(outcome, kind="fail")
    assert is_lost(world)
    world.clients.sends["x1"] = send, replace(outcome, kind="info")
    assert not is_lost(world)


def test_a_fenced_producer_in_a_transaction_is_nearer_to_a_loss() -> None:
    world = _ready()
    _in_transaction(world, "x1")
    assert nearer(world) == 0
    transactional.open_producer(world.clients, "q", "x")
    _quiet(world, "q")
    assert nearer(world) == 1


# --- mutants -------------------------------------------------------------------------------------


def _opened(name: str, of: str = "x") -> steps.OpenClient:
    return steps.OpenClient(name, "producer", transactional_id=of)


def _begun(client: str, record: str) -> Schedule:
    return steps.Begin(client), steps.Send(client, (record,))


def _hold_markers(rule: str = "h") -> steps.Hold:
    return steps.Hold.of("request", "write_txn_markers", "B", "C", rule=rule)


def _hold_fetched(to: str, rule: str = "h") -> steps.Hold:
    return steps.Hold.of("response", "fetch", "C", to, rule=rule)


def _kill(broker: str) -> steps.Kill:
    return steps.Kill(broker, "discarded")


P = (_opened("p"), *_begun("p", "x1"))
OF_ANOTHER_ID = (_opened("q", "y"), *_begun("q", "x2"))
SUCCEEDED = (_opened("q"), *_begun("q", "x2"))
COMMIT, ABORT = steps.CommitTransaction("p"), steps.AbortTransaction("p")
LATE_WRITE = (
    steps.Hold.of("request", "produce", "client", "C", "transactional_id == x", rule="late"),
    steps.Send("p", ("x3",), waits=False),
)
OF_THE_DEAD = (*P, *LATE_WRITE, steps.Die("p"), _opened("q"), steps.Deliver("late"))
BEHIND_ITS_MARKER = (
    steps.OpenClient("p", "raw_producer", transactional_id="x"),
    *_begun("p", "x1"),
    *LATE_WRITE,
    ABORT,
    steps.Deliver("late"),
)
ZOMBIE = (steps.Cut("B", "coordination", "coordination", both=True), steps.Await())
SHOWN: Mapping[str, tuple[Schedule, str]] = {
    "all-is-stable": (P, "reads-below-stable"),
    "ended-is-stable-at-once": ((_kill("A"), *P, _kill("B")), "reads-below-stable"),
    "marker-ends-nothing": ((*P, COMMIT), "transactions-of-the-log"),
    "transaction-begins-at-its-last": (
        (*P, steps.Send("p", ("x2",))),
        "transactions-of-the-log",
    ),
    "cut-ends-all": (
        (*P, _hold_fetched("B"), COMMIT, _kill("C")),
        "transactions-of-the-log",
    ),
    "marker-ends-all": ((*P, *OF_ANOTHER_ID, COMMIT), "transactions-of-the-log"),
    "fenced-producer-ends": ((*P, *SUCCEEDED, COMMIT), "lost"),
    "successor-keeps-the-epoch": ((_opened("p"), _opened("q")), "new-epoch-each"),
    "fences-in-the-old-epoch": (OF_THE_DEAD, "written-before-its-end"),
    "aborts-commit": ((*P, ABORT), "markers-are-decided"),
    "old-epochs-append": (OF_THE_DEAD, "written-before-its-end"),
    "forgets-what-is-added": ((*P, COMMIT), "complete-after-markers"),
    "transactions-not-read": ((*P, _kill("B")), "recovers"),
    "prepared-is-left": ((*P, _hold_markers(), COMMIT, _kill("B")), "recovers"),
    "coordinates-after-its-term": ((*ZOMBIE, steps.Heal()), "transaction-coordinator-leads"),
    "decides-by-itself": ((_opened("p"),), "answered-state-is-committed"),
    "refused-markers-count": (
        (_kill("B"), *P, _hold_fetched("A"), COMMIT, _kill("C"), _kill("A")),
        "complete-after-markers",
    ),
    "one-marker-is-all": (
        (*P, *OF_ANOTHER_ID, _hold_fetched("A"), steps.AbortTransaction("q"), COMMIT),
        "complete-after-markers",
    ),
    "markers-answered-at-once": ((*P, COMMIT), "answered-marker-is-committed"),
    "any-coordinator-marks": (
        (*P, _hold_markers(), COMMIT, *ZOMBIE, *_begun("p", "x2"), steps.Release("h"), ABORT),
        "anomalous",
    ),
    "asks-no-coordinator": (BEHIND_ITS_MARKER, "written-before-its-end"),
    "takes-any-answer": (BEHIND_ITS_MARKER, "written-before-its-end"),
}


def test_every_mutant_is_shown() -> None:
    assert set(SHOWN) == {mutant.name for mutant in MUTANTS}


@pytest.mark.parametrize("name", SHOWN)
def test_a_mutant_is_shown_and_the_unbroken_core_is_silent(name: str) -> None:
    mutant, (schedule, outcome) = BY_NAME[name], SHOWN[name]
    target = target_of(
        mutant.rules, SETTINGS, mutant.topic_settings, ("all",), mutant.faults, watched=True
    )
    ready = watched_world(target)
    assert isinstance(ready, World)
    with applied(mutant):
        broken = replay(target, ready, schedule)
    assert broken is not None
    assert broken.outcome.removeprefix("broken: ") == outcome
    silent = replay(target, ready, schedule)
    assert silent in (Judged("held", ()), Judged("unknown", ()))  # "unknown": all was aborted


# --- the search ----------------------------------------------------------------------------------


def _search(generation: str, schedules: int, *more: str, watched: bool = True) -> Search:
    faults_of = ("kill", "hold", "cut", "pause", "wait", TRANSACT, *more)
    return Search(
        GENERATIONS[generation], ("all",), faults_of, SETTINGS, TWO, schedules, watched=watched
    )


@pytest.mark.slow
@pytest.mark.parametrize("generation", proof_but(SERVED, "2.1", "4.0"))
def test_the_unbroken_core_is_silent(generation: str) -> None:
    explored = explore_seed(_search(generation, 150, LATE), 3)
    assert (explored.schedules, explored.loss) == (150, None)


@pytest.mark.slow
def test_a_find_is_a_file_that_says_so_again() -> None:
    with applied(BY_NAME["fenced-producer-ends"]):
        loss = explore_seed(_search("2.1", 2_000, watched=False), 0).loss
        assert loss is not None
        assert (loss.outcome, loss.portable) == ("lost", True)
        scenario = parse_scenario("found", loss.document, "found.toml")
        again = simulate(scenario, GENERATIONS["2.1"]).judged
    assert again.outcome == "lost"
    assert "topics.__transaction_state" in loss.document
    assert simulate(scenario, GENERATIONS["2.1"]).judged.outcome != "lost"


def test_where_a_generation_has_no_transactions_none_is_drawn() -> None:
    assert _search("0.10", 1).target().spec.transactions is None
    explored = explore_seed(_search("0.10", 40), 1)
    assert explored.loss is None


def test_a_swarm_draws_transactions_where_a_generation_has_them() -> None:
    search = replace(_search("2.1", 1), faults=FAULTS_OF_A_SWARM, swarm=True)
    seeds = [drawn(search, seed) for seed in range(40)]
    having = [one for one in seeds if TRANSACT in one.faults]
    assert 4 <= len(having) <= 30
    assert not any({"power_off", "unplug"} & set(one.faults) for one in having)
    assert all(one.acks == ("all",) for one in having)


# --- message by message --------------------------------------------------------------------------


def _by_message(generation: str = "2.1") -> Target:
    made = target_of(
        GENERATIONS[generation],
        SETTINGS,
        {"min.insync.replicas": "1"},
        ("all",),
        ("kill", TRANSACT),
        watched=True,
    )
    return fetches_only(made)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "outcome"),
    [
        (None, ""),
        ("markers-answered-at-once", "broken: answered-marker-is-committed"),
        ("decides-by-itself", "broken: answered-state-is-committed"),
    ],
)
def test_every_order_of_the_messages_of_one_transaction(mutant: str | None, outcome: str) -> None:
    with nullcontext() if mutant is None else applied(BY_NAME[mutant]):
        searched = exhaustive.run(_by_message(), Limits(Counts(transactions=3), 5_000))
    assert searched.outcome == outcome
    assert searched.exhausted is (mutant is None)


def test_what_producers_can_do_next_follows_from_what_they_have_done() -> None:
    target = _by_message()
    state = first_state(target)
    assert isinstance(state, State)
    assert transactions(state) == [Open("p1")]
    for move in (Open("p1"), Sends("p1", "x2", begins=True)):
        while move not in transactions(state):  # it waits for the coordinator
            assert state.world.advance()
        assert do(state, move, target)
    until(state.world, lambda: not state.world.clients.transactional["p1"].is_busy)
    ends = [End("p1", commits=True), End("p1", commits=False)]
    assert transactions(state) == [Open("p2"), Sends("p1", "x3", begins=False), *ends]
    assert not do(state, End("p2", commits=True), target)
    assert not do(state, Sends("p1", "x3", begins=True), target)
    assert do(state, Open("p7"), target)  # as where others were left out of its path
    path = (Open("p1"), Sends("p1", "x2", begins=True), ends[0])
    assert words(path, target) == ["open", "begin transaction, send", "commit transaction"]


def test_runs_of_priorities_have_transactions_where_the_search_has() -> None:
    target = _by_message()
    first = first_state(target)
    assert isinstance(first, State)
    bounds = drawn_bounds(target, 1)
    assert bounds.transactions >= 4
    bounds = bounds._replace(transactions=24)
    made = [run(first, target, seed, bounds) for seed in range(8)]
    assert any(isinstance(move, End) for one in made for move in one.path)
    assert [one.judged for one in made] == [None] * len(made)
