"""What can be tested: `neaptide:0.10`, …, and Apache Kafka as `kafka:3.9.1`.

Reading a system's name checks it; what differs between systems is asked for here, and nowhere else
in the harness.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from uuid import NAMESPACE_URL, uuid5

from neaptide.clusters.broker.cluster import BrokerCluster
from neaptide.clusters.broker.replication.generation import GENERATIONS, Generation
from neaptide.clusters.cluster import ClusterSpec
from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.host import Host
from neaptide.clusters.hosts.place import Place
from neaptide.clusters.kafka.cluster import KafkaCluster
from neaptide.clusters.kafka.home import Home, read_home
from neaptide.clusters.kafka.image import read_image
from neaptide.clusters.kafka.kraft import KraftCluster
from neaptide.clusters.kafka.versions import Mode, kafka_class_path, parse_release, row_of
from neaptide.clusters.placed_cluster import PlacedCluster

KAFKA = "kafka"
KNOWN = tuple(f"neaptide:{name}" for name in GENERATIONS)  # the default of repro
HOME_VERSION = "home"
IMAGE_VERSION = "image"


@dataclass(frozen=True, slots=True)
class System:
    """`home`: where the jars are, if they are the user's own."""

    kind: str
    version: str
    home: Home | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.version}"

    @property
    def options(self) -> str:
        """What names it on a command line."""
        if self.home is None:
            return f"--system {self}"
        if self.home.image is not None:  # which is named with the host
            _, hyphen, variant = self.version.partition("-")
            return f"--system {self.kind}:{IMAGE_VERSION}{hyphen}{variant}"
        return f"--system {self} --kafka-home {quote(str(self.home.directory))}"


def parse_systems(
    texts: Iterable[str], kafka_home: Path | None = None, image: str | None = None
) -> list[System]:
    """Raises UsageError with what there is, and where nobody asks for the installation.

    `image`: of Docker, where `kafka:image` is looked for.
    """
    texts = list(texts)
    from_image = None
    for text in filter(_is_of_image, texts):
        if image is None:
            raise UsageError(f"{text} needs --host docker --image NAME.")
        from_image = from_image or read_image(image)
    if kafka_home is None:
        return [parse_system(text, from_image) for text in texts]
    home = read_home(kafka_home)
    systems = [parse_system(text, from_image if _is_of_image(text) else home) for text in texts]
    if all(system.home is None for system in systems):
        raise UsageError(
            f"No --system asks for --kafka-home {kafka_home}; add --system kafka:{HOME_VERSION},"
            f" or kafka:{home.number}."
        )
    return systems


def _is_of_image(text: str) -> bool:
    kind, _, version = text.partition(":")
    return kind == KAFKA and version.partition("-")[0] == IMAGE_VERSION


def parse_system(text: str, home: Home | None = None) -> System:
    """Raises UsageError with what there is.

    `kafka:home` and `kafka:image` are the version of the installation.
    """
    kind, _, version = text.partition(":")
    if kind == KAFKA:
        name, hyphen, variant = version.partition("-")
        if name in (HOME_VERSION, IMAGE_VERSION):
            if home is None:
                raise UsageError(f"{text} needs --kafka-home DIR, the folder of an Apache Kafka.")
            parse_release(version := f"{home.number}{hyphen}{variant}")
            return System(kind, version, home)
        number = parse_release(version).number
        is_home = home is not None and home.image is None and home.number == number
        return System(kind, version, home if is_home else None)
    if text not in KNOWN:
        raise UsageError(
            f"There is no system {text!r}; it must be one of {', '.join(KNOWN)},"
            " or kafka:VERSION, as kafka:3.9.1, kafka:3.9.1-kraft or kafka:4.1.0-combined."
        )
    return System(kind, version)


def fetch(system: System) -> None:
    """Has what a system needs on this machine. Raises MissingPartError where it cannot be had."""
    if system.kind == KAFKA:
        kafka_class_path(system.version, system.home)


def check_system_on(system: System, place: Place) -> None:
    """Raises UsageError where a system cannot run there."""
    if place.name == "simulation" and system.kind == KAFKA:
        raise UsageError(
            f"The simulation runs our own broker; for {system} choose another --host, or one of"
            f" {', '.join(KNOWN)}."
        )


def make_cluster(system: System, host: Host, directory: Path, spec: ClusterSpec) -> PlacedCluster:
    if system.kind != KAFKA:
        return BrokerCluster(host, directory, system.version, spec)
    in_zookeeper = parse_release(system.version).mode is Mode.ZOOKEEPER
    kind = KafkaCluster if in_zookeeper else KraftCluster
    return kind(host, directory, system.version, spec, system.home)


def client_settings(system: System) -> Mapping[str, str]:
    """librdkafka's settings without which its clients do not understand the brokers."""
    return row_of(system.version).client_settings if system.kind == KAFKA else {}


def generation_of(system: System) -> Generation | None:
    """The rules of our own broker; None: it is not ours."""
    return None if system.kind == KAFKA else GENERATIONS[system.version]


def topic_id(system: System, topic: str) -> str | None:
    """The id that a topic is created with, as Kafka writes it.

    None: the system has none, or chooses it.
    """
    if system.kind != KAFKA or not row_of(system.version).topic_ids:
        return None
    if parse_release(system.version).mode is not Mode.ZOOKEEPER:
        return None
    return urlsafe_b64encode(uuid5(NAMESPACE_URL, topic).bytes).decode().rstrip("=")
