"""ControlledShutdown v1 and v2 as kio entities: declared as the requests in control are.

v2 (Kafka 2.2, KIP-380) names the registration of the broker that stops. v0, of Kafka 0.8, is not
here: its header is one that no other request has.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i32, i64

from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.parts import RequestPart, ResponsePart, kafka


class _RequestPart(RequestPart, api=Api.CONTROLLED_SHUTDOWN, version=1):
    __slots__ = ()


class _ResponsePart(ResponsePart, api=Api.CONTROLLED_SHUTDOWN, version=1):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequestV1(_RequestPart):
    __type__: ClassVar = EntityType.request
    broker_id: BrokerId = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequestV2(_RequestPart, version=2):
    __type__: ClassVar = EntityType.request
    broker_id: BrokerId = kafka("int32")
    broker_epoch: i64 = kafka("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition(_ResponsePart):
    topic: TopicName = kafka("string")
    partition: i32 = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse(_ResponsePart):
    """The same in both."""

    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = kafka("error_code")
    partitions: tuple[RemainingPartition, ...]


REQUESTS: dict[int, type[Any]] = {
    1: ControlledShutdownRequestV1,
    2: ControlledShutdownRequestV2,
}
