"""Requests and answers of any API on one connection, as rules see them. Pure.

Fetch and OffsetForLeaderEpoch of replicas are rounds: see exchange. Here is all else: what clients
ask of brokers, and brokers of controllers and of each other. Answers come in the order of requests,
also those that the gate gives itself: such a one waits until those before it have passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from neaptide.nemesis.gate import answers, apis, decode
from neaptide.nemesis.gate import messages as m
from neaptide.nemesis.gate.frames import MalformedStreamError
from neaptide.nemesis.gate.model import Endpoint
from neaptide.nemesis.gate.parts import Parts, facts_of, parts_of
from neaptide.nemesis.gate.said import Message, Round, Wire

_UNSUPPORTED_VERSION: Final = 35  # what answers an ApiVersions comes in its version 0 then


@dataclass(slots=True)
class _Asked:
    """A request, until its answer has come; `answer`: the one that the gate gives in its place."""

    wire: Wire
    parts: Parts
    answer: bytes | None = None


@dataclass(slots=True)
class Conversation:
    """The state of one connection. `source` None: learned from what is asked."""

    source: Endpoint | None
    destination: Endpoint
    topic_names: Mapping[str, str]
    unread: Callable[[int, int], None]  # called with an api and version that kio has not
    waiting: dict[int, _Asked] = field(default_factory=dict)  # by correlation id, in order

    def request(self, frame: bytes, now_ns: int) -> Message | None:
        header = decode.request_header(frame)
        if self.source is None:
            self.source = decode.quorum_node(header)
        return self.asked(frame, header, self.source)

    def asked(
        self, frame: bytes, header: m.RequestHeader, source: Endpoint | None
    ) -> Message | None:
        """A request of an API that rules may name."""
        name = apis.NAMES.get(header.api_key)
        if name is None:
            return None
        wire = Wire(header.api_key, header.api_version, header.correlation_id)
        parts = self._request_parts(frame, header)
        if parts.outside.get("acks") != 0:  # nobody answers that one
            self.waiting[header.correlation_id] = _Asked(wire, parts)
        named = replace(parts, outside={**parts.outside, "client_id": header.client_id})
        facts = facts_of(named, names=self.topic_names)
        return Message(name, "request", source, self.destination, parts=facts, wire=wire)

    def response(self, frame: bytes, now_ns: int) -> Message | None:
        return self.answered(frame, self.source)

    def answered(self, frame: bytes, source: Endpoint | None) -> Message | None:
        """A response to what was asked; `source`: who had asked."""
        asked = self.waiting.pop(decode.correlation_id(frame), None)
        if asked is None:
            return None
        facts = facts_of(self._response_parts(frame, asked), asked.parts, self.topic_names)
        name = apis.NAMES[asked.wire.api_key]
        return Message(name, "response", self.destination, source, parts=facts, wire=asked.wire)

    def refuse(self, wire: Wire, error: int) -> bool:
        """The gate answers this request, which goes no further; False: it cannot."""
        asked = self.waiting.get(wire.correlation_id)
        if asked is None or wire.api_key != apis.PRODUCE:
            return False
        asked.answer = answers.refused_produce(
            wire.correlation_id, wire.version, _about(asked), error
        )
        return asked.answer is not None

    def due(self) -> list[tuple[bytes, Message]]:
        """The gate's own answers whose turn it is; forgets them. Rules may take them as any."""
        found: list[tuple[bytes, Message]] = []
        while self.waiting:
            number, first = next(iter(self.waiting.items()))
            if first.answer is None:
                break
            facts = facts_of(first.parts, names=self.topic_names)
            name = apis.NAMES[first.wire.api_key]
            ends = (self.destination, self.source)
            message = Message(name, "response", *ends, parts=facts, wire=first.wire)
            found.append((first.answer, message))
            del self.waiting[number]
        return found

    def unanswered(self) -> tuple[Round, ...]:
        return ()

    def _request_parts(self, frame: bytes, header: m.RequestHeader) -> Parts:
        if header.api_key == apis.PRODUCE and header.api_version < 3:
            acks, about = decode.old_produce_request(frame, header)
            return Parts({"acks": acks}, tuple(about.items()))
        entity = decode.request_entity(frame, header)
        if entity is None:
            self.unread(header.api_key, header.api_version)
            return Parts()
        return parts_of(entity)

    def _response_parts(self, frame: bytes, asked: _Asked) -> Parts:
        """What cannot be read is known by what was asked, and nothing else."""
        key, version = asked.wire.api_key, asked.wire.version
        if key == apis.API_VERSIONS and decode.first_error(frame) == _UNSUPPORTED_VERSION:
            return Parts({"error": _UNSUPPORTED_VERSION})
        if key == apis.PRODUCE and version < 3:
            return Parts(about=tuple(decode.old_produce_response(frame, version).items()))
        try:
            entity = decode.response_entity(frame, key, version)
        except MalformedStreamError:
            self.unread(key, version)
            return Parts()
        return Parts() if entity is None else parts_of(entity)


def _about(asked: _Asked) -> tuple[m.TopicPartition, ...]:
    return tuple(key for key, _ in asked.parts.about)
