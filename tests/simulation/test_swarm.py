"""A swarm draws what each seed searches; what it draws is judged, and loses nothing by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.simulation import committing, producing
from neaptide.clusters.simulation.clients import Poll
from neaptide.clusters.simulation.world import World
from neaptide.harness.cli.explore import exit_of, print_found
from neaptide.harness.terminal.exits import Exit
from neaptide.nemesis import steps
from neaptide.nemesis.gate.model import COORDINATION
from neaptide.nemesis.player import MissedError
from neaptide.nemesis.search.command import SETTINGS, TOPIC_SETTINGS, command_of
from neaptide.nemesis.search.ending import end
from neaptide.nemesis.search.episode import broken_rule, explore_seed
from neaptide.nemesis.search.explore import Episode, Found, is_suspect, played, watched_world
from neaptide.nemesis.search.hunt import SCHEDULES_OF_A_SWARM, Effort, hunt
from neaptide.nemesis.search.judge import Judged, judge
from neaptide.nemesis.search.mutants import BY_NAME, applied
from neaptide.nemesis.search.perform import Performer
from neaptide.nemesis.search.priorities import drawn_bounds
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.shrink import replay
from neaptide.nemesis.search.spared import loses_by_design
from neaptide.nemesis.search.swarm import FAULTS_OF_A_SWARM, RUNS_OF_A_SWARM, drawn
from neaptide.nemesis.search.targets import FIVE, NAMES, RETENTION, RETENTION_CHECK, target_of
from neaptide.nemesis.search.worlds import ready_world
from neaptide.nemesis.steps import Step
from tests.proof import proof_but
from tests.simulation.worlds import A, B, C, log, run_for, until

SEEDS = range(40)


def _search(generation: str = "2.1", *, watched: bool = False) -> Search:
    rules = GENERATIONS[generation]
    return Search(
        rules,
        ("all",),
        FAULTS_OF_A_SWARM,
        SETTINGS,
        TOPIC_SETTINGS,
        SCHEDULES_OF_A_SWARM,
        watched=watched,
        swarm=True,
    )


def _ready(
    *faults: str, acks: tuple[str, ...] = ("all",), partitions: int = 1, **topic: str
) -> World:
    named = {name.replace("_", "."): value for name, value in topic.items()}
    target = target_of(
        GENERATIONS["2.1"],
        {**SETTINGS, **RETENTION_CHECK},
        {"min.insync.replicas": "1", **named},
        acks,
        faults,
        watched=False,
        partitions=partitions,
        second_client=True,
    )
    return ready_world(target.spec)


def _sent(world: World, value: str, acks: int = -1, partition: int = 0) -> None:
    producing.produce(world.clients, value, acks, partition)
    until(world, lambda: not world.clients.unsettled)


def _forget_final_reads(world: World, partition: int) -> None:
    world.clients.polls = tuple(
        poll for poll in world.clients.polls if poll.partition != partition or poll.phase != "final"
    )


# --- message by message --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("watched", proof_but([True, False], True))
@pytest.mark.parametrize(
    "seeds", [range(16, 17), pytest.param(range(24), marks=pytest.mark.proof)], ids=["one", "all"]
)
def test_a_seed_tries_single_messages_after_its_steps(watched: bool, seeds: range) -> None:
    """Of 0.10, by messages alone: a follower that has a committed record and does not know it."""
    search = replace(_search("0.10", watched=watched), schedules_max=0, faults=("kill",))
    losses = {}
    for seed in seeds:
        explored = explore_seed(search, seed)
        assert 1 <= explored.schedules <= RUNS_OF_A_SWARM.runs
        if explored.loss is not None:
            losses[seed] = explored.loss
    assert any(loss.portable for loss in losses.values())
    for loss in losses.values():
        assert loss.path
        assert command_of(search, loss.seed) == loss.command
    first = min(losses)
    assert explore_seed(search, first).loss == losses[first]


def test_a_run_by_messages_needs_no_more_than_its_bounds() -> None:
    search = replace(_search("2.1"), faults=("kill", "reassign"))
    bounds = [drawn_bounds(search.target(), seed) for seed in SEEDS]
    assert len(set(bounds)) > 20
    assert all(one.operations for one in bounds)
    without = replace(search, faults=("kill",)).target()
    assert not any(drawn_bounds(without, seed).operations for seed in SEEDS)


# --- what is drawn -------------------------------------------------------------------------------


def test_a_seed_draws_the_same_again_and_seeds_differ() -> None:
    searches = [drawn(_search(), seed) for seed in SEEDS]
    assert searches == [drawn(_search(), seed) for seed in SEEDS]
    assert {len(one.names) for one in searches} == {3, 5}
    assert {one.partitions for one in searches} == {1, 2, 3}
    assert {one.acks for one in searches} == {("all",), ("0", "1", "all")}
    assert {one.idempotence for one in searches} == {True, False}
    assert {one.topic_settings["min.insync.replicas"] for one in searches} == {"1", "2"}
    assert {"retention.bytes" in one.topic_settings for one in searches} == {True, False}
    assert {fault for one in searches for fault in one.faults} == set(FAULTS_OF_A_SWARM)
    assert not any("commit" in one.faults and "zombie" in one.faults for one in searches)


def test_before_broker_epochs_are_checked_no_process_ends_beside_control() -> None:
    deaths = {"kill", "stop", "power_off", "unplug"}
    for generation, is_left_out in (("2.1", True), ("2.8", False), ("4.0", False)):
        searches = [drawn(_search(generation), seed) for seed in SEEDS]
        beside = [deaths & set(one.faults) for one in searches if "control" in one.faults]
        assert beside
        assert any(beside) is not is_left_out


def test_a_generation_without_idempotence_draws_none() -> None:
    assert not any(drawn(_search("0.10"), seed).idempotence for seed in SEEDS)


def test_the_command_names_the_swarm_and_not_what_it_drew() -> None:
    found = command_of(drawn(_search(), 3), 3)
    assert found == "neaptide explore swarm --system neaptide:2.1 --acks all --seed 3 --seeds 1"


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 40), marks=pytest.mark.proof)], ids=["few", "many"]
)
@pytest.mark.parametrize("generation", ["2.1", "2.8", "4.0"])
def test_a_swarm_finds_nothing_in_the_unbroken_core(generation: str, seeds: range) -> None:
    for seed in seeds:
        search = replace(_search(generation, watched=seed % 2 == 0), schedules_max=60)
        assert explore_seed(search, seed).loss is None


# --- what is judged ------------------------------------------------------------------------------


def test_a_loss_in_the_second_partition_is_a_loss() -> None:
    world = _ready(partitions=2)
    _sent(world, "m1", partition=1)
    _sent(world, "m2", partition=1)
    ended = end(world)
    assert judge(world, ended).outcome == "held"
    _forget_final_reads(world, 0)
    assert judge(world, ended).outcome == "held"
    polls = world.clients.polls
    world.clients.polls = tuple(replace(poll, records=poll.records[1:]) for poll in polls)
    assert judge(world, ended).outcome == "lost"


def test_a_partition_to_which_nothing_was_sent_does_not_hide_another() -> None:
    world = _ready(partitions=3)
    assert judge(world, end(world)).outcome == "unknown"
    _sent(world, "m1", partition=2)
    assert judge(world, end(world)).outcome == "held"


def test_where_acks_are_mixed_those_of_all_alone_are_promises() -> None:
    world = _ready(acks=("0", "1", "all"))
    _sent(world, "m1", acks=1)
    _sent(world, "m2")
    ended = end(world)
    polls = world.clients.polls
    world.clients.polls = tuple(replace(poll, records=poll.records[1:]) for poll in polls)
    assert judge(world, ended).outcome == "held"
    world.clients.polls = tuple(replace(poll, records=poll.records[:1]) for poll in polls)
    assert judge(world, ended).outcome == "lost"


def test_what_a_consumer_has_read_and_its_leader_lacks_is_suspect() -> None:
    world = _ready()
    _sent(world, "m1")
    world.clients.polls = (Poll(1, "main", ((0, "m1"),)),)
    assert not is_suspect(world)
    world.clients.polls = (Poll(1, "main", ((0, "m1"), (1, "gone"))),)
    assert is_suspect(world)
    world.clients.polls = (Poll(1, "main", ((0, "gone"),), 1),)
    assert not is_suspect(world)


def test_a_log_start_that_no_retention_made_hides_no_loss() -> None:
    retention: dict[str, Any] = {name.replace(".", "_"): value for name, value in RETENTION.items()}
    world = _ready("kill", **retention)
    for number in range(4):
        _sent(world, f"m{number}")
    run_for(world, 3_000)
    ended = end(world)
    assert 0 < ended.start_offset < 4
    assert judge(world, ended).outcome == "held"
    with applied(BY_NAME["log-start-is-high-watermark"]):
        world = _ready("kill")
        for number in range(3):
            _sent(world, f"m{number}")
        run_for(world, 2_000)
        Performer(world, NAMES).do(steps.Stop("C"))
        run_for(world, 2_000)
        assert world.disks[B].logs[world.partition].start_offset > 0
        assert is_suspect(world)
        assert judge(world, end(world)).outcome == "lost"


def test_where_retention_has_deleted_all_on_another_broker_nothing_read_proves_no_loss() -> None:
    """The others have deleted m1; who leads has it still, and its log ends no later."""
    world = _ready()
    _sent(world, "m1")
    ended = end(world)
    _forget_final_reads(world, 0)
    nothing = replace(ended, final=())
    assert judge(world, nothing).outcome == "lost"
    assert judge(world, replace(nothing, deleted_before=1)).outcome == "unknown"


# --- what is done --------------------------------------------------------------------------------


def test_a_broker_that_was_stopped_cleanly_keeps_all_in_a_power_failure() -> None:
    for is_broken in (False, True):
        world = _ready("stop", "unplug")
        _sent(world, "m1")
        performer = Performer(world, NAMES)
        if is_broken:
            with applied(BY_NAME["stopped-without-flush"]):
                performer.do(steps.Stop("A"))
        else:
            performer.do(steps.Stop("A"))
        performer.do(steps.PowerOff("A", None))
        assert log(world, A) == ([] if is_broken else ["m1"])


def test_a_broker_that_was_killed_has_no_second_power_failure() -> None:
    world = _ready()
    performer = Performer(world, NAMES)
    performer.do(steps.Kill("A", "discarded"))
    with pytest.raises(MissedError):
        performer.do(steps.PowerOff("A", None))


def test_a_second_client_of_a_group_asks_while_the_first_commits() -> None:
    for name in (None, "unacknowledged-commit-is-known"):
        world = _ready("commit")
        _sent(world, "m1")
        if name is None:
            committing.commit(world.clients, "g", 0, 1)
            run_for(world, 1_000)
            committing.commit(world.clients, "g", 0, 1)
            run_for(world, 1_000)
        else:
            with applied(BY_NAME[name]):
                committing.commit(world.clients, "g", 0, 1)
                run_for(world, 1_000)
        answers = [(one.f, one.offset) for one in world.clients.group_operations]
        asked = [("commit", 1), ("committed", 1), ("commit", 1)]
        assert answers == (asked if name is None else [("committed", 1), ("commit", 1)])


# --- what is found -------------------------------------------------------------------------------

FOUND = {
    "consumers-receive-the-log-end": "broken: answered-high-watermark",
    "log-start-is-high-watermark": "broken: log-start-by-retention",
    "fetches-of-any-epoch": "broken: epochs-are-fenced",
}


@pytest.mark.parametrize("name", FOUND)
def test_a_mutant_is_found_without_a_hint(name: str) -> None:
    hunted = hunt(BY_NAME[name], Effort(0, 6, None, tuple(SETTINGS.items())))
    assert hunted.outcome == FOUND[name]


def test_a_leader_alone_and_links_of_clients_are_drawn() -> None:
    faults = ("kill", "alone", "client")
    target = target_of(
        GENERATIONS["2.1"],
        SETTINGS,
        {"min.insync.replicas": "1"},
        ("all",),
        faults,
        watched=False,
        spares=True,
    )
    episode = Episode(target, 1)
    episode.explore(120)
    kept = [node.schedule for shelf in episode.shelves.values() for node in shelf]
    cuts = [step for schedule in kept for step in schedule if isinstance(step, steps.Cut)]
    assert {cut.purpose for cut in cuts} == {"replication", "client"}
    isrs = {
        node.world.service.states[node.world.partition].isr
        for shelf in episode.shelves.values()
        for node in shelf
    }
    assert (C,) in isrs


def test_a_shrunk_schedule_takes_no_last_copy_either() -> None:
    """With one stop left out, the power failure is one of a running broker."""
    topic = {"min.insync.replicas": "1"}
    stops = tuple(steps.Stop(name) for name in "ABC")
    schedule: tuple[Step, ...] = (steps.Produce(("m1",)), *stops, steps.PowerOff("C", None))
    for spares in (True, False):
        target = target_of(
            GENERATIONS["2.1"], SETTINGS, topic, ("all",), ("stop",), watched=False, spares=spares
        )
        ready = ready_world(target.spec)
        kept = replay(target, ready, schedule)
        shorter = replay(target, ready, (*schedule[:3], schedule[4]))
        assert kept is not None
        assert kept.outcome == "held"
        assert shorter is None if spares else shorter is not None and shorter.outcome == "lost"


def test_after_a_power_failure_nobody_who_has_it_all_is_stopped_or_unseen() -> None:
    """C comes back without m1 while it is in the ISR: who has m1 must be there, and be seen."""
    topic = {"min.insync.replicas": "1"}
    alone = (steps.Produce(("m1",)), steps.Stop("B"))
    unseen = steps.Cut("A", COORDINATION, "coordination", both=True)
    losing = (
        (*alone, unseen, steps.PowerOff("C", None), steps.Stop("A")),
        (*alone, steps.Pause("A"), steps.PowerOff("C", None), steps.Restart("C")),
        (*alone, steps.PowerOff("C", None), steps.Pause("A"), steps.Restart("C")),
    )
    kept = (*alone, steps.PowerOff("C", None), steps.Restart("C"))
    for schedule in losing:
        assert _outcome(schedule, topic, spares=True) is None
    assert _outcome(losing[0], topic, spares=False) == "lost"
    assert _outcome(kept, topic, spares=True) == "held"


def _outcome(
    schedule: tuple[steps.Step, ...], topic: dict[str, str], *, spares: bool
) -> str | None:
    target = target_of(
        GENERATIONS["2.1"], SETTINGS, topic, ("all",), ("stop",), watched=False, spares=spares
    )
    judged = replay(target, ready_world(target.spec), schedule)
    return None if judged is None else judged.outcome


# E deletes m2 while D, which has m1 at its offset, is away. Of the five, E, D and C have the log.
LATE = (
    steps.Kill("E", "discarded"),
    steps.Hold.of("request", "fetch", "E", "D", rule="no fetch of E"),
    steps.Restart("E"),
    steps.Hold.of("response", "fetch", "D", "C", rule="no answer to C"),
    steps.Produce(("m1",)),
    steps.Kill("D", "discarded"),
    steps.Produce(("m2",)),
    steps.Pause("E"),
    steps.Produce(("m3",)),
    steps.Restart("D"),
)


def test_what_retention_has_deleted_is_no_promise_of_the_isr() -> None:
    """Seed 5014 found it: D keeps m1 for one fetch round, for its leader has no epochs of m2."""
    assert _watched(LATE, RETENTION).outcome == "held"
    with applied(BY_NAME["truncates-nothing"]):
        broken = _watched(LATE, {})
    assert broken.outcome == "broken: fetched-is-prefix"
    assert broken.evidence == "4 fetches, with another record at 0 than its leader"


def _watched(schedule: tuple[steps.Step, ...], retention: Mapping[str, str]) -> Judged:
    target = target_of(
        GENERATIONS["2.1"],
        {**SETTINGS, **RETENTION_CHECK},
        {**retention, "min.insync.replicas": "2"},
        ("all",),
        ("kill",),
        watched=True,
        names=FIVE,
    )
    ready = watched_world(target)
    assert not isinstance(ready, Judged)
    judged = replay(target, ready, schedule)
    assert judged is not None
    return judged


def test_a_broken_invariant_comes_with_what_was_seen_what_passed_and_the_command() -> None:
    search = replace(_search(watched=True), schedules_max=3_000)
    with applied(BY_NAME["hw-is-log-end"]):
        explored = (explore_seed(search, seed) for seed in range(1, 20))
        loss = next(one.loss for one in explored if one.loss is not None)
    assert loss.outcome.startswith("broken: ")
    assert loss.document == ""
    assert loss.evidence
    assert any(" fetch request: fetch_offset " in line for line in loss.passed)
    seed = f"--invariants --seed {loss.seed} --seeds 1"
    assert loss.command == f"neaptide explore swarm --system neaptide:2.1 --acks all {seed}"


FAILING = ("kill", "power_off")
LAST_ONE_KILLED: tuple[Step, ...] = (
    steps.Produce(("m1",)),
    steps.Stop("B"),
    steps.PowerOff("C", None),
    steps.Kill("A", "discarded"),
)


def test_what_a_replay_refuses_keeps_the_evidence_with_which_it_was_found() -> None:
    search = replace(_search("2.1", watched=True), swarm=False, faults=FAILING, spares=True)
    target = search.target()
    ready = watched_world(target)
    assert not isinstance(ready, Judged)
    schedule = LAST_ONE_KILLED
    assert replay(target, ready, schedule) is None
    found = Found(1, schedule, Judged("broken: one-leader", (), "A and C lead"), 1)
    loss = broken_rule(search, ready, found)
    assert (loss.shrunk, loss.evidence) == (schedule, "A and C lead")


@pytest.mark.parametrize("generation", ["2.1", "4.0"])
def test_a_replay_refuses_what_is_not_drawn_and_nothing_else(generation: str) -> None:
    """From 4.0 on nobody leads who came back without its log, and a death after it may be drawn."""
    search = replace(_search(generation, watched=True), swarm=False, faults=FAILING, spares=True)
    target = search.target()
    world = watched_world(target)
    assert not isinstance(world, Judged)
    *so_far, last = LAST_ONE_KILLED
    for step in so_far:
        assert played(world, target.names, (step,)) is None
    is_spared = loses_by_design(last, world, tuple(so_far), target.names)
    assert is_spared is (generation == "2.1")
    ready = watched_world(target)
    assert not isinstance(ready, Judged)
    assert (replay(target, ready, (*so_far, last)) is None) is is_spared


def test_a_broken_invariant_is_not_printed_beside_none_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found: dict[str, Any] = {"system": "neaptide:2.1", "schedules": 9, "seeds": 1, "seconds": 1.0}
    found |= {"found": [], "found_in_all": 0, "not_portable": [], "histories": [], "broken": []}
    print_found(found)
    assert "none found" in capsys.readouterr().out
    broken = {"invariant": "one-leader", "sentence": "One leads.", "seed": 7, "schedule": "kill A"}
    broken |= {"evidence": "2 leads too", "command": "neaptide explore --seed 7"}
    broken |= {"messages": [f"A→B fetch {number}" for number in range(20)]}
    print_found({**found, "broken": [broken]})
    said = " ".join(capsys.readouterr().out.split())
    assert "none found" not in said
    assert "no loss found, 1 invariant broken" in said
    assert "2 leads too" in said
    assert "A→B fetch 19" in said
    assert "A→B fetch 11;" not in said
    assert "again: neaptide explore --seed 7" in said


def test_a_loss_by_its_timing_alone_is_printed_with_what_finds_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found: dict[str, Any] = {"system": "neaptide:2.1", "schedules": 9, "seeds": 1, "seconds": 1.0}
    found |= {"found": [], "found_in_all": 0, "histories": [], "broken": []}
    loss = {"outcome": "lost", "seed": 7, "schedule": "kill A", "command": "neaptide explore --x"}
    print_found({**found, "not_portable": [loss]})
    assert exit_of({**found, "not_portable": []}) is Exit.AGREES
    assert exit_of({**found, "not_portable": [loss]}) is Exit.ANOMALY
    said = " ".join(capsys.readouterr().out.split())
    assert "none found" not in said
    assert "no scenario found" in said
    assert "lost by its timing alone (seed 7)" in said
    assert "again: neaptide explore --x" in said
