"""What is left out of what is kept, and what is not."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from neaptide.results.secrets import is_secret, text_without_secrets, without_secrets
from neaptide.results.store import create_run, private_files, write_json
from tests.results.one_run import RUN

SECRETS = [
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
    "listener.name.a.ssl.keystore.key",
    "sasl.jaas.config",
    "delegation.token.secret.key",
    "ssl.key.pem",
    "auth",
    "--auth",
    "apikey",
    "API_KEY",
    "X-Api-Key",
    "token",
    "dbPassword",
    "PGPASSWORD",
    "AWS_SECRET_ACCESS_KEY",
    "passphrase",
    "javax.net.ssl.keyStorePassword",
    "pwd",
    "Authorization",
]
NO_SECRETS = [
    "ssl.keystore.location",
    "ssl.keystore.type",
    "delegation.token.expiry.time.ms",
    "ssl.client.auth",
    "author",
    "group.id",
    "keyspace",
    "monkey",
    "broker.id",
    "authorizer.class.name",
    "passwordFile",
    "num.partitions",
    "sasl.oauthbearer.token.endpoint.url",
    "password.encoder.iterations",
    "compression.type",
    "cleanup.policy",
    "ssl.endpoint.identification.algorithm",
    "principal.builder.class",
    "keytab",
]


@pytest.mark.parametrize("name", SECRETS)
def test_what_is_a_secret_by_its_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", NO_SECRETS)
def test_what_is_none(name: str) -> None:
    assert not is_secret(name)


PEM = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----"
COMMANDS = [
    ["x", "--auth=hunter2"],
    ["x", "--auth", "hunter2"],
    ["x", "apikey=hunter2"],
    ["x", "-p", "hunter2"],
    ["x", "-phunter2"],
    ["x", "-u", "me:hunter2"],
    ["x", "--user=me:hunter2"],
    ["x", "me:hunter2@host"],
    ["x", "http://me:hunter2@host:9092/a"],
    ["x", "jdbc:x://h/d?user=a&password=hunter2"],
    ["sh", "-c", "PASSWORD=hunter2 exec x --pass hunter2 -p hunter2 'a b'"],
    ["curl", "-H", "Authorization: Bearer hunter2"],
    ["curl", "-H", "X-Api-Key: hunter2"],
    ["x", '{"name": 5, "password": "hunter2"}'],
    ["java", "-Djavax.net.ssl.keyStorePassword=hunter2"],
    ["java", '-Dsasl.jaas.config=a required username="u" password="hunter2";'],
    ["x", PEM],
    ["x", f"--cert={PEM}"],
]


@pytest.mark.parametrize("argv", COMMANDS)
def test_a_command_is_kept_without_its_secrets(argv: list[str]) -> None:
    kept = without_secrets(argv)
    assert len(kept) == len(argv)
    assert "hunter2" not in json.dumps(kept)
    assert "hunter2" not in text_without_secrets(" ".join(argv))


@pytest.mark.parametrize(
    "argv",
    [
        ["x", "{properties}", "{log_dir}", "--override", "broker.id=1"],
        ["java", "-Dfoo=bar", "-Xmx1g", "kafka.Kafka"],
        ["x", "1@a:9093,2@b:9093", "127.0.0.1:9092"],
        ["x", "--password=${env:PASSWORD}", "--password", "${file:/a:b}"],
        ["docker", "run", "image@sha256:abc"],
        ["x", "-Dtoken.expiry.ms=5"],
    ],
)
def test_a_command_without_secrets_is_kept_as_it_is(argv: list[str]) -> None:
    assert without_secrets(argv) == argv


def test_what_run_json_says_has_no_secret() -> None:
    schedule = {"settings": {"ssl.keystore.key": PEM, "acks": "all"}, "steps": [{"key": "k1"}]}
    run = replace(RUN, schedule=schedule, repeat="neaptide run x --set ssl.key.password=hunter2")
    said = run.to_json()
    assert "hunter2" not in json.dumps(said)
    assert said["schedule"]["settings"]["acks"] == "all"
    assert said["schedule"]["steps"] == [{"key": "k1"}]


def test_a_run_is_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path / "runs"))
    before = os.umask(0o022)
    try:
        run = create_run("a", "s", 1, datetime.now(UTC))
        write_json(run / "run.json", {})
        with private_files():
            (run / "logs").mkdir()
            (run / "logs" / "log").touch()
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    for path in (run.parent, run, *run.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
