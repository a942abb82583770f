"""Which texts may be the name of a topic, as Kafka has it."""

from __future__ import annotations

import re
from typing import Final

_TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    return _TOPIC_NAME.fullmatch(name) is not None
