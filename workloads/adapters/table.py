"""The programs that ship, by the name of the client library: each is started with these words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final


def _module(name: str) -> Callable[[], tuple[str, ...]]:
    return lambda: (sys.executable, "-m", f"neaptide.workloads.adapters.{name}")


CONFLUENT: Final = "confluent-kafka"
ADAPTERS: Final[Mapping[str, Callable[[], tuple[str, ...]]]] = {
    CONFLUENT: _module("confluent"),
    "kafka-python": _module("kafka_python"),
    "aiokafka": _module("aio"),
}
