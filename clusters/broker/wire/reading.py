"""Reads one entity of kio's from bytes that a stranger has sent: the only place that does.

kio is compiled, and trusts what it reads: see bounds, which stands before it here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kio.serial import entity_reader

from neaptide.clusters.broker.wire.bounds import ELEMENTS_MAX, checked


class UnreadableError(Exception):
    """The bytes are no such entity; the message says why, in a few words."""


_WHY_MAX = 200


def read_entity(
    cls: Any, frame: bytes, position: int = 0, elements_max: int | None = ELEMENTS_MAX
) -> tuple[Any, bytes, int]:
    """The entity that begins at `position`, the frame, and where the entity ends in it.

    The frame that is returned lacks the tagged fields that are not known. Raises UnreadableError,
    whatever is wrong.
    """
    try:
        frame, end = checked(cls, frame, position, elements_max)
        entity, size = _reader(cls)(frame, position)
    except Exception as error:
        why = str(error) or type(error).__name__
        raise UnreadableError(why[:_WHY_MAX]) from error
    if position + size != end:
        raise UnreadableError(
            f"{cls.__name__} has {end - position} bytes, of which {size} are read"
        )
    return entity, frame, end


@cache
def _reader(cls: Any) -> Any:
    return entity_reader(cls)
