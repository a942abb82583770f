"""The client libraries by name. One is imported when it is used: each costs a process its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from neaptide.workloads.libraries.model import Library

DEFAULT: Final = "confluent-kafka"


def _confluent() -> Library:
    from neaptide.workloads.libraries.confluent import CONFLUENT

    return CONFLUENT


def _kafka_python() -> Library:
    from neaptide.workloads.libraries.kafka_python import KAFKA_PYTHON

    return KAFKA_PYTHON


def _aiokafka() -> Library:
    from neaptide.workloads.libraries.aio import AIOKAFKA

    return AIOKAFKA


def _java() -> Library:
    from neaptide.workloads.libraries.java import JAVA

    return JAVA


LIBRARIES: Final[Mapping[str, Callable[[], Library]]] = {
    DEFAULT: _confluent,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "java": _java,
}
