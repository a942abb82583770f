"""Topics that Metadata requests name and that do not exist: auto.create.topics.enable."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Final

from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.model import is_topic_name
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache

_BEING_CREATED_MAX: Final = 1_000
_CREATION_WAITED_FOR_S: Final = 30.0


class AutoTopicCreation:
    """`now` is in seconds of a clock that goes on."""

    def __init__(
        self,
        enabled: bool,
        metadata: Callable[[], MetadataCache],
        submit: Callable[[object], None],
        now: Callable[[], float],
    ) -> None:
        self._enabled = enabled
        self._metadata = metadata
        self._submit = submit
        self._now = now
        self._waited_for_until: dict[str, float] = {}

    @property
    def being_created(self) -> Set[str]:
        return self._waited_for_until.keys()

    def want(self, topic: str) -> None:
        """Has the topic created where the broker may do it, and where it is none yet."""
        if not self._enabled or topic in self._metadata().topics or not is_topic_name(topic):
            return
        now = self._now()
        being_created = self._waited_for_until
        while being_created and next(iter(being_created.values())) < now:
            del being_created[next(iter(being_created))]  # it came to nothing
        if topic not in being_created and len(being_created) < _BEING_CREATED_MAX:
            being_created[topic] = now + _CREATION_WAITED_FOR_S
            self._submit(events.TopicWanted(topic))

    def forget_created(self) -> None:
        """The metadata has changed."""
        topics = self._metadata().topics
        for topic in tuple(self._waited_for_until):
            if topic in topics:
                del self._waited_for_until[topic]
