"""A broker that is none: registered in ZooKeeper, it leads or follows as a test makes it.

What the controller sends is answered and forgotten. What a follower asks waits until the test has
taken it with `next` and answers: so each round is the test's, whatever broker is on the other side.
"""

from __future__ import annotations

import json
import queue
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient

from tests.live.struct_messages import (
    FETCH,
    LEADER_AND_ISR,
    LIST_OFFSETS,
    NONE,
    OFFSET_FOR_LEADER_EPOCH,
    STOP_REPLICA,
    UPDATE_METADATA,
    EpochEnd,
    Fetch,
    Fetched,
    Place,
    Reader,
    encode_ended,
    encode_fetched,
    encode_listed,
    read_epochs,
    read_fetch,
    read_list_offsets,
)

_TIMEOUT_S = 60.0
_OBEYED = {
    LEADER_AND_ISR: struct.pack(">hi", 0, 0),
    STOP_REPLICA: struct.pack(">hi", 0, 0),
    UPDATE_METADATA: struct.pack(">h", 0),
}
# the last versions without flexible fields; later ones get no answer
_ASKED = {FETCH: 11, LIST_OFFSETS: 5, OFFSET_FOR_LEADER_EPOCH: 3}


@dataclass(frozen=True)
class Question:
    """What a follower asks; `connection` is one for each of its fetchers."""

    api: int
    version: int
    client_id: str
    body: Any  # Fetch; the asked timestamps or epochs by partition
    connection: socket.socket
    correlation_id: int

    def answer(self, answers: Mapping[Place, Any]) -> None:
        """Of Fetched, offsets or EpochEnd, by partition. A Fetch's other partitions are empty."""
        if self.api == FETCH:
            self.answer_fetch(
                {place: answers.get(place, Fetched()) for place in self.body.partitions}
            )
            return
        if self.api == LIST_OFFSETS:
            body = encode_listed(answers, self.version)
        else:
            body = encode_ended(answers, self.version)
        _send(self.connection, self.correlation_id, body)

    def answer_fetch(
        self, answers: Mapping[Place, Fetched], session: int = 0, error: int = NONE
    ) -> None:
        """About these partitions only; `session`, `error`: of the whole response, from v7 on."""
        body = encode_fetched(answers, self.version, session, error)
        _send(self.connection, self.correlation_id, body)


def _send(connection: socket.socket, correlation_id: int, body: bytes) -> None:
    frame = struct.pack(">i", correlation_id) + body
    connection.sendall(struct.pack(">i", len(frame)) + frame)


class Phantom:
    def __init__(self, broker: int, zookeeper_port: int) -> None:
        self.broker = broker
        self._zookeeper = KazooClient(f"127.0.0.1:{zookeeper_port}")
        self._zookeeper.start()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._asked: queue.Queue[Question] = queue.Queue()
        threading.Thread(target=self._accept, daemon=True).start()

    def register(self, like: Mapping[str, Any], rack: str | None = None) -> None:
        """As an ephemeral znode; `like`: a registration of a broker that is one.

        Clients find nobody at its address: it serves none.
        """
        endpoints = ["CLIENT://127.0.0.1:1", f"REPLICATION://127.0.0.1:{self.port}"]
        content = {**like, "endpoints": endpoints, "port": 1, "rack": rack}
        self._zookeeper.create(
            f"/brokers/ids/{self.broker}", json.dumps(content).encode(), ephemeral=True
        )

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def next(self, *apis: int) -> Question:
        """What is asked next by one of these APIs; others are passed over."""
        while True:
            question = self._asked.get(timeout=_TIMEOUT_S)
            if question.api in apis:
                return question

    def next_fetch(self, *places: Place) -> Question:
        """The next fetch that asks for one of these partitions; others get nothing.

        A follower without records may ask where its epoch ends: it has none, and nobody knows it.
        """
        while True:
            question = self.next(FETCH, OFFSET_FOR_LEADER_EPOCH)
            if question.api == OFFSET_FOR_LEADER_EPOCH:
                assert set(question.body.values()) == {-1}, question
                question.answer(dict.fromkeys(question.body, EpochEnd(-1, -1)))
            elif any(place in question.body.partitions for place in places):
                return question
            else:
                question.answer({})

    def drop_connections(self) -> None:
        """Whoever waits for an answer gets none, and connects and asks again."""
        while self._open:
            connection = self._open.pop()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        while not self._asked.empty():
            self._asked.get()

    def leave(self) -> None:
        """Its connections break, and its session ends."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()
        self._zookeeper.stop()
        self._zookeeper.close()

    # --- connections -----------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        while True:
            try:
                size = stream.read(4)
                frame = stream.read(int.from_bytes(size, "big"))
            except (OSError, ValueError):
                return
            if len(size) < 4:
                return
            reader = Reader(frame)
            api, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
            client = reader.text()
            if api in _OBEYED:
                with suppress(OSError):  # whoever asked may be gone
                    _send(connection, correlation_id, _OBEYED[api])
            elif version <= _ASKED.get(api, -1):
                read: Callable[[Reader, int], Any] = {
                    FETCH: read_fetch,
                    LIST_OFFSETS: read_list_offsets,
                    OFFSET_FOR_LEADER_EPOCH: read_epochs,
                }[api]
                body: Fetch | dict[Place, int] = read(reader, version)
                self._asked.put(Question(api, version, client, body, connection, correlation_id))
