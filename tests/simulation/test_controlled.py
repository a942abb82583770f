"""What a controller sends to brokers, in the simulation: held, dropped, answered, sent again."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface.coordination_service import SessionStarted
from neaptide.clusters.broker.replication.model import LeaderAndIsr
from neaptide.clusters.broker.replication.partition.partition_rules import isr_of
from neaptide.clusters.simulation import faults
from neaptide.clusters.simulation.broker_calls import ONE_AT_A_TIME
from neaptide.clusters.simulation.controlling import ControlRetry
from neaptide.clusters.simulation.network import (
    ALTER,
    CONTROL,
    CONTROL_APIS,
    CONTROLLER,
    COORDINATION,
    FETCH,
    SERVICE,
    Entry,
    Hold,
    Link,
)
from neaptide.clusters.simulation.network_node import CallKey
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.gate.apis import CONTROLLER_NAMES
from neaptide.nemesis.scenario import parse_scenario
from neaptide.nemesis.search.command import SETTINGS, TOPIC_SETTINGS
from neaptide.nemesis.search.episode import explore_seed
from neaptide.nemesis.search.explore import Episode
from neaptide.nemesis.search.moves import Drawing, draw_moves
from neaptide.nemesis.search.observed import WorldObserved
from neaptide.nemesis.search.perform import Performer, where_of
from neaptide.nemesis.search.play import simulate
from neaptide.nemesis.search.search import Search
from tests.simulation.worlds import A, B, C, ready, run_for, until

OF_C = CallKey(ALTER, C, ONE_AT_A_TIME)


class Seen:
    """A recorder that keeps which of a controller's requests brokers received."""

    def __init__(self) -> None:
        self.received: list[tuple[int, str]] = []

    def event(self, entry: Entry) -> None:
        api = CONTROL_APIS.get(type(entry.body))
        if api is not None and entry.link is not None:
            self.received.append((entry.link.target, api))

    def __getattr__(self, _: str) -> object:
        return lambda *_: None

    def of(self, broker: int, api: str) -> int:
        return self.received.count((broker, api))


def _state(world: World) -> LeaderAndIsr:
    return world.service.states[world.partition]


def _leads(world: World, broker: int) -> bool:
    return world.brokers[broker].led(world.partition) is not None


def _world(generation: str = "2.1", *rules: Hold) -> tuple[World, Seen]:
    """C leads; it dies once the rules are there, so that B is to lead by A's word."""
    world, seen = ready(generation, replica_socket_timeout_ms="30000"), Seen()
    for rule in rules:
        faults.hold(world, rule)
    world.network.recorder = seen  # type: ignore[assignment]
    faults.kill(world, C)
    until(world, lambda: _state(world).leader == B)
    return world, seen


def _rule(message: str, api: str, **more: object) -> Hold:
    source, target = (A, B) if message == "request" else (B, A)
    return Hold("h", message, api, source, target, **more)  # type: ignore[arg-type]


def test_rules_name_what_a_controller_sends_as_the_gate_does() -> None:
    assert set(CONTROL_APIS.values()) == set(CONTROLLER_NAMES.values())


def test_a_held_leader_and_isr_waits_and_so_does_what_is_behind_it() -> None:
    world, seen = _world("2.1", _rule("request", "leader_and_isr"))
    run_for(world, 1_000)
    assert WorldObserved(world).held(A, B)
    assert not _leads(world, B)
    assert seen.of(A, "leader_and_isr") == 1  # other links go on
    faults.release(world, "h")
    until(world, lambda: _leads(world, B))
    assert not WorldObserved(world).held(A, B)
    assert A in world.network.shown.obeyed
    assert world.network.shown.refused == frozenset()


@pytest.mark.parametrize(
    ("rule", "takes"),
    [
        (_rule("request", "any"), False),  # never a controller's
        (_rule("request", "fetch"), False),
        (_rule("request", "stop_replica"), False),
        (_rule("request", "update_metadata"), True),
        (_rule("request", "leader_and_isr", where=where_of("leader_epoch >= 1")), True),
        (_rule("request", "leader_and_isr", where=where_of("leader_epoch >= 2")), False),
        (_rule("request", "leader_and_isr", where=where_of("fetch_offset >= 0")), False),
        (_rule("response", "leader_and_isr"), True),
    ],
)
def test_a_rule_takes_what_it_names(rule: Hold, takes: bool) -> None:
    world, _ = _world("2.1", rule)
    run_for(world, 1_000)
    channels = {entry.link.channel for entry in world.network.waiting if entry.link is not None}
    assert bool(channels - {FETCH}) is takes
    if takes:
        assert WorldObserved(world).held(rule.source, rule.target)


def test_what_a_broker_did_not_receive_is_sent_to_the_process_after_it() -> None:
    """Until it registers again its controller does not know that it was away."""
    world, seen = _world("2.1", _rule("request", "leader_and_isr"))
    until(world, lambda: WorldObserved(world).held(A, B))
    faults.cut(world, A, SERVICE, None, both=True)
    faults.kill(world, B)
    faults.restart(world, B)
    run_for(world, 1_000)
    assert WorldObserved(world).held(A, B)
    faults.release(world, "h")
    until(world, lambda: _leads(world, B))
    assert seen.of(B, "leader_and_isr") == 1


@pytest.mark.parametrize("has_registered", [True, False])
def test_a_broker_of_today_refuses_what_was_meant_for_the_process_before_it(
    has_registered: bool,
) -> None:
    """KIP-380. What comes before its own registration is answered after that."""
    world, _ = _world("4.0", _rule("request", "leader_and_isr"))
    until(world, lambda: WorldObserved(world).held(A, B))
    faults.cut(world, A, SERVICE, None, both=True)
    faults.kill(world, B)
    faults.restart(world, B)
    if has_registered:
        run_for(world, 1_000)
    world.network.shown.obeyed = frozenset()
    faults.release(world, "h")
    until(world, lambda: WorldObserved(world).refused(A))
    assert not _leads(world, B)
    assert A not in world.network.shown.obeyed


def test_a_dropped_request_is_sent_again_until_the_rule_ends() -> None:
    world, seen = _world("2.1", _rule("request", "leader_and_isr", drops=True))
    run_for(world, 1_000)
    assert seen.of(B, "leader_and_isr") == 0
    assert sum(isinstance(entry.body, ControlRetry) for entry in world.network.own) == 1
    assert world.network.hold_counts["h"] == 10  # one in 100 ms
    faults.release(world, "h")
    until(world, lambda: _leads(world, B))
    assert seen.of(B, "leader_and_isr") == 1


def test_a_rule_drops_as_often_as_it_says() -> None:
    world, seen = _world("2.1", _rule("request", "leader_and_isr", drops=True, times=2))
    began_us = world.now_us
    until(world, lambda: _leads(world, B))
    assert 100_000 < world.now_us - began_us < 300_000
    assert seen.of(B, "leader_and_isr") == 1


def test_a_held_answer_keeps_up_the_next_request() -> None:
    world, seen = _world("2.1", _rule("response", "leader_and_isr", times=1))
    until(world, lambda: _leads(world, B))
    run_for(world, 1_000)
    assert WorldObserved(world).held(B, A)
    before = seen.of(B, "leader_and_isr"), seen.of(B, "update_metadata")
    faults.restart(world, C)  # A has something to send to all of them
    run_for(world, 2_000)
    assert seen.of(C, "leader_and_isr") > 0
    assert (seen.of(B, "leader_and_isr"), seen.of(B, "update_metadata")) == before
    faults.release(world, "h")
    until(world, lambda: seen.of(B, "update_metadata") > before[1])


@pytest.mark.parametrize("by", ["drop", "discard", "time_out", "death"])
def test_a_request_whose_answer_is_lost_is_done_twice(by: str) -> None:
    rule = _rule("response", "leader_and_isr", drops=by == "drop", times=1)
    world, seen = _world("2.1", rule)
    until(world, lambda: _leads(world, B))
    if by == "drop":
        run_for(world, 1_000)
    else:
        until(world, lambda: WorldObserved(world).held(B, A))
        assert seen.of(B, "leader_and_isr") == 1
    if by == "discard":
        assert faults.discard(world, "h") == 1
    elif by == "time_out":
        run_for(world, 29_000)
        assert seen.of(B, "leader_and_isr") == 1
        run_for(world, 2_000)
    elif by == "death":
        faults.cut(world, A, SERVICE, None, both=True)
        faults.kill(world, B)
        faults.restart(world, B)
    run_for(world, 1_000)
    assert seen.of(B, "leader_and_isr") == 2
    assert _leads(world, B)
    assert world.network.unanswered == {}


def test_a_controller_that_gives_a_broker_up_sends_it_nothing_more() -> None:
    world, seen = _world("2.1", _rule("response", "leader_and_isr", times=1))
    until(world, lambda: WorldObserved(world).held(B, A))
    faults.kill(world, B)
    run_for(world, 1_000)  # A learns of it
    assert world.network.unanswered == {}
    assert all(
        e.link != Link(A, B, CONTROL) for e in (*world.network.messages, *world.network.waiting)
    )
    assert seen.of(B, "leader_and_isr") == 1


def test_a_message_is_counted_once_by_a_rule_that_takes_so_many() -> None:
    world, _ = _world("2.1", _rule("request", "leader_and_isr", times=1))
    until(world, lambda: WorldObserved(world).held(A, B))
    world.network.unblock()
    run_for(world, 1_000)
    assert world.network.hold_counts["h"] == 1
    assert WorldObserved(world).held(A, B)


def test_a_broker_registers_by_the_answer_of_the_service() -> None:
    """What `has_registered` above is about: the service knows of it before the broker does."""
    world, _ = _world("4.0")
    faults.kill(world, B)
    faults.restart(world, B)
    until(world, lambda: B in world.service.sessions)
    link = Link(SERVICE, B, COORDINATION)
    assert any(
        e.link == link and isinstance(e.body, SessionStarted) for e in world.network.messages
    )


# --- the search draws it -------------------------------------------------------------------------


def _control_search(generation: str, schedules: int) -> Search:
    faults_of = ("kill", "control", "power_off")
    return Search(GENERATIONS[generation], ("all",), faults_of, SETTINGS, TOPIC_SETTINGS, schedules)


@pytest.mark.slow
def test_the_loss_of_kip_380_is_found_from_nothing_and_newer_brokers_hold() -> None:
    loss = explore_seed(_control_search("2.1", 3_000), 3).loss
    assert loss is not None
    assert loss.portable
    [hold] = [step for step in loss.shrunk if isinstance(step, steps.Hold)]
    assert (hold.message, hold.api) == ("request", "leader_and_isr")
    assert "hold leader_and_isr A→B" in loss.document
    assert "(log_end_offset(A) == 0 or refused(A))" in loss.document
    scenario = parse_scenario("found", loss.document, "found.toml")
    today = GENERATIONS["4.0"]
    unfenced = replace(today, checks_broker_epochs=False)
    played = [
        simulate(scenario, rules).judged.outcome for rules in (GENERATIONS["2.1"], today, unfenced)
    ]
    assert played == ["lost", "held", "lost"]


@pytest.mark.proof
def test_the_loss_of_kip_903_is_found_from_nothing_where_isr_changes_name_no_epochs() -> None:
    today = GENERATIONS["4.0"]
    unnamed = replace(today, isr_names_broker_epochs=False)
    faults_of = ("kill", "hold", "control", "power_off")
    one = {"min.insync.replicas": "1"}
    loss = explore_seed(Search(unnamed, ("all",), faults_of, SETTINGS, one, 1_500), 7).loss
    assert loss is not None
    assert loss.portable
    holds = [(s.api, s.destination) for s in loss.shrunk if isinstance(s, steps.Hold)]
    assert holds == [("alter_partition", "controller"), ("fetch", "C")]
    assert 'hold = { request = "alter_partition", from = "C", to = "controller"' in loss.document
    assert "held(C, A)" in loss.document
    scenario = parse_scenario("found", loss.document, "found.toml")
    played = [simulate(scenario, rules).judged.outcome for rules in (unnamed, today)]
    assert played[0] == "lost"
    assert played[1] != "lost"


@pytest.mark.slow
def test_the_same_seed_draws_the_same_and_only_control_holds_what_controllers_send() -> None:
    first, second = (Episode(_control_search("4.0", 300).target(), 3) for _ in range(2))
    other = Episode(replace(_control_search("4.0", 300).target(), faults=("kill", "hold")), 3)
    assert [episode.explore(300) for episode in (first, second, other)] == [None] * 3
    assert first.states == second.states
    held = [_held(episode) for episode in (first, second, other)]
    assert held[0] == held[1]
    of_control = {*CONTROL_APIS.values(), "alter_partition"}
    assert {"leader_and_isr", "update_metadata"} <= held[0] <= of_control
    assert held[2] <= {"fetch", "offset_for_leader_epoch"}


def _held(episode: Episode) -> set[str]:
    nodes = [node for shelf in episode.shelves.values() for node in shelf]
    return {step.api for n in nodes for step in n.schedule if isinstance(step, steps.Hold)}


def test_a_controller_is_blinded_once() -> None:
    world, target = ready("2.1"), _control_search("2.1", 1).target()
    drawing = Drawing(target.names, ("all",), {"blind": 1.0}, ())
    [cut] = draw_moves(Random(0), world, (), drawing)
    assert cut == steps.Cut("A", "coordination", "coordination", both=True)
    Performer(world, target.names).do(cut)
    assert draw_moves(Random(0), world, (), drawing) == ()


def test_beside_control_a_power_failure_takes_no_last_copy() -> None:
    world, target = ready("2.1", min_insync_replicas="1"), _control_search("2.1", 1).target()
    performer = Performer(world, target.names)

    def drawn(held: tuple[str, ...]) -> set[str]:
        drawing = Drawing(target.names, ("all",), {"power_off": 1.0}, held)
        moves = [draw_moves(Random(seed), world, (), drawing) for seed in range(40)]
        return {
            str(step.broker) for move in moves for step in move if isinstance(step, steps.PowerOff)
        }

    def killed(held: tuple[str, ...], *so_far: steps.Step) -> set[str]:
        drawing = Drawing(target.names, ("all",), {"kill": 1.0}, held)
        moves = [draw_moves(Random(seed), world, so_far, drawing) for seed in range(40)]
        return {str(s.broker) for move in moves for s in move if isinstance(s, steps.Kill)}

    performer.do(steps.Produce(("m1",)))
    until(world, lambda: "m1" in world.clients.acked)
    assert drawn((CONTROL,)) == killed((CONTROL,)) == {"B", "C"}  # A is the controller
    performer.do(steps.Kill("C", "discarded"))
    until(world, lambda: _leads(world, B))
    assert drawn((CONTROL,)) == {"B"}  # A has m1, and is in the ISR
    performer.do(steps.Cut("A", "B", "replication", both=True))
    until(world, lambda: set(_state(world).isr) == {B})
    assert drawn((CONTROL,)) == killed((CONTROL,), steps.PowerOff("C")) == set()
    assert killed((CONTROL,)) == {"B"}
    assert drawn(()) == killed((), steps.PowerOff("C")) == {"A", "B"}


# --- what leaders ask it -------------------------------------------------------------------------


def _joining(**more: object) -> World:
    """C leads; B is back, and that it is in the ISR again is on its way to A, the controller."""
    world = ready("4.0", replica_socket_timeout_ms="30000", min_insync_replicas="1")
    faults.kill(world, B)
    run_for(world, 1_000)
    assert set(_state(world).isr) == {A, C}
    faults.hold(world, Hold("h", "request", "alter_partition", C, CONTROLLER, **more))  # type: ignore[arg-type]
    faults.restart(world, B)
    run_for(world, 2_000)
    return world


@pytest.mark.parametrize("end", ["release", "discard", "time_out", "next controller"])
def test_an_isr_change_that_is_held_or_lost_comes_to_some_controller(end: str) -> None:
    world = _joining()
    assert WorldObserved(world).held(C, A)
    assert set(_state(world).isr) == {A, C}
    faults.cut(world, C, A, "replication", both=True)  # is not about what leaders ask
    if end == "release":
        faults.release(world, "h")
    elif end == "discard":
        assert faults.discard(world, "h") == 1
    elif end == "time_out":
        first = world.network.calls[OF_C]
        until(world, lambda: world.network.calls.get(OF_C, first) != first)
        faults.release(world, "h")
    else:
        faults.kill(world, A)
        faults.release(world, "h")
    until(world, lambda: B in _state(world).isr)
    run_for(world, 1_000)
    assert OF_C not in world.network.calls


def test_a_dropped_isr_change_is_asked_for_again_until_the_rule_ends() -> None:
    world = _joining(drops=True, times=2)
    assert B in _state(world).isr
    assert world.network.hold_counts["h"] == 3


def test_an_isr_change_whose_answer_is_held_is_written_and_counts_when_it_comes() -> None:
    world = _joining()
    faults.hold(world, Hold("answer", "response", "alter_partition", CONTROLLER, C))
    faults.release(world, "h")
    until(world, lambda: WorldObserved(world).held(A, C))
    assert B in _state(world).isr
    assert _believed(world) == (C, A)
    faults.release(world, "answer")
    until(world, lambda: set(_believed(world)) == {A, B, C})


def _believed(world: World) -> tuple[int, ...]:
    led = world.brokers[C].led(world.partition)
    assert led is not None
    return isr_of(led)
