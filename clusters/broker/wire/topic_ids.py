"""Topic ids (KIP-516) on the wire: 16 bytes there, Kafka's text of 22 characters everywhere else.

A message that names topics by ids alone may name one that this broker does not know: then the id
stands in place of the name, as Python writes it.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final
from uuid import UUID

FETCH_WITH_TOPIC_IDS: Final = 13  # the first version of Fetch that has them in place of names

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@lru_cache(maxsize=16_384)
def uuid_of(topic_id: str | None) -> UUID | None:
    """None, which is all zeros on the wire: there is no id. What is no id is none either."""
    if topic_id is None:
        return None
    try:
        return UUID(bytes=urlsafe_b64decode(f"{topic_id}=="))
    except ValueError:
        return None


@lru_cache(maxsize=16_384)
def text_of(given: UUID | None) -> str | None:
    """The id as Kafka writes it; None: there is none."""
    if given is None or given.int == 0:
        return None
    return urlsafe_b64encode(given.bytes).decode().rstrip("=")


def is_unknown_topic(name: str) -> bool:
    """Whether it stands for a topic of which only the id is known."""
    return _ID.fullmatch(name) is not None


class TopicNames:
    """The names of topics by their ids.

    `known`: names by ids, as they are now; it is asked where an id is new, and where `state`
    returns another object than before.
    """

    def __init__(
        self, known: Callable[[], Mapping[str, str]], state: Callable[[], object] = lambda: None
    ) -> None:
        self._known = known
        self._state = state
        self._seen: object = None
        self._names: Mapping[str, str] = {}

    def name_of(self, given: UUID | None) -> str:
        """The name, or, of a topic that this broker does not know, one that `is_unknown_topic`."""
        topic_id = text_of(given)
        if topic_id is None:
            return str(UUID(int=0))
        state = self._state()
        if topic_id not in self._names or state is not self._seen:
            self._names, self._seen = self._known(), state
        return self._names.get(topic_id, str(given))
