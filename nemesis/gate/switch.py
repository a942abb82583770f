"""The gate's state and what may be done to it: links, rules, holds, cuts, deaths.

Knows sockets only through its connections, and the harness only through `emit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, cast

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.gate.connection import Connection
from neaptide.nemesis.gate.conversation import Conversation
from neaptide.nemesis.gate.events import (
    PHASES,
    Event,
    epoch_answered_event,
    hold_event,
    message_fields,
    round_event,
)
from neaptide.nemesis.gate.exchange import Exchange
from neaptide.nemesis.gate.half_frames import HalfFrames
from neaptide.nemesis.gate.lane import Hold, HoldEnd
from neaptide.nemesis.gate.model import (
    Cut,
    Endpoint,
    InFlight,
    LinkSpec,
    Purpose,
    Rule,
    Subscription,
)
from neaptide.nemesis.gate.network import Network
from neaptide.nemesis.gate.recorder import Recorder
from neaptide.nemesis.gate.rounds import RoundCounter
from neaptide.nemesis.gate.rules import RuleBook
from neaptide.nemesis.gate.said import EpochNews, Message, Round
from neaptide.nemesis.gate.side import Side

BURY_DEADLINE_S: Final = 30.0
_REASON_MAX: Final = 200  # of what may repeat a stranger's bytes


class Switch:
    """Everything that the connections of a gate share."""

    def __init__(
        self,
        clock_ns: Callable[[], int],
        emit: Callable[[Event], None],
        recorder: Recorder,
    ) -> None:
        self.clock_ns = clock_ns
        self.network = Network()
        self.topic_names: dict[str, str] = {}
        self._emit = emit
        self._recorder = recorder
        self._rules = RuleBook()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._counter = RoundCounter()
        self._connections: dict[int, Connection] = {}
        self._connection_count = 0
        self._holds: dict[int, tuple[Hold, Connection]] = {}
        self._hold_count = 0
        self._unread: set[tuple[int, int]] = set()
        self._half_frames: HalfFrames[Side] = HalfFrames()

    # What the harness asks for.

    def install(self, rule: Rule) -> None:
        self._rules = self._rules.install(rule)

    def remove(self, rule_id: str) -> None:
        """The rule takes no more messages; what it holds stays held."""
        self._rules = self._rules.remove(rule_id)

    def release(self, rule_id: str, *, keep: bool = False) -> int:
        """Let go what a rule holds, in the order in which it came; the rule is removed."""
        return self._end_holds(rule_id, "released", keep=keep)

    def discard(self, rule_id: str, *, keep: bool = False) -> int:
        """Throw away what a rule holds, and so close its connections; the rule is removed."""
        return self._end_holds(rule_id, "discarded", keep=keep)

    def cut(self, cut: Cut) -> None:
        self._change_network(self.network.cut(cut))

    def heal(self, cut: Cut | None, *, reset: bool = False) -> None:
        """Undo a cut (None: all); with `reset`, connections that it had stopped are closed."""
        before = self.network
        after = before.heal(cut)
        if reset:
            for connection in self._all():
                if _is_cut(connection, before) and not _is_cut(connection, after):
                    connection.destroy("discarded")
        self._change_network(after)

    def slow(self, where: Cut, delay_ms: int) -> None:
        self._change_network(self.network.slow(where, delay_ms))

    def sever(self, broker: int) -> None:
        """From now on no byte passes to or from a broker."""
        self._change_network(self.network.sever(broker))

    async def bury(self, broker: int, in_flight: InFlight) -> None:
        """A severed broker is dead: throw away or deliver what it had sent, and close."""
        if not self.network.is_severed(broker):
            raise UsageError(f"broker {broker} is not severed: sever it before it is killed")
        touching = [each for each in self._all() if each.touches(broker)]
        if in_flight == "discarded":
            for connection in touching:
                connection.destroy("discarded")
            return
        try:
            async with asyncio.timeout(BURY_DEADLINE_S):
                await asyncio.gather(*(each.deliver(broker) for each in touching))
        except TimeoutError:
            raise UsageError(
                f"what broker {broker} had sent was not all delivered in {BURY_DEADLINE_S:.0f} s:"
                " is it dead, and do its peers read?"
            ) from None

    def revive(self, broker: int) -> None:
        """A broker that was severed may be reached again."""
        self._change_network(self.network.revive(broker))

    def subscribe(self, subscription: Subscription) -> None:
        self._subscriptions = (*self._subscriptions_but(subscription.id), subscription)

    def unsubscribe(self, subscription_id: str) -> None:
        self._subscriptions = self._subscriptions_but(subscription_id)

    # What the connections report.

    def accept(self, link: LinkSpec) -> Connection | None:
        """A connection for a socket that was accepted; None: refuse it."""
        if link.target is None or self.network.is_severed(link.source, link.destination):
            return None
        self._connection_count += 1
        connection = Connection(self._connection_count, link, self)
        self._connections[connection.number] = connection
        return connection

    def new_exchange(self, link: LinkSpec) -> Exchange:
        return Exchange(
            cast(int, link.destination),
            self._counter,
            self.topic_names,
            self._note_unread,
            self._note_controlled,
            shared=link.shared,
            others=self.new_conversation(None, link.destination) if link.reads else None,
        )

    def new_conversation(self, source: Endpoint | None, destination: Endpoint) -> Conversation:
        return Conversation(source, destination, self.topic_names, self._note_unread)

    def judge(self, message: Message, purpose: Purpose) -> Rule | None:
        """A message has come: report its rounds, and say which rule takes it."""
        self._report(message.rounds, PHASES[message.message])
        if not self._rules.installed:
            return None
        self._rules, rule = self._rules.judge(replace(message.facts(), purpose=purpose))
        return rule

    def hold(self, rule: Rule, message: Message, connection: Connection) -> Hold:
        self._hold_count += 1
        hold = Hold(self._hold_count, rule.id, message, self.clock_ns())
        self._holds[hold.id] = (hold, connection)
        self._emit(hold_event("hold_started", hold, hold.started_ns))
        return hold

    def end_hold(self, hold: Hold, how: HoldEnd, closed_by: Endpoint | None = None) -> None:
        if self._holds.pop(hold.id, None) is None:
            return
        now_ns = self.clock_ns()
        hold.ended, hold.closed_by = how, closed_by
        hold.message.held_ns = now_ns - hold.started_ns
        self._emit(hold_event("hold_ended", hold, now_ns))

    def sender_closed(self, holds: Iterable[Hold | None]) -> None:
        for hold in holds:
            if hold is not None and hold.ended is None:
                hold.sender_closed = True
                self._emit(hold_event("hold_sender_closed", hold, self.clock_ns()))

    def hit(self, how: str, rule: Rule, message: Message) -> None:
        """A rule has done what it does to a message, once and for all."""
        event = {"event": how, "at_ns": self.clock_ns(), "rule": rule.id}
        self._emit(event | message_fields(message))

    def failed(self, rule: Rule, why: str) -> None:
        self._emit({"event": "rule_failed", "at_ns": self.clock_ns(), "rule": rule.id, "why": why})

    def left(self, message: Message) -> None:
        """A message is on its way to its destination."""
        self._recorder.add_message(message, self.clock_ns())
        if message.message == "response":
            self._report(message.rounds, "delivered")
            self._report_epochs(message)
            self.finished(message)

    def finished(self, message: Message) -> None:
        """A message has come as far as it will, and so have its rounds."""
        self._recorder.add_message(message, self.clock_ns())
        self.unanswered(message.rounds)

    def unanswered(self, rounds: Iterable[Round]) -> None:
        now_ns = self.clock_ns()
        for entry in rounds:
            self._recorder.add(entry, now_ns)

    def learned(self, news: EpochNews) -> None:
        fresh = self._counter.learn(news.broker, news.states)
        for (topic, partition), state in fresh.items():
            self._emit(
                {
                    "event": "epoch_learned",
                    "at_ns": self.clock_ns(),
                    "broker": news.broker,
                    "topic": topic,
                    "partition": partition,
                    "leader": state.leader,
                    "leader_epoch": state.leader_epoch,
                }
            )

    def connection_opened(self, connection: Connection) -> None:
        self._emit(self._about(connection, "connection_opened"))

    def connection_closed(self, connection: Connection) -> None:
        self._connections.pop(connection.number, None)
        self._emit(self._about(connection, "connection_closed"))

    def malformed(self, connection: Connection, reason: str) -> None:
        self._emit(self._about(connection, "malformed") | {"reason": reason[:_REASON_MAX]})

    def keep_half_frame(self, side: Side) -> None:
        """So much of an unfinished message is here; where all are too many the largest goes on."""
        largest = self._half_frames.keep(side, side.splitter.kept_bytes)
        if largest is not None:
            self._half_frames.keep(largest, 0)
            largest.connection.pass_unread(largest)

    def forget_half_frame(self, side: Side) -> None:
        self._half_frames.keep(side, 0)

    def close(self) -> None:
        """Close every connection at once and write what was recorded."""
        for connection in self._all():
            connection.destroy("discarded")
            if connection.exchange is not None:
                self.unanswered(connection.exchange.unanswered())
        self._recorder.roll()

    def state(self) -> Event:
        """What is in force, for whoever asks."""
        return {
            "rules": [
                {"rule": entry.rule.id, "taken": entry.taken} for entry in self._rules.installed
            ],
            "holds": [
                hold_event("hold", hold, self.clock_ns()) for hold, _ in self._holds.values()
            ],
            "connections": [self._about(each, "connection") for each in self._all()],
            "severed": list(self.network.severed),
        }

    def _subscriptions_but(self, subscription_id: str) -> tuple[Subscription, ...]:
        return tuple(each for each in self._subscriptions if each.id != subscription_id)

    def _end_holds(self, rule_id: str, how: HoldEnd, *, keep: bool) -> int:
        if not keep:
            self.remove(rule_id)
        held = [pair for pair in self._holds.values() if pair[0].rule == rule_id]
        for hold, connection in held:
            self.end_hold(hold, how)
            if how == "discarded":
                connection.destroy("discarded")
            else:
                connection.pump()
        return len(held)

    def _change_network(self, network: Network) -> None:
        self.network = network
        for connection in self._all():
            connection.refresh()

    def _all(self) -> list[Connection]:
        return list(self._connections.values())

    def _report(self, rounds: Iterable[Round], phase: str) -> None:
        if not self._subscriptions:
            return
        now_ns = self.clock_ns()
        for entry in rounds:
            if self._is_subscribed(entry.follower, entry.leader, entry.topic, entry.partition):
                self._emit(round_event(entry, phase, now_ns))

    def _report_epochs(self, message: Message) -> None:
        """What a follower receives about epochs. Where the sender is not known it is a client."""
        follower, leader = message.destination, message.source
        if not isinstance(follower, int) or not isinstance(leader, int):
            return
        for entry in message.epochs:
            if self._is_subscribed(follower, leader, entry.topic, entry.partition):
                self._emit(epoch_answered_event(message, entry, self.clock_ns()))

    def _is_subscribed(self, follower: int, leader: int, topic: str, partition: int) -> bool:
        return any(s.covers(follower, leader, topic, partition) for s in self._subscriptions)

    def _note_unread(self, api_key: int, api_version: int) -> None:
        if (api_key, api_version) not in self._unread:
            self._unread.add((api_key, api_version))
            self._emit(
                {
                    "event": "unread_version",
                    "at_ns": self.clock_ns(),
                    "api_key": api_key,
                    "api_version": api_version,
                }
            )

    def _note_controlled(self, controller: int | None, broker: int, error: int) -> None:
        self._emit(
            {
                "event": "controller_answered",
                "at_ns": self.clock_ns(),
                "controller": controller,
                "broker": broker,
                "error": error,
            }
        )

    def _about(self, connection: Connection, event: str) -> Event:
        return {
            "event": event,
            "at_ns": self.clock_ns(),
            "connection": connection.number,
            "link": connection.link.name,
            "source": connection.source,
            "destination": connection.destination,
        }


def _is_cut(connection: Connection, network: Network) -> bool:
    ends, why = (connection.source, connection.destination), connection.purpose
    return network.is_cut(*ends, why) or network.is_cut(ends[1], ends[0], why)
