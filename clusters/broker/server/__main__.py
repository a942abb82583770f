"""`python -m clusters.broker.server server.properties`: one broker process.

It ends cleanly on SIGTERM and SIGINT. Exit status: 0 after a clean end, 1 where it could not go
on, 64 for settings that are wrong.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

import uvloop

from clusters.broker.coordination.zookeeper import ZooKeeperCoordination
from clusters.broker.replication.model import BrokerRegistration
from clusters.broker.replication.settings import InvalidSettingError
from clusters.broker.server.config import ServerConfig, read_properties, server_config
from clusters.broker.server.listener import Connection
from clusters.broker.server.shell import BrokerShell
from clusters.broker.storage.config import SettingError
from clusters.broker.storage.errors import StorageError
from clusters.broker.storage.log_directory import LogDirectory

_log = logging.getLogger("broker")
RECOVERY_POINT_INTERVAL_S = 60.0  # log.flush.offset.checkpoint.interval.ms


async def serve(config: ServerConfig) -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Exception | None] = loop.create_future()

    def end(error: Exception | None = None) -> None:
        if not ended.done():
            ended.set_result(error)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    logs = LogDirectory.open(config.log_directory, config.broker_id, config.settings)
    shell = BrokerShell(config, logs, end)
    coordination = ZooKeeperCoordination(
        config.zookeeper_connect,
        config.zookeeper_session_timeout_ms,
        BrokerRegistration(config.broker_id, config.advertised, config.rack),
        shell.tell,
        loop,
    )
    shell.begin(coordination)
    servers = [
        await loop.create_server(
            lambda listener=endpoint.listener: Connection(  # type: ignore[misc]
                listener,
                config.socket_request_max_bytes,
                shell.handle,
                shell.on_opened,
                shell.on_closed,
            ),
            endpoint.host,
            endpoint.port,
        )
        for endpoint in config.listeners
    ]
    _log.info("broker %s, generation %s", config.broker_id, config.generation.name)
    coordination.start()
    keeper = loop.create_task(_keep_recovery_points(logs))
    error = await ended
    keeper.cancel()
    for server in servers:
        server.close()
    coordination.close()
    if error is not None:
        # What is on disk stays as it is, as after a crash: the next start recovers it.
        _log.error("ending: %s", error)
        return 1
    shell.shut_down()
    _log.info("ended cleanly")
    return 0


async def _keep_recovery_points(logs: LogDirectory) -> None:
    while True:
        await asyncio.sleep(RECOVERY_POINT_INTERVAL_S)
        logs.flush_dirty_logs()
        logs.checkpoint_recovery_points()


def main(arguments: list[str]) -> int:
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m clusters.broker.server server.properties\n")
        return 64
    try:
        settings = read_properties(Path(arguments[0]).read_text(encoding="utf-8"))
        config = server_config(settings)
        return uvloop.run(serve(config))
    except (InvalidSettingError, SettingError) as error:
        _log.error("%s: %s", arguments[0], error)
        return 64
    except (StorageError, OSError) as error:
        _log.error("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
