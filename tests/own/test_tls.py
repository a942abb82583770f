"""Clients of brokers of the user's own come in by TLS or SASL, through the gate; brokers do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.certificates import write_certificate
from tests.harness.command import neaptide
from tests.own.kafka import install, write_files

pytestmark = [
    pytest.mark.live,
    pytest.mark.spark,
    pytest.mark.needs("maven"),
    pytest.mark.timeout(600),
]
SECRET = "hunter2-hunter2"


def written(directory: Path, client: Mapping[str, str], properties: str) -> Path:
    """The files of the page, with this for clients."""
    system = write_files(directory, str(install(directory)))
    lines = "".join(f'"{name}" = "{value}"\n' for name, value in client.items())
    text = system.read_text("utf-8")
    system.write_text(text.replace("[environment]", f"[client]\n{lines}[environment]"), "utf-8")
    file = directory / "broker.properties"
    protocol = f"CLIENTS:{client['security.protocol']}"
    text = file.read_text("utf-8").replace("CLIENTS:PLAINTEXT", protocol)
    file.write_text(text + properties, "utf-8")
    return system


@pytest.fixture
def system(tmp_path: Path) -> Path:
    write_certificate(tmp_path, "127.0.0.1")
    client = {"security.protocol": "SSL", "ssl.ca.location": f"{tmp_path}/ca.pem"}
    keys = "ssl.keystore.type=PEM\nssl.keystore.location={here}/broker.pem\n"
    return written(tmp_path, client, keys)


_SASL = """\
sasl.enabled.mechanisms=PLAIN
config.providers=file
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
listener.name.clients.plain.sasl.jaas.config=${file:{here}/secrets.properties:jaas}
"""


@pytest.mark.proof
def test_clients_log_in_and_no_file_of_the_run_has_the_password(tmp_path: Path) -> None:
    client = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "them",
        "sasl.password": SECRET,
    }
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    jaas = f'{module} username="them" password="{SECRET}" user_them="{SECRET}";'
    (tmp_path / "secrets.properties").write_text(f"jaas={jaas}\n", encoding="utf-8")
    done, verdict = neaptide(
        tmp_path, "run", "append", "--system", str(written(tmp_path, client, _SASL)),
        "--time", "3", "--rate", "300", "--partitions", "1", "--json",
    )  # fmt: skip
    assert verdict is not None, done.stderr
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
    files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert [path for path in files if b"SASL_PLAINTEXT" in path.read_bytes()]  # the search finds


@pytest.mark.proof
def test_a_run_is_valid_and_every_link_leads_through_the_gate(tmp_path: Path, system: Path) -> None:
    done, verdict = neaptide(
        tmp_path, "run", "append", "--system", str(system), "--nemesis", "kill,pause,cut",
        "--time", "30", "--rate", "300", "--partitions", "2", "--seed", "11", "--json",
    )  # fmt: skip
    assert verdict is not None, done.stderr
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
    assert verdict["acknowledged"] > 1000
    kept = json.loads((Path(verdict["run"]) / "run.json").read_text(encoding="utf-8"))
    assert set(kept["own"]["client"]) == {"security.protocol", "ssl.ca.location"}
    assert f"{tmp_path}/ca.pem" not in json.dumps(kept["own"]["client"])


@pytest.mark.proof
def test_a_scenario_about_brokers_is_played(tmp_path: Path, system: Path) -> None:
    """The gate holds messages between brokers, which it reads."""
    done, document = neaptide(
        tmp_path, "repro", "hw-truncation-loss", "--system", str(system), "--json"
    )
    assert document is not None, done.stderr
    [result] = document["results"]
    assert (result["observed"], result["reasons"]) == ("held", [])


@pytest.mark.proof
def test_clients_that_do_not_trust_the_brokers_do_not_come_in(tmp_path: Path, system: Path) -> None:
    """The twins are the tests before."""
    write_certificate(tmp_path, "127.0.0.1")
    (tmp_path / "other").mkdir()
    write_certificate(tmp_path / "other", "127.0.0.1")
    text = system.read_text("utf-8").replace(f"{tmp_path}/ca.pem", f"{tmp_path}/other/ca.pem")
    system.write_text(text, encoding="utf-8")
    done, _ = neaptide(tmp_path, "run", "append", "--system", str(system), "--time", "5")
    assert done.returncode == 64
    assert "nobody answers a client at 127.0.0.1:" in done.stderr
    assert f"or that {system}, [client] is what it takes." in done.stderr
