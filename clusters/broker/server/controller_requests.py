"""What a controller's request lacks, and the server adds before the core gets it.

A topic's settings, and the number of partitions of internal topics, are in the coordination
service. The lock keeps the order in which the requests came, whichever has to wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from neaptide.clusters.broker.coordination.znodes import MalformedZnodeError, topic_entity
from neaptide.clusters.broker.coordination.zookeeper import ZooKeeperCoordination
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache
from neaptide.clusters.broker.replication.settings import InvalidSettingError, topic_settings
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    INTERNAL_TOPICS,
)
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.server.topic_creation import AutoTopicCreation
from neaptide.clusters.broker.storage.config import SettingError, log_config
from neaptide.clusters.broker.storage.log_manager import LogManager

_log = logging.getLogger("broker")


class ControllerRequests:
    """`coordination` is set before the first request can come."""

    def __init__(
        self,
        config: ServerConfig,
        logs: LogManager,
        topic_creation: AutoTopicCreation,
        metadata: Callable[[], MetadataCache],
        submit: Callable[[object], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.coordination: ZooKeeperCoordination | None = None
        self._config = config
        self._logs = logs
        self._topic_creation = topic_creation
        self._metadata = metadata
        self._submit = submit
        self._spawn = spawn
        self._topic_settings: dict[str, Mapping[str, str]] = {}
        self._order = asyncio.Lock()

    def stop_replica(self, event: events.StopReplicaRequested) -> None:
        """Other partitions of a topic may stay: then its settings are still to be known."""
        if event.delete_partitions:
            stay = {partition.topic for partition in self._logs.logs.keys() - set(event.partitions)}
            for topic in {partition.topic for partition in event.partitions} - stay:
                self._topic_settings.pop(topic, None)
        self._submit(event)

    # --- UpdateMetadata ---------------------------------------------------------------------------

    def update_metadata(self, event: events.UpdateMetadataRequested) -> None:
        named = {one.partition.topic for one in event.partitions}
        known = self._metadata().partition_counts
        uncounted = [one for one in INTERNAL_TOPICS if one in named and one not in known]
        if uncounted:
            self._spawn(self._count_partitions(event, uncounted))
        else:
            self._take_metadata(event)

    async def _count_partitions(
        self, event: events.UpdateMetadataRequested, topics: Sequence[str]
    ) -> None:
        """Groups belong to one of all partitions, and transactional ids; the request names those
        that have a state."""
        assert self.coordination is not None
        counts = {}
        async with self._order:
            for topic in topics:
                try:
                    counts[topic] = await self.coordination.topic_partitions(topic)
                except MalformedZnodeError as error:
                    _log.warning("%s: nobody has a coordinator: %s", topic, error)
            self._take_metadata(replace(event, partition_counts=counts))

    def _take_metadata(self, event: events.UpdateMetadataRequested) -> None:
        self._submit(event)
        self._topic_creation.forget_created()

    # --- LeaderAndIsr -----------------------------------------------------------------------------

    def leader_and_isr(self, event: events.LeaderAndIsrRequested) -> None:
        self._spawn(self._leader_and_isr(event))

    async def _leader_and_isr(self, event: events.LeaderAndIsrRequested) -> None:
        """A topic's settings are read when the first of its replicas comes here.

        They are given to the logs that were there before, too: a broker that has just started knows
        its logs, not their settings.
        """
        async with self._order:
            for topic in dict.fromkeys(state.partition.topic for state in event.partitions):
                if topic not in self._topic_settings:
                    self._take_settings(topic, await self.settings_of(topic_entity(topic)))
            partitions = tuple(
                replace(state, settings=self._topic_settings[state.partition.topic])
                for state in event.partitions
            )
            self._submit(replace(event, partitions=partitions))

    async def settings_of(self, entity: str) -> Mapping[str, str]:
        """What is set for a topic, a broker or all brokers; nothing where that is malformed."""
        assert self.coordination is not None
        try:
            return await self.coordination.settings(entity)
        except MalformedZnodeError as error:
            _log.warning("%s has the broker's settings: %s", entity, error)
            return {}

    async def settings_of_all(self, kind: str) -> Mapping[str, Mapping[str, str]]:
        """What is set for each user or each group, by entity."""
        assert self.coordination is not None
        return await self.coordination.settings_of_all(kind)

    async def settings_of_topic(self, topic: str) -> Mapping[str, str]:
        """As far as they are settings."""
        return self._usable(topic, await self.settings_of(topic_entity(topic)))

    async def alter_settings(
        self, entity: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        """Raises what `change` raises."""
        assert self.coordination is not None
        await self.coordination.alter_settings(entity, change)

    def on_topic_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """They have changed while this broker runs."""
        if topic in self._topic_settings:
            self._take_settings(topic, settings)
            self._submit(events.TopicSettingsChanged(topic, self._topic_settings[topic]))

    def on_broker_settings(self) -> None:
        """What topics do not set for themselves has changed."""
        for topic, settings in tuple(self._topic_settings.items()):
            self.on_topic_settings(topic, settings)

    def topic_setting(self, topic: str, name: str) -> str:
        """As this broker knows it, which has a replica; nothing where it is not set."""
        return self._topic_settings.get(topic, {}).get(name, "")

    def _take_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        usable = self._topic_settings[topic] = self._usable(topic, settings)
        self._logs.reconfigure(topic, usable)

    def _usable(self, topic: str, settings: Mapping[str, str]) -> Mapping[str, str]:
        """What is no setting is left out, with a line in the log: others of its topic are good."""
        usable = dict(settings)
        for name in settings:
            try:
                log_config(self._config.settings, {name: settings[name]})
                topic_settings({name: settings[name]}, self._config.replication)
            except (SettingError, InvalidSettingError) as error:
                _log.warning("topic %s: %s", topic, error)
                del usable[name]
        return usable
