"""What is set for this broker, or for all, while they run (KIP-226): `/config/brokers`.

A broker's own value goes before that of all brokers, both before its file. What is no setting, or
cannot be altered while a broker runs, is left out with a line in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from neaptide.clusters.broker.coordination.znodes import ALL_BROKERS, broker_entity
from neaptide.clusters.broker.replication.settings import InvalidSettingError
from neaptide.clusters.broker.server.config import ServerConfig, server_config
from neaptide.clusters.broker.storage.config import SETTINGS, SettingError

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
# Without effect: a broker has one log directory, between which nothing moves.
_DIRECTORIES_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
DYNAMIC: Final = frozenset(
    {
        *(one.broker_names[0][0] for one in SETTINGS),
        "log.cleaner.backoff.ms",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        LEADER_RATE,
        FOLLOWER_RATE,
        _DIRECTORIES_RATE,
    }
)

_log = logging.getLogger("broker")


class DynamicSettings:
    """`changed` is called when `current` is another one."""

    def __init__(self, config: ServerConfig, changed: Callable[[], None]) -> None:
        self._static = config
        self._changed = changed
        self._own = broker_entity(config.broker_id)
        self._of: dict[str, Mapping[str, str]] = {ALL_BROKERS: {}, self._own: {}}
        self.current = config

    @property
    def entities(self) -> tuple[str, ...]:
        """Whose settings this broker reads."""
        return tuple(self._of)

    def entity(self, name: str) -> str | None:
        """As requests name it: all brokers by nothing. None: it is another broker."""
        if not name:
            return ALL_BROKERS
        return self._own if name == str(self._static.broker_id) else None

    @property
    def of_all(self) -> Mapping[str, str]:
        """What is set for all brokers."""
        return self._of[ALL_BROKERS]

    def is_own(self, name: str) -> bool:
        return name in self._of[self._own]

    def is_static(self, name: str) -> bool:
        return name in self._static.settings

    def check(self, entity: str, settings: Mapping[str, str]) -> ServerConfig:
        """The configuration that these come to.

        Raises InvalidSettingError or SettingError, in a sentence.
        """
        fixed = sorted(settings.keys() - DYNAMIC)
        if fixed:
            raise InvalidSettingError(f"cannot be altered while a broker runs: {', '.join(fixed)}")
        for name in (LEADER_RATE, FOLLOWER_RATE, _DIRECTORIES_RATE):
            if not settings.get(name, "0").isdecimal():
                raise InvalidSettingError(f"{name} must be a whole number from 0 on")
        of = {**self._of, entity: settings}
        merged = {**self._static.settings, **of[ALL_BROKERS], **of[self._own]}
        return server_config(merged)

    def take(self, entity: str, settings: Mapping[str, str]) -> None:
        """What the coordination service says now."""
        usable = dict(settings)
        for name, value in settings.items():
            try:
                self.check(entity, {name: value})
            except (InvalidSettingError, SettingError) as error:
                _log.warning("%s: %s", entity, error)
                del usable[name]
        if usable != self._of[entity]:
            self.current = self.check(entity, usable)
            self._of[entity] = usable
            self._changed()

    def rate(self, name: str) -> int | None:
        """Bytes a second; None: without limit, whatever the file says, as in Kafka."""
        value = self._of[self._own].get(name, self.of_all.get(name))
        return None if value is None else int(value)
