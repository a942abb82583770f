"""Ids of topics for tests: each name has one, so that tests can say it without making any."""

from __future__ import annotations

from uuid import NAMESPACE_URL, UUID, uuid5

from neaptide.clusters.broker.wire.topic_ids import TopicNames, text_of


def uuid_of_name(name: str) -> UUID:
    return uuid5(NAMESPACE_URL, name)


def id_of_name(name: str) -> str:
    text = text_of(uuid_of_name(name))
    assert text is not None
    return text


def names_of(*topics: str) -> TopicNames:
    """Of a broker that knows these topics."""
    return TopicNames(lambda: {id_of_name(name): name for name in topics})
