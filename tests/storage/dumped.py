"""What Kafka's own tool prints of a log."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from neaptide.clusters.kafka.artifacts import class_path

KAFKA = "org.apache.kafka:kafka_2.13:3.9.1"


def dump(files: Sequence[Path], *options: str) -> str:
    command = ["java", "-Xmx256m", "-cp", class_path(KAFKA), "kafka.tools.DumpLogSegments"]
    names = ",".join(str(file) for file in files)
    done = subprocess.run(
        [*command, *options, "--files", names],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # where complaints go
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
