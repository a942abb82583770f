"""A whole cluster in one process, for plays: core brokers, a service, and messages in flight.

Nothing moves by itself: `run` delivers what may be delivered, in the order in which it was sent,
until nothing is left to do now; `advance` lets time pass. A message that a rule of `holds` matches
stays where it is. Every invariant is checked after every step. No network, no disk, no chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

from neaptide.clusters.broker.replication import broker as brokers
from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import administration, effects, events
from neaptide.clusters.broker.replication.interface.coordination_service import (
    CreateTopic,
    SessionExpired,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import TopicConfiguration, TopicPartition
from neaptide.clusters.broker.replication.settings import replication_settings
from neaptide.clusters.broker.replication.step import begin, step
from neaptide.clusters.cluster import STILL
from neaptide.clusters.simulation.disk import Disk
from neaptide.clusters.simulation.service import Service
from tests.core.invariants import check

SERVICE = 0
T = TopicPartition("t", 0)
A, B, C = 1, 2, 3
ANSWERS = (events.FetchResponded, events.OffsetForLeaderEpochResponded, events.ListOffsetsResponded)


@dataclass(frozen=True)
class Message:
    source: int
    target: int
    body: object


@dataclass(frozen=True)
class Asked:
    """A follower's request that waits for its answer at `leader`."""

    broker: int
    leader: int
    effect: effects.SendFetch | effects.SendOffsetForLeaderEpoch | effects.SendListOffsets


Hold = Callable[[Message], bool]


class World:
    def __init__(self, generation: str, **settings: object) -> None:
        self.rules = GENERATIONS[generation]
        named = {name.replace("_", "."): str(value).lower() for name, value in settings.items()}
        self.settings = replication_settings({**STILL, **named}, self.rules)
        self.now_ms = 1_000_000
        self.service = Service()
        self.brokers: dict[int, Broker] = {}
        self.disks: dict[int, Disk] = {}
        self.crashed: set[int] = set()
        self.in_flight: list[Message] = []
        self.deferred: list[Message] = []
        self.holds: list[Hold] = []
        self.timers: dict[tuple[int, events.Timer], tuple[int, int]] = {}
        self.answers: dict[int, list[Effect]] = {}
        self.refused: list[Message] = []
        self.leaders: dict[tuple[TopicPartition, int], int] = {}
        self._asked: dict[int, Asked] = {}
        self._altering: dict[int, tuple[int, int, int]] = {}  # leader, controller, sequence
        self._stopping: dict[int, tuple[int, int, int]] = {}  # the same of brokers that stop
        self._next = 1

    # --- the cluster -----------------------------------------------------------------------------

    def start(self, *broker_ids: int) -> World:
        for broker_id in broker_ids:
            disk = self.disks.setdefault(broker_id, Disk())
            broker = brokers.start(broker_id, self.rules, self.settings, disk.stored())
            self.brokers[broker_id] = broker
            self._carry_out(broker_id, begin(broker))
            unclean = broker_id in self.crashed and self.rules.eligible_leader_replicas
            self.crashed.discard(broker_id)
            self._send_all(self.service.register(broker_id, unclean_shutdown=unclean))
        return self

    def topic(self, *replicas: int, **settings: object) -> World:
        named = {name.replace("_", "."): str(value).lower() for name, value in settings.items()}
        request = CreateTopic(0, T.topic, TopicConfiguration({0: replicas}, named))
        self._send_all(self.service.execute(next(iter(self.brokers)), request))
        return self

    def kill(self, broker_id: int, *, lose_from: int | None = None) -> None:
        """SIGKILL; what was in flight from or to it is discarded, its session is gone at once."""
        self.crashed.add(broker_id)
        self._leave(broker_id, lose_from)

    def stop(self, broker_id: int) -> None:
        """A clean shutdown: nothing is lost, and the next start can say so. It is over when the
        broker has been relieved, where controlled.shutdown.enable is on."""
        self.handle(broker_id, administration.ShutdownRequested())

    def _leave(self, broker_id: int, lose_from: int | None) -> None:
        del self.brokers[broker_id]
        self.timers = {key: due for key, due in self.timers.items() if key[0] != broker_id}
        self.deferred = [m for m in self.deferred if m.source != broker_id]
        for message in [m for m in self.in_flight if broker_id in (m.source, m.target)]:
            self.drop(message)
        if lose_from is not None:
            self.disks[broker_id].lose_page_cache({T: lose_from})
        for number, asked in tuple(self._asked.items()):
            if asked.leader == broker_id:
                self._fail(number)
            elif asked.broker == broker_id:
                self._abandon(number)
        self._break_alterations(broker_id)
        self._send_all(self.service.expire(broker_id))

    def expire(self, broker_id: int) -> None:
        """The session ends, the broker lives on and does not know it before SessionExpired."""
        self.in_flight = [m for m in self.in_flight if {m.source, m.target} != {SERVICE, broker_id}]
        self._send_all(self.service.expire(broker_id))
        self._send(SERVICE, broker_id, SessionExpired())

    def register(self, broker_id: int) -> None:
        self._send_all(self.service.register(broker_id))
        self.in_flight += [m for m in self.deferred if m.source == broker_id]
        self.deferred = [m for m in self.deferred if m.source != broker_id]

    # --- clients ---------------------------------------------------------------------------------

    def produce(
        self, identity: str, *, to: int | None = None, acks: int = -1, timeout_ms: int = 30_000
    ) -> int:
        """Sends one record to the leader that the service names; returns the request's number."""
        leader = self.leader if to is None else to
        batches = (events.ProducedBatch(1, 100, identity),)
        request = self._number()
        self.handle(leader, events.ProduceRequested(request, acks, timeout_ms, ((T, batches),)))
        return request

    def result(self, request: int) -> Error | None:
        """What a produce request came to; None while it waits."""
        for answer in self.answers.get(request, ()):
            assert isinstance(answer, effects.RespondProduce)
            return answer.results[0].error
        return None

    def is_acked(self, request: int) -> bool:
        return self.result(request) is Error.NONE

    # --- looking ---------------------------------------------------------------------------------

    @property
    def leader(self) -> int:
        return self.service.states[T].leader

    @property
    def isr(self) -> tuple[int, ...]:
        return self.service.states[T].isr

    def log(self, broker_id: int) -> list[object]:
        return [batch.identity for batch in self.disks[broker_id].logs[T].batches]

    def offsets(self, broker_id: int) -> tuple[int, int]:
        """(LEO, HW) of a replica."""
        partition = self.brokers[broker_id].partitions[T]
        return partition.log.end_offset, partition.high_watermark

    # --- time and messages -----------------------------------------------------------------------

    def hold(self, body: type, *, source: int | None = None, target: int | None = None) -> Hold:
        def matches(message: Message) -> bool:
            return (
                isinstance(message.body, body)
                and source in (None, message.source)
                and target in (None, message.target)
            )

        self.holds.append(matches)
        return matches

    def held(self) -> list[Message]:
        return [m for m in self.in_flight if any(hold(m) for hold in self.holds)]

    def run(self) -> World:
        """Delivers in the order of sending until nothing but held messages is left."""
        for _ in range(10_000):
            ready = [m for m in self.in_flight if not any(hold(m) for hold in self.holds)]
            if not ready:
                return self
            self.deliver(ready[0])
        raise AssertionError("the cluster does not come to rest")

    def deliver(self, message: Message) -> None:
        self.in_flight.remove(message)
        if message.target == SERVICE:
            self._execute(message)
        elif message.target in self.brokers:
            if message.body == SessionExpired():
                asked = (message.target, SERVICE)
                self.in_flight = [m for m in self.in_flight if (m.source, m.target) != asked]
            self.handle(message.target, message.body)

    def advance(self, duration_ms: int, *, deliver: bool = True) -> World:
        """Lets time pass: timers fire in order; after each, all messages are delivered."""
        end_ms = self.now_ms + duration_ms
        settle = self.run if deliver else lambda: self
        settle()
        while self.timers:
            key, (due_ms, _) = min(self.timers.items(), key=lambda item: item[1])
            if due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            del self.timers[key]
            self.handle(key[0], events.TimerFired(key[1]))
            settle()
        self.now_ms = end_ms
        return self

    def _execute(self, message: Message) -> None:
        """What is asked between two sessions waits for the next; what the last one took is gone."""
        if message.source in self.service.sessions:
            self._send_all(self.service.execute(message.source, message.body))
        elif not any(
            m.body == SessionExpired() and m.target == message.source for m in self.in_flight
        ):
            self.deferred.append(message)

    def drop(self, message: Message) -> None:
        """Discards a message; whoever waits for that answer sees its connection break."""
        self.in_flight.remove(message)
        if isinstance(message.body, ANSWERS) and message.target in self.brokers:
            failed = events.FetcherRequestFailed(message.body.fetcher, message.body.sequence)
            self._send(message.target, message.target, failed)
        if message.target in self.brokers:
            match message.body:
                case events.AlterPartitionResponded(sequence):
                    self._send(
                        message.target, message.target, events.AlterPartitionFailed(sequence)
                    )
                case administration.ControlledShutdownResponded(sequence):
                    shutdown_failed = administration.ControlledShutdownFailed(sequence)
                    self._send(message.target, message.target, shutdown_failed)
        number = getattr(message.body, "request", None)
        if number in self._asked and self._asked[number].broker == message.source:
            self._fail(number)

    def handle(self, broker_id: int, event: object) -> None:
        broker = self.brokers[broker_id]
        self._carry_out(broker_id, step(broker, event, self.now_ms))
        if broker_id in self.brokers:
            check(self, broker_id)

    # --- effects ---------------------------------------------------------------------------------

    def _carry_out(self, broker_id: int, done: tuple[Effect, ...]) -> None:
        for effect in done:
            self._do(broker_id, effect)

    def _do(self, broker_id: int, effect: Effect) -> None:
        match effect:
            case effects.SetTimer(timer, delay_ms):
                self.timers[broker_id, timer] = (self.now_ms + delay_ms, self._number())
            case effects.CancelTimer(timer):
                self.timers.pop((broker_id, timer), None)
            case effects.Coordinate(request):
                self._send(broker_id, SERVICE, request)
            case effects.SendControl(target, message):
                self._send(broker_id, target, message)
            case effects.StopSendingControl(targets):
                self._stop_sending(broker_id, targets)
            case effects.SendAlterPartition():
                self._ask_controller(broker_id, effect)
            case effects.RespondAlterPartition():
                self._answer_leader(broker_id, effect)
            case effects.SendControlledShutdown():
                self._ask_to_stop(broker_id, effect)
            case effects.RespondControlledShutdown():
                self._answer_who_stops(broker_id, effect)
            case effects.Shutdown():
                self._leave(broker_id, None)
            case _:
                self._do_request(broker_id, effect)

    def _do_request(self, broker_id: int, effect: Effect) -> None:
        match effect:
            case (
                effects.SendFetch() | effects.SendOffsetForLeaderEpoch() | effects.SendListOffsets()
            ):
                self._ask(broker_id, effect)
            case effects.CloseFetcher(fetcher):
                for number, asked in tuple(self._asked.items()):
                    if (asked.broker, asked.effect.fetcher) == (broker_id, fetcher):
                        self._abandon(number)
            case effects.RespondControl():
                if effect.error is not Error.NONE:
                    self._refuse(broker_id, effect.error)
            case (
                effects.RespondFetch()
                | effects.RespondOffsetForLeaderEpoch()
                | effects.RespondListOffsets()
            ):
                self._respond(broker_id, effect)
            case (
                effects.RespondProduce()
                | effects.RespondCreateTopics()
                | effects.RespondElectLeaders()
                | effects.RespondAlterPartitionReassignments()
                | effects.RespondListPartitionReassignments()
            ):
                self.answers.setdefault(effect.request, []).append(effect)
            case _:
                end_offset = self.disks[broker_id].carry_out(effect)
                if end_offset is not None and isinstance(effect, effects.TruncateLog):
                    self.handle(broker_id, events.LogTruncated(effect.partition, end_offset))

    def _ask_controller(self, broker_id: int, effect: effects.SendAlterPartition) -> None:
        if effect.controller not in self.brokers:
            failed = events.AlterPartitionFailed(effect.sequence)
            self._send(broker_id, broker_id, failed)
            return
        number = self._number()
        self._altering[number] = (broker_id, effect.controller, effect.sequence)
        request = events.AlterPartitionRequested(
            number, broker_id, effect.broker_epoch, effect.partitions
        )
        self._send(broker_id, effect.controller, request)

    def _ask_to_stop(self, broker_id: int, effect: effects.SendControlledShutdown) -> None:
        if effect.controller not in self.brokers:
            failed = administration.ControlledShutdownFailed(effect.sequence)
            self._send(broker_id, broker_id, failed)
            return
        number = self._number()
        self._stopping[number] = (broker_id, effect.controller, effect.sequence)
        request = administration.ControlledShutdownRequested(number, broker_id, effect.broker_epoch)
        self._send(broker_id, effect.controller, request)

    def _answer_who_stops(self, broker_id: int, effect: effects.RespondControlledShutdown) -> None:
        asked = self._stopping.pop(effect.request, None)
        if asked is not None:
            answer = administration.ControlledShutdownResponded(
                asked[2], effect.error, effect.remaining
            )
            self._send(broker_id, asked[0], answer)

    def _answer_leader(self, broker_id: int, effect: effects.RespondAlterPartition) -> None:
        asked = self._altering.pop(effect.request, None)
        if asked is not None:
            answer = events.AlterPartitionResponded(asked[2], effect.error, effect.results)
            self._send(broker_id, asked[0], answer)

    def _break_alterations(self, broker_id: int) -> None:
        """A leader's connection to a controller that dies breaks."""
        for number, (leader, controller, sequence) in tuple(self._altering.items()):
            if broker_id in (leader, controller):
                del self._altering[number]
                if leader in self.brokers:
                    self._send(leader, leader, events.AlterPartitionFailed(sequence))
        for number, (asker, controller, sequence) in tuple(self._stopping.items()):
            if broker_id in (asker, controller):
                del self._stopping[number]
                if asker in self.brokers:
                    failed = administration.ControlledShutdownFailed(sequence)
                    self._send(asker, asker, failed)

    def _ask(self, broker_id: int, effect: Effect) -> None:
        assert isinstance(
            effect, effects.SendFetch | effects.SendOffsetForLeaderEpoch | effects.SendListOffsets
        )
        number, leader = self._number(), effect.fetcher.leader
        self._asked[number] = Asked(broker_id, leader, effect)
        if leader not in self.brokers:
            self._fail(number)
            return
        request: object
        match effect:
            case effects.SendFetch():
                request = events.FetchRequested(
                    number,
                    broker_id,
                    effect.max_wait_ms,
                    effect.min_bytes,
                    effect.partitions,
                    effect.broker_epoch,
                )
            case effects.SendOffsetForLeaderEpoch():
                request = events.OffsetForLeaderEpochRequested(number, effect.partitions)
            case effects.SendListOffsets():
                request = events.ListOffsetsRequested(number, broker_id, effect.partitions)
        self._send(broker_id, leader, request)

    def _respond(self, broker_id: int, effect: Effect) -> None:
        assert not isinstance(effect, effects.Note)
        number: int = effect.request  # type: ignore[union-attr]
        asked = self._asked.pop(number, None)
        if asked is None:  # a client's, or a test's own
            self.answers.setdefault(number, []).append(effect)
            return
        fetcher, sequence = asked.effect.fetcher, asked.effect.sequence
        answer: object
        match effect:
            case effects.RespondFetch(_, results):
                fetched = tuple(self._read(broker_id, one, results) for one in results)
                answer = events.FetchResponded(fetcher, sequence, fetched)
            case effects.RespondOffsetForLeaderEpoch(_, ends):
                ended = [
                    events.EpochEndOffset(e.partition, e.error, e.end_offset, e.leader_epoch)
                    for e in ends
                ]
                answer = events.OffsetForLeaderEpochResponded(fetcher, sequence, tuple(ended))
            case effects.RespondListOffsets(_, offsets):
                listed = [events.ListedOffset(o.partition, o.error, o.offset) for o in offsets]
                answer = events.ListOffsetsResponded(fetcher, sequence, tuple(listed))
        self._send(broker_id, asked.broker, answer)

    def _read(
        self, broker_id: int, one: effects.FetchedResult, results: tuple[effects.FetchedResult, ...]
    ) -> events.FetchResult:
        first = next((other for other in results if other.records), None)
        batches = (
            self.disks[broker_id]
            .logs[one.partition]
            .read(one.records, one.records.max_bytes, at_least_one=one is first)[0]
            if one.records
            else ()
        )
        start_offset = one.log_start_offset if self.rules.fetch_version >= 5 else -1
        return events.FetchResult(
            one.partition,
            one.error,
            one.high_watermark,
            start_offset,
            batches,
            one.diverging_epoch,
        )

    def _fail(self, number: int) -> None:
        asked = self._asked.pop(number)
        failed = events.FetcherRequestFailed(asked.effect.fetcher, asked.effect.sequence)
        self._send(asked.broker, asked.broker, failed)

    def _abandon(self, number: int) -> None:
        asked = self._asked.pop(number)
        self._send(asked.broker, asked.leader, events.RequestAbandoned(number))

    def _stop_sending(self, broker_id: int, targets: tuple[int, ...] | None) -> None:
        control = get_args(effects.ControlRequest)
        self.in_flight = [
            m
            for m in self.in_flight
            if not (
                m.source == broker_id
                and isinstance(m.body, control)
                and (targets is None or m.target in targets)
            )
        ]

    def _refuse(self, broker_id: int, error: Error) -> None:
        """Notifies every broker that believes to be a controller of an older epoch."""
        for other_id, other in self.brokers.items():
            epoch = getattr(other.controller, "controller_epoch", None)
            if epoch is not None and epoch < self.brokers[broker_id].controller_epoch:
                refusal = events.ControlResponded(broker_id, epoch, error)
                self.refused.append(Message(broker_id, other_id, refusal))
                self._send(broker_id, other_id, refusal)

    def _send(self, source: int, target: int, body: object) -> None:
        self.in_flight.append(Message(source, target, body))

    def _send_all(self, news: list[tuple[int, object]]) -> None:
        for target, event in news:
            self._send(SERVICE, target, event)

    def _number(self) -> int:
        self._next += 1
        return self._next


def cluster(generation: str, replicas: tuple[int, ...] = (A, B, C), **settings: object) -> World:
    """Brokers A, B and C with the topic t, level and at rest; A is the controller."""
    overrides: Mapping[str, object] = {"unclean_leader_election_enable": False, **settings}
    world = World(generation, **overrides).start(*sorted(replicas)).run()
    return world.topic(*replicas).run()
