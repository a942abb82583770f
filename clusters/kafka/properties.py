"""What a broker's `server.properties` says, and how its process is started. Pure.

Kafka's own names throughout. What a scenario sets wins over what is set here, except for who the
broker is and where it listens. Elections happen when a schedule makes them happen: no broker hands
over its partitions when it is stopped, and no controller moves leaders back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from neaptide.clusters.cluster import STILL, Listeners
from neaptide.clusters.hosts.ports import LOOPBACK
from neaptide.clusters.kafka.versions import Addressing, Row
from neaptide.clusters.security import CLIENT_LISTENER, REPLICATION_LISTENER

DEFAULTS: Final = {
    **STILL,
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "num.replica.fetchers": "1",
    # librdkafka looks for its group's coordinator although it never uses the group: let the topic
    # of the groups' offsets be small, and on no replication link.
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "log.cleaner.enable": "false",  # its buffer alone is half of the heap
    "zookeeper.session.timeout.ms": "10000",
    "zookeeper.connection.timeout.ms": "60000",
}
# What a run needs: brokers that start soon and leave memory to the others.
SMALL_JAVA: Final = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)
# What Kafka's own bin/kafka-server-start.sh and bin/kafka-run-class.sh give to Java.
USUAL_JAVA: Final = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
_JAVA_OPTIONS: Final = ("-Xshare:auto", "-Dzookeeper.jmx.log4j.disable=true")
LOG4J: Final = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.org.apache.zookeeper=WARN
log4j.logger.org.I0Itec.zkclient=WARN
log4j.logger.org.apache.kafka.clients=WARN
"""


def properties(
    row: Row,
    scenario: Mapping[str, str],
    broker: int,
    own: tuple[int, int],
    through: Listeners,
    log_directory: Path,
    address: str = LOOPBACK,
) -> dict[str, str]:
    """`own`: the (client, replication) ports that the broker itself binds, at its `address`."""
    return {
        **DEFAULTS,
        **row.settings,
        **scenario,
        "broker.id": str(broker),
        "log.dirs": str(log_directory),
        "zookeeper.connect": f"{through.host}:{through.coordination_port}",
        **_addresses(row.addressing, address, own, through),
    }


def _addresses(
    addressing: Addressing, address: str, own: tuple[int, int], through: Listeners
) -> dict[str, str]:
    """With one listener all are sent to the replication link: the others' fetches must be there."""
    match addressing:
        case Addressing.HOST_AND_PORT:
            return {
                "host.name": address,
                "port": str(own[1]),
                "advertised.host.name": spelled_out(through.host),
                "advertised.port": str(through.replication_port),
            }
        case Addressing.ONE_LISTENER:
            return {
                "listeners": f"PLAINTEXT://{address}:{own[1]}",
                "advertised.listeners": (
                    f"PLAINTEXT://{spelled_out(through.host)}:{through.replication_port}"
                ),
            }
        case Addressing.NAMED_LISTENERS:
            names = (CLIENT_LISTENER, REPLICATION_LISTENER)
            return {
                "listeners": _listeners(names, address, own),
                "advertised.listeners": _listeners(
                    names, through.host, (through.client_port, through.replication_port)
                ),
                "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
                "inter.broker.listener.name": REPLICATION_LISTENER,
            }


def spelled_out(address: str) -> str:
    """The same IPv4 address, longer: 127.000.000.001.

    librdkafka reads a Metadata v0 response into memory of four times its size, which is too little
    when one broker and one partition are all that is in it; the addresses of brokers are most of
    its bytes. Only digits that are the same in base 8 and 10 get zeros before them.
    """
    return ".".join(
        part.zfill(3) if part < "8" and len(part) == 1 else part for part in address.split(".")
    )


def _listeners(names: tuple[str, str], address: str, ports: tuple[int, int]) -> str:
    return ",".join(f"{name}://{address}:{port}" for name, port in zip(names, ports, strict=True))


def command(
    java: str,
    class_path: str,
    log4j: Path,
    server_properties: Path,
    options: tuple[str, ...] = SMALL_JAVA,
) -> tuple[str, ...]:
    """`options`: Java's, such as its heap and its compilers."""
    return (
        java,
        *_JAVA_OPTIONS,
        *options,
        f"-Dlog4j.configuration={log4j.as_uri()}",
        "-cp",
        class_path,
        "kafka.Kafka",
        str(server_properties),
    )
