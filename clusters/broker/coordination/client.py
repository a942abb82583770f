"""kazoo, with the two habits that a driver needs: reads that outlive a lost connection, in batches.

Not a session: what an expired one means is for the caller, to whom SessionExpiredError passes.
Rules: a read is repeated after a lost connection until there is an answer (kazoo keeps it until it
is connected again, so nothing spins). Writes are never repeated here: whether the first one took
place is a question that only their caller can answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NodeExistsError, NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

Watch = Callable[[WatchedEvent], None]
T = TypeVar("T")

_FIRST_DELAY_S: Final = 0.02
_LONGEST_DELAY_S: Final = 0.5


def pause(seconds: float) -> None:
    """As time.sleep, which is until a moment of the clock, and so fails under libfaketime."""
    threading.Event().wait(seconds)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    sleep_func = staticmethod(pause)


class Znode(NamedTuple):
    data: bytes
    stat: ZnodeStat


class Client:
    def __init__(self, connect: str, session_timeout_ms: int) -> None:
        self.kazoo = KazooClient(
            hosts=connect,
            timeout=session_timeout_ms / 1000,
            randomize_hosts=False,
            handler=_Handler(),
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=_FIRST_DELAY_S,
                max_delay=_LONGEST_DELAY_S,
                max_jitter=0.0,
                sleep_func=pause,
            ),
        )

    @property
    def session_id(self) -> int:
        identity = self.kazoo.client_id
        return int(identity[0]) if identity else 0

    def close(self) -> None:
        """End the session: its ephemeral znodes go at once."""
        self.kazoo.stop()
        self.kazoo.close()

    # --- reads, and writes that may be repeated --------------------------------------------------

    def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        """None where there is no such znode; the watch is set only if there is."""
        try:
            return Znode(*self._repeated(self.kazoo.get, path, watch))
        except NoNodeError:
            return None

    def get_all(self, paths: Sequence[str], watch: Watch | None = None) -> dict[str, Znode]:
        """Those of `paths` that exist, asked for all at once."""
        asked = [(path, self.kazoo.get_async(path, watch)) for path in paths]
        found = {}
        for path, answer in asked:
            try:
                found[path] = Znode(*answer.get())
            except NoNodeError:
                continue
            except ConnectionLoss:
                znode = self.get(path, watch)
                if znode is not None:
                    found[path] = znode
        return found

    def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        return self._repeated(self.kazoo.exists, path, watch)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return sorted(self._repeated(self.kazoo.get_children, path, watch))

    def watched(self, path: str, watch: Watch) -> Znode | None:
        """Read a znode or its absence; the watch is set in either case."""
        while True:
            znode = self.get(path, watch)
            if znode is not None or self.exists(path, watch) is None:
                return znode

    def ensure(self, path: str, data: bytes = b"") -> None:
        """Create a persistent znode unless it is there."""
        try:
            self._repeated(self.kazoo.create, path, data)
        except NodeExistsError:
            return

    def ensure_all(self, paths: Sequence[str]) -> None:
        """Create those that are not there, asked for all at once. Raises NoNodeError."""
        asked = [(path, self.kazoo.create_async(path, b"")) for path in paths]
        for path, answer in asked:
            try:
                answer.get()
            except NodeExistsError:
                continue
            except ConnectionLoss:
                self.ensure(path)

    def create_sequential(self, prefix: str, data: bytes) -> None:
        """Create one, or two of them if the connection is lost between."""
        self._repeated(self.kazoo.create, prefix, data, sequence=True)

    def delete(self, path: str) -> None:
        """Delete a znode unless it is gone."""
        try:
            self._repeated(self.kazoo.delete, path)
        except NoNodeError:
            return

    def _repeated(self, operation: Callable[..., T], *arguments: Any, **options: Any) -> T:
        while True:
            try:
                return operation(*arguments, **options)
            except ConnectionLoss:
                continue
