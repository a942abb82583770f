"""The world: brokers of the very core that the live server runs, in virtual time, one event a step.

`advance` takes the next event that is due, tells the core of it, and carries out the effects in
their order. What is due when follows from the spec and from what was done to the world, and from
nothing else: the same doings give the same events. A world can be copied at any moment, and the
copy goes another way. No rule of replication is here, and no chance but the spec's `noise`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple, Protocol

from clusters.broker.replication import coordination as zk
from clusters.broker.replication import effects as do
from clusters.broker.replication import messages as told
from clusters.broker.replication.broker import Broker, start
from clusters.broker.replication.committed import OFFSETS_TOPIC
from clusters.broker.replication.errors import Error
from clusters.broker.replication.generation import Generation
from clusters.broker.replication.model import TopicConfiguration, TopicPartition
from clusters.broker.replication.settings import ReplicationSettings
from clusters.broker.replication.step import begin, step
from clusters.producer import ProducerOptions
from clusters.simulation import producing
from clusters.simulation.clients import Clients, GroupOperation
from clusters.simulation.disk import Disk
from clusters.simulation.network import (
    CLIENTS,
    CONTROL,
    COORDINATION,
    FETCH,
    SERVICE,
    Clock,
    Cut,
    Entry,
    Hold,
    Link,
    Noise,
    facts_of,
)
from clusters.simulation.service import Service, Told

ALL_TIME: Final = 1 << 62
_OF_THE_DISK: Final = (told.LogTruncated, told.ProducersRead, told.PositionsRead)
CONTROL_REQUESTS: Final = (
    told.LeaderAndIsrRequested,
    told.StopReplicaRequested,
    told.UpdateMetadataRequested,
)
ANSWERS: Final = (
    told.FetchResponded,
    told.OffsetForLeaderEpochResponded,
    told.ListOffsetsResponded,
)


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """What a world is made of. Durations in the units that their names say."""

    rules: Generation
    settings: ReplicationSettings
    brokers: tuple[int, ...]  # in the order in which they start: the first is controller
    topic: str
    configuration: TopicConfiguration
    latency_us: int = 500
    session_timeout_ms: int = 6_000
    socket_timeout_ms: int = 30_000  # replica.socket.timeout.ms
    retention_check_ms: int | None = None  # None: nothing is ever deleted
    noise: Noise | None = None
    clocks: Mapping[int, Clock] = field(default_factory=dict)
    producer: ProducerOptions = field(default_factory=ProducerOptions)
    offsets: TopicConfiguration | None = None  # `__consumer_offsets`; None: there is none


class TimerDue(NamedTuple):
    broker: int
    timer: told.Timer


class RequestTimedOut(NamedTuple):
    """A follower has waited for an answer for replica.socket.timeout.ms."""

    number: int


class RetentionDue(NamedTuple):
    """A broker looks whether its logs are too large (log.retention.check.interval.ms)."""

    broker: int
    started_us: int


class SessionTimedOut(NamedTuple):
    broker: int
    silent_since_us: int


class Register(NamedTuple):
    """A broker that has started asks for a session."""

    unclean_shutdown: bool


class Asked(NamedTuple):
    """A follower's request that waits for its answer."""

    broker: int
    leader: int
    effect: do.SendFetch | do.SendOffsetForLeaderEpoch | do.SendListOffsets
    sent_us: int


class Position(NamedTuple):
    """What the wire has shown of a follower: its LEO by its request, its HW by the answer."""

    leader: int
    leader_epoch: int
    round: int
    log_end_offset: int
    high_watermark: int | None
    at_us: int  # when the request was sent


class Recorder(Protocol):
    """Hears of what a run directory keeps. A search has none."""

    def asked(self, world: World, entry: Entry) -> None: ...
    def answered(self, world: World, entry: Entry) -> None: ...
    def event(self, world: World, entry: Entry) -> None: ...
    def blocked(self, world: World, entry: Entry) -> None: ...
    def dropped(self, world: World, entry: Entry) -> None: ...
    def state(self, world: World, partition: TopicPartition) -> None: ...
    def polled(self, world: World, values: list[tuple[int, int, object]]) -> None: ...
    def of_group(self, world: World, done: GroupOperation) -> None: ...


class Watch(Protocol):
    """Sees every step of the core, after its effects; may raise. A fast search has none."""

    def started(self, world: World, broker_id: int) -> None: ...
    def told(
        self, world: World, broker_id: int, event: object, effects: tuple[do.Effect, ...]
    ) -> None: ...
    def served(self, world: World) -> None: ...
    def copy(self) -> Watch: ...


class World:
    """Make one with `start_world`; change it with the functions of `faults` and `producing`."""

    __slots__ = (
        "asked",
        "blocked_links",
        "brokers",
        "clients",
        "cuts",
        "disks",
        "ever_held",
        "expired",
        "hold_counts",
        "holds",
        "marks_gone_back",
        "marks_told",
        "messages",
        "now_us",
        "obeyed",
        "own",
        "partition",
        "paused",
        "positions",
        "recorder",
        "refused",
        "rounds",
        "sequence",
        "service",
        "shared_brokers",
        "shared_disks",
        "silent_since",
        "slowed",
        "spec",
        "started_us",
        "steps",
        "timers",
        "waiting",
        "watch",
    )

    def __init__(self, spec: WorldSpec) -> None:
        self.spec = spec
        self.partition = TopicPartition(spec.topic, 0)
        self.now_us = 1_000_000_000
        self.sequence = 0
        self.steps = 0
        self.messages: list[Entry] = []  # a heap: on their links
        self.own: list[Entry] = []  # a heap: timers and time-outs
        self.waiting: list[Entry] = []
        self.blocked_links: set[Link] = set()
        self.brokers: dict[int, Broker] = {}
        self.disks: dict[int, Disk] = {}
        self.service = Service()
        self.timers: dict[TimerDue, int] = {}
        self.started_us: dict[int, int] = {}  # of the brokers that run
        self.asked: dict[int, Asked] = {}
        self.clients = Clients(spec.producer)
        self.paused: frozenset[int] = frozenset()
        self.cuts: frozenset[Cut] = frozenset()
        self.holds: dict[str, Hold] = {}
        self.hold_counts: dict[str, int] = {}
        self.ever_held: frozenset[str] = frozenset()
        self.silent_since: dict[int, int] = {}  # brokers that the service does not hear
        self.expired: frozenset[int] = frozenset()  # … whose session is over; they do not know
        self.refused: frozenset[int] = frozenset()  # controllers that were told of a later one
        self.obeyed: frozenset[int] = frozenset()  # controllers that were not
        self.slowed: dict[Cut, int] = {}  # links that take so much longer, in µs
        self.positions: dict[int, Position] = {}
        self.rounds: dict[tuple[int, int, int], int] = {}
        # The high watermark that a leader last told a follower in an epoch; how often it was less
        # than before. By (epoch, leader, follower).
        self.marks_told: dict[tuple[int, int, int], int] = {}
        self.marks_gone_back = 0
        self.recorder: Recorder | None = None
        self.watch: Watch | None = None
        # Brokers and disks that a copy has too: copied before they are changed.
        self.shared_brokers: set[int] = set()
        self.shared_disks: set[int] = set()

    def copy(self) -> World:
        """A world that can go another way. Values are shared, holders are not."""
        other = World.__new__(World)
        for name in _SHARED:
            setattr(other, name, getattr(self, name))
        for name in _HOLDERS:
            setattr(other, name, getattr(self, name).copy())
        other.watch = None if self.watch is None else self.watch.copy()
        self.shared_brokers = set(self.brokers)
        self.shared_disks = set(self.disks)
        other.shared_brokers = set(self.brokers)
        other.shared_disks = set(self.disks)
        return other

    # --- what is due -----------------------------------------------------------------------------

    def advance(self, until_us: int = ALL_TIME) -> bool:
        """Takes the next event that is due by then and is not blocked; False: there is none."""
        messages, own = self.messages, self.own
        while messages or own:
            is_message = bool(messages) and (not own or messages[0] < own[0])
            heap = messages if is_message else own
            if heap[0].due_us > until_us:
                break
            entry = heappop(heap)
            if self._take_message(entry) if is_message else self._take_own(entry):
                return True
            messages, own = self.messages, self.own
        if until_us != ALL_TIME:
            self.now_us = max(self.now_us, until_us)
        return False

    def heads(self) -> dict[Link, Entry]:
        """The first message of each link, in the order of the links, that nothing keeps up."""
        first: dict[Link, Entry] = {}
        for entry in sorted(self.messages, key=lambda one: one.sequence):
            if entry.link is not None:
                first.setdefault(entry.link, entry)
        return {
            link: first[link]
            for link in sorted(first)
            if link.channel != CONTROL or link.target in self.brokers
        }

    def take(self, entry: Entry) -> bool:
        """Delivers a message out of turn, before all that is due earlier on other links."""
        self.messages.remove(entry)
        heapify(self.messages)
        return self._take_message(entry)

    def _take_message(self, entry: Entry) -> bool:
        """True where it has arrived."""
        link = entry.link
        assert link is not None
        if self._is_blocked(link, entry):
            self.waiting.append(entry)
            self.blocked_links.add(link)
            if link.channel == FETCH:
                self._expect_time_out(entry)
            return False
        self.now_us = max(self.now_us, entry.due_us)
        if (self.holds or self.spec.noise) and self._is_dropped(link, entry):
            self.break_connection(link, entry)
            return False
        self._deliver(entry, link)
        return True

    def _expect_time_out(self, entry: Entry) -> None:
        """A follower's request, or its answer, is kept up: the follower will not wait for ever."""
        assert entry.link is not None
        number = getattr(entry.body, "request", None)
        if isinstance(entry.body, ANSWERS):
            number = self.asked_by(entry.link.target, entry.body)
        if number in self.asked:
            self.time_out(number)

    def time_out(self, number: int) -> None:
        due_us = self.asked[number].sent_us + self.spec.socket_timeout_ms * 1_000
        self.later(max(0, due_us - self.now_us), RequestTimedOut(number))

    def _take_own(self, entry: Entry) -> bool:
        """A timer, a time-out: True where it was still meant."""
        body = entry.body
        match body:
            case TimerDue(broker, timer):
                if self.timers.get(body) != entry.sequence:
                    return False
                if broker in self.paused:
                    self.waiting.append(entry)
                    return False
                del self.timers[body]
                self.now_us = max(self.now_us, entry.due_us)
                self.tell(broker, told.TimerFired(timer))
                return True
            case RequestTimedOut(number):
                if number not in self.asked:
                    return False
                self.now_us = max(self.now_us, entry.due_us)
                self.fail_request(number)
            case RetentionDue(broker, started_us):
                if self.started_us.get(broker) != started_us:
                    return False
                if broker in self.paused:
                    self.waiting.append(entry)
                    return False
                self.now_us = max(self.now_us, entry.due_us)
                self._retain(broker)
            case SessionTimedOut(broker, since_us):
                if self.silent_since.get(broker) != since_us:
                    return False
                self.now_us = max(self.now_us, entry.due_us)
                self.end_session(broker)
            case _:
                self.now_us = max(self.now_us, entry.due_us)
                return producing.take(self, body)
        return True

    def _is_blocked(self, link: Link, entry: Entry) -> bool:
        if self.paused and link.target in self.paused:
            return True
        if link.channel == CONTROL and link.target not in self.brokers:
            return True  # tried again until that broker answers, or is given up
        if self.blocked_links and link in self.blocked_links:
            return True
        if self.cuts and link.source != link.target and any(c.covers(link) for c in self.cuts):
            return True
        return bool(self.holds) and self._is_held(link, entry)

    def _is_held(self, link: Link, entry: Entry) -> bool:
        for hold in self.holds.values():
            if hold.drops or not self.is_matched(hold, link, entry.body):
                continue
            count = self.hold_counts.get(hold.name, 0)
            if hold.times is not None and count >= hold.times:
                continue
            self.hold_counts[hold.name] = count + 1
            self.ever_held |= {hold.name}
            if self.recorder is not None:
                self.recorder.blocked(self, entry)
            return True
        return False

    def _is_dropped(self, link: Link, entry: Entry) -> bool:
        for hold in self.holds.values():
            if hold.drops and self.is_matched(hold, link, entry.body):
                return True
        noise = self.spec.noise
        return (
            noise is not None
            and noise.loss_per_million > 0
            and link.channel == FETCH
            and link.source != link.target
            and noise.draw(entry.sequence) % 1_000_000 < noise.loss_per_million
        )

    def is_matched(self, hold: Hold, link: Link, body: object) -> bool:
        if not hold.matches(link, body):
            return False
        if hold.where is None:
            return True
        if hold.topic is not None:
            return hold.where(facts_of(body, TopicPartition(hold.topic, 0)))
        return hold.where(self._facts(link, body))

    def _facts(self, link: Link, body: object) -> Mapping[str, int | None]:
        """What conditions may ask of a message; an answer is of the round of its request."""
        facts = facts_of(body, self.partition)
        is_request = hasattr(body, "request")
        position = self.positions.get(link.source if is_request else link.target)
        if position is not None:
            facts["round"] = position.round
            facts.setdefault("fetch_offset", position.log_end_offset)
            facts.setdefault("leader_epoch", position.leader_epoch)
        return facts

    def asked_by(self, broker_id: int, body: object) -> int | None:
        """The number of the request that an answer on its way to this broker answers."""
        sequence = getattr(body, "sequence", None)
        for number, asked in self.asked.items():
            if asked.broker == broker_id and asked.effect.sequence == sequence:
                return number
        return None

    def unblock(self) -> None:
        """Looks again at all that waits: something was healed, released, resumed or started."""
        waiting, self.waiting = self.waiting, []
        self.blocked_links = set()
        for entry in waiting:
            again = entry._replace(due_us=max(self.now_us, entry.due_us))
            heappush(self.own if entry.link is None else self.messages, again)

    # --- sending ---------------------------------------------------------------------------------

    def send(self, source: int, target: int, channel: str, body: object) -> Entry:
        self.sequence += 1
        link = Link(source, target, channel)
        due_us = self.now_us + self.spec.latency_us
        if self.slowed:
            due_us += sum(us for where, us in self.slowed.items() if where.covers(link))
        noise = self.spec.noise
        if noise is not None and noise.jitter_us:
            due_us += noise.draw(self.sequence) % noise.jitter_us
        if self.slowed or noise is not None:
            due_us = max([due_us, *(e.due_us for e in self.messages if e.link == link)])
        entry = Entry(due_us, self.sequence, link, body)
        heappush(self.messages, entry)
        return entry

    def later(self, delay_us: int, body: object) -> int:
        """Something of a node's own, after a while; returns its number."""
        self.sequence += 1
        heappush(self.own, Entry(self.now_us + delay_us, self.sequence, None, body))
        return self.sequence

    def send_all(self, news: Told) -> None:
        for target, event in news:
            self.send(SERVICE, target, COORDINATION, event)

    # --- delivering ------------------------------------------------------------------------------

    def _deliver(self, entry: Entry, link: Link) -> None:
        if self.recorder is not None:
            self.recorder.event(self, entry)
        body = entry.body
        if link.target == SERVICE:
            self._serve(link.source, body)
        elif link.channel == CLIENTS:
            producing.deliver(self, link, body)
        elif link.target in self.brokers:
            if link.channel == COORDINATION and link.target in self.expired:
                if body != zk.SessionExpired():
                    return  # of the session that is over
                self.expired -= {link.target}
            if isinstance(body, ANSWERS):
                number = self.asked_by(link.target, body)
                if number is not None:
                    del self.asked[number]
                if isinstance(body, told.FetchResponded):
                    self._note_answer(link.target, body)
            self._tell_message(link, body)

    def deliver_now(self, entry: Entry) -> None:
        """A message that arrives whatever blocks its link."""
        assert entry.link is not None
        if entry.link.target not in self.paused:
            self._deliver(entry, entry.link)

    def _tell_message(self, link: Link, body: object) -> None:
        refusal = self.tell(link.target, body)
        if refusal is None and link.channel == CONTROL and isinstance(body, CONTROL_REQUESTS):
            self.obeyed |= {link.source}
        if refusal is not None and link.channel == CONTROL:
            epoch = getattr(body, "controller_epoch", 0)
            answer = told.ControlResponded(link.target, epoch, refusal)
            self.send(link.target, link.source, CONTROL, answer)
            self.refused |= {link.source}

    def tell(self, broker_id: int, event: object) -> Error | None:
        """One event for the core. Returns the error with which it refused a controller, if so."""
        if broker_id in self.shared_brokers:
            self.shared_brokers.discard(broker_id)
            self.brokers[broker_id] = self.brokers[broker_id].copy()
        self.steps += 1
        effects = step(self.brokers[broker_id], event, self.now_ms(broker_id))
        refusal = self.carry_out(broker_id, effects)
        if self.watch is not None and not isinstance(event, _OF_THE_DISK):
            # What the disk says is over with the step that asked for it.
            self.watch.told(self, broker_id, event, effects)
        return refusal

    def now_ms(self, broker_id: int) -> int:
        clock = self.spec.clocks.get(broker_id)
        return self.now_us // 1_000 if clock is None else clock.now_ms(self.now_us)

    def _serve(self, broker_id: int, request: object) -> None:
        """The service's side of a session."""
        if isinstance(request, Register):
            self.send_all(
                self.service.register(broker_id, unclean_shutdown=request.unclean_shutdown)
            )
        elif broker_id in self.service.sessions and broker_id not in self.expired:
            self.send_all(self.service.execute(broker_id, request))
            if self.recorder is not None and isinstance(request, zk.WriteLeaderAndIsr):
                self.recorder.state(self, request.partition)
        if self.watch is not None:
            self.watch.served(self)

    # --- effects ---------------------------------------------------------------------------------

    def carry_out(self, broker_id: int, effects: tuple[do.Effect, ...]) -> Error | None:
        refusal: Error | None = None
        for effect in effects:
            handler = _EFFECTS.get(type(effect))
            if handler is not None:
                handler(self, broker_id, effect)
            elif isinstance(effect, do.RespondControl):
                refusal = None if effect.error is Error.NONE else effect.error
            elif not isinstance(effect, do.Note | do.RespondCreateTopics):
                end_offset = self.own_disk(broker_id).carry_out(effect)
                if end_offset is not None and isinstance(effect, do.TruncateLog):
                    self.tell(broker_id, told.LogTruncated(effect.partition, end_offset))
        return refusal

    def own_disk(self, broker_id: int) -> Disk:
        """A disk to be changed: no other world's."""
        if broker_id in self.shared_disks:
            self.shared_disks.discard(broker_id)
            self.disks[broker_id] = self.disks[broker_id].copy()
        return self.disks[broker_id]

    def keep_retention(self, broker_id: int) -> None:
        interval_ms = self.spec.retention_check_ms
        if interval_ms is not None:
            self.later(interval_ms * 1_000, RetentionDue(broker_id, self.started_us[broker_id]))

    def _retain(self, broker_id: int) -> None:
        for tp, partition in tuple(self.brokers[broker_id].partitions.items()):
            if self.own_disk(broker_id).logs[tp].retain(partition.high_watermark):
                start_offset = self.disks[broker_id].logs[tp].start_offset
                self.tell(broker_id, told.LogStartAdvanced(tp, start_offset))
        self.keep_retention(broker_id)

    def _read_producers(self, broker_id: int, effect: do.ReadProducers) -> None:
        found = self.disks[broker_id].logs[effect.partition].producers
        self.tell(broker_id, told.ProducersRead(effect.partition, found))

    def _read_positions(self, broker_id: int, effect: do.ReadPositions) -> None:
        found = self.disks[broker_id].logs[effect.partition].positions
        self.tell(broker_id, told.PositionsRead(effect.partition, found))

    def _set_timer(self, broker_id: int, effect: do.SetTimer) -> None:
        clock = self.spec.clocks.get(broker_id)
        delay_us = effect.delay_ms * 1_000 if clock is None else clock.duration_us(effect.delay_ms)
        due = TimerDue(broker_id, effect.timer)
        self.timers[due] = self.later(delay_us, due)

    def _cancel_timer(self, broker_id: int, effect: do.CancelTimer) -> None:
        self.timers.pop(TimerDue(broker_id, effect.timer), None)

    def _coordinate(self, broker_id: int, effect: do.Coordinate) -> None:
        self.send(broker_id, SERVICE, COORDINATION, effect.request)

    def _send_control(self, broker_id: int, effect: do.SendControl) -> None:
        self.send(broker_id, effect.broker, CONTROL, effect.message)

    def _stop_sending(self, broker_id: int, effect: do.StopSendingControl) -> None:
        def is_stopped(entry: Entry) -> bool:
            link = entry.link
            return (
                link is not None
                and link.source == broker_id
                and link.channel == CONTROL
                and not isinstance(entry.body, told.ControlResponded)
                and (effect.brokers is None or link.target in effect.brokers)
            )

        self.remove(is_stopped)

    def remove(self, meant: Callable[[Entry], bool]) -> list[Entry]:
        """Takes messages out of the network; a link whose blocked message goes may be free."""
        gone = [entry for entry in (*self.messages, *self.waiting) if meant(entry)]
        if gone:
            self.messages = sorted(entry for entry in self.messages if not meant(entry))
            self.waiting = [entry for entry in self.waiting if not meant(entry)]
            self.blocked_links = {entry.link for entry in self.waiting if entry.link is not None}
        return gone

    # --- a follower's requests -------------------------------------------------------------------

    def _ask(
        self,
        broker_id: int,
        effect: do.SendFetch | do.SendOffsetForLeaderEpoch | do.SendListOffsets,
    ) -> None:
        leader = effect.fetcher.leader
        self.sequence += 1
        number = self.sequence
        self.asked[number] = Asked(broker_id, leader, effect, self.now_us)
        if leader not in self.brokers:
            self.fail_request(number)
            return
        request: object
        match effect:
            case do.SendFetch():
                self._note_request(broker_id, leader, effect)
                request = told.FetchRequested(
                    number, broker_id, effect.max_wait_ms, effect.min_bytes, effect.partitions
                )
            case do.SendOffsetForLeaderEpoch():
                request = told.OffsetForLeaderEpochRequested(number, effect.partitions)
            case do.SendListOffsets():
                request = told.ListOffsetsRequested(number, broker_id, effect.partitions)
        entry = self.send(broker_id, leader, FETCH, request)
        if self.recorder is not None and isinstance(request, told.FetchRequested):
            self.recorder.asked(self, entry)

    def _note_request(self, broker_id: int, leader: int, effect: do.SendFetch) -> None:
        for asked in effect.partitions:
            if asked.partition != self.partition:
                continue
            epoch = self.brokers[broker_id].partitions[asked.partition].leader_epoch
            key = (broker_id, leader, epoch)
            self.rounds[key] = self.rounds.get(key, 0) + 1
            before = self.positions.get(broker_id)
            mark = before.high_watermark if before else None
            self.positions[broker_id] = Position(
                leader, epoch, self.rounds[key], asked.fetch_offset, mark, self.now_us
            )

    def _note_answer(self, broker_id: int, body: told.FetchResponded) -> None:
        position = self.positions.get(broker_id)
        for result in body.results:
            if position and result.partition == self.partition and result.error is Error.NONE:
                self.positions[broker_id] = position._replace(high_watermark=result.high_watermark)

    def fail_request(self, number: int) -> None:
        """A follower's connection to its leader is broken: both ends see it, if they live."""
        asked = self.asked.pop(number)
        fetcher, sequence = asked.effect.fetcher, asked.effect.sequence
        if asked.broker in self.brokers:
            failed = told.FetcherRequestFailed(fetcher, sequence)
            self.send(asked.broker, asked.broker, FETCH, failed)
        self.remove(lambda entry: _is_exchange(entry, asked, number))
        if asked.leader in self.brokers:
            self.send(asked.broker, asked.leader, FETCH, told.RequestAbandoned(number))

    def _close_fetcher(self, broker_id: int, effect: do.CloseFetcher) -> None:
        for number, asked in tuple(self.asked.items()):
            if (asked.broker, asked.effect.fetcher) == (broker_id, effect.fetcher):
                del self.asked[number]
                self.remove(lambda e, a=asked, n=number: _is_exchange(e, a, n))  # type: ignore[misc]
                if asked.leader in self.brokers:
                    self.send(broker_id, asked.leader, FETCH, told.RequestAbandoned(number))

    def _respond(self, broker_id: int, effect: Any) -> None:
        asked = self.asked.get(effect.request)
        if asked is None:
            producing.respond(self, broker_id, effect)
            return
        fetcher, sequence = asked.effect.fetcher, asked.effect.sequence
        answer: object
        match effect:
            case do.RespondFetch(_, results):
                answer = told.FetchResponded(fetcher, sequence, self.read(broker_id, results))
            case do.RespondOffsetForLeaderEpoch(_, ends):
                answer = told.OffsetForLeaderEpochResponded(
                    fetcher,
                    sequence,
                    tuple(
                        told.EpochEndOffset(e.partition, e.error, e.end_offset, e.leader_epoch)
                        for e in ends
                    ),
                )
            case _:
                listed = (told.ListedOffset(o.partition, o.error, o.offset) for o in effect.results)
                answer = told.ListOffsetsResponded(fetcher, sequence, tuple(listed))
        if isinstance(answer, told.FetchResponded):
            self._note_mark(broker_id, asked.broker, answer)
        entry = self.send(broker_id, asked.broker, FETCH, answer)
        if self.recorder is not None and isinstance(answer, told.FetchResponded):
            self.recorder.answered(self, entry)

    def _note_mark(self, leader: int, follower: int, answer: told.FetchResponded) -> None:
        position = self.positions.get(follower)
        for result in answer.results:
            if not position or result.partition != self.partition or result.error is not Error.NONE:
                continue
            key = (position.leader_epoch, leader, follower)
            if result.high_watermark < self.marks_told.get(key, 0):
                self.marks_gone_back += 1
            self.marks_told[key] = result.high_watermark

    def read(
        self, broker_id: int, results: tuple[do.FetchedResult, ...]
    ) -> tuple[told.FetchResult, ...]:
        """The records of an answer: as much as fits, but never nothing where there is something."""
        budget = self.spec.settings.replica_fetch_response_max_bytes
        tells_start = self.spec.rules.fetch_version >= 5
        is_first = True
        answers = []
        for one in results:
            batches: tuple[Any, ...] = ()
            if one.records is not None:
                log = self.disks[broker_id].logs[one.partition]
                batches, budget = log.read(one.records, budget, at_least_one=is_first)
                is_first = is_first and not batches
            start_offset = one.log_start_offset if tells_start else -1
            answers.append(
                told.FetchResult(
                    one.partition, one.error, one.high_watermark, start_offset, batches
                )
            )
        return tuple(answers)

    def break_connection(self, link: Link, entry: Entry) -> None:
        """A message is lost: on TCP that is a broken connection."""
        if self.recorder is not None:
            self.recorder.dropped(self, entry)
        number = getattr(entry.body, "request", None) or self.asked_by(link.target, entry.body)
        if number in self.asked:
            self.fail_request(number)

    # --- sessions --------------------------------------------------------------------------------

    def hears(self, broker_id: int) -> bool:
        """Whether a broker and the service hear each other."""
        if broker_id not in self.brokers or broker_id in self.paused:
            return False
        there = Link(broker_id, SERVICE, COORDINATION)
        back = Link(SERVICE, broker_id, COORDINATION)
        return not any(cut.covers(there) or cut.covers(back) for cut in self.cuts)

    def look_at_sessions(self) -> None:
        """After something was cut, healed, paused or resumed: whose heartbeats come through?"""
        for broker_id in self.brokers:
            if self.hears(broker_id):
                if self.silent_since.pop(broker_id, None) is not None:
                    self.come_back(broker_id)
            elif broker_id not in self.silent_since:
                self.silent_since[broker_id] = self.now_us
                timeout_us = self.spec.session_timeout_ms * 1_000
                self.later(timeout_us, SessionTimedOut(broker_id, self.now_us))

    def end_session(self, broker_id: int) -> None:
        """What the session had asked, and what it was to be told, is gone with it."""
        if broker_id not in self.service.sessions:
            return
        self.expired |= {broker_id}
        self.remove(lambda entry: _is_coordination(entry, broker_id))
        self.send_all(self.service.expire(broker_id))

    def come_back(self, broker_id: int) -> None:
        if broker_id in self.expired:
            self.remove(lambda entry: _is_coordination(entry, broker_id))
            self.send(SERVICE, broker_id, COORDINATION, zk.SessionExpired())
            self.send_all(self.service.register(broker_id))


def _is_coordination(entry: Entry, broker_id: int) -> bool:
    link = entry.link
    return (
        link is not None
        and link.channel == COORDINATION
        and broker_id in (link.source, link.target)
        and not isinstance(entry.body, Register)
    )


def _is_exchange(entry: Entry, asked: Asked, number: int) -> bool:
    """Whether a message belongs to this request: the request itself, or its answer."""
    body = entry.body
    if entry.link is None or entry.link.channel != FETCH:
        return False
    if getattr(body, "request", None) == number:
        return not isinstance(body, told.RequestAbandoned)
    return (
        entry.link == Link(asked.leader, asked.broker, FETCH)
        and getattr(body, "fetcher", None) == asked.effect.fetcher
        and getattr(body, "sequence", None) == asked.effect.sequence
    )


_EFFECTS: Final[Mapping[type, Callable[[World, int, Any], None]]] = {
    do.ReadProducers: World._read_producers,
    do.ReadPositions: World._read_positions,
    do.SetTimer: World._set_timer,
    do.CancelTimer: World._cancel_timer,
    do.Coordinate: World._coordinate,
    do.SendControl: World._send_control,
    do.StopSendingControl: World._stop_sending,
    do.SendFetch: World._ask,
    do.SendOffsetForLeaderEpoch: World._ask,
    do.SendListOffsets: World._ask,
    do.CloseFetcher: World._close_fetcher,
    do.RespondFetch: World._respond,
    do.RespondOffsetForLeaderEpoch: World._respond,
    do.RespondListOffsets: World._respond,
    do.RespondProduce: producing.respond,
    do.RespondOffsetCommit: producing.respond,
    do.RespondOffsetFetch: producing.respond,
}
_HOLDERS: Final = (
    "asked",
    "blocked_links",
    "brokers",
    "clients",
    "disks",
    "hold_counts",
    "holds",
    "marks_told",
    "messages",
    "own",
    "positions",
    "rounds",
    "service",
    "silent_since",
    "slowed",
    "started_us",
    "timers",
    "waiting",
)
_SHARED: Final = (
    "cuts",
    "ever_held",
    "expired",
    "marks_gone_back",
    "now_us",
    "partition",
    "paused",
    "recorder",
    "refused",
    "obeyed",
    "sequence",
    "spec",
    "steps",
)


def start_world(spec: WorldSpec, watch: Callable[[World], None] = lambda world: None) -> World:
    """Brokers up, the first of them controller, the topic there: nothing has been done yet.

    `watch` may set a recorder, before anything happens.
    """
    world = World(spec)
    watch(world)
    for broker_id in spec.brokers:
        start_broker(world, broker_id)
        while world.service.controller is None and world.advance():
            pass
    while len(world.service.sessions) < len(spec.brokers) and world.advance():
        pass
    world.service.add_topic(spec.topic, spec.configuration)
    if spec.offsets is not None:
        world.service.add_topic(OFFSETS_TOPIC, spec.offsets)
    world.send_all(world.service.topics_changed())
    return world


def start_broker(world: World, broker_id: int) -> None:
    """A broker process begins with what is on its disk."""
    world.disks.setdefault(broker_id, Disk())
    disk = world.own_disk(broker_id)
    spec = world.spec
    world.shared_brokers.discard(broker_id)
    world.brokers[broker_id] = start(broker_id, spec.rules, spec.settings, disk.stored())
    world.carry_out(broker_id, begin(world.brokers[broker_id]))
    unclean = spec.rules.eligible_leader_replicas and not disk.was_clean
    disk.was_clean = False
    world.send(broker_id, SERVICE, COORDINATION, Register(unclean))
    world.started_us[broker_id] = world.now_us
    if world.watch is not None:
        world.watch.started(world, broker_id)
    world.keep_retention(broker_id)
    world.look_at_sessions()
    world.unblock()
