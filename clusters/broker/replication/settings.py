"""The broker settings that replication reads: Kafka's names, Kafka's defaults, checked once.

A field's Kafka name is its own with dots for underscores. Settings of the log, the listeners and
the coordination service are read where they are used; all come from the same flat mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final, get_type_hints

from neaptide.clusters.broker.replication.generation import Generation

# The one replica.selector.class that comes with Kafka.
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class InvalidSettingError(Exception):
    """A setting whose value is not of its type or out of its range."""


class MigrationPolicy(StrEnum):
    """Between which protocols a group that has members may change (KIP-848)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"  # from the classic to the consumer protocol
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Durations in milliseconds, or as the name says, sizes in bytes. What has no default here has
    it in generation."""

    delete_topic_enable: bool
    group_initial_rebalance_delay_ms: int
    message_max_bytes: int
    replica_lag_time_max_ms: int
    unclean_leader_election_enable: bool
    auto_create_topics_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    controlled_shutdown_enable: bool = True
    controlled_shutdown_max_retries: int = 3
    controlled_shutdown_retry_backoff_ms: int = 5_000
    default_replication_factor: int = 1
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_session_timeout_ms: int = 45_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_min_session_timeout_ms: int = 6_000
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 10
    log_segment_bytes: int = 1_073_741_824
    min_insync_replicas: int = 1
    num_partitions: int = 1
    num_replica_fetchers: int = 1
    offsets_commit_required_acks: int = -1
    offsets_commit_timeout_ms: int = 5_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    replica_fetch_backoff_ms: int = 1_000
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_min_bytes: int = 1
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_wait_max_ms: int = 500
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    replica_lag_max_messages: int = 4_000  # read by the generation 0.8 only
    replica_selector_class: str = ""  # none: consumers read from leaders
    request_timeout_ms: int = 30_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_max_timeout_ms: int = 900_000
    transaction_state_log_min_isr: int = 2
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_segment_bytes: int = 104_857_600


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What a topic may set for itself, resolved against its broker's settings."""

    min_insync_replicas: int
    max_message_bytes: int
    segment_bytes: int
    unclean_leader_election_enable: bool


CONSUMER_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What a group of the consumer protocol has for itself; None: as its broker's settings say."""

    consumer_session_timeout_ms: int | None = None
    consumer_heartbeat_interval_ms: int | None = None


def group_settings(given: Mapping[str, str], broker: ReplicationSettings) -> GroupSettings:
    """Raises InvalidSettingError with one sentence."""
    bounds = {
        CONSUMER_SESSION_TIMEOUT: (
            broker.group_consumer_min_session_timeout_ms,
            broker.group_consumer_max_session_timeout_ms,
        ),
        CONSUMER_HEARTBEAT_INTERVAL: (
            broker.group_consumer_min_heartbeat_interval_ms,
            broker.group_consumer_max_heartbeat_interval_ms,
        ),
    }
    values = {name: _as_int(name, text) for name, text in given.items() if name in bounds}
    if unknown := sorted(given.keys() - bounds):
        raise InvalidSettingError(f"a group has no setting {', '.join(unknown)}")
    for name, value in values.items():
        least, most = bounds[name]
        if not least <= value <= most:
            raise InvalidSettingError(f"{name} must be from {least} to {most}, not {value}")
    session_ms, heartbeat_ms = map(values.get, bounds)
    session = broker.group_consumer_session_timeout_ms if session_ms is None else session_ms
    interval = broker.group_consumer_heartbeat_interval_ms if heartbeat_ms is None else heartbeat_ms
    if session <= interval:
        raise InvalidSettingError(
            f"{CONSUMER_SESSION_TIMEOUT} must be greater than {CONSUMER_HEARTBEAT_INTERVAL}"
        )
    return GroupSettings(session_ms, heartbeat_ms)


def setting_names() -> frozenset[str]:
    """All that `replication_settings` reads, by Kafka's names."""
    return frozenset(field.name.replace("_", ".") for field in fields(ReplicationSettings))


def _as_bool(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidSettingError(f"{name} must be true or false, not {text!r}")
    return text.lower() == "true"


def _as_replica_selector(name: str, text: str) -> str:
    if text not in ("", RACK_AWARE):
        raise InvalidSettingError(f"{name} may be {RACK_AWARE}, not {text!r}")
    return text


def _as_migration_policy(name: str, text: str) -> MigrationPolicy:
    try:
        return MigrationPolicy(text.lower())
    except ValueError:
        known = ", ".join(MigrationPolicy)
        raise InvalidSettingError(f"{name} may be {known}, not {text!r}") from None


def _as_int(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidSettingError(f"{name} must be a whole number, not {text!r}") from None


def replication_settings(given: Mapping[str, str], generation: Generation) -> ReplicationSettings:
    """Reads the settings of replication out of all of a broker's settings.

    Raises InvalidSettingError with one sentence. Names that are not replication's are left alone.
    """
    values: dict[str, bool | int | str] = {
        "unclean_leader_election_enable": generation.unclean_leader_election_enable,
        "replica_lag_time_max_ms": generation.replica_lag_time_max_ms,
        "message_max_bytes": generation.message_max_bytes,
        "group_initial_rebalance_delay_ms": generation.group_initial_rebalance_delay_ms,
        "delete_topic_enable": generation.delete_topic_enable,
    }
    types = get_type_hints(ReplicationSettings)
    for field in fields(ReplicationSettings):
        name = field.name.replace("_", ".")
        if name in given:
            parse = _PARSERS[types[field.name]]
            values[field.name] = parse(name, given[name])
    return ReplicationSettings(**values)  # type: ignore[arg-type]


_PARSERS: Final[Mapping[type, Callable[[str, str], bool | int | str]]] = {
    bool: _as_bool,
    int: _as_int,
    str: _as_replica_selector,
    MigrationPolicy: _as_migration_policy,
}


def topic_settings(given: Mapping[str, str], broker: ReplicationSettings) -> TopicSettings:
    """A topic's settings; `max.message.bytes` is the topic's name for `message.max.bytes`."""
    return TopicSettings(
        min_insync_replicas=_as_int(
            "min.insync.replicas", given.get("min.insync.replicas", str(broker.min_insync_replicas))
        ),
        max_message_bytes=_as_int(
            "max.message.bytes", given.get("max.message.bytes", str(broker.message_max_bytes))
        ),
        segment_bytes=_as_int(
            "segment.bytes", given.get("segment.bytes", str(broker.log_segment_bytes))
        ),
        unclean_leader_election_enable=_as_bool(
            "unclean.leader.election.enable",
            given.get("unclean.leader.election.enable", str(broker.unclean_leader_election_enable)),
        ),
    )
