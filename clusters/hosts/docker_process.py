"""A process on a node that is a container: its only process, in the node's network.

Not started again once it has ended: a broker that comes back is a new container. A thread copies
what it prints into its log here, and learns how it ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from docker.errors import APIError, DockerException

from neaptide.clusters.errors import HostError
from neaptide.clusters.hosts.local import ProcessSpec

if TYPE_CHECKING:
    from docker.models.containers import Container

_SIGNALLED: Final = 128  # 128 + n: ended by signal n
_LOST: Final = 255  # Docker did not say how it ended
_CONFLICT: Final = 409  # it is not running (any more)


class DockerProcess:
    """Implements neaptide.clusters.hosts.host.NodeProcess."""

    def __init__(self, spec: ProcessSpec, container: Container) -> None:
        self.spec = spec
        self._container = container
        self._output: Iterable[bytes] = ()
        self._returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    async def begin(self) -> None:
        await asyncio.to_thread(self._begin)

    def _begin(self) -> None:
        """Attached before it starts: what is asked for later may miss what came first."""
        self._output = self._container.attach(stream=True, logs=False)
        self._container.start()
        self._thread.start()

    @property
    def returncode(self) -> int | None:
        return self._returncode

    async def terminate(self) -> None:
        await asyncio.to_thread(self._signal, "SIGTERM")

    async def kill(self) -> None:
        await asyncio.to_thread(self._signal, "SIGKILL")

    async def pause(self) -> None:
        try:
            await asyncio.to_thread(self._container.pause)
        except APIError as error:
            raise HostError(f"{self.spec.name} cannot be paused: {error.explanation}") from error

    async def resume(self) -> None:
        try:
            await asyncio.to_thread(self._container.unpause)
        except APIError as error:
            raise HostError(f"{self.spec.name} cannot be resumed: {error.explanation}") from error

    async def wait(self, timeout_s: float | None = None) -> int:
        await asyncio.wait_for(self._ended.wait(), timeout_s)
        assert self._returncode is not None
        return self._returncode

    def _signal(self, name: str) -> None:
        if self._returncode is not None:
            return
        try:
            self._container.kill(signal=name)
        except APIError as error:
            if error.status_code != _CONFLICT:
                raise HostError(f"{self.spec.name}: {error.explanation}") from error

    # --- on the thread ---------------------------------------------------------------------------

    def _follow(self) -> None:
        try:
            with self.spec.stdout_log.open("ab", buffering=0) as log:
                for chunk in self._output:
                    log.write(chunk)
            status = int(self._container.wait()["StatusCode"])
        except (DockerException, OSError):  # Docker is gone, or the container was removed
            status = _LOST
        signalled = status > _SIGNALLED and status != _LOST
        self._returncode = _SIGNALLED - status if signalled else status
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended.set)
