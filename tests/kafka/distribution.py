"""A directory as an unpacked Apache Kafka has it, of jars of Maven Central, where Kafka's archives
are not. Each tool of its `bin` starts the class that Kafka's own script of that name starts."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from neaptide.clusters.kafka.artifacts import class_path

# Some moved from kafka.tools from 4.0 on.
_TOOLS: Final[Mapping[str, Sequence[str]]] = {
    "kafka-server-start": ("kafka.Kafka",),
    "kafka-storage": ("kafka.tools.StorageTool",),
    "kafka-topics": ("org.apache.kafka.tools.TopicCommand",),
    "kafka-leader-election": ("org.apache.kafka.tools.LeaderElectionCommand",),
    "kafka-dump-log": ("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments"),
    "kafka-console-producer": (
        "org.apache.kafka.tools.ConsoleProducer",
        "kafka.tools.ConsoleProducer",
    ),
    "kafka-console-consumer": (
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "kafka.tools.ConsoleConsumer",
    ),
}


def distribution(directory: Path, version: str) -> Path:
    """Of a version from 3.9 on, made in this directory."""
    jars = class_path(
        f"org.apache.kafka:kafka_2.13:{version}",
        f"org.apache.kafka:kafka-tools:{version}",
        "org.slf4j:slf4j-simple:1.7.36",  # logs to standard error
    )
    there: set[str] = set()
    for jar in jars.split(":"):
        with zipfile.ZipFile(jar) as opened:
            there.update(opened.namelist())
    binaries = directory / "bin"
    binaries.mkdir(parents=True)
    for tool, names in _TOOLS.items():
        name = next(name for name in names if f"{name.replace('.', '/')}.class" in there)
        script = binaries / f"{tool}.sh"
        script.write_text(
            f'#!/bin/sh\nexec java $KAFKA_HEAP_OPTS -cp "{jars}" {name} "$@"\n', encoding="ascii"
        )
        script.chmod(0o755)
    return directory
