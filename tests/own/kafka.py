"""What a user has: an Apache Kafka with its scripts, and the files of docs/own-system.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.kafka.properties import LOG4J
from neaptide.clusters.kafka.versions import kafka_class_path

PAGE = Path(__file__).parents[2] / "docs" / "own-system.md"
VERSION = "3.9.1"
INSTALLED = "/opt/kafka"  # in the files of the page
_BLOCK = re.compile(r"```\w+\n# (?P<name>[\w.-]+)\n(?P<text>.*?)```", re.DOTALL)
# It waits for Java, as a script may: a signal to the script alone is no signal to the broker.
_SCRIPT = """\
#!/bin/sh
'{java}' $KAFKA_HEAP_OPTS -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \\
    -Dlog4j.configuration=file:'{log4j}' -cp '{class_path}' {main} "$@"
exit $?
"""


def of_page() -> dict[str, str]:
    """The files that the page prints, by name."""
    return {block["name"]: block["text"] for block in _BLOCK.finditer(PAGE.read_text("utf-8"))}


def install(directory: Path, version: str = VERSION) -> Path:
    """Scripts like Kafka's own; where it is installed."""
    home = directory / "kafka"
    return write_scripts(home, home, str(find_java()), kafka_class_path(version))


def write_scripts(home: Path, at: Path | str, java: str, class_path: str) -> Path:
    """What `bin` has. `at`: where the directory is when they are run."""
    (home / "bin").mkdir(parents=True)
    (home / "log4j.properties").write_text(LOG4J, encoding="utf-8")
    values = {"java": java, "log4j": f"{at}/log4j.properties", "class_path": class_path}
    mains = {"server-start": "kafka.Kafka", "storage": "kafka.tools.StorageTool"}
    for name, main in mains.items():
        script = home / "bin" / f"kafka-{name}.sh"
        script.write_text(_SCRIPT.format(main=main, **values), encoding="utf-8")
        script.chmod(0o755)
    return home


def write_files(directory: Path, home: str) -> Path:
    """The files of the page, with Kafka where it is; the system file."""
    for name, text in of_page().items():
        (directory / name).write_text(text.replace(INSTALLED, home), encoding="utf-8")
    return directory / "my-cluster.toml"


# With ZooKeeper, for nodes that have no machine for a controller.
_ZOOKEEPER = """\
name = "zoo"
behaves_like = "3.9.1"
[environment]
KAFKA_HEAP_OPTS = "-Xmx256m"
[[brokers]]
ids = [1, 2, 3]
properties = "zoo.properties"
start = ["{home}/bin/kafka-server-start.sh", "{{properties}}"]
"""
_ZOOKEEPER_PROPERTIES = """\
broker.id={id}
log.dirs={log_dir}
zookeeper.connect={zookeeper}
listeners=CLIENTS://{client_listen},BROKERS://{replication_listen}
advertised.listeners=CLIENTS://{client_advertised},BROKERS://{replication_advertised}
inter.broker.listener.name=BROKERS
listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT
"""


def write_zookeeper_files(directory: Path, home: str) -> Path:
    file = directory / "zoo.toml"
    file.write_text(_ZOOKEEPER.format(home=home), encoding="utf-8")
    (directory / "zoo.properties").write_text(_ZOOKEEPER_PROPERTIES, encoding="utf-8")
    return file


# One broker of ours among two of Apache Kafka's.
_AMONG_REAL = """\
name = "among-real"
behaves_like = "2.1.1"
[environment]
KAFKA_HEAP_OPTS = "-Xmx256m"
"""
_NODE = """\
[[brokers]]
id = {id}
properties = "{properties}"
start = {start}
"""


def write_files_of_one_among_real(directory: Path, home: str, at: int) -> Path:
    """`at`: whether A, B or C is ours, as 0, 1, 2; the system file."""
    file = directory / "among-real.toml"
    kafka = "zoo.properties", f'["{home}/bin/kafka-server-start.sh", "{{properties}}"]'
    ours = (
        "ours.properties",
        f'["{sys.executable}", "-m", "neaptide.clusters.broker.server", "{{properties}}"]',
    )
    nodes = [
        _NODE.format(id=n + 1, properties=properties, start=start)
        for n, (properties, start) in enumerate(ours if n == at else kafka for n in range(3))
    ]
    file.write_text(_AMONG_REAL + "".join(nodes), encoding="utf-8")
    (directory / "zoo.properties").write_text(_ZOOKEEPER_PROPERTIES, encoding="utf-8")
    of_ours = _ZOOKEEPER_PROPERTIES + "neaptide.generation=2.1\n"
    (directory / "ours.properties").write_text(of_ours, encoding="utf-8")
    return file
