"""The life of one broker process: ports, log directories, coordination, and the end of it all.

Order of the start: ports first (what fails cheaply fails first, and before the disk is touched),
then the log directories with their recovery, then ZooKeeper. The clean end is the reverse, with the
logs before the session, as in Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import resource
import signal
from collections.abc import Callable
from typing import Any, Final

from neaptide.clusters.broker.coordination.zookeeper import ZooKeeperCoordination
from neaptide.clusters.broker.replication.interface.administration import ShutdownRequested
from neaptide.clusters.broker.replication.interface.events import ProducerExpiration
from neaptide.clusters.broker.replication.model import BrokerRegistration, Endpoint
from neaptide.clusters.broker.server.cleaning import LogCleaner
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.server.crowd import Crowd, CrowdLimits
from neaptide.clusters.broker.server.flushing import keep_flushed
from neaptide.clusters.broker.server.listener import Connection
from neaptide.clusters.broker.server.retention import keep_retention
from neaptide.clusters.broker.server.security import tls_context
from neaptide.clusters.broker.server.shell import BrokerShell
from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.broker.storage.log import wall_clock_ms
from neaptide.clusters.broker.storage.log_manager import LogManager

_log = logging.getLogger("broker")
_RECOVERY_POINT_INTERVAL_S: Final = 60.0  # log.flush.offset.checkpoint.interval.ms


class PortInUseError(Exception):
    """A listener's port cannot be bound."""


class _Listening:
    """Accepts connections for a shell that is there before the first one is taken."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._tls = [tls_context(config.settings, one) for one in config.listeners]
        self.crowd = Crowd(
            CrowdLimits(
                config.max_connections,
                config.max_connections_per_ip,
                config.connections_max_idle_ms,
                config.queued_max_requests,
                config.queued_max_request_bytes,
            )
        )
        self._servers: list[asyncio.Server] = []
        self.shell: BrokerShell | None = None

    async def bind(self) -> None:
        """Take the ports; nobody is accepted yet."""
        loop = asyncio.get_running_loop()
        for endpoint, tls in zip(self._config.listeners, self._tls, strict=True):
            try:
                server = await loop.create_server(
                    lambda listener=endpoint.listener: self._connection(listener),
                    endpoint.host,
                    endpoint.port,
                    start_serving=False,
                    ssl=tls,
                )
            except OSError as error:
                self.close()
                raise PortInUseError(_cannot_listen(endpoint, error)) from error
            self._servers.append(server)

    async def accept(self, shell: BrokerShell) -> None:
        self.shell = shell
        for endpoint, server in zip(self._config.listeners, self._servers, strict=True):
            try:
                await server.start_serving()
            except OSError as error:
                raise PortInUseError(_cannot_listen(endpoint, error)) from error

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def _connection(self, listener: str) -> Connection:
        shell = self.shell
        assert shell is not None
        return Connection(
            listener,
            self._config.socket_request_max_bytes,
            shell.handle,
            shell.on_opened,
            shell.on_closed,
            self.crowd,
            listener == self._config.inter_broker_listener,
            shell.authenticator(listener),
        )


def _cannot_listen(endpoint: Endpoint, error: OSError) -> str:
    where = f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"
    return f"cannot listen on {where}: {error.strerror or error}"


async def serve(config: ServerConfig) -> int:
    """Runs a broker until SIGTERM, SIGINT or its failure; the exit status.

    Raises PortInUseError, InvalidSettingError and StorageError where it cannot even begin.
    """
    raise_file_limit()
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Exception | None] = loop.create_future()

    def end(error: Exception | None = None) -> None:
        if not ended.done():
            ended.set_result(error)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    listening = _Listening(config)
    await listening.bind()
    logs = LogManager.open(
        config.log_directories,
        config.broker_id,
        config.settings,
        survives=config.generation.survives_failed_log_directories,
    )
    shell = BrokerShell(config, logs, end, listening.crowd, end)
    loop.set_exception_handler(lambda _, context: _on_unexpected(shell, context))
    coordination = ZooKeeperCoordination(
        config.zookeeper_connect,
        config.zookeeper_session_timeout_ms,
        registration(config, logs),
        shell.submit,
        loop,
        on_settings=shell.on_settings,
    )
    shell.begin(coordination)
    await listening.accept(shell)
    _log.info("broker %s, generation %s", config.broker_id, config.generation.name)
    coordination.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stopper(shell, end))
    shell.spawn(_keep_recovery_points(shell, logs))
    shell.spawn(keep_flushed(logs, config.log_flush_scheduler_interval_ms, shell.lose_directory))
    shell.spawn(_keep_busy(listening.crowd))
    shell.spawn(
        _forget_producers(
            shell,
            config.producer_id_expiration_ms,
            config.producer_id_expiration_check_interval_ms,
        )
    )
    shell.spawn(
        keep_retention(
            logs,
            shell.high_watermarks,
            shell.submit,
            shell.when_free,
            config.log_retention_check_interval_ms,
            wall_clock_ms,
        )
    )
    if config.log_cleaner_enable:
        shell.spawn(_clean(shell, logs))
    # What was imported and built so far stays for ever: the collector need not look at it again.
    gc.freeze()
    error = await ended
    listening.close()
    if error is None:
        return _end_cleanly(shell, coordination)
    # What is on disk stays as it is, as after a crash: the next start recovers it.
    _log.error("ending: %s", error)
    coordination.close()
    return 1


def _stopper(shell: BrokerShell, end: Callable[[], None]) -> Callable[[], None]:
    """What a signal does: the first has the broker ask to be relieved, the second ends it now."""
    was_asked = False

    def stop() -> None:
        nonlocal was_asked
        if was_asked:
            end()
        was_asked = True
        shell.submit(ShutdownRequested())

    return stop


def registration(config: ServerConfig, logs: LogManager) -> BrokerRegistration:
    """From 4.0 on a broker owns up to an unclean shutdown (KIP-966)."""
    unclean = config.generation.eligible_leader_replicas and not logs.was_clean
    return BrokerRegistration(
        config.broker_id, config.advertised, config.rack, unclean_shutdown=unclean
    )


def _end_cleanly(shell: BrokerShell, coordination: ZooKeeperCoordination) -> int:
    try:
        shell.shut_down()
    except StorageError as error:
        _log.error("ending, but not cleanly: %s", error)
        coordination.close()
        return 1
    coordination.close()
    _log.info("ended cleanly")
    return 0


def _on_unexpected(shell: BrokerShell, context: dict[str, Any]) -> None:
    """The event loop's last resort. An error that nobody expected is the end of the broker, unless
    it is that of one connection, or of one that could not be accepted."""
    error = context.get("exception")
    _log.error("%s", context["message"], exc_info=error)
    transport = context.get("transport")
    if transport is not None:
        transport.abort()
    elif isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        _log.error("no more files for connections: raise the limit (ulimit -n)")
    elif isinstance(error, Exception):
        shell.end(error)


async def _keep_recovery_points(shell: BrokerShell, logs: LogManager) -> None:
    while True:
        await asyncio.sleep(_RECOVERY_POINT_INTERVAL_S)
        shell.when_free(logs.checkpoint_recovery_points)


async def _clean(shell: BrokerShell, logs: LogManager) -> None:
    cleaner = LogCleaner(
        lambda: shell.settings.current,
        logs,
        lambda: shell.core.partitions,
        shell.when_free,
        asyncio.to_thread,
        wall_clock_ms,
        shell.lose_directory,
    )
    await cleaner.run()


async def _keep_busy(crowd: Crowd) -> None:
    """connections.max.idle.ms"""
    while True:
        await asyncio.sleep(crowd.idle_check_interval_s)
        crowd.end_idle()


async def _forget_producers(shell: BrokerShell, after_ms: int, interval_ms: int) -> None:
    """producer.id.expiration.ms"""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        shell.submit(ProducerExpiration(after_ms))


def raise_file_limit() -> None:
    """As many files as this process may have: each segment that is read and each connection is one.

    Kafka leaves that to whoever starts it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
