"""What can be tested: `neaptide:0.10`, …, Apache Kafka as `kafka:3.9.1`, a file of the user's own.

Reading a system's name checks it; what differs between systems is asked for here, and nowhere else
in the harness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final
from uuid import NAMESPACE_URL, uuid5

from neaptide.clusters.broker.replication.generation import GENERATIONS, Generation
from neaptide.clusters.broker.wire.topic_ids import text_of
from neaptide.clusters.cluster import UNCLEAN, ClusterSpec
from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.host import Host
from neaptide.clusters.hosts.place import HOSTS, Place
from neaptide.clusters.kafka.home import Home, read_home
from neaptide.clusters.kafka.image import read_image
from neaptide.clusters.kafka.properties import DEFAULTS, SMALL_JAVA
from neaptide.clusters.kafka.versions import Mode, kafka_class_path, parse_release, row_of
from neaptide.clusters.own.model import Managed, OwnSystem, Used
from neaptide.clusters.own.parsing import SUFFIX, check_managed_on, load_system

if TYPE_CHECKING:  # every command reads this file
    from neaptide.clusters.placed_cluster import PlacedCluster
    from neaptide.clusters.security import ClientSecurity

KAFKA = "kafka"
OWN = "own"
# What is tested where nobody says what: by every command, by nights and by the pytest plugin.
DEFAULT_SYSTEM: Final = "neaptide:4.0"
KNOWN = tuple(f"neaptide:{name}" for name in GENERATIONS)  # the default of repro
HOME_VERSION = "home"
IMAGE_VERSION = "image"
_OWN_HOSTS = HOSTS
_GROUPS_SINCE = (0, 9)
_TRANSACTIONS_SINCE = (0, 11)
_CONSUMER_PROTOCOL_SINCE = (4, 0)
_HEADERS_SINCE = (0, 11)
_PEM_SINCE = (3, 0)  # KIP-651; before, a file with a key has to be encrypted
_RECORD_FORMATS = ("message.format.version", "log.message.format.version")


@dataclass(frozen=True, slots=True)
class System:
    """`home`: where the jars are, if they are the user's own; `own`: a whole system that is.

    `version`: of the user's own, its name.
    """

    kind: str
    version: str
    home: Home | None = None
    own: OwnSystem | None = None
    security: ClientSecurity | None = None  # of the listener of clients, where neaptide sets it up

    def __str__(self) -> str:
        return f"{self.kind}:{self.version}"

    @property
    def release(self) -> str | None:
        """The version of Apache Kafka whose rules hold, as 3.9.1-kraft; None: of none."""
        if self.own is not None:
            return self.own.behaves_like
        return self.version if self.kind == KAFKA else None

    @property
    def like(self) -> str:
        """The system of which documents say what they say of this one."""
        return str(self) if self.own is None else f"{KAFKA}:{self.own.behaves_like}"

    @property
    def used(self) -> Used | None:
        """Where nothing of it is started or stopped."""
        return self.own if isinstance(self.own, Used) else None

    @property
    def options(self) -> str:
        """What names it on a command line."""
        if self.own is not None:
            return f"--system {quote(str(self.own.file))}"
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

    `kafka:home` and `kafka:image` are the version of the installation; what ends in .toml is a file
    that names a system of the user's own.
    """
    if text.endswith(SUFFIX):
        own = load_system(Path(text))
        return System(OWN, own.name, own=own)
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
            " kafka:VERSION, as kafka:3.9.1, kafka:3.9.1-kraft or kafka:4.1.0-combined, or a file"
            " of your own, as my-cluster.toml."
        )
    return System(kind, version)


def like_of(text: str) -> str:
    """By what name scenarios speak of it: of a file of the user's own, what it behaves like."""
    return parse_system(text).like if text.endswith(SUFFIX) else text


def brokers_of(system: System) -> tuple[int, ...]:
    """Their ids, where the system has its own: empty where whoever asks chooses them.

    A cluster that is used is asked. Raises MissingPartError where it does not answer.
    """
    if isinstance(system.own, Used):
        from neaptide.clusters.own import asking

        return asking.brokers_of(system.own)
    return system.own.ids if system.own is not None else ()


def fetch(system: System) -> None:
    """Has what a system needs on this machine. Raises MissingPartError where it cannot be had."""
    if system.kind == KAFKA:
        kafka_class_path(system.version, system.home)


def check_system_on(system: System, place: Place) -> None:
    """Raises UsageError where a system cannot run there."""
    if system.used is not None and place.name != "local":
        raise UsageError(
            f"{system.used.file}: the cluster runs where it runs; leave out --host {place.name}."
        )
    if system.own is not None and place.name not in _OWN_HOSTS:
        raise UsageError(
            f"{system.own.file}: brokers of your own are started with --host"
            f" {', '.join(_OWN_HOSTS)}, not on {place.name}."
        )
    if isinstance(system.own, Managed):
        check_managed_on(system.own, place.name)
    if place.name == "simulation" and system.kind == KAFKA:
        raise UsageError(
            f"The simulation runs our own broker; for {system} choose another --host, or one of"
            f" {', '.join(KNOWN)}."
        )


def has_groups(system: System) -> bool:
    """Whether groups have members: on our own brokers from 0.10 on, on Apache Kafka from 0.9 on."""
    if system.release is None:
        return system.version != KNOWN[0].partition(":")[2]
    return parse_release(system.release).version >= _GROUPS_SINCE


def has_transactions(system: System) -> bool:
    """From 0.11 on, on our own brokers as on Apache Kafka."""
    if system.release is None:
        return GENERATIONS[system.version].idempotence is not None
    return parse_release(system.release).version >= _TRANSACTIONS_SINCE


def has_consumer_protocol(system: System) -> bool:
    """Whether coordinators assign (KIP-848): from 4.0 on, on our own brokers as on Apache Kafka."""
    if system.release is None:
        return GENERATIONS[system.version].consumer_protocol
    return parse_release(system.release).version >= _CONSUMER_PROTOCOL_SINCE


def has_voters(system: System) -> bool:
    """Whether who is a voter of its quorum can change while it runs (KIP-853): in KRaft, where
    neaptide formats the log directories."""
    return system.kind == KAFKA and parse_release(system.version).mode is not Mode.ZOOKEEPER


def check_zookeeper(system: System, what: str) -> None:
    """Raises UsageError."""
    if system.release is not None and parse_release(system.release).mode is not Mode.ZOOKEEPER:
        raise UsageError(
            f"{system} has KRaft, and no /controller that {what} could delete; there the step is"
            ' remove_voter = { controller = "active" }.'
        )


def check_voters(system: System, what: str) -> None:
    """Raises UsageError."""
    if not has_voters(system):
        raise UsageError(
            f"{what} changes the voters of the quorum, and {system} has none whose voters can"
            " change; take an Apache Kafka in KRaft, as kafka:3.9.1-kraft or kafka:4.1.0."
        )


def place_of(system: System, place: Place) -> Place:
    """Where its nodes run: on docker in the image of its file, unless the command names one."""
    if isinstance(system.own, Managed) and place.name == "docker" and place.image is None:
        return replace(place, image=system.own.image)
    return place


def check_client_security(system: System, place: Place) -> None:
    """Raises UsageError where neaptide cannot set up brokers for what clients are to come in by."""
    security = system.security
    if security is None:
        return
    if system.own is not None:
        raise UsageError(
            f"client is for brokers that neaptide sets up: {system.own.file} has [client]."
        )
    if place.name != "local":
        raise UsageError(f"client: on {place.name} there are no keys; take the host local.")
    if system.release is None:
        if not GENERATIONS[system.version].speaks_tls_and_sasl:
            raise UsageError(f"client: {system} has neither TLS nor SASL; take a later one.")
        return
    release = parse_release(system.release)
    if release.version < _PEM_SINCE:
        raise UsageError(f"client: {system} cannot read keys in PEM; take Kafka 3.0 or later.")
    if security.has_scram and release.mode is not Mode.ZOOKEEPER:
        raise UsageError(
            f"client: {security.mechanism} needs ZooKeeper, and {system} is in KRaft; take PLAIN."
        )


def make_cluster(
    system: System,
    host: Host,
    directory: Path,
    spec: ClusterSpec,
    java: tuple[str, ...] = SMALL_JAVA,
) -> PlacedCluster:
    """`java`: what the Java of Apache Kafka is started with, where neaptide starts it."""
    if isinstance(system.own, Used):
        from neaptide.clusters.own.used import UsedCluster

        return UsedCluster(host, directory, system.own, spec)
    if isinstance(system.own, Managed):
        from neaptide.clusters.own.cluster import make_managed

        return make_managed(host, directory, system.own, spec)
    if system.kind != KAFKA:
        from neaptide.clusters.broker.cluster import BrokerCluster

        return BrokerCluster(host, directory, system.version, spec)
    in_zookeeper = parse_release(system.version).mode is Mode.ZOOKEEPER
    if in_zookeeper:
        from neaptide.clusters.kafka.cluster import KafkaCluster

        return KafkaCluster(host, directory, system.version, spec, system.home, java)
    from neaptide.clusters.kafka.kraft import KraftCluster

    return KraftCluster(host, directory, system.version, spec, system.home, java)


def client_settings(system: System) -> Mapping[str, str]:
    """librdkafka's settings without which its clients do not understand the brokers."""
    return row_of(system.release).client_settings if system.release is not None else {}


def names_brokers(system: System) -> bool:
    """Whether its metadata names the brokers while there is no topic."""
    return system.release is None or row_of(system.release).names_brokers


def keeps_headers(system: System, settings: Mapping[str, str]) -> bool:
    """Whether its logs have the headers of records: since 0.11, with the record format of then."""
    formats = [settings[name] for name in _RECORD_FORMATS if name in settings]
    if system.release is not None:
        formats.append(parse_release(system.release).number)
    return all(_version_of(text) >= _HEADERS_SINCE for text in formats)


def _version_of(text: str) -> tuple[int, ...]:
    """Of 0.11.0-IV2 the numbers."""
    return tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdigit())


def secret_settings(system: System) -> Mapping[str, str]:
    """More of librdkafka's settings, which are written to no file."""
    if system.own is not None:
        return system.own.client
    return {} if system.security is None else system.security.client_settings


def generation_of(system: System) -> Generation | None:
    """The rules of our own broker; None: it is not ours."""
    return None if system.release is not None else GENERATIONS[system.version]


def unclean_by_default(system: System) -> Mapping[str, str]:
    """Whether its brokers have unclean elections where nothing is said; empty: others set them up,
    and nobody knows here."""
    if system.own is not None:
        return {}
    generation = generation_of(system)
    if generation is None:
        return {UNCLEAN: DEFAULTS[UNCLEAN]}
    return {UNCLEAN: str(generation.unclean_leader_election_enable).lower()}


def topic_id(system: System, topic: str) -> str | None:
    """The id that a topic is created with, as Kafka writes it.

    None: the system has none, or chooses it.
    """
    if system.used is not None:
        return None
    generation = generation_of(system)
    if generation is not None and not generation.topic_ids:
        return None
    if system.release is not None and (
        not row_of(system.release).topic_ids
        or parse_release(system.release).mode is not Mode.ZOOKEEPER
    ):
        return None
    return text_of(uuid5(NAMESPACE_URL, topic))
