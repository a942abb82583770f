"""System files: each mistake is one sentence with the file and the key; beside it what is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.clusters.own.model import Managed, Used
from neaptide.clusters.own.parsing import check_managed_on, load_system
from neaptide.clusters.properties import read_properties
from neaptide.results.secrets import NOT_RECORDED
from tests.own.files import BROKER, MANAGED, USED, written

WITHOUT_COMMANDS = (
    "\n".join(line for line in MANAGED.splitlines() if not line.startswith(("kill", "log_dir")))
    + "\n"
)


def test_a_cluster_that_is_used(directory: Path) -> None:
    system = load_system(written(directory, USED))
    assert isinstance(system, Used)
    assert system.bootstrap == "10.0.0.5:9092,broker-2.example.org:9093"
    assert system.client["sasl.password"] == "hunter2-hunter2"
    assert not system.keep_topics


def test_brokers_that_are_managed(directory: Path) -> None:
    system = load_system(written(directory, MANAGED))
    assert isinstance(system, Managed)
    assert (system.ids, [c.id for c in system.controllers]) == ((1, 2, 3), [100])
    first = system.brokers[0]
    assert first.start[0] == str(directory / "start.sh")  # beside the file, not the caller
    assert first.prepare == ("sh", "{here}/format.sh", "{properties}")
    assert first.log_dir == str(directory / "data-{id}")
    assert "listeners" in system.said
    assert "log.retention.ms" not in system.said
    assert (first.can_pause, system.controllers[0].can_pause) == (True, False)


@pytest.mark.parametrize("text", [USED, MANAGED])
def test_what_is_recorded_and_shown_has_no_secret(directory: Path, text: str) -> None:
    """The twin: what is no secret is there."""
    system = load_system(written(directory, text))
    kept = repr(system.record())
    assert "hunter2" not in kept
    assert NOT_RECORDED in kept
    assert system.name in kept
    assert "${file:/etc/kafka/secrets:password}" in kept or isinstance(system, Used)
    if isinstance(system, Used):
        assert "hunter2" not in repr(system)


def test_a_secret_may_come_from_the_environment(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = USED.replace('"hunter2-hunter2"', '{ env = "STAGING_PASSWORD" }')
    file = written(directory, text)
    monkeypatch.setenv("STAGING_PASSWORD", "hunter3")
    system = load_system(file)
    assert isinstance(system, Used)
    assert system.client["sasl.password"] == "hunter3"
    monkeypatch.delenv("STAGING_PASSWORD")
    with pytest.raises(UsageError, match=r"sasl.password: the environment has no variable STAGING"):
        load_system(file)


@pytest.mark.parametrize(
    ("base", "right", "wrong", "says"),
    [
        (USED, 'name = "staging"', "", "it has no 'name'"),
        (USED, '"staging"', '"a/b"', "name = 'a/b' must be of letters"),
        (USED, '"staging"', "7", "name must be a text"),
        (USED, 'behaves_like = "3.9.1"', "", "it has no 'behaves_like'"),
        (USED, '"3.9.1"', '"newest"', "behaves_like: 'newest' is no version of Apache Kafka"),
        (USED, '"3.9.1"', '"0.8.1.0"', "behaves_like: Apache Kafka 0.8.1.0 is too old"),
        (USED, "bootstrap =", "bootstraps =", "either bootstrap"),
        (USED, "10.0.0.5:9092", "10.0.0.5", "bootstrap: '10.0.0.5' is no address"),
        (USED, "10.0.0.5:9092", "10.0.0.5:99999", "bootstrap: '10.0.0.5:99999' is no address"),
        (USED, "10.0.0.5:9092", "http://a:1", "bootstrap: 'http://a:1' is no address"),
        (USED, "[client]", "keep = true\n[client]", "there is no 'keep'; it must be one of name"),
        (USED, "[client]", "keep_topics = 1\n[client]", "keep_topics must be true or false"),
        (USED, '"security.protocol"', '"acks"', "[client]: there is no 'acks'; it is for how"),
        (USED, '"hunter2-hunter2"', "1.5", "[client]: sasl.password must be a text, a number"),
        (USED, "[client]", "[[brokers]]\nid = 1\n[client]", "either bootstrap"),
        (USED, '= "SASL_PLAINTEXT"', "= ", "is not TOML: "),
        (MANAGED, '"3.9.1-kraft"', '"3.9.1"', "[[controllers]]: with ZooKeeper there are none"),
        (MANAGED, "-kraft", "-combined", "[[controllers]]: in a -combined system there are none"),
        (MANAGED, '"3.9.1-kraft"', '"0.9.0.1"', "brokers are managed from 0.10.2 on"),
        (MANAGED, "[environment]", "[client]", "[client]: there is no 'KAFKA_OPTS'; it is for ho"),
        (MANAGED, "ids = [1, 2, 3]", "", "brokers 1: it must have either id, or ids"),
        (MANAGED, "ids = [1, 2, 3]", "ids = [1]\nid = 1", "brokers 1: it must have either id"),
        (MANAGED, "[1, 2, 3]", "[1, 2, -3]", "brokers 1: ids must be whole numbers, 0 or more"),
        (MANAGED, "[1, 2, 3]", "[1, 2, 100]", "the id 100 is there twice"),
        (MANAGED, '"broker.properties"', '"none.properties"', "none.properties cannot be read"),
        (MANAGED, 'properties = "broker.properties"', "", "brokers 1: it has no 'properties'"),
        (MANAGED, 'kill = ["./start.sh", "{pid}"]', "kills = []", "controllers 1: there is no 'ki"),
        (MANAGED, '["./start.sh", "{pid}"]', "[]", "controllers 1: kill must be a list of texts"),
        (MANAGED, '["./start.sh", "{pid}"]', '"kill it"', "controllers 1: kill must be a list"),
        (MANAGED, '"{here}/format.sh"', '"{pid}"', "prepare: there is no placeholder {pid}"),
        (MANAGED, '"{here}/format.sh"', '"{heer}"', "prepare: there is no placeholder {heer}"),
        (MANAGED, '"data-{id}"', '"data"', "log_dir must have {id} in it"),
        (MANAGED, '"data-{id}"', '"data-{id}-{zookeeper}"', "there is no placeholder {zookeeper}"),
        (MANAGED, "id = 100", 'id = 100\npause = ["sh"]', "pause and resume go together"),
        (MANAGED, '"-Dsome', '4\nB = "-Dsome', "[environment]: KAFKA_OPTS must be a text"),
        (MANAGED, "[environment]", "image = 3\n[environment]", "image must be a text"),
        (MANAGED, "[environment]", 'mounts = "/a"\n[environment]', "mounts must be a list"),
        (MANAGED, "[environment]", "mounts = [1]\n[environment]", "mounts must be a list of dir"),
        (USED, "[client]", 'image = "a"\n[client]', "there is no 'image'; it must be one of name"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_file_and_the_key(
    directory: Path, base: str, right: str, wrong: str, says: str
) -> None:
    """The twin is the file without the mistake."""
    file = written(directory, base)
    load_system(file)
    assert right in base
    written(directory, base.replace(right, wrong, 1))
    with pytest.raises(UsageError) as refused:
        load_system(file)
    sentence = str(refused.value)
    assert says in sentence
    assert str(file) in sentence
    assert sentence.endswith(".")
    assert "hunter2" not in sentence


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("listener.name.client.ssl.key.password=hunter2", "holds a secret"),
        ("sasl.jaas.config=x required password=hunter2;", "holds a secret"),
        ("ssl.keystore.key=-----BEGIN PRIVATE KEY----- hunter2", "holds a secret"),
        ("listener.name.client.ssl.keystore.certificate.chain=hunter2", "holds a secret"),
        ("ssl.truststore.certificates=hunter2", "holds a secret"),
        ("delegation.token.master.key=hunter2", "holds a secret"),
        ("my.metrics.api.key=hunter2", "holds a secret"),
        ("my.metrics=-----BEGIN RSA PRIVATE KEY-----\\nhunter2", "holds a secret"),
        ("my.metrics.url=https://me:hunter2@host/", "holds a secret"),
        ("log.dirs={log_dirs}", "there is no placeholder {log_dirs}"),
        ("hunter2", "is not of the form name=value"),
    ],
)
def test_what_properties_may_not_have(directory: Path, line: str, says: str) -> None:
    """The twin is BROKER as it is, which names a secret without having it."""
    file = written(directory, MANAGED)
    load_system(file)
    (directory / "broker.properties").write_text(f"{BROKER}{line}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"brokers 1: properties: ") as refused:
        load_system(file)
    assert says in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        (
            "node.id={id}",
            "node.id=1",
            "node.id is 1 in .*, and this node's id is 2; write node.id={id}",
        ),
        ("node.id={id}", "broker.id=0", "broker.id is 0 in .*, and this node's id is 1; write bro"),
        ("{client_listen}", "127.0.0.1:9092", "broker 1 does not learn where it is to listen: {cl"),
        ("node.id={id}", "log.dirs=/var/kafka", "log.dirs is /var/kafka in .*, for each of 4 nod"),
    ],
)
def test_what_would_be_the_same_for_all_nodes_is_named_before_any_starts(
    directory: Path, right: str, wrong: str, says: str
) -> None:
    """The twins are BROKER as it is, and the same said by the start command."""
    file = written(directory, MANAGED)
    load_system(file)
    assert right in BROKER
    (directory / "broker.properties").write_text(BROKER.replace(right, wrong), encoding="utf-8")
    with pytest.raises(UsageError, match=says):
        load_system(file)
    key = wrong.partition("=")[0]
    override = right if "{client" in right else f"{key}={{{'log_dir' if 'log' in key else 'id'}}}"
    start = '"{properties}", "-Dssl'
    assert start in MANAGED
    load_system(written(directory, MANAGED.replace(start, f'"{override}", {start}')))


PROTOCOLS = "listener.security.protocol.map"
IN_TLS = f"{PROTOCOLS}=CLIENT:SSL,REPLICATION:PLAINTEXT"
CLIENT = '[client]\n"security.protocol" = "SSL"\n"ssl.key.password" = "hunter2"\n'
WITH_TLS = MANAGED.replace("[environment]", f"{CLIENT}[environment]")


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (MANAGED, "", ""),
        (MANAGED, f"{PROTOCOLS}=CLIENT:PLAINTEXT,REPLICATION:PLAINTEXT,OTHER:SSL", ""),
        (WITH_TLS, IN_TLS, ""),
        (MANAGED, IN_TLS, r"CLIENT of .* speaks SSL, and clients PLAINTEXT; write .* = \"SSL\" in"),
        (WITH_TLS, "", r"CLIENT of .* speaks PLAINTEXT, and clients SSL; write"),
        (
            WITH_TLS,
            f"{PROTOCOLS}=CLIENT:SSL,REPLICATION:SSL",
            "REPLICATION of .* speaks SSL; the",
        ),
        (MANAGED, "listeners=SASL_SSL://{client_listen}", "SASL_SSL of .* speaks SASL_SSL, and cl"),
    ],
)
def test_clients_may_speak_tls_where_they_know_and_brokers_may_not(
    directory: Path, text: str, line: str, says: str
) -> None:
    named = "listeners=CLIENT://{client_listen},REPLICATION://{replication_listen}\n"
    plain = f"{PROTOCOLS}=CLIENT:PLAINTEXT,REPLICATION:PLAINTEXT\n"
    (directory / "broker.properties").write_text(f"{named}{plain}{line}\n", encoding="utf-8")
    file = written(directory, text)
    if says:
        with pytest.raises(UsageError, match=rf"system\.toml: the listener {says}"):
            load_system(file)
        return
    system = load_system(file)
    assert isinstance(system, Managed)
    assert system.client.get("security.protocol", "PLAINTEXT") in ("SSL", "PLAINTEXT")
    assert "hunter2" not in repr(system.record()) + repr(system.client.keys())


def test_a_program_has_to_be_where_it_is_run(directory: Path) -> None:
    """On another machine nobody here knows."""
    system = load_system(written(directory, WITHOUT_COMMANDS))
    absent = load_system(written(directory, WITHOUT_COMMANDS.replace("./start.sh", "./end.sh", 1)))
    assert isinstance(system, Managed)
    assert isinstance(absent, Managed)
    for host in ("local", "netns"):
        check_managed_on(system, host)
        with pytest.raises(UsageError, match=r"start of node 1: there is no program .*/end\.sh"):
            check_managed_on(absent, host)
    check_managed_on(absent, "ssh")


def test_in_a_container_a_program_is_the_images_or_mounted(directory: Path) -> None:
    beside = load_system(written(directory, WITHOUT_COMMANDS))
    absent = load_system(written(directory, WITHOUT_COMMANDS.replace("./start.sh", "./end.sh", 1)))
    of_image = WITHOUT_COMMANDS.replace("./start.sh", "/opt/no-such/start.sh")
    theirs = load_system(written(directory, of_image.replace("{here}/format.sh", "format.sh")))
    assert isinstance(beside, Managed)
    assert isinstance(absent, Managed)
    assert isinstance(theirs, Managed)
    assert (beside.mounted, theirs.mounted) == ((directory,), ())
    check_managed_on(beside, "docker")
    check_managed_on(theirs, "docker")
    with pytest.raises(UsageError, match=r"start of node 1: there is no program .*/end\.sh"):
        check_managed_on(absent, "docker")
    with pytest.raises(UsageError, match="there is no program /opt/no-such/start"):
        check_managed_on(theirs, "local")


def test_what_is_mounted_in_containers(directory: Path) -> None:
    """Read once, checked only where containers are."""
    (directory / "kafka").mkdir()
    text = f'image = "mine:1"\nmounts = ["kafka", "/no/such"]\n{WITHOUT_COMMANDS}'
    system = load_system(written(directory, text))
    assert isinstance(system, Managed)
    assert system.image == "mine:1"
    assert system.mounted == (directory, directory / "kafka", Path("/no/such"))
    assert system.record()["mounts"] == [str(directory / "kafka"), "/no/such"]
    check_managed_on(system, "local")
    with pytest.raises(
        UsageError, match=r"system\.toml: mounts: there is no directory /no/such\.$"
    ):
        check_managed_on(system, "docker")
    right = load_system(written(directory, text.replace(', "/no/such"', "")))
    assert isinstance(right, Managed)
    check_managed_on(right, "docker")


@pytest.mark.parametrize(
    ("line", "hosts"),
    [
        ('kill = ["sh"]', {"local", "netns"}),
        ('stop = ["sh"]', {"local", "netns", "docker"}),
        ('pause = ["sh"]\nresume = ["sh"]', {"local", "netns"}),
        ('pid_file = "it.pid"', {"local"}),
        ('log_dir = "data"', {"local", "netns", "docker"}),
        ("", {"local", "netns", "docker", "ssh"}),
    ],
)
def test_what_a_node_can_have_is_the_hosts_to_say(
    directory: Path, line: str, hosts: set[str]
) -> None:
    system = load_system(written(directory, f"{WITHOUT_COMMANDS}{line}\n"))
    assert isinstance(system, Managed)
    for host in ("local", "netns", "docker", "ssh"):
        if host in hosts:
            check_managed_on(system, host)
        else:
            key = line.partition(" ")[0]
            with pytest.raises(UsageError, match=rf"node 100 has a {key}, .* not with {host}\.$"):
                check_managed_on(system, host)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml cannot be read: No such file"):
        load_system(tmp_path / "none.toml")


def test_what_only_describes_a_secret_may_be_there_and_comments_are_not_kept(
    directory: Path,
) -> None:
    file = written(directory, MANAGED)
    said = (
        "delegation.token.expiry.time.ms=86400000\nssl.client.auth=required\n"
        "ssl.keystore.location=/a.jks\nsuper.users=User:CN=joe@example.org\n"
    )
    told = "# ssl.key.password=hunter2\n! a \\\nnode.rack=r\nbroker.rack=a\\\n#b\n"
    (directory / "broker.properties").write_text(BROKER + said + told, encoding="utf-8")
    system = load_system(file)
    assert isinstance(system, Managed)
    template = system.brokers[0].template
    assert said in template
    assert "hunter2" not in str(system.record())
    assert read_properties(template)["broker.rack"] == "a#b"
    assert read_properties(template) == read_properties(BROKER + said + told)
