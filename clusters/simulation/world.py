"""The world: brokers of the very core that the live server runs, in virtual time, one event a step.

`advance` takes the next event that is due, tells the core of it, and carries out the effects in
their order. What is due when follows from the spec and from what was done to the world, and from
nothing else: the same doings give the same events. A world can be copied at any moment, and the
copy goes another way. No rule of replication is here, and no chance but the spec's `noise`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Final

from clusters.broker.replication import coordination as zk
from clusters.broker.replication import effects as do
from clusters.broker.replication import messages as told
from clusters.broker.replication.broker import Broker, start
from clusters.broker.replication.committed import OFFSETS_TOPIC
from clusters.broker.replication.errors import Error
from clusters.broker.replication.model import TopicPartition
from clusters.broker.replication.step import begin, step
from clusters.simulation import fetching, producing, sessions
from clusters.simulation.clients import Clients
from clusters.simulation.disk import Disk
from clusters.simulation.network import (
    CLIENTS,
    CONTROL,
    COORDINATION,
    FETCH,
    SERVICE,
    Cut,
    Entry,
    Hold,
    Link,
    facts_of,
)
from clusters.simulation.parts import (
    Asked,
    Position,
    Recorder,
    Register,
    RequestTimedOut,
    RetentionDue,
    SessionTimedOut,
    TimerDue,
    Watch,
    WorldSpec,
)
from clusters.simulation.service import Service, Told

ALL_TIME: Final = 1 << 62
_OF_THE_DISK: Final = (told.LogTruncated, told.ProducersRead, told.PositionsRead)
CONTROL_REQUESTS: Final = (
    told.LeaderAndIsrRequested,
    told.StopReplicaRequested,
    told.UpdateMetadataRequested,
)


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
        "fenced",
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
        self.fenced: frozenset[int] = frozenset()  # followers whose last answer said so
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
                fetching.expect_time_out(self, entry)
            return False
        self.now_us = max(self.now_us, entry.due_us)
        if (self.holds or self.spec.noise) and self._is_dropped(link, entry):
            fetching.break_connection(self, link, entry)
            return False
        self._deliver(entry, link)
        return True

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
                fetching.fail_request(self, number)
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
                sessions.end_session(self, broker)
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
            if isinstance(body, fetching.ANSWERS):
                number = fetching.asked_by(self, link.target, body)
                if number is not None:
                    del self.asked[number]
                fetching.note_answer(self, link.target, body)
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

    def _respond(self, broker_id: int, effect: Any) -> None:
        """To a follower, or to a client."""
        answer = fetching.respond if effect.request in self.asked else producing.respond
        answer(self, broker_id, effect)

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


_EFFECTS: Final[Mapping[type, Callable[[World, int, Any], None]]] = {
    do.ReadProducers: World._read_producers,
    do.ReadPositions: World._read_positions,
    do.SetTimer: World._set_timer,
    do.CancelTimer: World._cancel_timer,
    do.Coordinate: World._coordinate,
    do.SendControl: World._send_control,
    do.StopSendingControl: World._stop_sending,
    do.SendFetch: fetching.ask,
    do.SendOffsetForLeaderEpoch: fetching.ask,
    do.SendListOffsets: fetching.ask,
    do.CloseFetcher: fetching.close_fetcher,
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
    "fenced",
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
    sessions.look_at_sessions(world)
    world.unblock()
