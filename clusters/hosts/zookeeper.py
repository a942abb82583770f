"""A real ZooKeeper out of PySpark's own jars: one standalone server, on loopback by default.

Not an ensemble: the coordination service is not what is tested. It keeps its word on its own
disk, but without syncing (no scenario cuts its power), so that it is quick.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from pathlib import Path
from typing import Final

from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.hosts.local import LocalHost, ProcessSpec, RunningProcess
from neaptide.clusters.hosts.ports import LOOPBACK, PortReservation, reserve_port

_MAIN_CLASS: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
# The few jars that the server loads: all of Spark's would take half a second more.
_JARS: Final = (
    "zookeeper-3*.jar",
    "zookeeper-jute-3*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "commons-io-*.jar",
    "netty-*.jar",
)
_OPTIONS: Final = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.forceSync=no",
)
# Half a second a tick; sessions from 1 s to 60 s, as the clients ask.
_CONFIGURATION: Final = """\
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
dataDir={data}
clientPort={port}
clientPortAddress={address}
admin.enableServer=false
4lw.commands.whitelist=srvr
maxClientCnxns=0
"""
_SERVING: Final = b"Zookeeper version"
_PROBE_TIMEOUT_S: Final = 2.0
_LOGGING: Final = """\
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1}: %m%n
"""


def zookeeper_class_path() -> str:
    """The jars of ZooKeeper in the installed PySpark, without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingPartError("PySpark is missing: install it with `pip install pyspark`")
    folder = Path(spec.origin).parent / "jars"
    jars: list[str] = []
    for pattern in _JARS:
        found = sorted(str(jar) for jar in folder.glob(pattern))
        if not found:
            raise MissingPartError(
                f"PySpark's jars hold no {pattern}: install PySpark 4.1 or newer with its jars"
            )
        jars.extend(found)
    return ":".join(jars)


class ZooKeeper:
    """A ZooKeeper server that answers; `port` is its real port, at `address`."""

    def __init__(self, process: RunningProcess, reservation: PortReservation, address: str) -> None:
        self.process = process
        self.address = address
        self.port = reservation.port
        self._reservation = reservation

    @classmethod
    async def start(
        cls,
        host: LocalHost,
        directory: Path,
        *,
        log: Path | None = None,
        address: str = LOOPBACK,
        deadline_s: float = 30.0,
    ) -> ZooKeeper:
        """Start a server with its data below `directory`; returns when it serves.

        Raises MissingPartError where it does not.
        """
        java, class_path = find_java(), zookeeper_class_path()
        directory = directory.absolute()
        directory.mkdir(parents=True, exist_ok=True)
        reservation = reserve_port()
        configuration, logging = directory / "zoo.cfg", directory / "log4j2.properties"
        configuration.write_text(
            _CONFIGURATION.format(data=directory / "data", port=reservation.port, address=address),
            encoding="utf-8",
        )
        logging.write_text(_LOGGING, encoding="utf-8")
        logged = (f"-Dlog4j2.configurationFile={logging}", "-cp", class_path)
        argv = (str(java), *_OPTIONS, *logged, _MAIN_CLASS, str(configuration))
        log = log or directory / "zookeeper.log"
        reservation.release_socket()
        process = await host.start(ProcessSpec("zookeeper", argv, directory, log))
        server = cls(process, reservation, address)
        try:
            await server._until_it_serves(deadline_s)
        except BaseException:
            await server.stop()
            raise
        return server

    async def stop(self) -> None:
        """End the server and give its port back. Idempotent."""
        self.process.kill()
        await self.process.wait()
        self.close()

    def close(self) -> None:
        """Give its port back; the process is for the host to end. Idempotent."""
        self._reservation.close()

    async def _until_it_serves(self, deadline_s: float) -> None:
        deadline = time.monotonic() + deadline_s
        while not await serves(self.address, self.port):
            ended = self.process.trouble()
            if ended is not None:
                raise MissingPartError(f"ZooKeeper cannot be had. {ended}")
            if time.monotonic() > deadline:
                log = self.process.spec.stdout_log
                raise MissingPartError(f"ZooKeeper did not serve in {deadline_s:g} s: see {log}")
            await asyncio.sleep(0.01)


async def serves(address: str, port: int) -> bool:
    """Whether the server takes sessions (the four-letter command `srvr` answers with its version).

    Not `ruok`: it is answered from the moment the port is bound, and a session asked for before
    the database is there can hang for good (its connection is never closed).
    """
    try:
        reader, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    try:
        writer.write(b"srvr")
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            answer = await reader.read(len(_SERVING))
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
    return answer == _SERVING
