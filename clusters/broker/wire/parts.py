"""What kio asks of every class of a message: its API, its version, and the header before it.

For messages that kio has no more, which are declared here in its own manner.
"""

from dataclasses import field
from typing import Any, ClassVar

from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeaderV0
from kio.schema.response_header.v1.header import ResponseHeader as ResponseHeaderV1
from kio.static.constants import EntityType
from kio.static.primitive import i16

from neaptide.clusters.broker.wire.apis import Api


def kafka(kind: str) -> Any:
    """A field, of a type by Kafka's name."""
    return field(metadata={"kafka_type": kind})


class _Part:
    """A class of an API's message in one version is a subclass of one that says which: `class
    Request(RequestPart, api=Api.STOP_REPLICA, version=0)`. A message itself sets `__type__`."""

    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16]
    __flexible__: ClassVar[bool] = False
    __api_key__: ClassVar[i16]
    __header_schema__: ClassVar[Any]
    headers: ClassVar[tuple[Any, Any]]  # before a message that is not flexible, and that is

    def __init_subclass__(
        cls, *, api: Api | None = None, version: int | None = None, flexible: bool | None = None
    ) -> None:
        if api is not None:
            cls.__api_key__ = i16(api)
        if version is not None:
            cls.__version__ = i16(version)
        if flexible is not None:
            cls.__flexible__ = flexible
        if api is not None:
            cls.__header_schema__ = cls.headers[cls.__flexible__]


class RequestPart(_Part):
    __slots__ = ()
    headers = (RequestHeaderV1, RequestHeaderV2)


class ResponsePart(_Part):
    __slots__ = ()
    headers = (ResponseHeaderV0, ResponseHeaderV1)
