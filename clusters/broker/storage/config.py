"""The settings of a log, by Kafka's names and with Kafka's defaults.

A broker names a default (`log.segment.bytes`), a topic overrides it (`segment.bytes`). Settings
that are not about the log on disk are not here, and unknown ones are not an error: one mapping
holds a whole broker's settings.
Source: "Broker Configs" and "Topic Configs" in Kafka's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from neaptide.clusters.errors import UsageError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
LOG_APPEND_TIME: Final = "LogAppendTime"
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1024**3
    segment_ms: int = 7 * 24 * _HOUR_MS
    segment_index_bytes: int = 10 * 1024**2
    index_interval_bytes: int = 4096
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    retention_ms: int = 7 * 24 * _HOUR_MS  # negative: kept for ever
    retention_bytes: int = -1  # negative: without limit
    cleanup_policy: str = "delete"
    compression_type: str = "producer"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 24 * _HOUR_MS
    message_timestamp_type: str = "CreateTime"
    # How far a record may be from the clock: either way, behind it, ahead of it (None: as the
    # generation has it).
    message_timestamp_difference_max_ms: int = LONG_MAX
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int | None = None
    max_message_bytes: int | None = None  # only checked here; None: as the broker has it

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """A segment that is being appended to is never cleaned, so it must not last too long."""
        return (
            min(self.segment_ms, self.max_compaction_lag_ms)
            if self.is_compacted
            else self.segment_ms
        )


@dataclass(frozen=True, slots=True)
class _Setting:
    field: str
    topic_name: str
    # The broker's names with the factor that gives the topic's unit; the first that is set wins.
    broker_names: tuple[tuple[str, int], ...]
    least: int = 0
    most: int = LONG_MAX
    is_fraction: bool = False
    one_of: tuple[str, ...] = ()  # not a number, but some of these words


SETTINGS: Final = (
    _Setting("segment_bytes", "segment.bytes", (("log.segment.bytes", 1),), 14, INT_MAX),
    _Setting("segment_ms", "segment.ms", (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)), 1),
    _Setting(
        "segment_index_bytes",
        "segment.index.bytes",
        (("log.index.size.max.bytes", 1),),
        4,
        INT_MAX,
    ),
    _Setting(
        "index_interval_bytes",
        "index.interval.bytes",
        (("log.index.interval.bytes", 1),),
        0,
        INT_MAX,
    ),
    _Setting("flush_messages", "flush.messages", (("log.flush.interval.messages", 1),)),
    _Setting(
        "flush_ms",
        "flush.ms",
        (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    ),
    _Setting(
        "retention_ms",
        "retention.ms",
        (
            ("log.retention.ms", 1),
            ("log.retention.minutes", _MINUTE_MS),
            ("log.retention.hours", _HOUR_MS),
        ),
        -LONG_MAX,
    ),
    _Setting("retention_bytes", "retention.bytes", (("log.retention.bytes", 1),), -LONG_MAX),
    _Setting(
        "cleanup_policy",
        "cleanup.policy",
        (("log.cleanup.policy", 1),),
        one_of=("delete", "compact"),
    ),
    _Setting(
        "compression_type",
        "compression.type",
        (("compression.type", 1),),
        one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    _Setting(
        "min_cleanable_dirty_ratio",
        "min.cleanable.dirty.ratio",
        (("log.cleaner.min.cleanable.ratio", 1),),
        0,
        1,
        is_fraction=True,
    ),
    *(
        _Setting(
            name, name.replace("_", "."), ((f"log.cleaner.{name.replace('_', '.')}", 1),), least
        )
        for name, least in (
            ("min_compaction_lag_ms", 0),
            ("max_compaction_lag_ms", 1),
            ("delete_retention_ms", 0),
        )
    ),
    _Setting(
        "message_timestamp_type",
        "message.timestamp.type",
        (("log.message.timestamp.type", 1),),
        one_of=("CreateTime", LOG_APPEND_TIME),
    ),
    *(
        _Setting(
            f"message_timestamp_{which}_max_ms",
            f"message.timestamp.{which}.max.ms",
            ((f"log.message.timestamp.{which}.max.ms", 1),),
        )
        for which in ("difference", "before", "after")
    ),
    _Setting("max_message_bytes", "max.message.bytes", (("message.max.bytes", 1),), 0, INT_MAX),
)


class SettingError(UsageError):
    """A setting has a value that it cannot have."""


_OF_LOGS: Final = frozenset(setting.topic_name for setting in SETTINGS)
_FLAGS: Final = ("true", "false")
# What else a topic can have, as Kafka 3.9 knows it, and what each must be: one of some words, a
# number in a range (None: anything).
_OTHERS: Final[Mapping[str, tuple[str, ...] | tuple[int, int] | None]] = {
    "compression.gzip.level": (-1, 9),
    "compression.lz4.level": (1, 17),
    "compression.zstd.level": (-131_072, 22),
    "file.delete.delay.ms": (0, LONG_MAX),
    "follower.replication.throttled.replicas": None,
    "leader.replication.throttled.replicas": None,
    "local.retention.bytes": (-2, LONG_MAX),
    "local.retention.ms": (-2, LONG_MAX),
    "message.downconversion.enable": _FLAGS,
    "message.format.version": None,
    "min.insync.replicas": (1, INT_MAX),
    "preallocate": _FLAGS,
    "remote.log.copy.disable": _FLAGS,
    "remote.log.delete.on.disable": _FLAGS,
    "remote.storage.enable": _FLAGS,
    "segment.jitter.ms": (0, LONG_MAX),
    "unclean.leader.election.enable": _FLAGS,
}


# Settings of topics that are not those of a log or of replication, with what they are unless set.
# Only the lists of throttled replicas change anything here.
DEFAULTS_OF_OTHERS: Final[Mapping[str, str]] = {
    "follower.replication.throttled.replicas": "",
    "leader.replication.throttled.replicas": "",
    "file.delete.delay.ms": "60000",
    "message.downconversion.enable": "true",
    "preallocate": "false",
    "segment.jitter.ms": "0",
}


def log_config(broker: Mapping[str, str], topic: Mapping[str, str] | None = None) -> LogConfig:
    """The topic's own settings over the broker's over Kafka's defaults."""
    chosen: dict[str, str | float] = {}
    for setting in SETTINGS:
        value = _value(setting, broker, topic or {})
        if value is not None:
            chosen[setting.field] = value
    return LogConfig(**chosen)  # type: ignore[arg-type]


def check_topic(given: Mapping[str, str | None]) -> None:
    """What Kafka asks of the settings of a new topic: that it knows each, and that none is null.

    Raises SettingError. The values of those that a log reads are looked at in `log_config`.
    """
    for name, value in given.items():
        if value is None:
            raise SettingError(f"Null value not supported for topic configs: {name}")
        if name in _OTHERS:
            if not _is_allowed(value, _OTHERS[name]):
                raise SettingError(f"{name} cannot be {value!r}.")
        elif name not in _OF_LOGS:
            raise SettingError(f"Unknown topic config: {name}")


def _is_allowed(text: str, allowed: tuple[str, ...] | tuple[int, int] | None) -> bool:
    match allowed:
        case (int() as least, int() as most):
            try:
                return least <= int(text) <= most
            except ValueError:
                return False
        case None:
            return True
    return text.strip().lower() in allowed


def _value(
    setting: _Setting, broker: Mapping[str, str], topic: Mapping[str, str]
) -> str | float | None:
    names = ((setting.topic_name, 1, topic), *((n, f, broker) for n, f in setting.broker_names))
    for name, factor, settings in names:
        text = settings.get(name)
        is_empty_list = setting.topic_name == "cleanup.policy" and settings is topic
        if text is None or (text == "" and not is_empty_list):
            continue
        return (
            _words(setting, name, text) if setting.one_of else _number(setting, name, text, factor)
        )
    return None


def _words(setting: _Setting, name: str, text: str) -> str:
    """One of the words; of policies there may be several."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    may_be_several = setting.field == "cleanup_policy"
    if not set(words) <= set(setting.one_of) or (len(words) > 1 and not may_be_several):
        raise SettingError(f"Set {name} to {' or '.join(setting.one_of)}, not to {text!r}.")
    return text


def _number(setting: _Setting, name: str, text: str, factor: int) -> float:
    """A whole number where it is not a fraction."""
    kind = "number" if setting.is_fraction else "whole number"
    try:
        number = float(text) if setting.is_fraction else int(text) * factor
    except ValueError:
        raise SettingError(f"Set {name} to a {kind}, not to {text!r}.") from None
    if not setting.least <= number <= setting.most:
        raise SettingError(f"{name} cannot be {text}.")
    return number
