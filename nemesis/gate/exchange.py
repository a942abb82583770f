"""Requests and responses of one replication connection, and the fetch rounds that they are. Pure.

Matches a response with its request by correlation id, learns which broker asks, and builds what
rules look at and what is recorded. Moves no byte and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from neaptide.nemesis.gate import decode
from neaptide.nemesis.gate import messages as m
from neaptide.nemesis.gate.apis import CONTROLLER_NAMES
from neaptide.nemesis.gate.conversation import Conversation
from neaptide.nemesis.gate.fetch_answer import FetchAnswer, fetch_response
from neaptide.nemesis.gate.frames import HEAD_BYTES, MalformedStreamError
from neaptide.nemesis.gate.model import CLIENT, Api, MessageKind
from neaptide.nemesis.gate.parts import Parts, facts_of
from neaptide.nemesis.gate.rounds import RoundCounter
from neaptide.nemesis.gate.rules import PartitionFacts
from neaptide.nemesis.gate.said import EpochNews, Message, Round
from neaptide.nemesis.gate.sessions import FetchSession


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request whose response will be read."""

    api_key: int
    api_version: int
    asked: dict[m.TopicPartition, m.FetchPartition]
    rounds: tuple[Round, ...]
    partitions: tuple[PartitionFacts, ...]


@dataclass(slots=True)
class Exchange:
    """The state of one connection to the replication listener of `destination`."""

    destination: int
    counter: RoundCounter
    topic_names: Mapping[str, str]  # topic id → name, as far as the gate knows
    unread: Callable[[int, int], None]  # called with an api and version that is in no table
    # called with the controller that a broker has answered, that broker, and the error
    controlled: Callable[[int | None, int, int], None]
    source: int | None = None
    shared: bool = False  # clients use this listener too
    is_client: bool = False  # known by what only clients ask
    is_coordination: bool = False  # a leader speaks to its controller here (KIP-497)
    others: Conversation | None = None  # reads all that is no round; None: nobody asks for it
    session: FetchSession = field(default_factory=FetchSession)
    waiting: dict[int, _Asked] = field(default_factory=dict)  # by correlation id
    # correlation id → api and version of a controller's request
    controls: dict[int, tuple[int, int]] = field(default_factory=dict)

    def request(self, frame: bytes, now_ns: int) -> Message | None:
        """Read a request; None: nothing that rules or rounds are about."""
        header = decode.request_header(frame)
        if self.source is None:
            self.source = decode.source_broker(header)
        if header.api_key == decode.ALTER_PARTITION:
            self._speaks_to_controller()
        if self.shared and header.api_key not in m.BROKERS_ASK:
            self.is_client = self.source is None
        if header.api_key == m.FETCH:
            return self._fetch(frame, header, now_ns)
        if header.api_key == m.OFFSET_FOR_LEADER_EPOCH:
            return self._epoch(frame, header)
        if header.api_key in decode.CONTROLLER_APIS:
            return self._controlled(frame, header)
        return self._other(frame, header)

    def _speaks_to_controller(self) -> None:
        """Nothing else is asked on such a connection; rules may name what is."""
        self.is_coordination = True
        if self.others is None:
            self.others = Conversation(self.source, self.destination, self.topic_names, self.unread)

    def _controlled(self, frame: bytes, header: m.RequestHeader) -> Message:
        """A request of the controller, known by its API, and a LeaderAndIsr by its epochs."""
        self.controls[header.correlation_id] = (header.api_key, header.api_version)
        name = CONTROLLER_NAMES[header.api_key]
        message = Message(name, "request", self.source, self.destination, parts=facts_of(Parts()))
        states = None
        if header.api_key == m.LEADER_AND_ISR:
            states = decode.leader_and_isr(frame, header)
        if states:
            message.news = EpochNews(self.destination, states)
            message.parts = tuple(
                PartitionFacts(topic, partition, {"leader_epoch": state.leader_epoch})
                for (topic, partition), state in states.items()
            )
        return message

    def _other(self, frame: bytes, header: m.RequestHeader) -> Message | None:
        if self.others is None:
            return None
        return self.others.asked(frame, header, CLIENT if self.is_client else self.source)

    def response(self, frame: bytes, now_ns: int) -> Message | None:
        """Read a response; None: not to a request that was read."""
        if self.controls:
            message = self._control_answered(frame)
            if message is not None:
                return message
        if self.others is not None and self.others.waiting:
            message = self.others.answered(frame, CLIENT if self.is_client else self.source)
            if message is not None:
                return message
        if not self.waiting:
            return None
        number = decode.correlation_id(frame)
        asked = self.waiting.pop(number, None)
        if asked is None:
            return None
        if asked.api_key == m.FETCH:
            try:
                response = fetch_response(frame, asked.api_version)
            except MalformedStreamError:
                self.waiting[number] = asked  # its rounds end unanswered
                raise
            return self._fetched(asked, response, now_ns)
        answer = decode.epoch_response(frame, asked.api_version)
        partitions = tuple(
            PartitionFacts(p.topic, p.partition, {**p.numbers, "error": _error_of(answer, p)})
            for p in asked.partitions
        )
        return self._message("offset_for_leader_epoch", "response", epochs=partitions)

    def _control_answered(self, frame: bytes) -> Message | None:
        request = self.controls.pop(decode.correlation_id(frame), None)
        if request is None:
            return None
        error = decode.control_error(frame, *request)
        self.controlled(self.source, self.destination, error)
        ends = self.destination, self.source
        return Message(CONTROLLER_NAMES[request[0]], "response", *ends, parts=facts_of(Parts()))

    def unanswered(self) -> tuple[Round, ...]:
        """The rounds that wait for a response; forgets them."""
        rounds = tuple(entry for asked in self.waiting.values() for entry in asked.rounds)
        self.waiting.clear()
        return rounds

    def _fetch(self, frame: bytes, header: m.RequestHeader, now_ns: int) -> Message | None:
        request = decode.fetch_request(frame, header)
        if request is None:
            self.unread(header.api_key, header.api_version)
            return None
        if request.replica_id < 0:  # a consumer
            self.is_client = self.shared
            return self._other(frame, header)
        if self.source is None:
            self.source = request.replica_id
        asked = self.session.request(request)
        rounds = tuple(
            self._new_round(request.replica_id, partition, entry, now_ns)
            for partition, entry in asked.items()
        )
        self.waiting[header.correlation_id] = _Asked(m.FETCH, header.api_version, asked, rounds, ())
        return self._message("fetch", "request", rounds)

    def _new_round(
        self, follower: int, key: m.TopicPartition, entry: m.FetchPartition, now_ns: int
    ) -> Round:
        topic, partition = key
        name = self.topic_names.get(topic, topic)
        # Counted by what is on the wire, so that naming a topic does not start its rounds anew.
        epoch, number = self.counter.next_round(follower, self.destination, key, entry.leader_epoch)
        offset = entry.fetch_offset
        return Round(follower, self.destination, name, partition, epoch, number, now_ns, offset)

    def passing(self, head: bytes) -> FetchAnswer | None:
        """What reads, while it passes, the response that begins so; None: it is read when whole."""
        if len(head) < HEAD_BYTES:
            return None
        asked = self.waiting.get(decode.correlation_id(head))
        if asked is None or asked.api_key != m.FETCH:
            return None
        return FetchAnswer(asked.api_version)

    def passed(self, head: bytes, response: m.FetchResponse, now_ns: int) -> Message:
        """All of a response has come that began so."""
        return self._fetched(self.waiting.pop(decode.correlation_id(head)), response, now_ns)

    def _fetched(self, asked: _Asked, response: m.FetchResponse, now_ns: int) -> Message:
        answers = self.session.response(response, asked.asked)
        for key, entry in zip(asked.asked, asked.rounds, strict=True):
            entry.answered(answers.get(key), response.error, now_ns)
        return self._message("fetch", "response", asked.rounds)

    def _epoch(self, frame: bytes, header: m.RequestHeader) -> Message | None:
        request = decode.epoch_request(frame, header)
        if request is None:
            self.unread(header.api_key, header.api_version)
            return None
        if self.source is None and request.replica_id is not None and request.replica_id >= 0:
            self.source = request.replica_id
        partitions = tuple(
            PartitionFacts(topic, partition, {"leader_epoch": epoch})
            for (topic, partition), epoch in request.partitions.items()
        )
        self.waiting[header.correlation_id] = _Asked(
            m.OFFSET_FOR_LEADER_EPOCH, header.api_version, {}, (), partitions
        )
        return self._message("offset_for_leader_epoch", "request", epochs=partitions)

    def _message(
        self,
        api: Api,
        message: MessageKind,
        rounds: tuple[Round, ...] = (),
        epochs: tuple[PartitionFacts, ...] = (),
    ) -> Message:
        """A message, with its ends in the direction in which it travels."""
        if message == "request":
            return Message(api, message, self.source, self.destination, rounds, epochs)
        return Message(api, message, self.destination, self.source, rounds, epochs)


@dataclass(slots=True)
class Introduction:
    """The state of one connection to a controller: who it is from, and nothing else.

    A broker or controller of KRaft names itself in the client id of its first request.
    """

    source: int | None = None

    def request(self, frame: bytes, now_ns: int) -> None:
        if self.source is None:
            self.source = decode.quorum_node(decode.request_header(frame))

    def response(self, frame: bytes, now_ns: int) -> None:
        """Nothing is asked of it."""

    def unanswered(self) -> tuple[Round, ...]:
        return ()


def _error_of(answer: m.EpochResponse, facts: PartitionFacts) -> int | None:
    return answer.partitions.get((facts.topic, facts.partition))
