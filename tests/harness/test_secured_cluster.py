"""A cluster of a test whose clients come in by TLS and SASL: an application of somebody else's
settings is judged, and nothing secret is left anywhere."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import LOCAL, parse_place
from neaptide.clusters.properties import PropertiesError, with_files
from neaptide.clusters.security import ClientSecurity, parse_client_security
from neaptide.harness.testing.lab import Judge, Lab
from tests.proof import proof_but

PASSWORD = "quite-a-secret-of-theirs"
BOTH = {"security.protocol": "SASL_SSL", "sasl.username": "app", "sasl.password": PASSWORD}


def client(**changed: str) -> dict[str, str]:
    return {**BOTH, **{name.replace("_", "."): value for name, value in changed.items()}}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path / "runs"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    made = Lab(Judge(lambda run: []), "test", "neaptide:4.0", 7, LOCAL)
    yield made
    made.close(failed=True)
    # Keys and passwords are gone with the cluster.
    assert [path for path in scratch.rglob("*") if path.suffix in (".pem", ".properties")] == []


@pytest.mark.live
@pytest.mark.spark
@pytest.mark.needs("maven")
@pytest.mark.parametrize(
    ("system", "mechanism"),
    proof_but(
        [
            ("neaptide:4.0", "SCRAM-SHA-512"),
            ("neaptide:0.11", "PLAIN"),
            ("kafka:3.9.1", "SCRAM-SHA-256"),
            ("kafka:3.9.1", "PLAIN"),
            ("kafka:4.4.0", "PLAIN"),
        ],
        ("neaptide:4.0", "SCRAM-SHA-512"),
    ),
)
def test_an_application_logs_in_through_a_leaders_death(
    lab: Lab, tmp_path: Path, system: str, mechanism: str
) -> None:
    cluster = lab.cluster(system, topics={"orders": 1}, client=client(sasl_mechanism=mechanism))
    settings = cluster.client_settings
    producer = cluster.producer({"acks": "all"})
    producer.produce("orders", value="order-1")
    assert producer.flush(30) == 0
    leader = cluster.leader("orders")
    assert leader is not None
    cluster.kill(leader)
    cluster.wait_until(lambda: cluster.leader("orders") not in (None, leader))
    producer.produce("orders", value="order-2")
    assert producer.flush(60) == 0
    for wrong in ({"sasl.password": "another"}, {"security.protocol": "PLAINTEXT"}):
        stranger = AdminClient({**settings, **wrong, "log_level": 0})
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=2)
    judged = lab.assert_valid(cluster)
    assert judged.valid
    files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
    assert [path for path in files if b"PRIVATE KEY" in path.read_bytes()] == []
    assert [path for path in files if b"CLIENT:SASL_SSL" in path.read_bytes()]  # the search finds


# --- what is asked for ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.mechanism, sasl.username, sasl.password"),
        ({"security.protocol": "SSL", "sasl.username": "app"}, "is for SASL_SSL"),
        ({"sasl.mechanism": "PLAIN"}, "is for SASL_SSL"),
        (client(sasl_mechanism="GSSAPI"), "must be one of PLAIN, SCRAM-SHA-256"),
        (client(sasl_mechanism="PLAIN", sasl_username="a;b"), "letters, digits"),
        ({"bootstrap.servers": "x:1"}, "bootstrap.servers is not read here"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(asked: Mapping[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_client_security(asked, Path())


def test_plain_text_needs_nothing() -> None:
    assert parse_client_security({}, Path()) is None
    assert parse_client_security({"security.protocol": "PLAINTEXT"}, Path()) is None


@pytest.mark.parametrize(
    ("system", "mechanism", "why"),
    [
        ("neaptide:0.8", "PLAIN", "neither TLS nor SASL"),
        ("kafka:2.8.2", "PLAIN", "3.0 or later"),
        ("kafka:4.4.0", "SCRAM-SHA-256", "take PLAIN"),
    ],
)
def test_a_system_that_cannot_is_named(lab: Lab, system: str, mechanism: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        lab.cluster(system, client=client(sasl_mechanism=mechanism))


def test_nodes_that_cannot_read_keys_are_named(lab: Lab) -> None:
    elsewhere = Lab(Judge(lambda run: []), "test", "neaptide:4.0", 7, parse_place("netns"))
    with pytest.raises(UsageError, match="take the host local"):
        elsewhere.cluster(client={"security.protocol": "SSL"})


# --- what follows for brokers ---------------------------------------------------------------------

LISTENERS = {"listeners": "CLIENT://h:1,REPLICATION://h:2", "other": "x"}


def test_only_the_listener_of_clients_is_secured() -> None:
    found = ClientSecurity("SSL", directory=Path("/scratch")).of_broker(LISTENERS)
    assert found["listener.security.protocol.map"] == "CLIENT:SSL,REPLICATION:PLAINTEXT"
    assert found["ssl.keystore.location"] == "/scratch/broker.pem"
    assert found["other"] == "x"


def test_a_controller_has_no_such_listener() -> None:
    settings = {
        "listeners": "CONTROLLER://h:1",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    security = ClientSecurity("SASL_SSL", "PLAIN", "app", PASSWORD, Path("/scratch"))
    assert security.of_broker(settings) == {
        **settings,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT",
    }


def test_no_password_is_among_the_settings_of_brokers(tmp_path: Path) -> None:
    security = ClientSecurity("SASL_PLAINTEXT", "PLAIN", "app", PASSWORD, tmp_path)
    settings = security.of_broker(LISTENERS)
    assert PASSWORD not in str(settings)
    assert PASSWORD not in repr(security)
    security.write()
    read = with_files(settings)
    assert f'user_app="{PASSWORD}";' in read["listener.name.client.plain.sasl.jaas.config"]
    assert (tmp_path / "secrets.properties").stat().st_mode & 0o077 == 0


# --- ${file:…} ------------------------------------------------------------------------------------

PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
PROVIDERS = {"config.providers": "file", "config.providers.file.class": PROVIDER}


def test_a_setting_may_be_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("one=1\n")
    text = f"${{file:{tmp_path}/more:one}}"
    assert with_files({**PROVIDERS, "a": f"x{text}y", "b": "$c"})["a"] == "x1y"
    assert with_files({"a": text})["a"] == text  # where nobody is named who reads files
    other = {**PROVIDERS, "config.providers.file.class": "another.Provider", "a": text}
    assert with_files(other)["a"] == text
    unknown = f"${{file:{tmp_path}/more:two}}"
    assert with_files({**PROVIDERS, "a": unknown})["a"] == unknown


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PropertiesError, match="nowhere"):
        with_files({**PROVIDERS, "a": f"${{file:{tmp_path}/nowhere:one}}"})
