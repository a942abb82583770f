"""A process on a node that is a container of its own, in the node's network.

The container ends with its first process: so a kill and a pause reach all that came of it. A
signal that the first process does not handle has no effect on it: so a SIGTERM is sent to the
others too, of which one may be the broker behind its script. Not started again once it has ended: a
broker that comes back is a new container. A thread copies what it prints into its log here, and
learns how it ended.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import psutil
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
        self._pid = 0  # of its first process, as this machine sees it; 0: it does not
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    async def begin(self) -> None:
        await asyncio.to_thread(self._begin)

    def _begin(self) -> None:
        """Attached before it starts: what is asked for later may miss what came first."""
        self._output = self._container.attach(stream=True, logs=False)
        self._container.start()
        self._pid = next((one.pid for one in self._first()), 0)
        self._thread.start()

    @property
    def returncode(self) -> int | None:
        return self._returncode

    @property
    def is_stopped(self) -> bool:
        """Its first process, as this machine sees it, or by `docker pause` the container."""
        if self._returncode is not None or not self._pid:
            return False
        with suppress(psutil.Error):
            stopped = psutil.Process(self._pid).status() == psutil.STATUS_STOPPED
            return stopped or _is_frozen(self._pid)
        return False

    async def terminate(self) -> None:
        await asyncio.to_thread(self._terminate)

    def _terminate(self) -> None:
        if self._returncode is not None:
            return
        try:
            for child in self._children():
                with suppress(psutil.NoSuchProcess):
                    child.terminate()
        except (psutil.AccessDenied, APIError) as error:
            raise HostError(f"{self.spec.name} cannot be sent SIGTERM: {error}") from error
        self._signal("SIGTERM")

    def _children(self) -> list[psutil.Process]:
        """What came of the first process, as this machine sees it."""
        with suppress(psutil.NoSuchProcess):
            return [child for one in self._first() for child in one.children(recursive=True)]
        return []

    def _first(self) -> list[psutil.Process]:
        """The first process, unless it has ended, or is not of this machine."""
        self._container.reload()
        pid = int(self._container.attrs["State"]["Pid"])
        with suppress(OSError, psutil.NoSuchProcess):
            if str(self._container.id) in Path(f"/proc/{pid}/cgroup").read_text("utf-8"):
                return [psutil.Process(pid)]
        return []

    async def run_beside(self, argv: Sequence[str], log: Path) -> int | None:
        """Runs a command in its container, with its environment; how that ended.

        None: with the container. Raises HostError where it cannot be run.
        """
        try:
            done = await asyncio.to_thread(self._container.exec_run, list(argv))
        except DockerException as error:
            raise HostError(f"{argv[0]} beside {self.spec.name}: {error}") from error
        log.write_bytes(cast(bytes, done.output))
        return None if done.exit_code == _SIGNALLED + signal.SIGKILL else done.exit_code

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
        async with asyncio.timeout(timeout_s):
            await self._ended.wait()
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


def _is_frozen(pid: int) -> bool:
    """What the kernel says of the control group of a process: version 2, or version 1."""
    with suppress(OSError):
        groups = [
            line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        ]
        for _, controllers, path in groups:
            if not controllers:
                events = Path(f"/sys/fs/cgroup{path}/cgroup.events")
                if events.is_file() and "frozen 1" in events.read_text():
                    return True
            if controllers == "freezer":
                state = Path(f"/sys/fs/cgroup/freezer{path}/freezer.state")
                return state.read_text().strip() == "FROZEN"
    return False
