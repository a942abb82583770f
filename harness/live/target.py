"""Steps done to live brokers and clients: a method for each verb of a scenario.

`nemesis.player` plays whole scenarios with it, `harness.play.aimed` single faults of random runs.
What faults do to processes, links and disks is in `faults`; here is whom a step means, and what
makes it miss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import asdict
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from neaptide.clusters.hosts.io_faults import IoFault
from neaptide.clusters.kafka.members import RefusedChangeError
from neaptide.harness.live import ending
from neaptide.harness.live.faults import Faults
from neaptide.harness.live.members import MembersNemesis
from neaptide.harness.live.observed import StageObserved
from neaptide.harness.live.stage import Stage
from neaptide.nemesis import steps
from neaptide.nemesis.conditions import Condition
from neaptide.nemesis.gate.model import CLIENT, COORDINATION, Endpoint, Rule
from neaptide.nemesis.player import MissedError

_REST_WITHIN_S: Final = 60.0


class LiveTarget:
    """`ids`: who is meant by a name. `partition`: of faults that are about one; its rules begin
    with `prefix`, and no other fault has such."""

    def __init__(
        self,
        stage: Stage,
        faults: Faults,
        members: MembersNemesis,
        ids: Mapping[str, int],
        *,
        seed: int = 0,
        partition: int | None = None,
        prefix: str = "",
    ) -> None:
        self.stage = stage
        self.observed = StageObserved(stage, partition or 0)
        self.rules: dict[str, Rule] = {}  # by the names that steps know
        self._faults = faults
        self._members = members
        self._ids = ids
        self._seed = seed
        self._partition = partition
        self._prefix = prefix
        self._holds: list[str] = []
        self._hitting: list[str] = []  # rules that do something to messages once and for all
        self._loading = False
        self._within_s = 0.0  # of the step that is done

    # --- what the player asks for ----------------------------------------------------------------

    async def rest(self) -> None:
        """A leader in the coordination service is not yet one that is followed: a follower that is
        cut off before it knows the leader follows nobody, and no zombie comes of it."""
        observed, what = self.observed, "every follower fetches from its leader"
        try:
            await self.stage.until(
                lambda: observed.level() and observed.commits_level(), _REST_WITHIN_S, what
            )
        except TimeoutError as error:
            raise MissedError(f"before the first step: {error}") from None

    async def do(self, step: steps.Step, within_s: float) -> None:
        self._within_s = within_s
        if isinstance(step, steps.ToClient):
            await self._drive(step)
        else:
            await getattr(self, step.verb)(step)

    async def wait(self, condition: Condition, within_s: float) -> None:
        observed = self.observed
        condition = condition.begun(observed)
        try:
            await self.stage.until(lambda: condition.holds(observed), within_s, condition.text)
        except TimeoutError as error:
            why = "; ".join([str(error), condition.unmet(observed), *self._idle_rules()])
            raise MissedError(why) from None

    def last_fetch_ms(self, broker: str) -> float | None:
        """As the gate saw it."""
        since_ns = self.stage.last_fetch_ns.get(self._ids[broker])
        return None if since_ns is None else (self.stage.recorder.now_ns() - since_ns) / 1e6

    def note(self, value: Mapping[str, Any]) -> None:
        self.stage.note_nemesis(value, self.stage.recorder.now_ns())

    def missed_aims(self) -> list[str]:
        toxics = self._faults.idle_toxics()
        return [
            *self.stage.problems,
            *self._idle_rules(),
            *(f"no connection had the toxic {name!r}" for name in toxics),
        ]

    def _idle_rules(self) -> list[str]:
        """Rules that have matched no message so far."""
        stage = self.stage
        held = [rule for rule in self._holds if rule not in stage.holds.ever_held]
        hit = [rule for rule in self._hitting if not stage.hits[rule]]
        return [
            *(f"the rule {rule!r} never held anything" for rule in held),
            *(f"the rule {rule!r} never hit anything" for rule in hit),
        ]

    async def undo_all(self) -> None:
        """Releases, heals, restarts; every partition gets back its replicas."""
        await ending.heal_all(self.stage, self._faults, tuple(r.id for r in self.rules.values()))
        await self._members.restore()

    # --- records ---------------------------------------------------------------------------------

    async def produce(self, step: steps.Produce) -> None:
        to = None if step.to is None else self.stage.client_address(self._ids[step.to])
        problem = await self.stage.clients.do(
            "produce",
            topic=self.stage.spec.topic.name,
            partition=step.partition,
            acks=step.acks,
            values=list(step.values),
            to=to,
            key=step.key,
            deadline_s=self._within_s,
        )
        if problem:
            raise MissedError(f"of the producer: {problem}")

    async def consume(self, step: steps.Consume) -> None:
        read = {"topic": self.stage.spec.topic.name, "partition": step.partition}
        clients, deadline_s = self.stage.clients, self._within_s
        if step.group is None:
            await clients.do("consume", **read, phase="main", end=None, deadline_s=deadline_s)
            return
        result = await clients.do("consume_as", group=step.group, **read, deadline_s=deadline_s)
        if result["problem"]:
            raise MissedError(result["problem"])

    async def load(self, step: steps.Load) -> None:
        await self.stop_load()
        self._loading = True
        topic = self.stage.spec.topic
        await self.stage.clients.do(
            "load",
            topic=topic.name,
            partitions=len(topic.assignment),
            acks=step.acks,
            rate=step.rate,
            senders=1,
        )

    async def stop_load(self, step: steps.StopLoad | None = None) -> None:
        if self._loading:
            self._loading = False
            await self.stage.stop_load()

    async def open(self, step: steps.OpenClient) -> None:
        config = {**asdict(step), "settings": step.texts, "topic": self.stage.spec.topic.name}
        problem = await self.stage.clients.do("open", **config, deadline_s=self._within_s)
        if problem:
            raise MissedError(f"of {step.name}: {problem}")

    async def _drive(self, step: steps.ToClient) -> None:
        """Sends the step to its client, and waits until the client has done it."""
        arguments = asdict(step)  # type: ignore[call-overload]
        client = arguments.pop("client")
        if isinstance(step, steps.Die):
            self.stage.gone.add(CLIENT)
            self.note({"die": {"client": client}})
        problem = await self.stage.clients.do(
            "drive", client=client, act=step.verb, arguments=arguments, deadline_s=self._within_s
        )
        if problem:
            raise MissedError(f"of {client}: {problem}")

    # --- messages --------------------------------------------------------------------------------

    async def hold(self, step: steps.Hold) -> None:
        await self._install(step)

    async def drop(self, step: steps.Drop) -> None:
        await self._install(step)

    async def delay(self, step: steps.Delay) -> None:
        await self._install(step, delay_ms=step.delay_ms)

    async def answer(self, step: steps.Answer) -> None:
        await self._install(step, error=step.error)

    async def _install(self, step: steps.MessageRule, **more: Any) -> None:
        rule = Rule(
            id=self._prefix + step.name,
            action=step.action,
            message=step.message,
            api=step.api,
            source=self._speaker(step.source),
            destination=self._speaker(step.destination),
            topic=self._topic_of(step),
            partition=self._partition or 0,
            where=step.where,
            times=step.times,
            purpose=step.purpose,
            **more,
        )
        (self._holds if step.action == "hold" else self._hitting).append(rule.id)
        await self._add(step.name, rule)

    async def cap(self, step: steps.Cap) -> None:
        rule = Rule(
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
        self._hitting.append(rule.id)
        await self._add(step.name, rule)

    async def _add(self, name: str, rule: Rule) -> None:
        self.rules[name] = rule
        await self._faults.install(rule)

    async def release(self, step: steps.Release) -> None:
        await self._faults.release(self.rules[step.rule].id)

    async def discard(self, step: steps.Discard) -> None:
        await self._faults.discard(self.rules[step.rule].id)

    async def deliver(self, step: steps.Deliver) -> None:
        if not self.observed.sender_gone(step.rule):
            raise MissedError(f"the sender of what {step.rule} holds has not gone")
        await self._faults.release(self.rules[step.rule].id)

    def _speaker(self, name: str) -> Endpoint | None:
        """Whichever controller is meant: a link to one is a link to any of them."""
        return None if name == steps.CONTROLLER else self._end(name)

    def _topic_of(self, step: steps.MessageRule) -> str | None:
        """A condition is about one topic; where there is one only, it need not be named."""
        spec = self.stage.spec
        if self._partition is not None:
            return spec.topic.name
        if not step.where or spec.offsets is None or step.purpose != "replication":
            return None
        return step.topic or spec.topic.name

    # --- nodes -----------------------------------------------------------------------------------

    async def kill(self, step: steps.Kill) -> None:
        await self._faults.kill(step.in_flight, *self._all(step.broker))

    async def power_off(self, step: steps.PowerOff) -> None:
        await self._faults.power_off(self._kept(step.survives), *self._all(step.broker))

    async def stop(self, step: steps.Stop) -> None:
        await self._faults.stop(self._node(step.broker))

    async def restart(self, step: steps.Restart) -> None:
        await self._faults.restart(self._node(step.broker))

    async def pause(self, step: steps.Pause) -> None:
        await self._faults.pause(self._node(step.broker))

    async def resume(self, step: steps.Resume) -> None:
        await self._faults.resume(self._node(step.broker))

    async def remove_voter(self, step: steps.RemoveVoter) -> None:
        await self._faults.remove_voter(self._node(step.broker))

    async def add_voter(self, step: steps.AddVoter) -> None:
        await self._faults.add_voter(self._node(step.broker))

    def _all(self, nodes: steps.Node | tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self._node(node) for node in steps.each_of(nodes))

    def _node(self, node: steps.Node) -> int:
        """The node that the step names, at this moment."""
        match node:
            case str():
                return self._ids[node]
            case steps.NamedController():
                return self.stage.named[node.name]
            case steps.ActiveController():
                active = self.stage.observer.controller
                if active is None:
                    raise MissedError("there is no active controller")
                if node.name is not None:
                    self.stage.named[node.name] = active
                return active

    def _kept(self, survives: str | None) -> dict[int, int]:
        """Up to where the disk kept the log, from where the surviving record was acknowledged."""
        if survives is None:
            return {}
        offset = self.stage.sends.acked.get(survives)
        if offset is None:
            raise MissedError(f"{survives} was not acknowledged: its offset is not known")
        return {0: offset + 1}

    # --- operators: who refuses it, or is not there, makes a miss --------------------------------

    async def reassign(self, step: steps.Reassign) -> None:
        said = {"replicas": list(step.replicas), "partition": step.partition}
        replicas = self._all(step.replicas)
        await self._change(step, self._members.reassign(step.partition, replicas), said)

    async def elect(self, step: steps.Elect) -> None:
        partition = step.partition if self._partition is None else self._partition
        asked = self._members.elect((partition,), unclean=step.election == "unclean")
        await self._change(step, asked, {"election": step.election, "partition": partition})

    async def remove_broker(self, step: steps.RemoveBroker) -> None:
        await self._change(step, self._members.remove_broker(self._ids[step.broker]))

    async def add_partition(self, step: steps.AddPartition) -> None:
        await self._change(step, self._members.add_partition())

    async def set_topic(self, step: steps.SetTopic) -> None:
        await self._change(step, self._members.set_topic(step.name, step.value))

    async def delete_records(self, step: steps.DeleteRecords) -> None:
        stage, topic = self.stage, self.stage.spec.topic.name
        wanted = TopicPartition(topic, step.partition, step.before)
        stage.note_deletion(topic, step.partition, step.before)  # whatever comes of it
        addresses = ",".join(map(stage.client_address, stage.spec.brokers))
        admin = AdminClient({"bootstrap.servers": addresses})  # kept until its answer is here
        deletion = admin.delete_records([wanted], request_timeout=self._within_s)[wanted]
        try:
            await self._change(step, asyncio.wrap_future(deletion))
        except KafkaException as refused:
            raise MissedError(f"no records were deleted: {refused.args[0].str()}") from None

    async def create_topic(self, step: steps.CreateTopic) -> None:
        await self._change(step, self._members.create_topic())

    async def move_controller(self, step: steps.MoveController) -> None:
        if self.stage.cluster.quorum:
            raise MissedError("there is no znode to delete: the controllers are a quorum")
        await self._change(step, self._members.delete_controller(), {})

    async def _change(
        self,
        step: steps.Step,
        change: Awaitable[Any],
        said: Mapping[str, Any] | None = None,
    ) -> None:
        """`said`: in the history, where that is not what the step says."""
        begun_ns = self.stage.recorder.now_ns()
        try:
            await change
        except RefusedChangeError as refused:
            raise MissedError(str(refused)) from None
        noted = steps.table_of(step) if said is None else said
        self.stage.note_nemesis({step.verb: noted}, begun_ns)

    # --- links -----------------------------------------------------------------------------------

    async def cut(self, step: steps.Cut) -> None:
        source, destination = self._end(step.source), self._end(step.destination)
        await self._faults.cut(source, destination, step.purpose, both=step.both)

    async def partition(self, step: steps.PartitionNetwork) -> None:
        for deaf in step.cuts(step.first):
            await self.cut(steps.Cut(deaf.source, deaf.destination, deaf.purpose))

    async def heal(self, step: steps.Heal) -> None:
        await self._faults.heal(self._end(step.source), self._end(step.destination))

    async def slow(self, step: steps.Slow) -> None:
        source, destination = self._end(step.source), self._end(step.destination)
        await self._faults.slow(source, destination, step.purpose, step.delay_ms)

    async def toxic(self, step: steps.AddToxic) -> None:
        broker = self._ids[step.broker]
        await self._faults.add_toxic(step.name, broker, step.purpose, step.toxic)

    async def end_toxic(self, step: steps.EndToxic) -> None:
        if not await self._faults.end_toxic(step.name):
            raise MissedError(f"no connection had the toxic {step.name}")

    def _end(self, name: str | None) -> Endpoint | None:
        if name is None or name in (CLIENT, COORDINATION):
            return name
        return self._ids[name]

    # --- clocks and disks ------------------------------------------------------------------------

    async def set_clock(self, step: steps.SetClock) -> None:
        await self._faults.set_clock(self._ids[step.broker], step.ahead_ms)

    async def damage(self, step: steps.Damage) -> None:
        broker = self._ids[step.broker]
        await self._faults.damage(broker, step.kind, step.file, step.partition, self._seed)

    async def keep_snapshot(self, step: steps.KeepSnapshot) -> None:
        await self._faults.keep_snapshot(self._ids[step.broker])

    async def put_back(self, step: steps.PutBack) -> None:
        await self._faults.put_back(self._ids[step.broker])

    async def inject(self, step: steps.Inject) -> None:
        fault = IoFault(step.call, step.error, step.delay_ms, step.nth)
        await self._faults.inject(self._ids[step.broker], fault, step.file, step.partition)

    async def end_injections(self, step: steps.EndInjections) -> None:
        if not await self._faults.end_injections(self._ids[step.broker]):
            raise MissedError(f"no call of {step.broker} was met")
