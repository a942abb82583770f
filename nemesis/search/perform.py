"""Does the steps of schedules to a world, and waits, in virtual time, for their conditions.

The same steps do the same to live brokers (harness.play); nothing about a system is here. Brokers
are named in steps and numbered in worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from neaptide.clusters.simulation import committing, faults, producing, transactional
from neaptide.clusters.simulation.clients import RECORD_BYTES, TransactionalProducer
from neaptide.clusters.simulation.network import (
    CLIENT,
    CONTROLLER,
    OF_TRANSACTIONS,
    SERVICE,
    Facts,
    Hold,
)
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.conditions import Condition
from neaptide.nemesis.gate.model import CLIENT as CLIENT_END
from neaptide.nemesis.gate.model import COORDINATION
from neaptide.nemesis.gate.where import parse_where
from neaptide.nemesis.player import MissedError
from neaptide.nemesis.search.observed import WorldObserved

CONSUME_WITHIN_US: Final = 20_000_000
TRANSACTION_WITHIN_US: Final = 20_000_000
OPERATORS_WAIT_US: Final = 10_000_000  # for the end of what was asked for before
ACKS: Final[Mapping[str, int]] = {"0": 0, "1": 1, "all": -1}


@dataclass(slots=True)
class Performer:
    """`brokers`: names to numbers."""

    world: World
    brokers: Mapping[str, int]
    named: dict[str, int] = field(default_factory=dict)  # the controllers of their moments

    def do(self, step: steps.Step) -> Mapping[str, Any]:
        """What is to be recorded of it. Raises MissedError where the step cannot be done."""
        if not can_do(step):
            raise MissedError(f"the simulation cannot do {step.verb} yet")
        if isinstance(step, _WAITS):
            return {}
        return getattr(self, step.verb)(step) or {}

    def wait(self, condition: Condition, within_s: float) -> None:
        """Lets events happen until the condition holds. Raises MissedError where it does not."""
        observed = WorldObserved(self.world, self.named)
        condition = condition.begun(observed)
        deadline_us = self.world.now_us + int(within_s * 1_000_000)
        while not condition.holds(observed):
            if not self.world.advance(deadline_us):
                if condition.holds(observed):
                    return
                raise MissedError(
                    f"after {within_s:g} s this is still not true: {condition.text};"
                    f" {condition.unmet(observed)}"
                )

    # --- verbs -----------------------------------------------------------------------------------

    def _end(self, name: str | None) -> int | None:
        ends = {None: None, CLIENT_END: CLIENT, COORDINATION: SERVICE}
        return ends[name] if name in ends else self.brokers[str(name)]

    def _node(self, node: steps.Node) -> int:
        """Who is meant, at this moment: the controller is a broker here."""
        match node:
            case str():
                return self.brokers[node]
            case steps.NamedController():
                if node.name not in self.named:
                    raise MissedError(f"no step has named the controller {node.name}")
                return self.named[node.name]
            case steps.ActiveController():
                active = self.world.service.controller
                if active is None:
                    raise MissedError("there is no active controller")
                if node.name is not None:
                    self.named[node.name] = active
                return active

    def _live(self, broker: steps.Node, *, up: bool = True) -> int:
        number = self._node(broker)
        if (number in self.world.brokers) is not up:
            raise MissedError(f"{broker} is {'down' if up else 'up'} already")
        return number

    def produce(self, step: steps.Produce) -> None:
        size = RECORD_BYTES if step.size_bytes is None else step.size_bytes
        for record in step.records:
            to = None if step.to is None else self.brokers[step.to]
            producing.produce(
                self.world.clients, record, ACKS[step.acks], step.partition, to=to, size_bytes=size
            )

    def load(self, step: steps.Load) -> None:
        producing.load(self.world.clients, step.rate, ACKS[step.acks])

    def stop_load(self, step: steps.StopLoad) -> None:
        producing.stop_load(self.world.clients)

    def slow(self, step: steps.Slow) -> None:
        source, target = self._end(step.source), self._end(step.destination)
        faults.slow(self.world, source, target, step.purpose, step.delay_ms)

    def consume(self, step: steps.Consume) -> None:
        """Like a live run, it reads to the end before the next step."""
        clients, group = self.world.clients, step.group
        deadline_us = self.world.now_us + CONSUME_WITHIN_US
        offset = producing.FROM_START
        if group is not None:
            committing.ask_position(self.world.clients, group, step.partition, "main")
            position = self._answered(
                deadline_us, f"no answer says where the group {group} goes on"
            )
            offset = producing.FROM_START if position is None else position
        done = clients.reads_done
        producing.consume(self.world.clients, step.partition, "main", offset)
        while clients.reads_done == done:
            if not self.world.advance(deadline_us):
                raise MissedError("the consumer did not come to the high watermark")
        if group is not None and clients.read_end > max(offset, 0):
            committing.commit(self.world.clients, group, step.partition, clients.read_end)
            self._answered(deadline_us, f"the commit of the group {group} was not acknowledged")

    def _answered(self, deadline_us: int, problem: str) -> int | None:
        """Waits for what is asked of a group; the position that it is about."""
        clients = self.world.clients
        while clients.asking is not None:
            if not self.world.advance(deadline_us):
                committing.give_up(self.world.clients)
                raise MissedError(problem)
        return clients.group_operations[-1].offset

    # --- producers of transactions ---

    def open(self, step: steps.OpenClient) -> None:
        assert step.transactional_id is not None
        transactional.open_producer(
            self.world.clients,
            step.name,
            step.transactional_id,
            is_raw=step.kind == "raw_producer",
            timeout_ms=int(step.texts.get("transaction.timeout.ms", transactional.TIMEOUT_MS)),
        )
        self._done(step.name)

    def begin_transaction(self, step: steps.Begin) -> None:
        if self._producer(step.client).transaction is not None:
            raise MissedError(f"{step.client} is in a transaction already")
        transactional.begin(self.world.clients, step.client)

    def send(self, step: steps.Send) -> None:
        if self._producer(step.client).transaction is None:
            raise MissedError(f"{step.client} is in no transaction")
        for record in step.records:
            transactional.send(self.world.clients, step.client, record, step.partition)
        if step.waits:
            self._done(step.client)

    def commit_transaction(self, step: steps.CommitTransaction) -> None:
        self._end_transaction(step.client, commits=True)

    def abort_transaction(self, step: steps.AbortTransaction) -> None:
        self._end_transaction(step.client, commits=False)

    def _end_transaction(self, client: str, *, commits: bool) -> None:
        """As live, what is not answered in time is given up, and nobody knows the end of it."""
        if self._producer(client).transaction is None:
            raise MissedError(f"{client} is in no transaction")
        transactional.end(self.world.clients, client, commits=commits)
        self._done(client)

    def die(self, step: steps.Die) -> None:
        self._producer(step.client)
        transactional.die(self.world.clients, step.client)

    def _producer(self, client: str) -> TransactionalProducer:
        if client not in self.world.clients.transactional:
            raise MissedError(f"the client {client} has ended")
        return self.world.clients.transactional[client]

    def _done(self, client: str) -> None:
        """Waits for what it does."""
        deadline_us = self.world.now_us + TRANSACTION_WITHIN_US
        while self._producer(client).is_busy:
            if not self.world.advance(deadline_us):
                transactional.give_up(self.world.clients, client)

    # --- messages ---

    def _speaker(self, name: str) -> int:
        return {"controller": CONTROLLER, CLIENT_END: CLIENT}.get(name) or self.brokers[name]

    def hold(self, step: steps.Hold) -> None:
        self._install(step)

    def drop(self, step: steps.Drop) -> None:
        self._install(step)

    def _install(self, step: steps.Hold | steps.Drop) -> None:
        faults.hold(
            self.world,
            Hold(
                step.name,
                step.message,
                step.api,
                self._speaker(step.source),
                self._speaker(step.destination),
                where_of(step.where),
                step.times,
                drops=isinstance(step, steps.Drop),
                topic=step.topic,
            ),
        )

    def deliver(self, step: steps.Deliver) -> None:
        if not faults.deliver(self.world, self._rule(step.rule)):
            raise MissedError(f"a sender of what {step.rule!r} holds is still connected")

    def release(self, step: steps.Release) -> None:
        faults.release(self.world, self._rule(step.rule))

    def discard(self, step: steps.Discard) -> None:
        faults.discard(self.world, self._rule(step.rule))

    def _rule(self, name: str) -> str:
        if name not in self.world.network.holds:
            raise MissedError(f"there is no rule {name!r} to end")
        return name

    def kill(self, step: steps.Kill) -> None:
        for broker in steps.each_of(step.broker):  # no time passes between them
            faults.kill(self.world, self._live(broker), delivered=step.in_flight == "delivered")

    def power_off(self, step: steps.PowerOff) -> Mapping[str, Any]:
        """What each lost, by broker; the power of one that was stopped may fail, too."""
        keep = self._kept(step.survives)
        return {
            str(broker): self._powered_off(self._powered(broker), keep)
            for broker in steps.each_of(step.broker)
        }

    def _powered(self, broker: steps.Node) -> int:
        number = self._node(broker)
        is_stopped = number not in self.world.brokers and self.world.disks[number].was_clean
        return number if is_stopped else self._live(broker)

    def _powered_off(self, number: int, keep: Mapping[int, int]) -> Mapping[str, Any]:
        lost = faults.power_off(self.world, number, keep)
        return {"lost": {str(partition): count for partition, count in lost.items()}}

    def _kept(self, survives: str | None) -> dict[int, int]:
        if survives is None:
            return {}
        offset = self.world.clients.acked.get(survives)
        if offset is None:
            raise MissedError(f"{survives} was not acknowledged: its offset is not known")
        send, _ = self.world.clients.sends[survives]
        return {send.partition: offset + 1}

    def stop(self, step: steps.Stop) -> None:
        faults.stop(self.world, self._live(step.broker))

    def restart(self, step: steps.Restart) -> None:
        faults.restart(self.world, self._live(step.broker, up=False))

    def pause(self, step: steps.Pause) -> None:
        faults.pause(self.world, self._live(step.broker))

    def resume(self, step: steps.Resume) -> None:
        faults.resume(self.world, self._live(step.broker))

    def reassign(self, step: steps.Reassign) -> None:
        """By its znode, which is there once: who finds one waits until it is gone."""
        service, deadline_us = self.world.service, self.world.now_us + OPERATORS_WAIT_US
        while service.reassignments:
            if not self.world.advance(deadline_us):
                raise MissedError("another reassignment goes on")
        target = tuple(self.brokers[name] for name in step.replicas)
        faults.reassign(self.world, step.partition, target)

    def elect(self, step: steps.Elect) -> None:
        service, deadline_us = self.world.service, self.world.now_us + OPERATORS_WAIT_US
        while service.elections is not None:
            if not self.world.advance(deadline_us):
                raise MissedError("another election is asked for")
        faults.elect(self.world, step.partition)

    def move_controller(self, step: steps.MoveController) -> None:
        if self.world.service.controller is None:
            raise MissedError("there is no active controller")
        faults.depose(self.world)

    def cut(self, step: steps.Cut) -> None:
        source, target = self._end(step.source), self._end(step.destination)
        faults.cut(self.world, source, target, step.purpose, both=step.both)

    def heal(self, step: steps.Heal) -> None:
        faults.heal(self.world, self._end(step.source), self._end(step.destination))


_WAITS: Final = (steps.Await, steps.Measure)  # the condition is all


def can_do(step: steps.Step) -> bool:
    """Whether a world can: it may hold messages of replicas, and of controllers and brokers."""
    if isinstance(step, steps.Hold | steps.Drop):
        if step.purpose == "client":
            return (step.message, step.api) in OF_TRANSACTIONS.values()
        purpose = "coordination" if step.api == steps.ALTER_PARTITION else "replication"
        return step.purpose == purpose and step.api in get_args(steps.Api)
    if isinstance(step, steps.Produce) and step.key is not None:
        return False  # nothing is compacted there
    if isinstance(step, steps.OpenClient):
        return step.transactional_id is not None
    if isinstance(step, steps.Elect):
        return step.election == "preferred"
    return isinstance(step, _WAITS) or hasattr(Performer, step.verb)


def where_of(text: str) -> Callable[[Facts], bool] | None:
    """A rule's condition, as the world asks it."""
    comparisons = parse_where(text)
    if not comparisons:
        return None
    return lambda facts: all(comparison.holds(facts) for comparison in comparisons)
