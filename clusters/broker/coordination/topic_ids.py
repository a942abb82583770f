"""The ids of topics (KIP-516): who makes them, and who gives one to a topic that has none.

A topic gets its id from whoever creates it, or from the first controller that finds it without one.
It keeps it for good: a topic that is made again under the same name has another.
As Kafka's KafkaZkClient.setTopicIds.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kazoo.client import TransactionRequest

from neaptide.clusters.broker.coordination import cluster_view, znodes
from neaptide.clusters.broker.coordination.client import Client, Watch
from neaptide.clusters.broker.coordination.conditional import ConditionalWrite, Written
from neaptide.clusters.broker.coordination.session import Term
from neaptide.clusters.broker.replication.model import TopicConfiguration

_NO_OPTION: Final = "-"  # an id that began with it would be one in a command


def random_topic_id() -> str:
    """22 characters, as Kafka's Uuid has them."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith(_NO_OPTION):
            return text


class TopicsOfTerm:
    """What a controller reads of topics in one term, each with an id.

    A topic that it has seen and that has lost its id since, because an administrator of before 2.8
    has written its znode, gets none until the next controller comes (KAFKA-14190).
    """

    def __init__(self, client: Client, term: Term, new_id: Callable[[], str] | None) -> None:
        """`new_id` None: topics have no ids."""
        self._client = client
        self._term = term
        self._new_id = new_id
        self._created: dict[str, int] = {}  # by topic, its znode's czxid

    def read(self, watch: Watch) -> dict[str, TopicConfiguration]:
        """All that there are. The watch is set before an id is written."""
        found = cluster_view.topics_and_czxids(self._client, watch)
        before, self._created = self._created, {name: at for name, (_, at) in found.items()}
        topics = {name: configuration for name, (configuration, _) in found.items()}
        if self._new_id is not None:
            for name, configuration in topics.items():
                if configuration.topic_id is None and before.get(name) != self._created[name]:
                    topics[name] = self._give(name, configuration, self._new_id())
        return topics

    def _give(self, name: str, read: TopicConfiguration, topic_id: str) -> TopicConfiguration:
        """As it is then; without an id where it is gone, or where there is a later controller."""
        path = znodes.topic_path(name)
        while True:
            znode = self._client.get(path)
            if znode is None:
                return read
            now = znodes.decode_topic(name, znode.data, None)
            now = replace(now, settings=read.settings)
            if now.topic_id is not None:
                return now
            data = znodes.with_topic_id(name, znode.data, topic_id)
            version = znode.stat.version

            def fill(
                transaction: TransactionRequest, data: bytes = data, at: int = version
            ) -> None:
                transaction.check(znodes.CONTROLLER_EPOCH, self._term.version)
                transaction.set_data(path, data, at)

            result = ConditionalWrite(self._client, fill, path, data).result()
            if isinstance(result, Written):
                return replace(now, topic_id=topic_id)
            if result.operation == 0:
                return read
