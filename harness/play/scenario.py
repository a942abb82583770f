"""Plays a scenario on a system: its steps, one after the other, each until its condition holds."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from neaptide.clusters.cluster import ClusterSpec, TopicSpec
from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import LOCAL, Place
from neaptide.clusters.kafka.kraft_properties import chosen_features
from neaptide.clusters.own.model import Managed
from neaptide.harness.live.account import Account
from neaptide.harness.live.ending import end
from neaptide.harness.live.faults import Faults
from neaptide.harness.live.guard import guarded
from neaptide.harness.live.members import MembersNemesis
from neaptide.harness.live.stage import OF_TRANSACTIONS, Stage
from neaptide.harness.live.target import LiveTarget
from neaptide.harness.play.run_record import Finished, new_run, record
from neaptide.harness.scenarios.needs import check_need
from neaptide.harness.scenarios.predictions import (
    confirmed_sights,
    of_any_client,
    round_disagreements,
    unseen_sights,
)
from neaptide.harness.scenarios.systems import (
    System,
    check_system_on,
    check_voters,
    check_zookeeper,
)
from neaptide.nemesis import steps
from neaptide.nemesis.gate.model import Purpose
from neaptide.nemesis.player import MissedError, Result, play_steps
from neaptide.nemesis.scenario import (
    Scenario,
    ScheduledStep,
    Topic,
    expected_outcome,
    lacks,
    with_brokers,
)
from neaptide.results.run import Aim
from neaptide.workloads.program import Program

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Played:
    """A run that is over. `disagreements`: predictions of the scenario that did not come true."""

    run: Path
    disagreements: tuple[str, ...]
    confirmed: tuple[str, ...] = ()  # those that did


async def play(
    scenario: Scenario,
    system: System,
    seed: int,
    where: str,
    progress: Progress,
    place: Place = LOCAL,
    min_acked: int = 1,
    program: Program | None = None,
) -> Played:
    """Runs a scenario to its end. The run directory says how it went, also when interrupted.

    `program`: the client that it drives, and that sends what `produce` says.
    """
    if scenario.run is not None:
        raise UsageError(
            f"{where} is the schedule of a random run: `neaptide run {where}` plays it."
        )
    check_scenario(scenario, system, place)
    scenario = _on_own(scenario, system)
    run = replace(
        new_run(scenario.name, system, seed, "scenario"),
        title=scenario.title,
        source=scenario.source,
        schedule=dict(scenario.document),
        brokers=dict(scenario.brokers),
        expected=expected_outcome(scenario, system.like),
        host=place.name,
        clients=clients_of(scenario, program),
        min_acked=min_acked,
        repeat=_again(where, system, seed, place, min_acked, program),
    )

    async def work(directory: Path, account: Account) -> Finished:
        if place.name == "simulation":
            from neaptide.harness.play.simulation.play import play_simulated

            return await play_simulated(scenario, str(system), directory, account)
        reads, toxics = _links_read(scenario), _has_toxics(scenario)
        if system.own is None and _has_transactions(scenario):
            reads |= OF_TRANSACTIONS
        spec = cluster_spec(scenario)
        async with Stage(directory, system, spec, place, account, reads, toxics) as stage:
            stage.names = {number: name for name, number in scenario.brokers.items()}
            await stage.start_clients(scenario.producer, () if program is None else program.argv)
            await stage.watch_rounds()
            faults = Faults(stage)
            members = MembersNemesis(stage, faults)
            target = LiveTarget(stage, faults, members, scenario.brokers, seed=seed)
            done = await guarded(
                _play_on(target, scenario, progress, program), stage.run, stage.find_incident
            )
        seen = (*done.disagreements, *round_disagreements(scenario, directory))
        return replace(done, disagreements=seen)

    directory, closed = await record(run, system, work)
    return Played(directory, closed.disagreements, closed.confirmed)


def check_scenario(scenario: Scenario, system: System, place: Place) -> None:
    """Raises UsageError where it cannot be played on that system there, MissingPartError where
    this machine lacks something for it."""
    refusal = refused_by_own(scenario, system)
    if refusal is not None:
        raise UsageError(refusal)
    check_system_on(system, place)
    if _changes_voters(scenario):
        check_voters(system, scenario.name)
    if any(isinstance(scheduled.step, steps.MoveController) for scheduled in scenario.steps):
        check_zookeeper(system, scenario.name)
    _check_machines(scenario, place)
    lacking = lacks(scenario, system.like)
    if lacking is not None:
        raise UsageError(f"{system} does not serve {scenario.name}: {lacking}.")
    if place.name == "simulation":
        _check_simulated(scenario)


def _check_simulated(scenario: Scenario) -> None:
    from neaptide.nemesis.search.play import is_simulated

    if not is_simulated(scenario):
        raise UsageError(f"The simulation cannot do all steps of {scenario.name}.")


def refused_by_own(scenario: Scenario, system: System) -> str | None:
    """Why a system that a file names cannot play it, in one sentence. None: it can."""
    own = system.own
    if own is None:
        return None
    if not isinstance(own, Managed):
        return (
            f"{own.file}: a scenario is about brokers, and those of a cluster that is just used are"
            " left alone; name [[brokers]] to start, or run a workload."
        )
    for what, needed, there in (
        ("brokers", len(scenario.brokers), len(own.brokers)),
        ("controllers", scenario.controllers, len(own.controllers) or scenario.controllers),
    ):
        if needed > there:
            return f"{own.file}: {scenario.name} needs {needed} {what}, and it has {there}."
    features = chosen_features(scenario.settings)
    if features:
        return (
            f"{own.file}: {scenario.name} chooses {', '.join(features)}, which is for who formats"
            " the log directories: the prepare command."
        )
    done = [scheduled.step for scheduled in scenario.steps]
    if any(isinstance(step, steps.Inject) for step in done):
        return (
            f"{own.file}: {scenario.name} has calls of a broker fail, which is done to brokers that"
            " neaptide itself provisions."
        )
    raw = any(isinstance(step, steps.OpenClient) and step.kind == "raw_producer" for step in done)
    if own.client and (raw or "client" in _links_read(scenario)):
        return (
            f"{own.file}: {scenario.name} reads or writes messages of clients itself, which it"
            " cannot with the settings of [client]."
        )
    unpaused = next((node.id for node in own.nodes if not node.can_pause), None)
    if unpaused is not None and any(isinstance(step, steps.Pause) for step in done):
        return f"{own.file}: {scenario.name} pauses, and node {unpaused} has a kill but no pause."
    return None


def _on_own(scenario: Scenario, system: System) -> Scenario:
    """With the broker ids of the system file."""
    if not isinstance(system.own, Managed):
        return scenario
    return with_brokers(scenario, system.own.ids[: len(scenario.brokers)])


def _check_machines(scenario: Scenario, place: Place) -> None:
    """Raises UsageError or MissingPartError if a step needs links, clocks or disks that this
    place cannot change."""
    if place.name == "simulation":
        return
    for scheduled in scenario.steps:
        if scheduled.step.needs is not None:
            check_need(scheduled.step.needs, scenario.name, place)


def _again(
    where: str, system: System, seed: int, place: Place, min_acked: int, program: Program | None
) -> str:
    """The command that plays it once more."""
    if program is not None:
        options = f"--scenario {shlex.quote(where)} {system.options} --seed {seed}"
        return f"neaptide client {options} {shlex.join(program.asked)}"
    return " ".join(
        [
            f"neaptide run {shlex.quote(where)} {system.options} --seed {seed}",
            *([f"--min-acked {min_acked}"] if min_acked != 1 else []),
            *place.options,
        ]
    )


def clients_of(scenario: Scenario, program: Program | None) -> dict[str, Any] | None:
    """The options of the file, and whose clients they are. If it does not mention idempotence, a
    duplicate counts."""
    said: dict[str, Any] = {}
    if "clients" in scenario.document:
        said = scenario.producer.to_json()
        said["idempotence"] = scenario.producer.idempotence or None
    if program is not None:
        said["program"] = {
            "client": program.client,
            "version": program.version,
            "command": program.asked,
        }
    return said or None


def cluster_spec(scenario: Scenario) -> ClusterSpec:
    """Of topics that brokers would make themselves they learn how many partitions they have."""
    offsets, settings = scenario.offsets, dict(scenario.settings)
    transactions = scenario.transactions
    if offsets is not None:
        settings["offsets.topic.num.partitions"] = str(len(offsets.assignment))
    if transactions is not None:
        settings["transaction.state.log.num.partitions"] = str(len(transactions.assignment))
    return ClusterSpec(
        brokers=tuple(scenario.brokers[name] for name in scenario.start_order),
        settings=settings,
        topic=_topic_spec(scenario.topic, scenario.brokers),
        offsets=None if offsets is None else _topic_spec(offsets, scenario.brokers),
        transactions=None if transactions is None else _of_transactions(transactions, scenario),
        controllers=scenario.controllers,
        clocks=any(isinstance(scheduled.step, steps.SetClock) for scheduled in scenario.steps),
        changes_voters=_changes_voters(scenario),
    )


def _of_transactions(topic: Topic, scenario: Scenario) -> TopicSpec:
    """Compacted, as the brokers would make it."""
    made = _topic_spec(topic, scenario.brokers)
    return replace(made, settings={"cleanup.policy": "compact", **made.settings})


def _changes_voters(scenario: Scenario) -> bool:
    return any(isinstance(scheduled.step, steps.OfQuorum) for scheduled in scenario.steps)


def _topic_spec(topic: Topic, ids: Mapping[str, int]) -> TopicSpec:
    return TopicSpec(
        topic.name,
        {
            partition: tuple(ids[name] for name in replicas)
            for partition, replicas in enumerate(topic.assignment)
        },
        topic.settings,
    )


async def _play_on(
    target: LiveTarget, scenario: Scenario, progress: Progress, program: Program | None
) -> Finished:
    stage = target.stage
    if program is not None:
        scenario = replace(scenario, expect_seen=of_any_client(scenario.expect_seen))
    confirmed: tuple[str, ...] = ()

    def look() -> tuple[str, ...]:
        nonlocal confirmed
        confirmed = confirmed_sights(scenario, stage.system.like, target.observed)
        return unseen_sights(scenario, stage.system.like, target.observed)

    def begins(number: int, scheduled: ScheduledStep) -> None:
        progress(f"step {number} of {len(scenario.steps)}: {describe(scheduled)}")

    try:
        await target.rest()
    except MissedError as missed:
        result = Result(str(missed))
    else:
        result = await play_steps(scenario, target, look, begins)
    progress("healing, final reads, replica logs")
    await target.undo_all()
    aim = Aim(not result.missed, result.missed)
    return Finished(aim, await end(stage), result.disagreements, confirmed=confirmed)


def _has_toxics(scenario: Scenario) -> bool:
    return any(isinstance(scheduled.step, steps.AddToxic) for scheduled in scenario.steps)


def _links_read(scenario: Scenario) -> frozenset[Purpose]:
    """Links of which a rule is about more than what replicas fetch."""
    rules = [s.step for s in scenario.steps if isinstance(s.step, steps.MessageRule)]
    fetches = ("fetch", "offset_for_leader_epoch", "any")
    others = {r.purpose for r in rules if r.purpose != "replication" or r.api not in fetches}
    caps = any(isinstance(scheduled.step, steps.Cap) for scheduled in scenario.steps)
    return frozenset(others | ({"client"} if caps else set()))


def _has_transactions(scenario: Scenario) -> bool:
    opened = (s.step for s in scenario.steps if isinstance(s.step, steps.OpenClient))
    return any(step.transactional_id is not None for step in opened)


def describe(scheduled: ScheduledStep) -> str:
    """A step in a few words."""
    until = f", until {scheduled.until.text}" if scheduled.until else ""
    return scheduled.step.words() + until
