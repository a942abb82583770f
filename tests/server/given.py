"""Parts of a broker's process, as tests give them to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from neaptide.clusters.broker.coordination.zookeeper import ZooKeeperCoordination
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.interface.coordination_service import CoordinationRequest
from neaptide.clusters.broker.replication.interface.effects import ControlRequest
from neaptide.clusters.broker.replication.model import (
    LeaderAndIsr,
    TopicPartition,
)
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
)
from neaptide.clusters.broker.server.apis.table import SENT, replication_apis
from neaptide.clusters.broker.server.config import ServerConfig, server_config
from neaptide.clusters.broker.server.crowd import Crowd, CrowdLimits
from neaptide.clusters.broker.server.dynamic_settings import DynamicSettings
from neaptide.clusters.broker.server.listener import Connection
from neaptide.clusters.broker.server.log_reader import LogReader
from neaptide.clusters.broker.server.shell import BrokerShell
from neaptide.clusters.broker.storage.log_manager import LogManager
from neaptide.clusters.broker.wire.codec import (
    Header,
    decode_request,
    encode_request,
)
from tests.wire.strategies import REPLICATION_APIS

GOOD = {
    "broker.id": "7",
    "neaptide.generation": "0.11",
    "listeners": "CLIENT://127.0.0.1:9092,REPLICATION://127.0.0.1:9093",
    "inter.broker.listener.name": "REPLICATION",
    "log.dirs": "/data",
    "zookeeper.connect": "127.0.0.1:2181,127.0.0.1:2182/chroot",
}


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_reading = True
        self.ended: str | None = None

    def get_extra_info(self, _: str) -> Any:
        return ("127.0.0.1", 1)

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.written))

    def is_closing(self) -> bool:
        return self.ended is not None

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"


CONNECTION = cast(Connection, SimpleNamespace(listener="CLIENT", ip="127.0.0.1"))


def context() -> ApiContext:
    """Of a broker that has no logs."""
    config = server_config(GOOD)
    logs = cast(LogManager, SimpleNamespace(logs={}))
    unused = cast(Any, None)
    return ApiContext(
        DynamicSettings(config, lambda: None),
        Crowd(CrowdLimits()),
        LogReader(logs, unused, unused),
        unused,
        unused,
        unused,
        MetadataCache,
        lambda: None,
        unused,
        unused,
    )


CONTEXT = context()


def read_again(entity: Any, generation: str | None = None) -> tuple[Header, Any]:
    """As a broker of this generation reads it; None: as one of the latest."""
    apis = REPLICATION_APIS if generation is None else replication_apis(generation)
    frame = encode_request(entity, correlation_id=1, client_id="c")
    return decode_request(frame[4:], apis)


REPLICATION = "REPLICATION"


class SlowCoordination:
    """Gives the settings of a topic when the test lets it; gets everything, does nothing."""

    cluster_id = "unused"

    def __init__(self) -> None:
        self.may_report: dict[str, asyncio.Event] = {}
        self.asked: list[str] = []

    async def settings_of_all(self, kind: str) -> Mapping[str, Mapping[str, str]]:
        return {}

    async def settings(self, entity: str) -> Mapping[str, str]:
        topic = entity.removeprefix("topics/")
        if topic == entity:  # of brokers: nothing is set
            return {}
        self.asked.append(topic)
        await self.may_report.setdefault(topic, asyncio.Event()).wait()
        return {}

    def execute(self, request: CoordinationRequest) -> None:
        """The core asks; nobody answers."""


class Answers:
    """Stands for a connection: keeps what it is given, in the order of all of them."""

    def __init__(self, given: list[int], listener: str = REPLICATION) -> None:
        self.listener = listener
        self.given = given
        self.closed = False
        self.sasl = None
        self.is_logging_in = False
        self.must_log_in_again = False

    def respond(self, frame: bytes | None) -> None:
        assert frame is not None
        self.given.append(int.from_bytes(frame[4:8], "big"))

    def close(self) -> None:
        self.closed = True


class World:
    def __init__(self, directory: Path, **settings: str) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.config: ServerConfig = server_config({**GOOD, "log.dirs": str(directory), **given})
        self.logs = LogManager.open([directory], 7, self.config.settings)
        self.failures: list[Exception] = []
        self.crowd = Crowd(CrowdLimits())
        self.shell = BrokerShell(self.config, self.logs, self.failures.append, self.crowd)
        self.coordination = SlowCoordination()
        self.shell.begin(cast(ZooKeeperCoordination, self.coordination))
        self.answered: list[int] = []

    def connection(self) -> Connection:
        connection = cast(Connection, Answers(self.answered))
        self.shell.on_opened(connection)
        return connection

    def ask(self, connection: Connection, entity: Any, correlation_id: int) -> None:
        frame = encode_request(entity, correlation_id=correlation_id, client_id="test")
        self.shell.handle(connection, frame[4:])

    def leader_and_isr(self, topic: str, leader_epoch: int, number: int = 0) -> Any:
        state = LeaderAndIsr(7, leader_epoch, (7,), 1, leader_epoch)
        partition = events.PartitionState(TopicPartition(topic, number), state, (7,), {})
        message = events.LeaderAndIsrRequested(0, 7, 1, (partition,), ())
        return self.control_request(message)

    def control_request(self, message: ControlRequest) -> Any:
        return SENT[type(message)].encode(message, self.config)


async def turns() -> None:
    """Lets every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)
