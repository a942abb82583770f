"""What the table of APIs says of each of them, and what its functions work with.

Divided as in Kafka: the key (ApiKeys), a request and a response with what decodes and encodes them
(AbstractRequest, AbstractResponse), and who handles the request (KafkaApis).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.server.controller_requests import ControllerRequests
from neaptide.clusters.broker.server.crowd import Crowd
from neaptide.clusters.broker.server.dynamic_settings import DynamicSettings
from neaptide.clusters.broker.server.fetch_session import (
    FetchContext,
    FetchSessionCache,
    Sessionless,
)
from neaptide.clusters.broker.server.listener import Connection
from neaptide.clusters.broker.server.log_reader import LogReader
from neaptide.clusters.broker.server.replication_quota import ReplicationQuota
from neaptide.clusters.broker.server.topic_creation import AutoTopicCreation
from neaptide.clusters.broker.wire.apis import Api, Versions
from neaptide.clusters.broker.wire.codec import Header
from neaptide.clusters.broker.wire.topic_ids import TopicNames


@dataclass(slots=True)
class FetchSlot:
    """What a Fetch request means, from its decoding to its response."""

    context: FetchContext = field(default_factory=lambda: Sessionless(()))
    is_committed: bool = False  # committed records alone are wanted
    is_of_follower: bool = False


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request that has no response yet. `id` names it in events and effects."""

    id: int
    connection: Connection
    header: Header
    max_bytes: int = 0  # of a whole Fetch response
    # The times that the records of a Produce request got, where they do not keep their own.
    append_times: dict[TopicPartition, int] = field(default_factory=dict)
    # What of an OffsetCommit request was refused before it came to the core.
    refused: dict[TopicPartition, Error] = field(default_factory=dict)
    fetch: FetchSlot = field(default_factory=FetchSlot)
    # By which ids it names topics, where its response must do so too.
    topic_ids: dict[str, UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApiContext:
    """What decoding, handling and encoding use of the broker."""

    settings: DynamicSettings
    crowd: Crowd
    reader: LogReader
    topic_creation: AutoTopicCreation
    controller_requests: ControllerRequests
    submit: Callable[[object], None]  # an event, to the core
    metadata: Callable[[], MetadataCache]
    cluster_id: Callable[[], str | None]
    # What is answered on the listener of this name.
    apis_on: Callable[[str], Mapping[Api, Versions]]
    # A replica to another log directory.
    move_replica: Callable[[TopicPartition, Path], Error]
    topic_names: TopicNames = field(default_factory=lambda: TopicNames(dict))
    # None: there are no fetch sessions.
    fetch_sessions: FetchSessionCache | None = None
    leader_quota: ReplicationQuota | None = None

    @property
    def config(self) -> ServerConfig:
        """As it is now."""
        return self.settings.current


# --- responses, as in Kafka's RequestChannel ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendResponse:
    entity: Any


@dataclass(frozen=True, slots=True)
class SendAndClose:
    """The last response on its connection."""

    entity: Any
    reason: str


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The client does not wait for one (acks=0)."""


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """With acks=0 a closed connection is the only way to report an error."""

    reason: str


@dataclass(frozen=True, slots=True)
class ResponseLater:
    """What must be looked up first takes long; the entity is what it returns."""

    work: Coroutine[Any, Any, Any]


Response = SendResponse | SendAndClose | NoResponse | CloseConnection | ResponseLater


@dataclass(frozen=True, slots=True)
class DecodeInThread:
    """To decode the request takes long: a thread does it, and nobody else waits."""

    work: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that is understood and never comes to the core: the answer to it is this error."""

    event: Any
    error: Error


# --- a row ----------------------------------------------------------------------------------------


def submit(context: ApiContext, event: object) -> None:
    """The handler of most APIs: the core gets the event, and answers by an effect."""
    context.submit(event)


@dataclass(frozen=True, slots=True)
class AnsweredByCore:
    """Request → event → core → effect → response."""

    event: type
    # (request, entity) → event. Whatever it raises is the fault of the request.
    decode: Callable[[PendingRequest, Any, ApiContext], Any]
    effect: type
    encode: Callable[[PendingRequest, Any, ApiContext], Response]
    # The effect that answers this event with an error, whatever has failed (getErrorResponse).
    error: Callable[[Any, Error], Any]
    handle: Callable[[ApiContext, Any], None] = submit


@dataclass(frozen=True, slots=True)
class AnsweredByServer:
    """Request → response: the server knows the answer, or finds it out (ResponseLater)."""

    answer: Callable[[PendingRequest, Any, ApiContext], Any]


@dataclass(frozen=True, slots=True)
class SentToBrokers:
    """A request that this broker sends to others.

    `message` is what the core says: an effect of a fetcher or of a leader, or the message of a
    SendControl. The response becomes an event; that of a control request does for all APIs alike.
    """

    message: type
    encode: Callable[[Any, ServerConfig], Any]
    decode: Callable[[Any, Any], object] | None = None  # (message, response) → event


@dataclass(frozen=True, slots=True)
class ApiRow:
    """`versions` for clients, each from that generation on; likewise `between_brokers` for brokers,
    where those are others."""

    api: Api
    versions: Mapping[str, Versions]
    answered: AnsweredByCore | AnsweredByServer
    between_brokers: Mapping[str, Versions] = field(default_factory=dict)
    sent: SentToBrokers | None = None

    def client_versions(self, generation: str) -> Versions | None:
        """None: a broker of this generation does not offer it to clients."""
        return _of_generation(self.versions, generation)

    def broker_versions(self, generation: str) -> Versions | None:
        """None: brokers of this generation ask for no others than clients, or not at all."""
        return _of_generation(self.between_brokers, generation)


def _of_generation(versions: Mapping[str, Versions], generation: str) -> Versions | None:
    found = None
    for name in GENERATIONS:
        found = versions.get(name, found)
        if name == generation:
            return found
    raise KeyError(generation)
