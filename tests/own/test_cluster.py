"""What a managed node is given: its properties filled in, the run's settings, its commands."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from neaptide.clusters.cluster import ClusterSpec, Listeners, TopicSpec
from neaptide.clusters.errors import HostError, UsageError
from neaptide.clusters.hosts.here import LocalNodes
from neaptide.clusters.hosts.ledger import Ledger
from neaptide.clusters.hosts.local import LocalHost
from neaptide.clusters.kafka.kraft_storage import CLUSTER_ID
from neaptide.clusters.own import cluster as own_cluster
from neaptide.clusters.own.cluster import OwnZooKeeperCluster, make_managed
from neaptide.clusters.own.model import Managed
from neaptide.clusters.own.parsing import load_system
from neaptide.clusters.properties import read_properties
from tests.own.files import MANAGED, written

pytestmark = pytest.mark.live
THROUGH = Listeners(1001, 1002, 1003, quorum={100: 1004})
SETTINGS = {"log.retention.ms": "7", "zookeeper.session.timeout.ms": "2000"}
PROPERTIES = """\
node.id={id}
log.dirs={log_dir}
advertised.listeners=CLIENT://{client_advertised},REPLICATION://{replication_advertised}
listeners=CLIENT://{client_listen},REPLICATION://{replication_listen}
log.retention.ms=5
num.replica.fetchers=4
"""
SAYS = '#!/bin/sh\nprintf "%s\\n" "$0" "$@" "$KAFKA_OPTS" >> "$(dirname "$0")/said"\n'
IN_ZOOKEEPER = MANAGED.replace("3.9.1-kraft", "3.9.1").partition("[[controllers]]")[0]


def managed(
    directory: Path, system: Managed, spec: ClusterSpec
) -> tuple[LocalHost, OwnZooKeeperCluster]:
    host = LocalHost(Ledger(directory / "ledger"))
    cluster = make_managed(LocalNodes(host), directory / "run", system, spec)
    host.at_end(cluster.close)
    return host, cluster


def started(directory: Path, text: str, more: str = "", node: int = 2) -> OwnZooKeeperCluster:
    """A node whose commands have ended; `said` has what they were given."""
    (directory / "broker.properties").write_text(PROPERTIES + more, encoding="utf-8")
    (directory / "controller.properties").write_text(
        "node.id={id}\nlisteners=C://{controller_listen}\nat={controller_advertised}\n",
        encoding="utf-8",
    )
    for name in ("start.sh", "format.sh"):
        (directory / name).write_text(SAYS, encoding="utf-8")
    system = load_system(written(directory, text))
    assert isinstance(system, Managed)
    spec = ClusterSpec((1, 2, 3), SETTINGS, TopicSpec("t", {0: (1, 2, 3)}, {}))

    async def start() -> OwnZooKeeperCluster:
        host, cluster = managed(directory, system, spec)
        try:
            (directory / "run").mkdir(exist_ok=True)
            await cluster.start(node, THROUGH)
            await host.running[-1].wait(20) if host.running else None
            return cluster
        finally:
            host.close_now()

    return asyncio.run(start())


def filled(directory: Path, node: str = "broker-2") -> dict[str, str]:
    file = directory / "run" / node / "settings" / "server.properties"
    return read_properties(file.read_text(encoding="utf-8"))


def test_placeholders_settings_and_commands_of_a_broker(directory: Path) -> None:
    cluster = started(directory, MANAGED)
    given = filled(directory)
    client, replication = cluster.ports(2)
    assert given["node.id"] == "2"
    assert given["log.dirs"] == str(directory / "data-2") == str(cluster.log_directory(2))
    assert (
        given["listeners"] == f"CLIENT://127.0.0.1:{client},REPLICATION://127.0.0.1:{replication}"
    )
    gate = "CLIENT://127.0.0.1:1001,REPLICATION://127.0.0.1:1002"
    assert given["advertised.listeners"] == gate
    assert given["log.retention.ms"] == "7"  # the run's word over the file's
    assert given["num.replica.fetchers"] == "4"  # the file's over ours
    assert given["auto.create.topics.enable"] == "false"  # ours, where the file says nothing
    assert given["broker.session.timeout.ms"] == "2000"
    assert not [name for name in given if name.startswith("zookeeper.")]
    said = (directory / "said").read_text(encoding="utf-8").splitlines()
    properties = str(directory / "run" / "broker-2" / "settings" / "server.properties")
    opts = "-Dsome.password=hunter2-hunter2"
    before = [str(directory / "format.sh"), properties, opts]
    start = [str(directory / "start.sh"), properties, "-Dssl.key.password=hunter2-hunter2", opts]
    assert said == [*before, *start]


def test_a_controller_gets_its_own(directory: Path) -> None:
    cluster = started(directory, MANAGED, node=100)
    given = filled(directory, "controller-100")
    assert given["at"] == "127.0.0.1:1004"
    assert given["listeners"] == f"C://127.0.0.1:{cluster.quorum[100]}"
    assert (cluster.controllers, cluster.logs()["controller-100"].name) == (
        (100,),
        "controller-100.log",
    )


def test_with_zookeeper_there_is_one_of_ours(directory: Path) -> None:
    cluster = started(directory, IN_ZOOKEEPER, "zookeeper.connect={zookeeper}\n")
    given = filled(directory)
    assert given["zookeeper.connect"] == "127.0.0.1:1003"
    assert given["zookeeper.session.timeout.ms"] == "2000"
    assert (cluster.controllers, dict(cluster.quorum)) == ((), {})


def test_what_has_no_value_for_a_node_is_said(directory: Path) -> None:
    with pytest.raises(UsageError, match=r"broker\.properties: \{controller_listen\} has no value"):
        started(directory, MANAGED, "more={controller_listen}\n")
    started(directory, MANAGED, "id={cluster_id}\n")
    assert filled(directory)["id"] == CLUSTER_ID


def test_a_command_that_fails_is_said_with_what_it_said_last(directory: Path) -> None:
    failing = MANAGED.replace('"{here}/format.sh"', '"-c", "echo no disk; exit 3"')
    with pytest.raises(HostError, match=r"prepare of node 2 of mine ended, status 3; .*: no disk"):
        started(directory, failing)


def test_data_of_somebody_elses_is_not_touched(directory: Path) -> None:
    system = load_system(written(directory, MANAGED))
    assert isinstance(system, Managed)
    spec = ClusterSpec((1, 2, 3), {}, TopicSpec("t", {0: (1, 2, 3)}, {}))
    host, cluster = managed(directory, system, spec)
    (directory / "data-3").mkdir()
    asyncio.run(cluster.start_coordination())
    (directory / "data-3" / "t-0").mkdir()
    with pytest.raises(UsageError, match=r"log_dir .*data-3 of node 3 is not empty"):
        asyncio.run(cluster.start_coordination())
    host.close_now()


def test_features_are_for_who_formats(directory: Path) -> None:
    system = load_system(written(directory, MANAGED))
    assert isinstance(system, Managed)
    settings = {"eligible.leader.replicas.version": "1"}
    spec = ClusterSpec((1,), settings, TopicSpec("t", {0: (1,)}, {}))
    host, cluster = managed(directory, system, spec)
    with pytest.raises(UsageError, match="is for who formats"):
        asyncio.run(cluster.start_coordination())
    host.close_now()


ESCAPE = """\
{how} python3 -c "
import os, socket, sys, time
held = socket.create_server(('127.0.0.1', int(sys.argv[1].partition(':')[2])))
with open(sys.argv[2], 'w') as file:
    file.write(str(os.getpid()))
time.sleep(600)" "$1" "$2" &
while [ ! -s "$2" ]; do sleep 0.05; done
exec sleep 600
"""


@pytest.mark.parametrize(("how", "escapes"), [("setsid", False), ("env -i setsid", True)])
def test_a_broker_that_survives_its_kill_is_said(
    directory: Path, how: str, escapes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a container's engine runs it: it is not of those that the command has started."""
    monkeypatch.setattr(own_cluster, "_SHUT_WITHIN_S", 0.5)
    pid = directory / "pid"
    (directory / "start.sh").write_text("#!/bin/sh\n" + ESCAPE.format(how=how), encoding="utf-8")
    (directory / "broker.properties").write_text("node.id={id}\n", encoding="utf-8")
    text = IN_ZOOKEEPER.replace('"{properties}", "-Dssl', f'"{{client_listen}}", "{pid}", "-Dssl')
    system = load_system(written(directory, text.replace("prepare", "# ")))
    assert isinstance(system, Managed)
    spec = ClusterSpec((1,), {}, TopicSpec("t", {0: (1,)}, {}))

    async def work() -> None:
        host, cluster = managed(directory, system, spec)
        try:
            await cluster.start(1, THROUGH)
            while not (pid.is_file() and pid.read_text()):
                await asyncio.sleep(0.05)
            await cluster.kill(1)
        finally:
            host.close_now()

    try:
        if escapes:
            with pytest.raises(HostError, match="Node 1 of mine still listens at 127"):
                asyncio.run(work())
        else:
            asyncio.run(work())
    finally:
        if escapes:
            os.kill(int(pid.read_text()), signal.SIGKILL)


GATE = {broker: f"127.0.0.1:{2000 + broker}" for broker in (1, 2, 3)}
PAST = "127.0.0.1:9092"


@pytest.mark.parametrize(
    ("client", "replication", "coordinated", "says"),
    [
        ({}, {}, {1, 2, 3}, ""),
        ({2: PAST}, {}, {1, 2, 3}, f"broker 2 advertises {PAST} on its client listener, past"),
        ({}, {3: PAST}, {1, 2, 3}, f"broker 3 advertises {PAST} on its replication listener"),
        ({1: None}, {}, {1, 2, 3}, "broker 1 advertises nothing on its client listener"),
        (dict.fromkeys((1, 2, 3)), {}, {1, 2, 3}, r"nobody answers .*2001, .* \{client_listen\}\."),
        ({}, {}, {1, 3}, r"broker 2 does not come to the coordination .* \{quorum\}\.$"),
    ],
)
@pytest.mark.parametrize("late", [(), (2,), (2, 3)])
def test_a_link_that_leads_past_the_gate_is_refused(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    client: dict[int, str | None],
    replication: dict[int, str | None],
    coordinated: set[int],
    says: str,
    late: tuple[int, ...],
) -> None:
    """`client`, `replication`: what brokers advertise on these listeners, if not the gate.

    `late`: the brokers that the first has not heard of when it is asked for the first time.
    """
    monkeypatch.setattr(own_cluster, "_ADVERTISED_WITHIN_S", 1.0)
    asked = []
    system = load_system(written(directory, MANAGED))
    assert isinstance(system, Managed)
    spec = ClusterSpec((1, 2, 3), {}, TopicSpec("t", {0: (1, 2, 3)}, {}))
    host, cluster = managed(directory, system, spec)
    # A port for each broker and listener: 2001, 2002, … and 3001, 3002, …
    through = {b: Listeners(2000 + b, 3000 + b, 0) for b in (1, 2, 3)}

    def advertised(address: str, settings: object, where: str) -> dict[int, str]:
        is_client = address == GATE[1]
        first, wrong = (2000, client) if is_client else (3000, replication)
        there = {b: wrong.get(b, f"127.0.0.1:{first + b}") for b in (1, 2, 3)}
        if address not in asked:
            asked.append(address)
            there |= dict.fromkeys(late)
        return {broker: at for broker, at in there.items() if at is not None}

    monkeypatch.setattr(own_cluster, "advertised_at", advertised)
    check = cluster.check_links(through, frozenset(coordinated))
    if says:
        with pytest.raises(UsageError, match=says):
            asyncio.run(check)
    else:
        asyncio.run(check)
    host.close_now()
