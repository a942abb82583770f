"""One connection to a broker that speaks Kafka's protocol by hand: a request, then its response.

For the few requests that no client library offers. Blocking, with a time-out; not for load.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from importlib import import_module
from io import BytesIO
from typing import Any, Final, Literal, Self

from kio.serial import entity_writer
from kio.static.primitive import i8, i32

from neaptide.clusters.broker.wire.reading import UnreadableError, read_entity

Address = tuple[str, int]
CoordinatorKind = Literal["group", "transaction"]
_LENGTH_BYTES: Final = 4
_ANSWER_BYTES_MAX: Final = 1 << 24  # nothing that is asked here has a long answer
_CORRELATION_ID_BYTES: Final = 4  # all of a response's header, in versions that are not flexible
_TIMEOUT_S: Final = 20.0
_FIND_WITHIN_S: Final = 2.0


class RawError(Exception):
    """Kafka's name of the error that a broker has answered with; _TRANSPORT: it hung up; or what
    is wrong with its answer."""


class Connection:
    def __init__(self, address: Address, timeout_s: float = _TIMEOUT_S) -> None:
        """Raises OSError."""
        self._socket = socket.create_connection(address, timeout_s)
        self._count = 0

    def send(self, entity: Any) -> None:
        self._count += 1
        header = entity.__header_schema__(
            request_api_key=entity.__api_key__,
            request_api_version=entity.__version__,
            correlation_id=i32(self._count),
            client_id="raw",
        )
        body = _written(header) + _written(entity)
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def ask(self, entity: Any) -> Any:
        """The response to a request of a version that is not flexible. Raises RawError, OSError."""
        self.send(entity)
        size = int.from_bytes(self._exactly(_LENGTH_BYTES), "big", signed=True)
        if not _CORRELATION_ID_BYTES <= size <= _ANSWER_BYTES_MAX:
            raise RawError(f"a response of {size} bytes")
        path = type(entity).__module__.rpartition(".")[0]
        name = type(entity).__name__.replace("Request", "Response")
        kind = getattr(import_module(f"{path}.response"), name)
        try:
            answer, _, _ = read_entity(kind, self._exactly(size), _CORRELATION_ID_BYTES)
        except UnreadableError as error:
            raise RawError(f"a response that cannot be read: {error}") from error
        return answer

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise RawError("_TRANSPORT")
            data += part
        return bytes(data)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def kind_of(api: str, version: int, name: str) -> type[Any]:
    """A type of kio's, as ("produce", 3, "ProduceRequest")."""
    found: type[Any] = getattr(import_module(f"kio.schema.{api}.v{version}.request"), name)
    return found


def ask_for_coordinator(
    address: Address, key: str, kind: CoordinatorKind, timeout_s: float = _TIMEOUT_S
) -> Any:
    """FindCoordinator's response: 0.9 knows coordinators of groups, 0.11 those of transactions.

    Raises RawError, OSError.
    """
    if kind == "group":
        request = kind_of("find_coordinator", 0, "FindCoordinatorRequest")(key=key)
    else:
        named = kind_of("find_coordinator", 1, "FindCoordinatorRequest")
        request = named(key=key, key_type=i8(1))
    with Connection(address, timeout_s) as connection:
        return connection.ask(request)


def find_coordinator(addresses: Sequence[Address], key: str, kind: CoordinatorKind) -> int | None:
    """The id of the broker, by the first that says so; None: nobody says."""
    for address in addresses:
        try:
            answer = ask_for_coordinator(address, key, kind, _FIND_WITHIN_S)
        except (OSError, RawError):
            continue
        if answer.error_code.name == "none":
            return int(answer.node_id)
    return None


def _written(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
