"""The programs that ship, by the name of the client library: each is started with these words.

Kafka's own client comes in a version that may be named: `java:3.9.1`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.kafka.artifacts import class_path

CONFLUENT: Final = "confluent-kafka"
JAVA: Final = "java"
JAVA_VERSION: Final = "4.4.0"
_VERSIONED: Final = re.compile(rf"{JAVA}:(\d+(?:\.\d+)+)")
_JAVA_SOURCE: Final = Path(__file__).parent / "JavaClient.java"
_JAVA_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def _python(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"neaptide.workloads.adapters.{name}")


def _java(version: str = JAVA_VERSION) -> tuple[str, ...]:
    """Compiled when it starts. Raises MissingPartError."""
    jars = class_path(
        f"org.apache.kafka:kafka-clients:{version}",
        "com.fasterxml.jackson.core:jackson-databind:2.16.2",
        "org.slf4j:slf4j-simple:1.7.36",
    )
    return (
        str(find_java()), *_JAVA_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp", jars, str(_JAVA_SOURCE), version,
    )  # fmt: skip


ADAPTERS: Final[Mapping[str, Callable[[], tuple[str, ...]]]] = {
    CONFLUENT: partial(_python, "confluent"),
    "kafka-python": partial(_python, "kafka_python"),
    "aiokafka": partial(_python, "aio"),
    JAVA: _java,
}


def shipped(name: str) -> tuple[str, ...] | None:
    """How the client of this name is started, if it ships. Raises MissingPartError."""
    if versioned := _VERSIONED.fullmatch(name):
        return _java(versioned[1])
    return ADAPTERS[name]() if name in ADAPTERS else None
