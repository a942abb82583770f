"""The world: brokers of the very core that the live server runs, in virtual time, one event a step.

`advance` takes the next event that is due, gives it to the core, and carries out the effects in
their order. What is due when follows from the spec and from what was done to the world, and from
nothing else: the same doings give the same events. A world can be copied at any moment, and the
copy goes another way. No rule of replication is here, and no chance but the spec's `noise`.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from neaptide.clusters.broker.replication.broker import Broker, start
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.interface import coordination_service, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.step import begin, step
from neaptide.clusters.simulation import (
    altering,
    blocking,
    controlling,
    fetching,
    producing,
    retaining,
    sessions,
)
from neaptide.clusters.simulation.clients import Clients
from neaptide.clusters.simulation.disk import Disk
from neaptide.clusters.simulation.effect_handlers import carry_out
from neaptide.clusters.simulation.network import (
    ALTER,
    CLIENTS,
    CONTROL,
    CONTROL_ANSWERS,
    COORDINATION,
    FETCH,
    SERVICE,
    ControlAnswered,
    Cut,
    Entry,
    Hold,
    Link,
)
from neaptide.clusters.simulation.parts import (
    Asked,
    FetchPosition,
    Recorder,
    Register,
    RequestTimedOut,
    RetentionDue,
    SessionTimedOut,
    TimerDue,
    Watch,
    WorldSpec,
)
from neaptide.clusters.simulation.service import Notifications, Service

ALL_TIME: Final = 1 << 62
_OF_THE_DISK: Final = (events.LogTruncated, events.ProducersRead, events.CommittedOffsetsRead)


class World:
    """Make one with `start_world`; change it with the functions of `faults` and `producing`."""

    __slots__ = (
        "altering",
        "asked",
        "blocked_links",
        "brokers",
        "clients",
        "cuts",
        "deleted",
        "disks",
        "ever_held",
        "expired",
        "fenced",
        "held_by",
        "hold_counts",
        "holds",
        "marks_answered",
        "marks_gone_back",
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
        "unanswered",
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
        self.altering: dict[int, altering.Altering] = {}  # by broker; replaced, never changed
        self.clients = Clients(spec.producer)
        self.paused: frozenset[int] = frozenset()
        self.cuts: frozenset[Cut] = frozenset()
        self.holds: dict[str, Hold] = {}
        self.hold_counts: dict[str, int] = {}
        self.held_by: dict[int, str] = {}  # messages, by rules that take so many only
        self.ever_held: frozenset[str] = frozenset()
        self.silent_since: dict[int, int] = {}  # brokers that do not reach the service
        self.expired: frozenset[int] = frozenset()  # … whose session is over; they do not know
        self.refused: frozenset[int] = frozenset()  # controllers that were refused for a later one
        self.obeyed: frozenset[int] = frozenset()  # controllers that were not
        self.fenced: frozenset[int] = frozenset()  # followers whose last answer said so
        self.unanswered: dict[Link, Entry] = {}  # controllers' requests, where a rule is about it
        self.slowed: dict[Cut, int] = {}  # links that take so much longer, in µs
        self.positions: dict[int, FetchPosition] = {}
        self.rounds: dict[tuple[int, int, int], int] = {}
        # The high watermark that a leader last answered a follower in an epoch; how often it was
        # less than before. By (epoch, leader, follower).
        self.marks_answered: dict[tuple[int, int, int], int] = {}
        self.marks_gone_back = 0
        # What retention was allowed to delete: all before this, on one broker at least.
        self.deleted: dict[TopicPartition, int] = {}
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
        if blocking.is_blocked(self, link, entry):
            self.waiting.append(entry)
            self.blocked_links.add(link)
            if link.channel == FETCH:
                fetching.expect_time_out(self, entry)
            return False
        self.now_us = max(self.now_us, entry.due_us)
        if (self.holds or self.spec.noise) and blocking.is_dropped(self, link, entry):
            if link.channel in (CONTROL, CONTROL_ANSWERS):
                controlling.lose(self, entry)
            elif link.channel == ALTER:
                altering.lose(self, entry)
            else:
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
                self.handle(broker, events.TimerFired(timer))
                return True
            case RequestTimedOut(number):
                return fetching.take_time_out(self, number, entry.due_us)
            case RetentionDue(broker, started_us):
                if self.started_us.get(broker) != started_us:
                    return False
                if broker in self.paused:
                    self.waiting.append(entry)
                    return False
                self.now_us = max(self.now_us, entry.due_us)
                retaining.retain(self, broker)
            case SessionTimedOut(broker, since_us):
                if self.silent_since.get(broker) != since_us:
                    return False
                self.now_us = max(self.now_us, entry.due_us)
                sessions.end_session(self, broker)
            case controlling.ControlRetry() | controlling.ControlUnanswered():
                return controlling.take(self, body, entry.due_us)
            case altering.AlterationTimedOut():
                return altering.time_out(self, body, entry.due_us)
            case _:
                self.now_us = max(self.now_us, entry.due_us)
                return producing.take(self, body)
        return True

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

    def send_all(self, news: Notifications) -> None:
        for target, event in news:
            self.send(SERVICE, target, COORDINATION, event)

    def remove(self, meant: Callable[[Entry], bool]) -> list[Entry]:
        """Takes messages out of the network; a link whose blocked message goes may be free."""
        gone = [entry for entry in (*self.messages, *self.waiting) if meant(entry)]
        if gone:
            self.messages = sorted(entry for entry in self.messages if not meant(entry))
            self.waiting = [entry for entry in self.waiting if not meant(entry)]
            self.blocked_links = {entry.link for entry in self.waiting if entry.link is not None}
        return gone

    # --- delivering ------------------------------------------------------------------------------

    def _deliver(self, entry: Entry, link: Link) -> None:
        if self.recorder is not None:
            self.recorder.event(self, entry)
        body = entry.body
        if link.target == SERVICE:
            self._serve(link.source, body)
        elif link.channel == CLIENTS:
            producing.deliver(self, link, body)
        elif isinstance(body, ControlAnswered):
            controlling.take_answer(self, body)
        elif link.target in self.brokers:
            if link.channel == COORDINATION and link.target in self.expired:
                if body != coordination_service.SessionExpired():
                    return  # of the session that is over
                self.expired -= {link.target}
            if isinstance(body, fetching.ANSWERS):
                number = fetching.asked_by(self, link.target, body)
                if number is not None:
                    del self.asked[number]
                fetching.note_answer(self, link.target, body)
            elif isinstance(body, events.AlterPartitionResponded):
                altering.arrived(self, link.target, body)
            requests = controlling.answered_by(self, entry, link)
            for request, error in zip(requests, self.handle(link.target, body), strict=False):
                controlling.answer(self, request, error)

    def deliver_now(self, entry: Entry) -> None:
        """A message that arrives whatever blocks its link."""
        assert entry.link is not None
        if entry.link.target not in self.paused:
            self._deliver(entry, entry.link)

    def handle(self, broker_id: int, event: object) -> tuple[Error, ...]:
        """One event for the core. Returns what it answers to controllers, in their order."""
        if broker_id in self.shared_brokers:
            self.shared_brokers.discard(broker_id)
            self.brokers[broker_id] = self.brokers[broker_id].copy()
        self.steps += 1
        effects = step(self.brokers[broker_id], event, self.now_ms(broker_id))
        answers = carry_out(self, broker_id, effects)
        has_halted = broker_id not in self.brokers
        if self.watch is not None and not has_halted and not isinstance(event, _OF_THE_DISK):
            # What the disk says is over with the step that asked for it.
            self.watch.handled(self, broker_id, event, effects)
        return answers

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
            if self.recorder is not None and isinstance(
                request, coordination_service.WriteLeaderAndIsr
            ):
                self.recorder.state(self, request.partition)
        if self.watch is not None:
            self.watch.served(self)

    def own_disk(self, broker_id: int) -> Disk:
        """A disk to be changed: no other world's."""
        if broker_id in self.shared_disks:
            self.shared_disks.discard(broker_id)
            self.disks[broker_id] = self.disks[broker_id].copy()
        return self.disks[broker_id]


_HOLDERS: Final = (
    "asked",
    "blocked_links",
    "brokers",
    "clients",
    "deleted",
    "disks",
    "hold_counts",
    "holds",
    "marks_answered",
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
    "altering",
    "cuts",
    "ever_held",
    "expired",
    "fenced",
    "held_by",
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
    "unanswered",
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
    carry_out(world, broker_id, begin(world.brokers[broker_id]))
    unclean = spec.rules.eligible_leader_replicas and not disk.was_clean
    disk.was_clean = False
    world.send(broker_id, SERVICE, COORDINATION, Register(unclean))
    world.started_us[broker_id] = world.now_us
    if world.watch is not None:
        world.watch.started(world, broker_id)
    retaining.look_again(world, broker_id)
    sessions.look_at_sessions(world)
    world.unblock()
