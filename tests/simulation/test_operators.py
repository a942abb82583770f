"""What operators ask for, as steps, as moves of a search, and as what may not be forgotten."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import coordination_service
from neaptide.clusters.broker.replication.model import LeaderAndIsr, TopicPartition
from neaptide.clusters.simulation import faults
from neaptide.clusters.simulation.network import Hold
from neaptide.clusters.simulation.service import Service
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.player import MissedError
from neaptide.nemesis.scenario import parse_scenario
from neaptide.nemesis.search.deliveries import Depose, Elect, Reassign, operations
from neaptide.nemesis.search.document import Cluster, document_of
from neaptide.nemesis.search.ending import converge
from neaptide.nemesis.search.episode import explore_seed
from neaptide.nemesis.search.explore import end_and_judge, played
from neaptide.nemesis.search.invariants import BrokenError, Watch, allowed_to_break
from neaptide.nemesis.search.moves import Drawing, draw_moves
from neaptide.nemesis.search.mutants import BY_NAME, applied
from neaptide.nemesis.search.observed import assigned, is_reassigning
from neaptide.nemesis.search.perform import Performer, can_do
from neaptide.nemesis.search.play import simulate
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.shrink import renamed_brokers
from neaptide.nemesis.search.spared import loses_by_design
from neaptide.nemesis.search.swarm import drawn
from neaptide.nemesis.search.targets import FIVE, NAMES, OF_OPERATORS, REPLICAS_MIN, target_of
from neaptide.nemesis.search.worlds import ready_world
from neaptide.nemesis.steps import in_line
from tests.simulation.searches import SCENARIO
from tests.simulation.worlds import SETTINGS, A, B, C, ready, run_for, until

ALL = ["0.8", "0.10", "2.1", "2.8", "4.0"]


def _watched(generation: str = "2.1", allowed: frozenset[str] = frozenset()) -> World:
    world = ready(generation)
    watch = Watch(allowed)
    watch.begin(world)
    world.watch = watch
    return world


def _play(world: World, *done: steps.Step) -> None:
    assert played(world, NAMES, done) is None


# --- steps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", ALL)
def test_a_scenario_moves_a_partition_a_leader_and_the_controller(generation: str) -> None:
    scenario = parse_scenario("moves", SCENARIO, "moves.toml")
    assert simulate(scenario, GENERATIONS[generation]).judged.outcome == "held"


def test_who_asks_again_waits_until_what_was_asked_before_is_over_by_a_hair() -> None:
    world = ready()
    performer = Performer(world, NAMES)
    performer.do(steps.Reassign(("B", "A")))
    performer.do(steps.Reassign(("A", "B", "C")))
    until(world, lambda: not is_reassigning(world))
    assert assigned(world, world.partition) == (A, B, C)


@pytest.mark.parametrize("step", [steps.Reassign(("C", "B")), steps.Elect()], ids=["", "elect"])
def test_where_it_is_not_over_the_step_is_a_miss(step: steps.Step) -> None:
    """The controller is cut off, and its session lives on."""
    world = ready(zookeeper_session_timeout_ms="60000")
    faults.cut(world, None, A, "coordination", both=False)
    performer = Performer(world, NAMES)
    performer.do(step)
    with pytest.raises(MissedError, match="another"):
        performer.do(step)


def test_without_a_controller_none_is_moved() -> None:
    world = ready()
    world.service.controller = None
    with pytest.raises(MissedError, match="no active controller"):
        Performer(world, NAMES).do(steps.MoveController())


def test_an_unclean_election_is_not_for_the_simulation() -> None:
    assert can_do(steps.Elect(election="preferred"))
    assert not can_do(steps.Elect(election="unclean"))


def test_at_the_end_every_partition_has_the_replicas_with_which_it_began() -> None:
    world = ready()
    _play(world, steps.Reassign(("B", "A")))
    assert assigned(world, world.partition) == (B, A)
    assert converge(world)
    assert assigned(world, world.partition) == (C, B, A)
    assert set(world.service.states[world.partition].isr) == {A, B, C}


def test_the_same_schedule_for_others_names_others() -> None:
    others = {"A": "B", "B": "A", "C": "C"}
    assert renamed_brokers((steps.Reassign(("A", "C")),), others) == (steps.Reassign(("B", "C")),)


def test_what_operators_do_in_words() -> None:
    schedule = (
        steps.Reassign(("B", "A"), 1),
        steps.Elect(1),
        steps.Elect(election="unclean"),
        steps.MoveController(),
    )
    said = "reassign of 1 to B A, elect in 1, elect uncleanly, move the controller"
    assert in_line(schedule) == said


# --- moves ---------------------------------------------------------------------------------------


def _drawn(kind: str, world: World, names: dict[str, int], count: int = 200) -> set[steps.Step]:
    drawing = Drawing(names, ("all",), {kind: 1.0}, ())
    rng = Random(1)
    return {step for _ in range(count) for step in draw_moves(rng, world, (), drawing)}


def test_with_three_brokers_the_order_changes_or_one_goes_and_two_are_left() -> None:
    found = _drawn("reassign", ready(), dict(NAMES))
    targets = {step.replicas for step in found if isinstance(step, steps.Reassign)}
    assert ("B", "A", "C") in targets
    assert {len(one) for one in targets} == {REPLICAS_MIN, 3}
    assert ("C", "B", "A") not in targets  # as it is


def test_with_five_brokers_a_replica_moves_to_one_that_lives() -> None:
    rules = GENERATIONS["2.1"]
    of_three = {"min.insync.replicas": "2"}
    target = target_of(rules, SETTINGS, of_three, ("all",), ("kill",), watched=False, names=FIVE)
    world = ready_world(target.spec)
    first = set(assigned(world, world.partition))
    spare = sorted(set(FIVE.values()) - first)
    faults.kill(world, spare[0])
    found = _drawn("reassign", world, dict(FIVE))
    comes = {
        FIVE[name]
        for step in found
        if isinstance(step, steps.Reassign)
        for name in step.replicas
        if FIVE[name] not in first
    }
    assert comes == {spare[1]}


def test_nothing_is_asked_for_twice_nor_an_election_where_the_preferred_one_leads() -> None:
    world = ready()
    assert not _drawn("elect", world, dict(NAMES))
    faults.cut(world, None, A, "coordination", both=False)
    faults.reassign(world, 0, (B, A))
    assert not _drawn("reassign", world, dict(NAMES))


def test_a_seed_draws_what_operators_do_by_chance_of_its_own() -> None:
    others = tuple(one for one in ("kill", "hold", "cut", "wait"))
    of_all = Search(GENERATIONS["2.1"], ("all",), (*others, *OF_OPERATORS), SETTINGS, {}, 10)
    of_others = replace(of_all, faults=others)
    seen = set()
    for seed in range(60):
        drawn_of_all, drawn_of_others = drawn(of_all, seed), drawn(of_others, seed)
        seen |= set(drawn_of_all.faults) & set(OF_OPERATORS)
        left = tuple(one for one in drawn_of_all.faults if one not in OF_OPERATORS)
        assert left == drawn_of_others.faults
        assert drawn_of_all.partitions == drawn_of_others.partitions
    assert seen == set(OF_OPERATORS)


def test_after_a_power_failure_nothing_moves_to_who_lacks_what_was_acknowledged() -> None:
    world = ready()
    _play(world, steps.Produce(("m1",)), steps.PowerOff("B", None))
    so_far = (steps.Produce(("m1",)), steps.PowerOff("B", None))
    state = world.service.states[world.partition]
    for step in (steps.Reassign(("B", "A")), steps.Elect()):
        assert not loses_by_design(step, world, so_far, NAMES)  # B has left the ISR
    world.service.states[world.partition] = replace(state, isr=(C, B, A))
    for step in (steps.Reassign(("B", "A")), steps.Elect()):
        assert loses_by_design(step, world, so_far, NAMES)
        assert not loses_by_design(step, world, (steps.Produce(("m1",)),), NAMES)
    assert not loses_by_design(steps.Reassign(("C", "A")), world, so_far, NAMES)


def test_message_by_message_operators_ask_for_what_was_named_alone() -> None:
    world = ready()
    rules, none = GENERATIONS["2.1"], {"min.insync.replicas": "2"}

    def asked(*named: str) -> list[object]:
        target = target_of(rules, SETTINGS, none, ("all",), named, watched=False)
        return list(operations(world, target))

    assert asked("kill") == []
    assert asked("elect", "depose") == [Elect(), Depose()]
    assert asked("reassign") == [Reassign((B, A, C)), Reassign((B, A))]


@pytest.mark.slow
def test_a_loss_that_is_found_is_saved_and_replays() -> None:
    search = Search(
        GENERATIONS["2.1"],
        ("all",),
        ("kill", "hold", "cut", "reassign", "elect"),
        SETTINGS,
        {"min.insync.replicas": "2"},
        2_000,
    )
    with applied(BY_NAME["reassigned-before-in-sync"]):
        found = [explore_seed(search, seed).loss for seed in range(3)]
    losses = [one for one in found if one is not None and one.portable]
    assert losses
    for loss in losses:
        assert "reassign = { replicas = [" in loss.document
        assert "preferred is " in loss.document
        scenario = parse_scenario("found", loss.document, "found.toml")
        with applied(BY_NAME["reassigned-before-in-sync"]):
            assert simulate(scenario, GENERATIONS["2.1"]).judged.outcome == loss.outcome
        assert simulate(scenario, GENERATIONS["2.1"]).judged.outcome != loss.outcome


def test_a_file_says_what_operators_asked_for_and_what_came_of_it() -> None:
    target = target_of(
        GENERATIONS["2.1"], SETTINGS, {}, ("all",), ("reassign",), watched=False, partitions=2
    )
    schedule = (
        steps.Reassign(("B", "C", "A")),
        steps.Elect(),
        steps.Elect(1),
        steps.MoveController(),
        steps.Reassign(("B", "A"), 1),
    )
    cluster = Cluster(SETTINGS, {"min.insync.replicas": "2"})
    text = document_of(
        target, ready_world(target.spec), schedule, cluster, title="t", source="s", expect={}
    )
    assert 'reassign = { replicas = ["B", "C", "A"] }' in text
    assert "preferred is B" in text
    assert "elect = {}" in text
    assert "elect = { partition = 1 }" in text
    assert "move_controller = {}" in text
    assert "controller_epoch >= 2" in text
    scenario = parse_scenario("t", text, "t.toml")
    assert [one.step for one in scenario.steps] == list(schedule)
    assert not simulate(scenario, GENERATIONS["2.1"]).missed


# --- what may not be -----------------------------------------------------------------------------


def test_a_reassignment_that_was_begun_is_not_forgotten() -> None:
    world = _watched()
    _hold_back(world)
    with pytest.raises(BrokenError, match="reassignment-is-remembered"):
        _take_out(world)


def test_one_that_was_not_begun_may_be_refused() -> None:
    world = _watched()
    faults.cut(world, None, A, "coordination", both=False)  # nobody has read what is asked for
    faults.reassign(world, 0, (B, A))
    assert isinstance(world.watch, Watch)
    world.watch.served(world)
    _take_out(world)


def test_one_that_the_topic_itself_remembers_may_go_from_the_znode() -> None:
    world = _watched("2.8")
    _hold_back(world)
    _take_out(world)
    faults.release(world, "fetch")
    until(world, lambda: not is_reassigning(world))
    assert assigned(world, world.partition) == (B, A)


def _hold_back(world: World) -> None:
    """A partition is to lose C and to have A, who is not in sync and cannot be."""
    faults.kill(world, A)
    until(world, lambda: A not in world.service.states[world.partition].isr)
    faults.hold(world, Hold("fetch", "request", "any", A, C))
    faults.hold(world, Hold("fetch of B", "request", "any", A, B))
    faults.restart(world, A)
    until(world, lambda: A in world.service.sessions)
    faults.reassign(world, 0, (B, A))
    run_for(world, 2_000)
    assert world.service.reassignments == {world.partition: (B, A)}


def _take_out(world: World) -> None:
    """By who was controller, whatever its epoch."""
    nobody = coordination_service.SetPartitionReassignment({}, 0, False)
    world.service.execute(A, nobody)
    assert isinstance(world.watch, Watch)
    world.watch.served(world)


def test_who_leads_is_a_replica() -> None:
    world = _watched()
    topic = world.service.topics[world.partition.topic]
    world.service.topics = {world.partition.topic: replace(topic, assignment={0: (B, A)})}
    assert isinstance(world.watch, Watch)
    with pytest.raises(BrokenError, match="replicas-that-lead"):
        world.watch.served(world)


def test_a_generation_that_fences_no_deposed_controller_is_known_to_break_it() -> None:
    def allowed(generation: str, *, deposes: bool) -> bool:
        found = allowed_to_break(ready(generation).spec, loses_pages=False, deposes=deposes)
        return {"leader-epoch-of-its-controller", "reassignment-is-remembered"} <= found

    assert allowed("0.10", deposes=True)
    assert not allowed("0.10", deposes=False)
    assert not allowed("2.1", deposes=True)


def test_a_log_that_begins_anew_is_not_counted_in_the_epoch_in_which_it_was_deleted() -> None:
    """The leader does not know yet that A was taken away, nor that it is back with an empty log."""
    world = _watched()
    _play(world, steps.Produce(("m1",)), steps.Cut("A", "C", "replication", both=True))
    _play(world, steps.Reassign(("C", "B")), steps.Reassign(("A", "B")))
    assert not world.disks[A].logs[world.partition].batches


@pytest.mark.slow
@pytest.mark.parametrize("generation", ["0.10", "2.1"])
def test_before_0_11_a_broker_that_asks_for_what_was_taken_away_gets_nothing(
    generation: str,
) -> None:
    """KAFKA-5758: the stray replica holds up the others in the same request; no mistake of ours."""
    target = target_of(
        GENERATIONS[generation], SETTINGS, {}, ("all",), ("zombie",), watched=True, partitions=2
    )
    world = ready_world(target.spec)
    allowed = allowed_to_break(target.spec, loses_pages=False)
    world.watch = Watch(allowed)
    world.watch.begin(world)
    zombie = steps.Cut("A", "coordination", "coordination", both=True)
    _play(world, steps.Produce(("m1",)), zombie, steps.Await(), steps.Reassign(("C", "B"), 1))
    judged = end_and_judge(world)
    assert judged.outcome == ("unknown" if generation == "0.10" else "held")


# --- watches, as ZooKeeper has them --------------------------------------------------------------


def _service_with_state() -> tuple[Service, TopicPartition]:
    service, tp = Service(), TopicPartition("t", 0)
    for broker in (A, B):
        service.register(broker)
    state = LeaderAndIsr(A, 0, (A, B), 1)
    service.execute(A, coordination_service.WriteLeaderAndIsr(tp, state, False))
    return service, tp


def _watchers_notified(service: Service, tp: TopicPartition) -> list[int]:
    write = coordination_service.WriteLeaderAndIsr(tp, service.states[tp], False)
    return [
        broker
        for broker, event in service.execute(A, write)
        if isinstance(event, coordination_service.LeaderAndIsrChanged)
    ]


def test_whoever_watches_a_state_is_notified_once() -> None:
    """A controller that was deposed may watch still: its successor's watch is another (4.0, seed
    5500006: the successor's was gone, and a reassignment stood still)."""
    service, tp = _service_with_state()
    for broker in (B, A, A):
        service.execute(broker, coordination_service.ReadLeaderAndIsr((tp,), True))
    service.execute(B, coordination_service.ReadLeaderAndIsr((tp,), False))
    assert _watchers_notified(service, tp) == [A, B]
    assert _watchers_notified(service, tp) == []


def test_a_watch_ends_with_its_session() -> None:
    service, tp = _service_with_state()
    service.execute(B, coordination_service.ReadLeaderAndIsr((tp,), True))
    other = service.copy()
    service.expire(B)
    assert service.watched == {}
    service.register(B)
    assert _watchers_notified(service, tp) == []
    assert _watchers_notified(other, tp) == [B]


def test_a_late_read_of_the_controller_before_does_not_stop_a_reassignment() -> None:
    """Its read with a watch is on its way when its successor has begun to watch."""
    world = _watched("4.0", allowed_to_break(ready("4.0").spec, loses_pages=False, deposes=True))
    _play(
        world,
        steps.Kill("C", "discarded"),
        steps.Hold("B", "controller", request="alter_partition"),
        steps.Reassign(("C", "B")),
        steps.Cut("A", "coordination", "coordination", both=False),
        steps.Restart("C"),
        steps.MoveController(),
    )
    judged = end_and_judge(world)
    assert judged.outcome == "unknown", judged.evidence  # nothing was written; all recovered
