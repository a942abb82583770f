"""A real ZooKeeper for all tests of this folder, a chroot for each, and brokers to talk to it."""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from types import UnionType
from typing import Any, TypeVar

import pytest
from kazoo.client import KazooClient

from neaptide.clusters.broker.coordination.zookeeper import ZooKeeperCoordination
from neaptide.clusters.broker.replication.interface.coordination_service import (
    ClusterLoaded,
    ControllerElected,
    CoordinationEvent,
    CoordinationRequest,
    LoadCluster,
    SessionStarted,
    TryBecomeController,
)
from neaptide.clusters.broker.replication.model import BrokerRegistration, Endpoint
from neaptide.clusters.hosts.local import LocalHost
from neaptide.clusters.hosts.zookeeper import ZooKeeper

E = TypeVar("E", bound=CoordinationEvent)
DEADLINE_S = 10.0


@pytest.fixture(scope="package")
def zookeeper_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    loop = asyncio.new_event_loop()
    directory = tmp_path_factory.mktemp("zookeeper")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        host = LocalHost()
        server = loop.run_until_complete(ZooKeeper.start(host, directory))
        yield server.port
        loop.run_until_complete(server.stop())
        loop.run_until_complete(host.close())
    loop.close()


@pytest.fixture
def zookeeper(zookeeper_port: int, request: pytest.FixtureRequest) -> Iterator[KazooClient]:
    """A client of the test's own, rooted where the test's brokers are."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    root = KazooClient(f"127.0.0.1:{zookeeper_port}")
    root.start()
    root.ensure_path(f"/{name}")
    root.chroot = f"/{name}"
    yield root
    root.stop()
    root.close()


@pytest.fixture
def connect(zookeeper: KazooClient, zookeeper_port: int) -> str:
    return f"127.0.0.1:{zookeeper_port}{zookeeper.chroot}"


class Received(ABC):
    """A broker's side of the coordination: what it asks, and what it received and has not read."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.unread: list[Any] = []
        self._news = asyncio.Event()

    def receive(self, event: object) -> None:
        self.unread.append(event)
        self._news.set()

    @abstractmethod
    def ask(self, *requests: CoordinationRequest) -> None: ...

    async def receives(
        self, kind: type[E] | UnionType, that: Callable[[E], bool] = lambda _: True
    ) -> E:
        """The next event of a kind, of those that fit; what came before it counts as read."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for number, event in enumerate(self.unread):
                    if isinstance(event, kind) and that(event):
                        del self.unread[: number + 1]
                        return event
                self._news.clear()
                await self._news.wait()

    async def becomes_controller(self, *, gives_topic_ids: bool = False) -> ClusterLoaded:
        self.ask(TryBecomeController())
        elected = await self.receives(ControllerElected)
        self.ask(LoadCluster(elected.controller_epoch, gives_topic_ids))
        return await self.receives(ClusterLoaded)


class Participant(Received):
    """With ZooKeeper."""

    def __init__(
        self, connect: str, broker_id: int, timeout_ms: int, unclean: bool = False
    ) -> None:
        super().__init__(broker_id)
        self.coordination = ZooKeeperCoordination(
            connect,
            timeout_ms,
            BrokerRegistration(
                broker_id,
                (Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id),),
                unclean_shutdown=unclean,
            ),
            self.receive,
            asyncio.get_running_loop(),
            clock=lambda: 1234,
        )

    def ask(self, *requests: CoordinationRequest) -> None:
        for request in requests:
            self.coordination.execute(request)

    def session(self) -> tuple[int, bytes]:
        identity: tuple[int, bytes] | None = self.coordination._client.kazoo.client_id
        assert identity is not None
        return identity


@asynccontextmanager
async def participant(
    connect: str,
    broker_id: int,
    *,
    timeout_ms: int = 10_000,
    unclean: bool = False,
) -> AsyncIterator[Participant]:
    """A registered broker, and the end of its session."""
    broker = Participant(connect, broker_id, timeout_ms, unclean)
    broker.coordination.start()
    try:
        await broker.receives(SessionStarted)
        yield broker
    finally:
        broker.coordination.close()


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that is taken, and on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
