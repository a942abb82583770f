"""The settings of listeners with TLS and SASL: what they come to, and which are refused, how."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from neaptide.clusters.broker.replication.model import Endpoint, SecurityProtocol
from neaptide.clusters.broker.replication.settings import InvalidSettingError
from neaptide.clusters.broker.server.config import server_config
from neaptide.clusters.broker.server.security import (
    ListenerSecurity,
    listener_security,
    protocols,
    tls_context,
)
from tests.certificates import write_certificate

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BASE = {
    "neaptide.generation": "4.0",
    "broker.id": "0",
    "listeners": "CLIENT://127.0.0.1:1,REPLICATION://127.0.0.1:2",
    "inter.broker.listener.name": "REPLICATION",
    "log.dirs": "/nowhere",
    "zookeeper.connect": "127.0.0.1:3",
}
SASL = {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": f'{JAAS} user_a="b";'}


def endpoint(protocol: str) -> Endpoint:
    return Endpoint("CLIENT", "127.0.0.1", 1, SecurityProtocol[protocol])


# --- what is spoken -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "spoken"),
    [
        ("", "PLAINTEXT"),
        ("CLIENT:SSL", "SSL"),
        (" CLIENT:SASL_SSL , OTHER:SSL", "SASL_SSL"),
        ("OTHER:SSL", "PLAINTEXT"),
    ],
)
def test_the_map_says_what_a_listener_speaks(said: str, spoken: str) -> None:
    found = protocols({"listener.security.protocol.map": said}, ["CLIENT"])
    assert [one.name for one in found] == [spoken]


def test_a_listener_may_be_named_as_what_it_speaks() -> None:
    assert protocols({}, ["SASL_PLAINTEXT", "SSL"]) == [
        SecurityProtocol.SASL_PLAINTEXT,
        SecurityProtocol.SSL,
    ]


@pytest.mark.parametrize("said", ["CLIENT", "CLIENT:TLS", ":SSL", "CLIENT:SSL:x"])
def test_what_nobody_speaks_is_refused(said: str) -> None:
    with pytest.raises(InvalidSettingError, match="SASL_PLAINTEXT"):
        protocols({"listener.security.protocol.map": said}, ["CLIENT"])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"listener.security.protocol.map": "REPLICATION:SSL"}, "PLAINTEXT to each other"),
        (
            {"listener.security.protocol.map": "CLIENT:SSL", "neaptide.generation": "0.8"},
            "from 0.9 on",
        ),
        ({"listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT"}, "sasl.enabled.mechanisms"),
    ],
)
def test_a_broker_that_could_not_be_reached_does_not_start(
    settings: Mapping[str, str], why: str
) -> None:
    server_config(BASE)
    with pytest.raises(InvalidSettingError, match=why):
        server_config({**BASE, **settings})


def test_what_is_spoken_is_advertised() -> None:
    config = server_config(
        {**BASE, **SASL, "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT"}
    )
    assert [one.protocol.name for one in config.advertised] == ["SASL_PLAINTEXT", "PLAINTEXT"]
    assert config.security["CLIENT"].plain_users == {"a": "b"}
    assert config.security["REPLICATION"] == ListenerSecurity()
    assert "'b'" not in repr(config.security)


# --- who may log in -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "users"),
    [
        ('user_a="b";', {"a": "b"}),
        ('user_a="b" ;', {"a": "b"}),
        ('username="admin" password="x" user_a="b" user_c="d";', {"a": "b", "c": "d"}),
        ("user_a='b c';", {"a": "b c"}),
        ("user_a=b;", {"a": "b"}),
        ('user_a="with \\"quotes\\"; and \\\\";', {"a": 'with "quotes"; and \\'}),
        ("username=x;", {}),
    ],
)
def test_users_are_in_the_configuration_of_the_login_module(
    options: str, users: Mapping[str, str]
) -> None:
    settings = {**SASL, "plain.sasl.jaas.config": f"{JAAS} {options}"}
    assert listener_security(settings, endpoint("SASL_SSL")).plain_users == users


@pytest.mark.parametrize(
    "text",
    [
        "",
        f'{JAAS} user_a="b"',
        JAAS,
        f'{JAAS} user_a="b"; more',
        f'{JAAS} user_a "b";',
        'another.Module required user_a="b";',
        'org.apache.kafka.common.security.plain.PlainLoginModule optional user_a="b";',
    ],
)
def test_a_configuration_that_is_none_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InvalidSettingError, match=r"plain\.sasl\.jaas\.config"):
        listener_security({**SASL, "plain.sasl.jaas.config": text}, endpoint("SASL_SSL"))


def test_a_listeners_own_setting_goes_before_that_of_all() -> None:
    own = {"listener.name.client.plain.sasl.jaas.config": f'{JAAS} user_own="x";'}
    assert listener_security({**SASL, **own}, endpoint("SASL_SSL")).plain_users == {"own": "x"}


@pytest.mark.parametrize("mechanisms", ["GSSAPI", "PLAIN,OAUTHBEARER", "PLAIN,"])
def test_mechanisms_that_are_not_served_are_refused(mechanisms: str) -> None:
    settings = {**SASL, "sasl.enabled.mechanisms": mechanisms}
    with pytest.raises(InvalidSettingError, match="SCRAM-SHA-256"):
        listener_security(settings, endpoint("SASL_SSL"))


@pytest.mark.parametrize(
    ("own", "lifetime_ms"),
    [
        ({}, 7),
        ({"listener.name.client.connections.max.reauth.ms": "8"}, 8),
        ({"listener.name.client.plain.connections.max.reauth.ms": "9"}, 9),
        ({"listener.name.other.connections.max.reauth.ms": "8"}, 7),
    ],
)
def test_kip_368_how_long_a_login_is_valid(own: dict[str, str], lifetime_ms: int) -> None:
    settings = {**SASL, "connections.max.reauth.ms": "7", **own}
    assert listener_security(settings, endpoint("SASL_SSL")).max_reauth_ms == {"PLAIN": lifetime_ms}
    assert listener_security(SASL, endpoint("SASL_SSL")).max_reauth_ms == {"PLAIN": 0}
    with pytest.raises(InvalidSettingError, match="a number of milliseconds"):
        listener_security({**SASL, "connections.max.reauth.ms": "1h"}, endpoint("SASL_SSL"))


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    write_certificate(directory, "127.0.0.1")
    return directory


def context_of(settings: Mapping[str, str]) -> ssl.SSLContext:
    found = tls_context({"ssl.keystore.type": "PEM", **settings}, endpoint("SSL"))
    assert found is not None
    return found


def test_a_key_is_a_file_or_stands_in_the_settings(files: Path) -> None:
    context_of({"ssl.keystore.location": str(files / "broker.pem")})
    text = (files / "broker.pem").read_text()
    end = "-----END PRIVATE KEY-----\n"
    key, _, certificate = text.partition(end)
    context_of({"ssl.keystore.key": key + end, "ssl.keystore.certificate.chain": certificate})


def test_nothing_is_encrypted_where_nobody_asks_for_it(files: Path) -> None:
    assert tls_context({}, endpoint("PLAINTEXT")) is None
    assert tls_context({}, endpoint("SASL_PLAINTEXT")) is None


@pytest.mark.parametrize(
    ("asked", "mode"),
    [("none", ssl.CERT_NONE), ("requested", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)],
)
def test_certificates_of_clients_are_asked_for(
    files: Path, asked: str, mode: ssl.VerifyMode
) -> None:
    settings = {
        "ssl.keystore.location": str(files / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files / "ca.pem"),
        "ssl.client.auth": asked,
    }
    assert context_of(settings).verify_mode is mode


def test_versions_of_tls_can_be_chosen(files: Path) -> None:
    key = {"ssl.keystore.location": str(files / "broker.pem")}
    context = context_of({**key, "ssl.enabled.protocols": "TLSv1.3"})
    assert context.minimum_version is context.maximum_version is ssl.TLSVersion.TLSv1_3
    assert context_of(key).minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "ssl.keystore.key is not set"),
        ({"ssl.keystore.type": "JKS"}, "must be PEM"),
        ({"ssl.keystore.location": "/nowhere.pem"}, "No such file"),
        ({"ssl.keystore.location": "{files}/ca.pem"}, "no key and certificate"),
        ({"ssl.client.auth": "maybe"}, "none, requested, required"),
        ({"ssl.client.auth": "required"}, "ssl.truststore.type must be PEM"),
        (
            {"ssl.client.auth": "required", "ssl.truststore.type": "PEM"},
            "needs ssl.truststore.location",
        ),
        (
            {
                "ssl.client.auth": "required",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": "no PEM",
            },
            "no certificates",
        ),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.2, TLSv1.3"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    files: Path, settings: Mapping[str, str], why: str
) -> None:
    given = {name: value.replace("{files}", str(files)) for name, value in settings.items()}
    key = {} if not given or "keystore" in str(given) else {
        "ssl.keystore.location": str(files / "broker.pem")
    }  # fmt: skip
    with pytest.raises(InvalidSettingError, match=why) as refused:
        context_of({**key, **given})
    assert "\n" not in str(refused.value)
