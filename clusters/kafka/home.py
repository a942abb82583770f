"""An installation of Apache Kafka that the user has: a folder with libs/*.jar.

Its version is what its broker's jar is called. What that version lacks on a Java of today, and the
installation does not have, comes from Maven Central as ever.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neaptide.clusters.errors import UsageError

_BROKER: Final = re.compile(r"kafka_\d+\.\d+(?:\.\d+)?-(\d+(?:\.\d+){2,3})\.jar")
_JAR: Final = re.compile(r"(?P<artifact>.+?)-(?P<version>\d[^-]*.*)\.jar")


@dataclass(frozen=True, slots=True)
class Home:
    """`number` is the version, as 3.9.1; `image` where the jars were copied from, if they were."""

    directory: Path
    number: str
    jars: tuple[Path, ...]
    image: str | None = None

    def lacks(self, coordinate: str) -> bool:
        """Whether there is no version of this artifact at all."""
        _, artifact, _ = coordinate.split(":")
        found = (_JAR.fullmatch(jar.name) for jar in self.jars)
        return all(match is None or match["artifact"] != artifact for match in found)


def read_home(directory: Path) -> Home:
    """Raises UsageError where it is no such folder."""
    jars = tuple(sorted(directory.absolute().glob("libs/*.jar")))
    versions = {match[1] for jar in jars if (match := _BROKER.fullmatch(jar.name))}
    if len(versions) != 1:
        what = f"the brokers of {', '.join(sorted(versions))}" if versions else "no broker's jar"
        raise UsageError(
            f"--kafka-home {directory} has {what} in libs/; name the folder of one unpacked Apache"
            " Kafka, with libs/kafka_2.13-3.9.1.jar or the like."
        )
    return Home(directory.absolute(), versions.pop(), jars)
