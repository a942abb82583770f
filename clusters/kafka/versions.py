"""What differs from one Apache Kafka to the next, as a table: the row of a version says it all.

Not a list of releases: any x.y.z that Maven Central has is run by the last row that is not newer.
`3.9.1` keeps its state in ZooKeeper, as every version before 4.0; `3.9.1-kraft` and 4.0 in KRaft
with controllers of their own; in `4.1.0-combined` every broker is also a controller.
Sources: Kafka's upgrade notes; KIP-103 (listeners by name, 0.10.2), KIP-516 (topic ids, 2.8),
KIP-500 (no ZooKeeper from 4.0 on), KIP-853 (controllers advertise their listeners, 3.9);
librdkafka's notes on brokers before 0.10.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from neaptide.clusters.errors import UsageError
from neaptide.clusters.kafka.artifacts import class_path, has_class_path
from neaptide.clusters.kafka.home import Home

Version = tuple[int, ...]

_LOGGING: Final = "org.slf4j:slf4j-log4j12:1.7.30"
_LOGGING_NOW: Final = "org.slf4j:slf4j-reload4j:1.7.36"  # log4j 1 under a new roof
_JAXB: Final = "javax.xml.bind:jaxb-api:2.3.1"  # was part of Java until 11
# The clients in zookeeper-3.4.13 and 3.4.14 (Kafka 2.0 to 2.3) cannot read addresses on Java 14 and
# later.
_ZOOKEEPER: Final = "org.apache.zookeeper:zookeeper:3.4.10"

# A follower that is ahead of its leader ends its broker before 0.11 ("log truncation is not
# allowed"), if its high watermark was written in time. So it is not: a broker that died starts
# from 0 and fetches all. A scenario that needs the checkpoint sets the interval itself.
_NO_CHECKPOINT: Final = {"replica.high.watermark.checkpoint.interval.ms": "3600000"}


class Mode(Enum):
    """Where a cluster keeps its state, and who the controllers are. The values are suffixes."""

    ZOOKEEPER = ""
    KRAFT = "kraft"
    COMBINED = "combined"


@dataclass(frozen=True, slots=True)
class Release:
    """A version in a mode."""

    number: str
    mode: Mode

    @property
    def version(self) -> Version:
        return tuple(int(part) for part in self.number.split("."))


class Addressing(Enum):
    """How a broker says where it listens."""

    HOST_AND_PORT = "one listener, by host.name and port"
    ONE_LISTENER = "one listener, by listeners"
    NAMED_LISTENERS = "clients and replicas apart, by name"


@dataclass(frozen=True, slots=True)
class Row:
    """Of all versions from `since` to the next row."""

    since: Version
    scala: str
    additions: tuple[str, ...]  # to the class path
    addressing: Addressing = Addressing.NAMED_LISTENERS
    topic_ids: bool = False
    names_brokers: bool = True  # in metadata, while there is no topic
    settings: Mapping[str, str] = field(default_factory=dict)  # of brokers
    client_settings: Mapping[str, str] = field(default_factory=dict)  # of librdkafka


def _without_api_versions(fallback: str) -> dict[str, str]:
    return {"api.version.request": "false", "broker.version.fallback": fallback}


_OLD: Final = (_LOGGING, _JAXB)

ROWS: Final = (
    Row(
        (0, 8, 2),
        "2.11",
        _OLD,
        Addressing.HOST_AND_PORT,
        names_brokers=False,
        settings=_NO_CHECKPOINT,
        client_settings=_without_api_versions("0.8.2"),
    ),
    Row(
        (0, 9),
        "2.11",
        _OLD,
        Addressing.ONE_LISTENER,
        settings=_NO_CHECKPOINT,
        client_settings=_without_api_versions("0.9.0"),
    ),
    Row((0, 10), "2.11", _OLD, Addressing.ONE_LISTENER, settings=_NO_CHECKPOINT),
    Row((0, 10, 2), "2.11", _OLD, settings=_NO_CHECKPOINT),
    Row((0, 11), "2.11", _OLD),
    Row((2, 0), "2.12", (_ZOOKEEPER, *_OLD)),
    Row((2, 4), "2.13", (_LOGGING,)),
    Row((2, 8), "2.13", (_LOGGING,), topic_ids=True),
    Row((3, 0), "2.13", (_LOGGING_NOW,), topic_ids=True),
)
_WITHOUT_ZOOKEEPER: Final = (4,)
_KRAFT_SINCE: Final = (3, 9)
_FORM: Final = re.compile(r"(\d+(?:\.\d+){2,3})(?:-(kraft|combined))?")


def parse_release(text: str) -> Release:
    """Raises UsageError where it is no version, or none that can be run."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is no version of Apache Kafka; write all of it, as 3.9.1, 3.9.1-kraft or"
            " 3.9.1-combined."
        )
    number, suffix = match.groups()
    release = Release(number, Mode(suffix or ""))
    if release.version < ROWS[0].since:
        raise UsageError(f"Apache Kafka {number} is too old; choose 0.8.2.2 or a later one.")
    if release.version >= _WITHOUT_ZOOKEEPER:
        if suffix == Mode.KRAFT.value:
            raise UsageError(f"Apache Kafka {number} is always KRaft; write kafka:{number}.")
        return release if suffix else Release(number, Mode.KRAFT)
    if suffix and release.version < _KRAFT_SINCE:
        raise UsageError(f"KRaft is run from Apache Kafka 3.9 on; choose 3.9.1-{suffix}.")
    return release


def row_of(text: str) -> Row:
    version = parse_release(text).version
    return max((row for row in ROWS if row.since <= version), key=lambda row: row.since)


def coordinates(text: str) -> tuple[str, ...]:
    """What Maven is asked for; the first ones win."""
    row = row_of(text)
    return (f"org.apache.kafka:kafka_{row.scala}:{parse_release(text).number}", *row.additions)


def is_fetched(text: str) -> bool:
    """Whether the jars of a version are on this machine already."""
    return has_class_path(*coordinates(text))


def kafka_class_path(text: str, home: Home | None = None) -> str:
    """All jars of a version: fetched once, or those of an installation.

    Raises ArtifactError where they cannot be had.
    """
    if home is None:
        return class_path(*coordinates(text))
    additions = [each for each in row_of(text).additions if each == _ZOOKEEPER or home.lacks(each)]
    added = [class_path(*additions)] if additions else []
    return os.pathsep.join([*added, *map(str, home.jars)])
