"""The settings of a broker process, from a file of Kafka's `server.properties` form.

Names and defaults are Kafka's; the one of our own is `neaptide.generation`. What replication and
the log read of the same file is checked there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from neaptide.clusters.broker.replication.generation import GENERATIONS, Generation
from neaptide.clusters.broker.replication.model import Endpoint, SecurityProtocol
from neaptide.clusters.broker.replication.settings import (
    InvalidSettingError,
    ReplicationSettings,
    replication_settings,
)
from neaptide.clusters.broker.server.security import (
    ListenerSecurity,
    listener_security,
    protocols,
)
from neaptide.clusters.broker.storage.config import log_config

INT_MAX: Final = 2**31 - 1
_ZOOKEEPER_CONNECT: Final = re.compile(r"[^\s:/,]+:\d+(,[^\s:/,]+:\d+)*(/\S*)?")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """`advertised` is what others are to connect to; `listeners` is what is bound."""

    broker_id: int
    generation: Generation
    listeners: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    inter_broker_listener: str
    security: Mapping[str, ListenerSecurity]  # by listener
    log_directories: tuple[Path, ...]
    zookeeper_connect: str
    zookeeper_session_timeout_ms: int
    socket_request_max_bytes: int
    queued_max_requests: int
    queued_max_request_bytes: int | None  # None: no limit
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    replica_socket_timeout_ms: int
    log_cleaner_enable: bool
    log_cleaner_backoff_ms: int
    log_retention_check_interval_ms: int
    log_flush_scheduler_interval_ms: int | None  # None: as often as the logs need it
    rack: str | None
    replication: ReplicationSettings
    settings: Mapping[str, str]


def trimmed(settings: Mapping[str, str]) -> dict[str, str]:
    """Spaces around a value are no part of it (Kafka's ConfigDef), though a file keeps them."""
    return {name: value.strip() for name, value in settings.items()}


def parse_endpoints(name: str, text: str) -> tuple[Endpoint, ...]:
    """`CLIENT://127.0.0.1:9092,REPLICATION://127.0.0.1:9093`."""
    endpoints = []
    for part in text.split(","):
        listener, separator, address = part.strip().partition("://")
        host, colon, port = address.rpartition(":")
        if not (listener and separator and colon and port.isdecimal() and int(port) < 2**16):
            raise InvalidSettingError(f"{name}: {part!r} is not of the form NAME://host:port")
        endpoints.append(Endpoint(listener, host, int(port)))
    return tuple(endpoints)


def server_config(settings: Mapping[str, str]) -> ServerConfig:
    """Raises InvalidSettingError or the log's SettingError, with one sentence."""
    generation_name = _required(settings, "neaptide.generation")
    if generation_name not in GENERATIONS:
        known = ", ".join(GENERATIONS)
        raise InvalidSettingError(f"neaptide.generation must be one of {known}")
    generation = GENERATIONS[generation_name]
    listeners = _spoken(settings, parse_endpoints("listeners", _required(settings, "listeners")))
    advertised = listeners
    if settings.get("advertised.listeners"):
        advertised = _spoken(
            settings, parse_endpoints("advertised.listeners", settings["advertised.listeners"])
        )
    flusher = "log.flush.scheduler.interval.ms"
    config = ServerConfig(
        broker_id=_number(settings, "broker.id", None),
        generation=generation,
        listeners=listeners,
        advertised=advertised,
        inter_broker_listener=settings.get("inter.broker.listener.name", listeners[0].listener),
        security={one.listener: listener_security(settings, one) for one in listeners},
        log_directories=tuple(
            Path(part.strip()) for part in _required(settings, "log.dirs").split(",")
        ),
        zookeeper_connect=_required(settings, "zookeeper.connect"),
        zookeeper_session_timeout_ms=_number(
            settings, "zookeeper.session.timeout.ms", generation.zookeeper_session_timeout_ms
        ),
        socket_request_max_bytes=_number(settings, "socket.request.max.bytes", 104_857_600),
        queued_max_requests=_number(settings, "queued.max.requests", 500),
        queued_max_request_bytes=_limit(settings, "queued.max.request.bytes"),
        fetch_max_bytes=_number(settings, "fetch.max.bytes", 57_671_680),
        max_incremental_fetch_session_cache_slots=_number(
            settings, "max.incremental.fetch.session.cache.slots", 1_000
        ),
        connections_max_idle_ms=_number(settings, "connections.max.idle.ms", 600_000),
        max_connections=_number(settings, "max.connections", INT_MAX),
        max_connections_per_ip=_number(settings, "max.connections.per.ip", INT_MAX),
        producer_id_expiration_ms=_number(settings, "producer.id.expiration.ms", 86_400_000),
        producer_id_expiration_check_interval_ms=_number(
            settings, "producer.id.expiration.check.interval.ms", 600_000
        ),
        replica_socket_timeout_ms=_number(settings, "replica.socket.timeout.ms", 30_000),
        log_cleaner_enable=_flag(settings, "log.cleaner.enable", generation.log_cleaner_enable),
        log_cleaner_backoff_ms=_number(settings, "log.cleaner.backoff.ms", 15_000),
        log_retention_check_interval_ms=_number(
            settings, "log.retention.check.interval.ms", 300_000
        ),
        log_flush_scheduler_interval_ms=_number(settings, flusher, None)
        if flusher in settings
        else None,
        rack=settings.get("broker.rack"),
        replication=replication_settings(settings, generation),
        settings=dict(settings),
    )
    _check(config)
    return config


def _check(config: ServerConfig) -> None:
    """What each setting alone cannot show."""
    names = {endpoint.listener for endpoint in config.listeners}
    if len(names) != len(config.listeners):
        raise InvalidSettingError("listeners: each needs a name of its own")
    if {endpoint.listener for endpoint in config.advertised} != names:
        raise InvalidSettingError("advertised.listeners must name the same listeners as listeners")
    if config.inter_broker_listener not in names:
        raise InvalidSettingError(
            f"inter.broker.listener.name is {config.inter_broker_listener!r}, "
            f"but listeners has {', '.join(sorted(names))}"
        )
    _check_protocols(config)
    if not _ZOOKEEPER_CONNECT.fullmatch(config.zookeeper_connect):
        raise InvalidSettingError(
            "zookeeper.connect must be of the form host:port,host:port/chroot, "
            f"not {config.zookeeper_connect!r}"
        )
    directories = config.log_directories
    if len({one.absolute() for one in directories}) != len(directories):
        raise InvalidSettingError("log.dirs names a log directory twice")
    if not all(part.strip() for part in config.settings["log.dirs"].split(",")):
        raise InvalidSettingError("log.dirs has a comma too many")
    log_config(config.settings)


def _spoken(settings: Mapping[str, str], endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """The endpoints, with what is spoken there."""
    spoken = protocols(settings, [endpoint.listener for endpoint in endpoints])
    return tuple(
        replace(endpoint, protocol=protocol)
        for endpoint, protocol in zip(endpoints, spoken, strict=True)
    )


def _check_protocols(config: ServerConfig) -> None:
    for endpoint in config.listeners:
        if endpoint.protocol is SecurityProtocol.PLAINTEXT:
            continue
        if endpoint.listener == config.inter_broker_listener:
            raise InvalidSettingError(
                f"brokers speak PLAINTEXT to each other, and {endpoint.listener}, which "
                f"inter.broker.listener.name names, is {endpoint.protocol.name}"
            )
        if not config.generation.speaks_tls_and_sasl:
            raise InvalidSettingError(
                f"{config.generation.name} speaks PLAINTEXT alone, and {endpoint.listener} is "
                f"{endpoint.protocol.name}: Kafka has TLS and SASL from 0.9 on"
            )


def _required(settings: Mapping[str, str], name: str) -> str:
    if not settings.get(name):
        raise InvalidSettingError(f"{name} is not set")
    return settings[name]


def _number(settings: Mapping[str, str], name: str, default: int | None) -> int:
    text = _required(settings, name) if default is None else settings.get(name, str(default))
    if not text.isdecimal():
        raise InvalidSettingError(f"{name} must be a whole number from 0 on, not {text!r}")
    return int(text)


def _flag(settings: Mapping[str, str], name: str, default: bool) -> bool:
    text = settings.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidSettingError(f"{name} must be true or false, not {text!r}")
    return text == "true"


def _limit(settings: Mapping[str, str], name: str) -> int | None:
    """None where it is -1, which it is unless it is set: no limit."""
    return None if settings.get(name, "-1") == "-1" else _number(settings, name, None)
