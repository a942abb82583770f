"""A connection through the gate: an accepted socket, a dialled one, and a lane each way.

The near side is who connected (the link's source), the far side is where the listener leads to
(its destination). Client and coordination links copy bytes; replication links read frames.
Kafka's clients never half-close: an end of stream means that its sender is gone. What it sent
before is still delivered, in order; what is on its way to it is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from neaptide.nemesis.gate import answers
from neaptide.nemesis.gate.apis import APIS, error_number
from neaptide.nemesis.gate.conversation import Conversation
from neaptide.nemesis.gate.exchange import Exchange, Introduction
from neaptide.nemesis.gate.fetch_answer import FetchAnswer
from neaptide.nemesis.gate.frames import MalformedStreamError
from neaptide.nemesis.gate.lane import Hold, HoldEnd, Lane, Parcel
from neaptide.nemesis.gate.model import CLIENT, Endpoint, LinkSpec, Purpose, Rule
from neaptide.nemesis.gate.network import Network
from neaptide.nemesis.gate.said import EpochNews, Message, Round, Wire
from neaptide.nemesis.gate.side import Passing, Side

Reading = Exchange | Introduction | Conversation
# A Fetch response of which more than that is still to come passes as it comes.
PASSING_BYTES: Final = 64 * 1024


class Switchboard(Protocol):
    """What is so of the gate as a whole, and what it keeps of its connections."""

    clock_ns: Callable[[], int]
    network: Network

    def new_exchange(self, link: LinkSpec) -> Exchange: ...
    def new_conversation(self, source: Endpoint | None, destination: Endpoint) -> Conversation: ...
    def connection_opened(self, connection: Connection) -> None: ...
    def connection_closed(self, connection: Connection) -> None: ...
    def malformed(self, connection: Connection, reason: str) -> None: ...
    def keep_half_frame(self, side: Side) -> None: ...
    def forget_half_frame(self, side: Side) -> None: ...
    def judge(self, message: Message, purpose: Purpose) -> Rule | None: ...
    def hit(self, how: str, rule: Rule, message: Message) -> None: ...
    def failed(self, rule: Rule, why: str) -> None: ...
    def hold(self, rule: Rule, message: Message, connection: Connection) -> Hold: ...
    def end_hold(self, hold: Hold, how: HoldEnd, closed_by: Endpoint | None = None) -> None: ...
    def sender_closed(self, holds: Iterable[Hold | None]) -> None: ...
    def learned(self, news: EpochNews) -> None: ...
    def left(self, message: Message) -> None: ...
    def finished(self, message: Message) -> None: ...
    def unanswered(self, rounds: Iterable[Round]) -> None: ...


class Connection:
    """Both sides, both lanes, and what the gate knows of who talks to whom."""

    def __init__(self, number: int, link: LinkSpec, switch: Switchboard) -> None:
        self.number = number
        self.link = link
        self._switch = switch
        self.near, self.far = Side(self), Side(self)
        self.near.lane = self._lane(self.far)
        self.far.lane = self._lane(self.near)
        self.exchange: Reading | None = None
        if link.purpose == "replication":
            self.exchange = switch.new_exchange(link)
        elif link.reads and (link.source is None or link.purpose == "client"):
            self.exchange = switch.new_conversation(link.source, link.destination)
        elif link.source is None:
            self.exchange = Introduction()
        self.closed = asyncio.Event()
        self._joined = False
        self._delivering: Side | None = None  # a dead broker's side, until its last byte is out
        self._is_late = False  # a request went on that was held when its sender had gone

    def _lane(self, output: Side) -> Lane:
        return Lane(self._switch.clock_ns, output.write, self._parcel_left, self._drained)

    @property
    def source(self) -> Endpoint | None:
        if isinstance(self.exchange, Exchange) and self.exchange.is_client:
            return CLIENT
        return self.link.source if self.exchange is None else self.exchange.source

    @property
    def purpose(self) -> Purpose:
        """That of its link, but for clients and for who speaks to a controller there."""
        if isinstance(self.exchange, Exchange) and self.exchange.is_coordination:
            return "coordination"
        return "client" if self.source == CLIENT else self.link.purpose

    @property
    def destination(self) -> Endpoint:
        return self.link.destination

    def _ends(self, side: Side) -> tuple[Endpoint | None, Endpoint | None]:
        """From where to where the lane of a side leads."""
        if side is self.near:
            return self.source, self.destination
        return self.destination, self.source

    def touches(self, broker: int) -> bool:
        return broker in (self.source, self.destination)

    def joined(self, side: Side) -> None:
        """A socket is there. Nothing is read before both are.

        The other end may have been the reason to close both while this one was being dialled.
        """
        if side.gone:
            side.abort()
            return
        if self.near.transport is None or self.far.transport is None:
            side.read(False)
            return
        self._joined = True
        self._switch.connection_opened(self)
        self.refresh()

    def refresh(self) -> None:
        """Follow the network's state: which lanes are open, how slow they are, what is read."""
        if not self._joined:  # both lanes are blocked until there is somewhere to write to
            return
        network, why = self._switch.network, self.purpose
        severed = network.is_severed(self.source, self.destination)
        for side in (self.near, self.far):
            if side is self._delivering:
                continue
            source, destination = self._ends(side)
            side.lane.blocked = severed or network.is_cut(source, destination, why)
            side.lane.delay_ns = network.delay_ms(source, destination, why) * 1_000_000
        self.near.lane.pump()
        self.far.lane.pump()
        self.refresh_reading()

    def refresh_reading(self) -> None:
        for side, peer in ((self.near, self.far), (self.far, self.near)):
            side.read(not (side.lane.blocked or side.lane.full or peer.write_paused))

    def received(self, side: Side, data: memoryview) -> None:
        if self.exchange is not None:
            self._received_frames(side, self.exchange, data)
        elif not self.peer(side).gone:
            self._forward(side, data)
            if side.lane.queue:
                self.refresh_reading()

    def peer(self, side: Side) -> Side:
        return self.far if side is self.near else self.near

    def _forward(self, side: Side, data: memoryview) -> None:
        """Let bytes go that are no message: at once, or copied, behind all that waits."""
        if side.lane.clear:
            self.peer(side).write(data)
        else:
            side.lane.push(Parcel(bytes(data)))

    def _received_frames(self, side: Side, exchange: Reading, data: memoryview) -> None:
        if side.passing is not None:
            size = side.passing.missing_bytes
            part, data = data[:size], data[size:]
            if not self._pass(side, side.passing, part):
                return
        try:
            frames = side.splitter.feed(bytes(data)) if data else []
        except MalformedStreamError as error:
            self._switch.malformed(self, str(error))
            self.destroy("discarded")
            return
        for frame in frames:
            message = self._read(side, exchange, frame)
            if not self._push(side, Parcel(frame, message)):
                return
        if side is self.far and not self._begin_to_pass(side, exchange):
            return
        self._switch.keep_half_frame(side)
        self._give_due_answers()
        if side.lane.queue:
            self.refresh_reading()

    def _begin_to_pass(self, side: Side, exchange: Reading) -> bool:
        """Let a large Fetch response go on as it comes; False: the connection is no more.

        A receiver does nothing before it has all of a message. So its last part stands for it: when
        that is here the message is, it is what rules take, and what is held holds the message.
        """
        splitter = side.splitter
        if not isinstance(exchange, Exchange) or splitter.missing_bytes <= PASSING_BYTES:
            return True
        answer = exchange.passing(splitter.begun)
        if answer is None:
            return True
        return self._let_pass(side, (exchange, answer))

    def _let_pass(self, side: Side, read: tuple[Exchange, FetchAnswer] | None) -> bool:
        size = side.splitter.partial_bytes + side.splitter.missing_bytes
        begun = side.splitter.let_go()
        side.passing = Passing(begun, size, read)
        return self._pass(side, side.passing, memoryview(begun))

    def pass_unread(self, side: Side) -> None:
        """No more of an unfinished message can be kept: what is here goes on, and what comes."""
        self._switch.malformed(self, "too much is kept of messages that are not whole")
        self._let_pass(side, None)

    def _pass(self, side: Side, passing: Passing, part: memoryview) -> bool:
        """One part more; False: the connection is no more."""
        message = None
        passing.missing_bytes -= len(part)
        try:
            if passing.answer is not None:
                passing.answer.feed(part)
            if passing.missing_bytes == 0:
                side.passing = None
                message = passing.message(self._switch.clock_ns())
        except MalformedStreamError as error:
            passing.answer = None
            self._switch.malformed(self, str(error))
        if message is not None or self.peer(side).gone:
            return self._push(side, Parcel(bytes(part), message))
        self._forward(side, part)
        return True

    def _read(self, side: Side, exchange: Reading, frame: bytes) -> Message | None:
        """What a frame is. One that the gate cannot read passes, and is reported."""
        now_ns, known = self._switch.clock_ns(), self.source
        message: Message | None = None
        try:
            if side is self.near:
                message = exchange.request(frame, now_ns)
            else:
                message = exchange.response(frame, now_ns)
        except Exception as error:  # bytes of a stranger are no reason for the gate to fail
            self._switch.malformed(self, str(error) or type(error).__name__)
        if self.source != known:
            self.refresh()
        if message is not None:
            message.received_ns = now_ns
        return message

    def _push(self, side: Side, parcel: Parcel) -> bool:
        """Let a rule take the message, else queue it; False: the connection is no more."""
        if self.peer(side).gone:
            self._answered_nobody(parcel)
            return True
        if parcel.message is not None:
            rule = self._switch.judge(parcel.message, self.purpose)
            if rule is not None and rule.action == "drop":
                parcel.message.lost("dropped")
                self._switch.finished(parcel.message)
                self._switch.hit("dropped", rule, parcel.message)
                self.destroy("discarded")
                return False
            if rule is not None and not self._obey(rule, parcel, parcel.message):
                return True
        side.lane.push(parcel)
        return True

    def _obey(self, rule: Rule, parcel: Parcel, message: Message) -> bool:
        """Do what a rule says to a message; whether it goes on."""
        if rule.action == "hold":
            parcel.hold = self._switch.hold(rule, message, self)
        elif rule.action == "delay":
            parcel.not_before_ns = self._switch.clock_ns() + rule.delay_ms * 1_000_000
            self._switch.hit("delayed", rule, message)
        elif message.message == "request":
            return not self._refuse(rule, message)
        else:
            self._change(rule, parcel, message)
        return True

    def _refuse(self, rule: Rule, message: Message) -> bool:
        """Answer a request in place of who it is for; False: the gate cannot, and it passes."""
        talk, wire = self._conversation(), message.wire
        if talk is None or wire is None or not talk.refuse(wire, error_number(rule.error)):
            self._cannot(rule, wire)
            return False
        self._switch.hit("answered", rule, message)
        return True

    def _change(self, rule: Rule, parcel: Parcel, message: Message) -> None:
        """Put other bytes in place of a response's."""
        wire = message.wire
        try:
            changed = None if wire is None else _changed(rule, parcel.data, wire, message)
        except MalformedStreamError:
            changed = None
        if changed is None:
            self._cannot(rule, wire)
            return
        parcel.data = changed
        self._switch.hit("capped" if rule.action == "cap" else "answered", rule, message)

    def _cannot(self, rule: Rule, wire: Wire | None) -> None:
        version = "a version of it" if wire is None else f"version {wire.version}"
        why = f"the rule {rule.id!r} cannot be done to {rule.api}: the gate cannot write {version}"
        self._switch.failed(rule, why)

    def _conversation(self) -> Conversation | None:
        if isinstance(self.exchange, Exchange):
            return self.exchange.others
        return self.exchange if isinstance(self.exchange, Conversation) else None

    def _give_due_answers(self) -> None:
        """The gate's own answers, each behind those to what was asked before."""
        talk = self._conversation()
        for answer, message in [] if talk is None else talk.due():
            self._push(self.far, Parcel(answer, message))

    def _answered_nobody(self, parcel: Parcel) -> None:
        """What comes for who has gone. Rules count it where it answers a request that came late."""
        if self._is_late and parcel.message is not None:
            rule = self._switch.judge(parcel.message, self.purpose)
            if rule is not None:
                self._switch.hit("dropped", rule, parcel.message)
        self._lost(parcel)
        if self._is_late and not self._is_answer_due:
            self.finish()

    @property
    def _is_answer_due(self) -> bool:
        talk = self._conversation()
        return talk is not None and bool(talk.waiting)

    def _drained(self) -> None:
        """Who has gone has nothing more on its way; only a request that came late is answered."""
        if not (self._is_late and self.near.gone and not self.far.gone and self._is_answer_due):
            self.finish()

    def _parcel_left(self, parcel: Parcel, now_ns: int) -> None:
        if parcel.hold is not None and parcel.hold.sender_closed and self._delivering is None:
            self._is_late = True
        if parcel.message is not None:
            if parcel.message.news is not None:
                self._switch.learned(parcel.message.news)
            parcel.message.left(now_ns)
            self._switch.left(parcel.message)

    def pump(self) -> None:
        """Something that waited may go on."""
        self.near.lane.pump()
        self.far.lane.pump()
        self.refresh_reading()

    def ended(self, side: Side) -> None:
        """A side is gone: deliver what it sent, then close; drop what it will not receive."""
        if side.gone:
            return
        side.gone = True
        peer = self.peer(side)
        self._lose(peer.lane, "closed", self._ends(side)[0])
        self._switch.sender_closed(parcel.hold for parcel in side.lane.queue)
        side.lane.end()

    def was_reset(self, side: Side) -> None:
        """What a link is led through has reset the connection: so is whoever came by the link.

        Of all others it is not known whether they died; then what they had sent is delivered.
        """
        ends = self.source, self.destination
        if side is self.far and self.link.via and not self._switch.network.is_severed(*ends):
            self.near.reset()
            self.destroy("discarded")

    def finish(self) -> None:
        """Close both sides, once what was written to them is out."""
        self._close(flush=True)

    def left(self, side: Side) -> None:
        """A socket is closed. The connection is over when both are."""
        if self.near.transport is None and self.far.transport is None:
            self._lose(self.near.lane, "closed", self.destination)
            self._lose(self.far.lane, "closed", self.source)
            self._forget()

    def destroy(self, fate: HoldEnd) -> None:
        """Close both sides at once; whatever waits or is buffered is thrown away."""
        self._lose(self.near.lane, fate, None)
        self._lose(self.far.lane, fate, None)
        self._close(flush=False)

    async def deliver(self, broker: int) -> None:
        """Deliver what a dead broker had sent, held or not, to its end; then close."""
        side = self.near if self.source == broker else self.far
        peer = self.peer(side)
        source, destination = self._ends(side)
        if not self._joined or self._switch.network.is_cut(source, destination, self.purpose):
            self.destroy("discarded")
            return
        self._delivering = side
        self._lose(peer.lane, "discarded", None)
        for parcel in side.lane.queue:
            if parcel.hold is not None:
                self._switch.end_hold(parcel.hold, "released")
        side.lane.hurry()
        side.lane.blocked = False
        self.pump()
        await self.closed.wait()

    def _lose(self, lane: Lane, how: HoldEnd, closed_by: Endpoint | None) -> None:
        for parcel in lane.purge():
            if parcel.hold is not None and parcel.held:
                self._switch.end_hold(parcel.hold, how, closed_by)
            self._lost(parcel)

    def _lost(self, parcel: Parcel) -> None:
        if isinstance(parcel.message, Message):
            parcel.message.lost("discarded")
            self._switch.finished(parcel.message)

    def _close(self, *, flush: bool) -> None:
        for side in (self.near, self.far):
            side.gone = True
            if side.transport is None:
                continue
            if flush:
                side.transport.close()
            else:
                side.transport.abort()
        if self.near.transport is None and self.far.transport is None:
            self._forget()

    def _forget(self) -> None:
        if self.closed.is_set():
            return
        self.closed.set()
        for side in (self.near, self.far):
            self._switch.forget_half_frame(side)
        if self.exchange is not None:
            self._switch.unanswered(self.exchange.unanswered())
        self._switch.connection_closed(self)


def _changed(rule: Rule, data: bytes, wire: Wire, message: Message) -> bytes | None:
    if rule.action == "cap":
        key, most = APIS[rule.capped_api].key, rule.capped_version
        return answers.capped(data, wire.version, key, most)
    about = [(part.topic, part.partition) for part in message.parts]
    number = error_number(rule.error)
    return answers.with_error(data, wire.api_key, wire.version, about, number)
