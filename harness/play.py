"""Plays a scenario on a system: its steps, one after the other, each until its condition holds."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, assert_never

from neaptide.clusters.cluster import ClusterSpec, TopicSpec
from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.io_faults import IoFault
from neaptide.clusters.hosts.place import LOCAL, Place
from neaptide.clusters.kafka.kraft_properties import chosen_features
from neaptide.clusters.kafka.members import RefusedChangeError
from neaptide.clusters.own.model import Managed
from neaptide.harness.account import Account
from neaptide.harness.ending import end, heal_all
from neaptide.harness.explain import in_words
from neaptide.harness.faults import Faults
from neaptide.harness.guard import guarded
from neaptide.harness.members import MembersNemesis
from neaptide.harness.needs import check_need
from neaptide.harness.observed import StageObserved
from neaptide.harness.predictions import (
    confirmed_sights,
    round_disagreements,
    unseen_sights,
)
from neaptide.harness.run_record import Finished, new_run, record
from neaptide.harness.simulation.play import play_simulated
from neaptide.harness.stage import Stage
from neaptide.harness.systems import System, check_system_on, check_voters, check_zookeeper
from neaptide.nemesis import steps
from neaptide.nemesis.drawn.faults import Means
from neaptide.nemesis.gate.model import CLIENT, COORDINATION, Action, Endpoint, Purpose, Rule
from neaptide.nemesis.scenario import (
    DEFAULT_WITHIN_S,
    Scenario,
    ScheduledStep,
    Topic,
    expected_outcome,
    lacks,
    with_brokers,
)
from neaptide.nemesis.search.play import is_simulated
from neaptide.results.run import Aim

Progress = Callable[[str], None]
_REST_WITHIN_S: Final = 60.0
_ACTIONS: Final[Mapping[type, Action]] = {
    steps.Hold: "hold",
    steps.Drop: "drop",
    steps.Delay: "delay",
    steps.Answer: "answer",
}
_NEEDS: Final[Mapping[type, Means]] = {
    steps.AddToxic: "toxics",
    steps.SetClock: "clocks",
    steps.Inject: "calls",
}


@dataclass(frozen=True, slots=True)
class Played:
    """A run that is over. `disagreements`: predictions of the scenario that did not come true."""

    run: Path
    disagreements: tuple[str, ...]
    confirmed: tuple[str, ...] = ()  # those that did


class _MissedError(Exception):
    """A step missed its aim: the run proves nothing."""


async def play(
    scenario: Scenario,
    system: System,
    seed: int,
    where: str,
    progress: Progress,
    place: Place = LOCAL,
    min_acked: int = 1,
) -> Played:
    """Runs a scenario to its end. The run directory says how it went, also when interrupted."""
    scenario = _on_own(scenario, system)
    run = replace(
        new_run(scenario.name, system, seed, "scenario"),
        title=scenario.title,
        source=scenario.source,
        schedule=dict(scenario.document),
        brokers=dict(scenario.brokers),
        expected=expected_outcome(scenario, system.like),
        host=place.name,
        clients=_clients(scenario),
        min_acked=min_acked,
        repeat=" ".join(
            [
                f"neaptide run {shlex.quote(where)} {system.options} --seed {seed}",
                *([f"--min-acked {min_acked}"] if min_acked != 1 else []),
                *place.options,
            ]
        ),
    )

    check_system_on(system, place)
    if _changes_voters(scenario):
        check_voters(system, scenario.name)
    if any(isinstance(scheduled.step, steps.MoveController) for scheduled in scenario.steps):
        check_zookeeper(system, scenario.name)
    _check_machines(scenario, place)
    lacking = lacks(scenario, system.like)
    if lacking is not None:
        raise UsageError(f"{system} does not serve {scenario.name}: {lacking}.")
    if place.name == "simulation" and not is_simulated(scenario):
        raise UsageError(f"The simulation cannot do all steps of {scenario.name}.")

    async def work(directory: Path, account: Account) -> Finished:
        if place.name == "simulation":
            return await play_simulated(scenario, str(system), directory, account)
        player = _Player(scenario, system, directory, progress, place, account, seed)
        done = await player.play()
        seen = (*player.disagreements, *round_disagreements(scenario, directory))
        return replace(done, disagreements=seen, confirmed=player.confirmed)

    directory, closed = await record(run, system, work)
    return Played(directory, closed.disagreements, closed.confirmed)


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
    """With the broker ids of the system file. Raises UsageError for steps that it cannot do."""
    refusal = refused_by_own(scenario, system)
    if refusal is not None:
        raise UsageError(refusal)
    if not isinstance(system.own, Managed):
        return scenario
    return with_brokers(scenario, system.own.ids[: len(scenario.brokers)])


def _check_machines(scenario: Scenario, place: Place) -> None:
    """Raises UsageError or MissingPartError if a step needs links, clocks or disks that this
    place cannot change."""
    if place.name == "simulation":
        return
    done = {type(scheduled.step) for scheduled in scenario.steps}
    for kind, what in _NEEDS.items():
        if kind in done:
            check_need(what, scenario.name, place)


def _clients(scenario: Scenario) -> dict[str, Any] | None:
    """The options of the file. If it does not mention idempotence, a duplicate counts."""
    if "clients" not in scenario.document:
        return None
    said = scenario.producer.to_json()
    return said if scenario.producer.idempotence else {**said, "idempotence": None}


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


class _Player:
    def __init__(
        self,
        scenario: Scenario,
        system: System,
        directory: Path,
        progress: Progress,
        place: Place,
        account: Account,
        seed: int,
    ) -> None:
        self._scenario = scenario
        self._seed = seed
        self._ids = scenario.brokers
        self._names = {number: name for name, number in scenario.brokers.items()}
        self._progress = progress
        self._stage = Stage(
            directory,
            system,
            cluster_spec(scenario),
            place,
            account,
            _links_read(scenario),
            _has_toxics(scenario),
        )
        self._stage.names = self._names
        self._faults = Faults(self._stage)
        self._members = MembersNemesis(self._stage, self._faults)
        self._rules: list[str] = []
        self._holds: list[str] = []
        self._hitting: list[str] = []  # rules that do something to messages once and for all
        self._loading = False
        self._within_s = DEFAULT_WITHIN_S  # of the step that is played
        self.disagreements: tuple[str, ...] = ()
        self.confirmed: tuple[str, ...] = ()

    async def play(self) -> Finished:
        async with self._stage as stage:
            await stage.start_clients(self._scenario.producer)
            await stage.watch_rounds()
            return await guarded(self._play_all(), stage.run, stage.find_incident)

    async def _play_all(self) -> Finished:
        aim = await self._play_steps()
        self._progress("healing, final reads, replica logs")
        await heal_all(self._stage, self._faults, tuple(self._rules))
        await self._members.restore()
        return Finished(aim, await end(self._stage))

    async def _play_steps(self) -> Aim:
        try:
            await self._rest()
            for number, scheduled in enumerate(self._scenario.steps, start=1):
                self._progress(
                    f"step {number} of {len(self._scenario.steps)}: {describe(scheduled)}"
                )
                await self._play_step(number, scheduled)
        except _MissedError as missed:
            await self._stop_load()
            return Aim(False, str(missed))
        await self._stop_load()
        system = self._stage.system.like
        observed = StageObserved(self._stage)
        self.disagreements += unseen_sights(self._scenario, system, observed)
        self.confirmed = confirmed_sights(self._scenario, system, observed)
        problems = [*self._stage.problems, *self._idle_rules()]
        problems += [f"no connection had the toxic {name!r}" for name in self._faults.idle_toxics()]
        return Aim(not problems, "; ".join(problems))

    def _idle_rules(self) -> list[str]:
        """Rules that have matched no message so far."""
        stage = self._stage
        held = [rule for rule in self._holds if rule not in stage.holds.ever_held]
        hit = [rule for rule in self._hitting if not stage.hits[rule]]
        return [
            *(f"the rule {rule!r} never held anything" for rule in held),
            *(f"the rule {rule!r} never hit anything" for rule in hit),
        ]

    async def _rest(self) -> None:
        """A leader in the coordination service is not yet one that is followed: a follower that is
        cut off before it knows the leader follows nobody, and no zombie comes of it."""
        observed = StageObserved(self._stage)
        what = "every follower fetches from its leader"
        try:
            await self._stage.until(
                lambda: observed.level() and observed.commits_level(), _REST_WITHIN_S, what
            )
        except TimeoutError as error:
            raise _MissedError(f"before the first step: {error}") from None

    async def _play_step(self, number: int, scheduled: ScheduledStep) -> None:
        step = scheduled.step
        where = f"step {number} (line {scheduled.line})"
        self._within_s = scheduled.within_s
        if not isinstance(step, steps.Measure):
            await self._do(step, where)
        if scheduled.until is not None:
            await self._wait(scheduled, where)
        if isinstance(step, steps.Measure):
            self._measure(step, where)

    async def _wait(self, scheduled: ScheduledStep, where: str) -> None:
        assert scheduled.until is not None
        observed = StageObserved(self._stage)
        condition = scheduled.until.begun(observed)
        try:
            await self._stage.until(
                lambda: condition.holds(observed), scheduled.within_s, condition.text
            )
        except TimeoutError as error:
            why = "; ".join([str(error), condition.unmet(observed), *self._idle_rules()])
            raise _MissedError(f"{where}: {why}") from None

    # --- verbs -----------------------------------------------------------------------------------

    async def _do(self, step: steps.Step, where: str) -> None:
        if isinstance(step, steps.ToClient):
            await self._drive(step, where)
            return
        match step:
            case steps.Produce() | steps.Consume() | steps.Load() | steps.StopLoad():
                await self._do_by_clients(step)
            case steps.Await() | steps.Measure():
                return
            case _ if isinstance(step, steps.OfMachine):
                await self._do_to_machine(step, where)
            case steps.Deliver() | steps.Release() | steps.Discard():
                await self._end_rule(step, where)
            case steps.Hold() | steps.Drop() | steps.Delay() | steps.Answer() | steps.Cap():
                await self._install(step)
            case _ if isinstance(step, steps.OfLinks):
                await self._do_to_links(step, where)
            case steps.RemoveVoter():
                await self._faults.remove_voter(self._node(step.broker, where))
            case steps.AddVoter():
                await self._faults.add_voter(self._node(step.broker, where))
            case steps.Reassign() | steps.Elect() | steps.MoveController():
                await self._operate(step, where)
            case steps.KillTogether() | steps.PowerOffTogether():
                await self._do_to_several(step, where)
            case _:
                await self._do_to_broker(step, where)

    async def _do_to_links(self, step: steps.OfLinks, where: str) -> None:
        match step:
            case steps.Cut():
                source, destination = self._end(step.source), self._end(step.destination)
                await self._faults.cut(source, destination, step.purpose, both=step.both)
            case steps.Slow():
                source, destination = self._end(step.source), self._end(step.destination)
                await self._faults.slow(source, destination, step.purpose, step.delay_ms)
            case steps.AddToxic():
                broker = self._ids[step.broker]
                await self._faults.add_toxic(step.name, broker, step.purpose, step.toxic)
            case steps.EndToxic():
                if not await self._faults.end_toxic(step.name):
                    raise _MissedError(f"{where}: no connection had the toxic {step.name}")
            case steps.Heal():
                await self._faults.heal(self._end(step.source), self._end(step.destination))
            case _:
                assert_never(step)

    async def _operate(self, step: steps.OfOperators, where: str) -> None:
        """What operators ask of a cluster. Who refuses it, or is not there, makes a miss."""
        begun_ns = self._stage.recorder.now_ns()
        try:
            match step:
                case steps.Reassign():
                    said: dict[str, Any] = {"reassign": {"replicas": list(step.replicas)}}
                    await self._members.reassign(step.partition, self._all(step.replicas))
                case steps.Elect():
                    said = {"elect": {"election": step.election}}
                    is_unclean = step.election == "unclean"
                    await self._members.elect((step.partition,), unclean=is_unclean)
                case steps.MoveController():
                    said = {"move_controller": {}}
                    await self._members.delete_controller()
                case _:
                    assert_never(step)
        except RefusedChangeError as refused:
            raise _MissedError(f"{where}: {refused}") from None
        if not isinstance(step, steps.MoveController):
            [fields] = said.values()
            fields["partition"] = step.partition
        self._stage.note_nemesis(said, begun_ns)

    def _all(self, names: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self._ids[name] for name in names)

    async def _end_rule(
        self, step: steps.Deliver | steps.Release | steps.Discard, where: str
    ) -> None:
        if isinstance(step, steps.Discard):
            await self._faults.discard(step.rule)
            return
        is_late = isinstance(step, steps.Deliver)
        if is_late and not StageObserved(self._stage).sender_gone(step.rule):
            raise _MissedError(f"{where}: the sender of what {step.rule} holds has not gone")
        await self._faults.release(step.rule)

    async def _do_to_several(
        self, step: steps.KillTogether | steps.PowerOffTogether, where: str
    ) -> None:
        brokers = self._all(step.brokers)
        if isinstance(step, steps.KillTogether):
            await self._faults.kill_together(brokers, step.in_flight)
        else:
            await self._faults.power_off_together(brokers, self._kept(step.survives, where))

    async def _do_to_broker(
        self,
        step: steps.Kill | steps.PowerOff | steps.Stop | steps.Restart | steps.Pause | steps.Resume,
        where: str,
    ) -> None:
        broker = self._node(step.broker, where)
        match step:
            case steps.Kill():
                await self._faults.kill(broker, step.in_flight)
            case steps.PowerOff():
                await self._faults.power_off(broker, self._kept(step.survives, where))
            case steps.Stop():
                await self._faults.stop(broker)
            case steps.Restart():
                await self._faults.restart(broker)
            case steps.Pause():
                await self._faults.pause(broker)
            case steps.Resume():
                await self._faults.resume(broker)
            case _:
                assert_never(step)

    async def _do_to_machine(self, step: steps.OfMachine, where: str) -> None:
        """Changes the clock or the disk of a broker."""
        faults, broker = self._faults, self._ids[step.broker]
        match step:
            case steps.SetClock():
                await faults.set_clock(broker, step.ahead_ms)
            case steps.Damage():
                await faults.damage(broker, step.kind, step.file, step.partition, self._seed)
            case steps.KeepSnapshot():
                await faults.keep_snapshot(broker)
            case steps.PutBack():
                await faults.put_back(broker)
            case steps.Inject():
                fault = IoFault(step.call, step.error, step.delay_ms, step.nth)
                await faults.inject(broker, fault, step.file, step.partition)
            case steps.EndInjections():
                if not await faults.end_injections(broker):
                    raise _MissedError(f"{where}: no call of {step.broker} was met")
            case _:
                assert_never(step)

    async def _drive(self, step: steps.ToClient, where: str) -> None:
        """Sends the step to its client, and waits until the client has done it."""
        common: dict[str, Any] = {"deadline_s": self._within_s}
        if isinstance(step, steps.OpenClient):
            problem = await self._stage.clients.do(
                "open",
                name=step.name,
                kind=step.kind,
                topic=self._scenario.topic.name,
                group=step.group,
                transactional_id=step.transactional_id,
                settings=dict(step.settings),
                **common,
            )
            name = step.name
        else:
            verb, arguments = _driven(step)
            name = step.client
            if isinstance(step, steps.Die):
                self._stage.gone.add(CLIENT)
                self._stage.note_nemesis({"die": {"client": name}}, self._stage.recorder.now_ns())
            problem = await self._stage.clients.do(
                "drive", client=name, act=verb, arguments=arguments, **common
            )
        if problem:
            raise _MissedError(f"{where}: of {name}: {problem}")

    async def _do_by_clients(
        self, step: steps.Produce | steps.Consume | steps.Load | steps.StopLoad
    ) -> None:
        match step:
            case steps.Produce():
                await self._produce(step)
            case steps.Consume():
                await self._consume(step)
            case steps.Load():
                await self._load(step)
            case steps.StopLoad():
                await self._stop_load()
            case _:
                assert_never(step)

    async def _load(self, step: steps.Load) -> None:
        if self._loading:
            await self._stop_load()
        self._loading = True
        await self._stage.clients.do(
            "load",
            topic=self._scenario.topic.name,
            partitions=len(self._scenario.topic.assignment),
            acks=step.acks,
            rate=step.rate,
            senders=1,
        )

    async def _stop_load(self) -> None:
        if self._loading:
            self._loading = False
            await self._stage.stop_load()

    def _node(self, node: steps.Node, where: str) -> int:
        """The node that the step names, at this moment."""
        match node:
            case str():
                return self._ids[node]
            case steps.NamedController():
                return self._stage.named[node.name]
            case steps.ActiveController():
                active = self._stage.observer.controller
                if active is None:
                    raise _MissedError(f"{where}: there is no active controller")
                if node.name is not None:
                    self._stage.named[node.name] = active
                return active
            case _:
                assert_never(node)

    async def _consume(self, step: steps.Consume) -> None:
        if step.group is not None:
            result = await self._stage.clients.do(
                "consume_as",
                group=step.group,
                topic=self._scenario.topic.name,
                partition=step.partition,
                deadline_s=self._within_s,
            )
            if result["problem"]:
                raise _MissedError(result["problem"])
            return
        await self._stage.clients.do(
            "consume",
            topic=self._scenario.topic.name,
            partition=step.partition,
            phase="main",
            end=None,
            deadline_s=self._within_s,
        )

    async def _produce(self, step: steps.Produce) -> None:
        await self._stage.clients.do(
            "produce",
            topic=self._scenario.topic.name,
            partition=step.partition,
            acks=step.acks,
            values=list(step.values),
            to=None if step.to is None else self._client_address(step.to),
        )

    def _client_address(self, broker: str) -> str:
        return self._stage.client_address(self._ids[broker])

    async def _install(self, step: steps.MessageRule | steps.Cap) -> None:
        self._rules.append(step.name)
        (self._holds if isinstance(step, steps.Hold) else self._hitting).append(step.name)
        rule = self._cap(step) if isinstance(step, steps.Cap) else self._message_rule(step)
        await self._faults.install(rule)

    def _cap(self, step: steps.Cap) -> Rule:
        return Rule(
            id=step.name,
            action="cap",
            message="response",
            api="api_versions",
            source=self._ids[step.source],
            times=step.times,
            purpose="client",
            capped_api=step.api,
            capped_version=step.version,
        )

    def _message_rule(self, step: steps.MessageRule) -> Rule:
        rule = Rule(
            id=step.name,
            action=_ACTIONS[type(step)],
            message=step.message,
            api=step.api,
            source=self._speaker(step.source),
            destination=self._speaker(step.destination),
            topic=self._topic_of(step),
            where=step.where,
            times=step.times,
            delay_ms=step.delay_ms if isinstance(step, steps.Delay) else 0,
            purpose=step.purpose,
            error=step.error if isinstance(step, steps.Answer) else "",
        )
        return rule

    def _speaker(self, name: str) -> Endpoint | None:
        """Whichever controller is meant: a link to one is a link to any of them."""
        return None if name == "controller" else self._end(name)

    def _topic_of(self, step: steps.MessageRule) -> str | None:
        """A condition is about one topic; where there is one only, it need not be named."""
        if not step.where or self._scenario.offsets is None or step.purpose != "replication":
            return None
        return step.topic or self._scenario.topic.name

    def _end(self, name: str | None) -> Endpoint | None:
        if name is None or name in (CLIENT, COORDINATION):
            return name
        return self._ids[name]

    def _kept(self, survives: str | None, where: str) -> dict[int, int]:
        """Up to where the disk kept the log, from where the surviving record was acknowledged."""
        if survives is None:
            return {}
        offset = self._stage.sends.acked.get(survives)
        if offset is None:
            raise _MissedError(f"{where}: {survives} was not acknowledged: its offset is not known")
        return {0: offset + 1}

    def _measure(self, step: steps.Measure, where: str) -> None:
        """From the last fetch of the broker, as the gate saw it, to now."""
        since_ns = self._stage.last_fetch_ns.get(self._ids[step.since_last_fetch_of])
        unit = self._scenario.settings.get(step.unit, "")
        if since_ns is None or not unit.isdigit():
            raise _MissedError(f"{where}: nothing to measure from")
        now_ns = self._stage.recorder.now_ns()
        elapsed_ms = (now_ns - since_ns) / 1e6
        times = elapsed_ms / int(unit)
        value = {"elapsed_ms": round(elapsed_ms, 1), "unit": step.unit, "times": round(times, 3)}
        predicted = {"above": step.above, "at_most": step.at_most}
        self._stage.note_nemesis({"measured": {**value, **predicted}}, now_ns)
        most = step.at_most + step.slack_ms / int(unit)
        if not step.above < times <= most:
            self.disagreements += (
                f"{where}: {times:.2f} × {step.unit}, predicted more than {step.above:g} and at"
                f" most {step.at_most:g}",
            )


def _has_toxics(scenario: Scenario) -> bool:
    return any(isinstance(scheduled.step, steps.AddToxic) for scheduled in scenario.steps)


def _links_read(scenario: Scenario) -> frozenset[Purpose]:
    """Links of which a rule is about more than what replicas fetch."""
    rules = [s.step for s in scenario.steps if isinstance(s.step, steps.MessageRule)]
    fetches = ("fetch", "offset_for_leader_epoch", "any")
    others = {r.purpose for r in rules if r.purpose != "replication" or r.api not in fetches}
    caps = any(isinstance(scheduled.step, steps.Cap) for scheduled in scenario.steps)
    return frozenset(others | ({"client"} if caps else set()))


def _driven(step: steps.ToClient) -> tuple[str, dict[str, Any]]:
    """The verb of workloads.scripted that a step is, and what it says."""
    match step:
        case steps.Begin():
            return "begin", {}
        case steps.Send():
            said = {"records": list(step.records), "partition": step.partition}
            return "send", {**said, "waits": step.waits}
        case steps.EndTransaction():
            return "end", {"commits": step.commits}
        case steps.Assign():
            return "assign", {"partition": step.partition}
        case steps.Poll():
            return "poll", {"records": step.records}
        case steps.CommitOffsets():
            return "commit", {"waits": step.waits, "offset": step.offset}
        case _:
            return type(step).__name__.lower(), {}


def describe(scheduled: ScheduledStep) -> str:
    """A step in a few words."""
    until = f", until {scheduled.until.text}" if scheduled.until else ""
    return in_words(scheduled.step) + until
