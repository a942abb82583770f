"""Topic ids (KIP-516) in the messages between brokers that name topics by nothing else.

Our broker keeps no ids: the id of a topic follows from its name. So a topic that was deleted and
made again has the id that it had before; the two differ in leader epochs and versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid5

FETCH_WITH_TOPIC_IDS: Final = 13  # the first version of Fetch that has them in place of names

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@lru_cache(maxsize=16_384)
def topic_id(name: str) -> UUID:
    """The id of a topic. What is no name but an id that nobody knew is that id again."""
    try:
        return UUID(name)
    except ValueError:
        return uuid5(NAMESPACE_URL, name)


def is_topic_id(text: str) -> bool:
    """Whether it stands for a topic of which only the id is known."""
    return _ID.fullmatch(text) is not None


class TopicNames:
    """The names of topics by their ids; `known` is asked where an id is new."""

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        self._known = known
        self._names: dict[UUID, str] = {}

    def name_of(self, given: UUID | None) -> str:
        """The name, or, of a topic that this broker does not know, the id as text."""
        if given is None:
            return str(UUID(int=0))
        if given not in self._names:
            self._names = {topic_id(name): name for name in self._known()}
        return self._names.get(given, str(given))
