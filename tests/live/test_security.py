"""Listeners of clients with TLS and SASL, of our brokers and of Kafka's: other people's clients
come in with what is right, and with nothing else."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import kafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from neaptide.clusters.broker.cluster import BrokerCluster
from neaptide.clusters.kafka.cluster import KafkaCluster
from neaptide.clusters.properties import read_properties, write_properties
from tests.certificates import write_certificate
from tests.live.cluster import BROKERS, LiveCluster, running, until
from tests.proof import proof_but

pytestmark = [pytest.mark.live, pytest.mark.needs("maven")]

TIMEOUT_S: Final = 30.0
USER, PASSWORD = "alice", 'a "secret"; with=all, of it'
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = "org.apache.kafka.common.security"
_PLAIN_PASSWORD = PASSWORD.replace('"', '\\"')
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.secure.plain.sasl.jaas.config": (
        f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{_PLAIN_PASSWORD}";'
    ),
    "listener.name.secure.scram-sha-256.sasl.jaas.config": (
        f"{_LOGIN}.scram.ScramLoginModule required;"
    ),
    "listener.name.secure.scram-sha-512.sasl.jaas.config": (
        f"{_LOGIN}.scram.ScramLoginModule required;"
    ),
    "listener.name.mutual.ssl.client.auth": "required",
    "listener.name.brief.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.brief.plain.sasl.jaas.config": (
        f"{_LOGIN}.plain.PlainLoginModule required"
        f' user_{USER}="{_PLAIN_PASSWORD}" user_bob="{_PLAIN_PASSWORD}";'
    ),
    "listener.name.brief.connections.max.reauth.ms": "1500",
}
_PROTOCOLS: Final = {"SECURE": "SASL_SSL", "MUTUAL": "SSL", "BRIEF": "SASL_SSL"}


class Secured:
    """`cluster` is reached in plain text; `bootstrap` says where its other listeners are."""

    def __init__(self, cluster: LiveCluster, directory: Path, ports: Mapping[str, int]) -> None:
        self.cluster = cluster
        self.ca, self.key = directory / "ca.pem", directory / "broker.pem"
        self.ports = ports

    def bootstrap(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def settings(self, mechanism: str, user: str = USER, password: str = PASSWORD) -> Any:
        """As librdkafka names them."""
        return {
            "bootstrap.servers": self.bootstrap("SECURE"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


@pytest.fixture(
    scope="module",
    params=proof_but(
        ["neaptide:0.10", "neaptide:0.11", "neaptide:2.1", "neaptide:4.0", "kafka:3.9.1"],
        "neaptide:4.0",
    ),
)
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    write_certificate(directory, "127.0.0.1")
    files = {
        "ssl.keystore.location": f"{directory}/broker.pem",
        "ssl.truststore.location": f"{directory}/ca.pem",
    }
    ports = {name: free_port() for name in _PROTOCOLS}
    with pytest.MonkeyPatch.context() as patched:
        for kind in (BrokerCluster, KafkaCluster):
            patched.setattr(kind, "_command", with_listeners(kind._command, ports))
        with running(request.param, directory, {**_SETTINGS, **files}) as cluster:
            add_users(cluster)
            cluster.create_topic("t", [BROKERS])
            yield Secured(cluster, directory, ports)
            assert all(cluster.brokers.is_up(broker) for broker in BROKERS)
            if request.param.startswith("neaptide"):
                assert not any("Traceback" in cluster.log(broker) for broker in BROKERS)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def with_listeners(command: Any, ports: Mapping[str, int]) -> Any:
    """The first broker has them; the others have their own ports for what it says of them."""

    def run(self: Any, broker: int, through: Any, directory: Path) -> Any:
        argv = command(self, broker, through, directory)
        file = directory / "server.properties"
        settings = dict(read_properties(file.read_text()))
        more = {name: ports[name] if broker == 0 else free_port() for name in ports}
        for setting in ("listeners", "advertised.listeners"):
            added = (f"{name}://127.0.0.1:{port}" for name, port in more.items())
            settings[setting] = ",".join([settings[setting], *added])
        spoken = {"CLIENT": "PLAINTEXT", "REPLICATION": "PLAINTEXT", **_PROTOCOLS}
        settings["listener.security.protocol.map"] = ",".join(
            f"{name}:{protocol}" for name, protocol in spoken.items()
        )
        file.write_text(write_properties(settings))
        return argv

    return run


def add_users(cluster: LiveCluster) -> None:
    """As operators do before KIP-554: in ZooKeeper, in the form of Kafka's own tools. The password
    is the one above, salted by librdkafka's peer in Java."""
    import base64
    import hashlib
    import hmac

    config = {}
    for mechanism in SCRAM:
        digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        salt = b"a salt of some length"
        salted = hashlib.pbkdf2_hmac(digest, PASSWORD.encode(), salt, 4096)
        client = hmac.digest(salted, b"Client Key", digest)
        keys = hashlib.new(digest, client).digest(), hmac.digest(salted, b"Server Key", digest)
        salt_, stored, server = (base64.b64encode(part).decode() for part in (salt, *keys))
        config[mechanism] = f"salt={salt_},stored_key={stored},server_key={server},iterations=4096"
    write_user(cluster, USER, config)


def write_user(cluster: LiveCluster, user: str, config: Mapping[str, str]) -> None:
    import json

    path = f"/config/users/{user}"
    data = json.dumps({"version": 1, "config": dict(config)}).encode()
    if cluster.zookeeper.exists(path):
        cluster.zookeeper.set(path, data)
    else:
        cluster.zookeeper.create(path, data, makepath=True)
    change = json.dumps({"version": 2, "entity_path": f"users/{user}"}).encode()
    cluster.zookeeper.create("/config/changes/config_change_", change, sequence=True)


# --- three clients --------------------------------------------------------------------------------


def librdkafka(settings: Mapping[str, str], value: bytes) -> None:
    """Raises KafkaException."""
    errors: list[Any] = []
    producer = Producer(
        {**settings, "error_cb": errors.append, "log_level": 0, "message.timeout.ms": 60_000}
    )
    ends: list[Any] = []
    producer.produce("t", value, partition=0, on_delivery=lambda error, _: ends.append(error))

    def ended() -> bool:
        producer.poll(0.05)
        return bool(ends or [one for one in errors if one.code() in (-169, -181)])

    until(ended, "the send ends, or the client is refused")
    if ends != [None]:
        raise KafkaException(*(errors or ends))


def kafka_python(settings: Mapping[str, str], value: bytes) -> None:
    """Raises kafka.errors.KafkaError."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=settings["bootstrap.servers"],
        security_protocol=settings["security.protocol"],
        ssl_cafile=settings["ssl.ca.location"],
        sasl_mechanism=settings["sasl.mechanism"],
        sasl_plain_username=settings["sasl.username"],
        sasl_plain_password=settings["sasl.password"],
        enable_idempotence=False,  # 0.10 has none
        bootstrap_timeout_ms=int(TIMEOUT_S * 1000),
        max_block_ms=int(TIMEOUT_S * 1000),
    )
    try:
        producer.send("t", value, partition=0).get(TIMEOUT_S)
    finally:
        producer.close(timeout=5)


def aiokafka(settings: Mapping[str, str], value: bytes) -> None:
    """Raises AioKafkaError."""

    async def send() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=settings["bootstrap.servers"],
            security_protocol=settings["security.protocol"],
            ssl_context=ssl.create_default_context(cafile=settings["ssl.ca.location"]),
            sasl_mechanism=settings["sasl.mechanism"],
            sasl_plain_username=settings["sasl.username"],
            sasl_plain_password=settings["sasl.password"],
        )
        try:
            await producer.start()
            await producer.send_and_wait("t", value, partition=0)
        finally:
            await producer.stop()

    asyncio.run(send())


CLIENTS: Final[dict[str, Callable[[Mapping[str, str], bytes], None]]] = {
    "confluent-kafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}
_REFUSED: Final = (KafkaException, kafka.errors.KafkaError, AioKafkaError)


def read_all(secured: Secured) -> list[bytes]:
    """By who has logged in."""
    consumer = Consumer(
        {**secured.settings("PLAIN"), "group.id": "unused", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[bytes] = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            consumer.close()
            return values
        values.append(message.value() or b"")


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
@pytest.mark.parametrize("client", CLIENTS)
def test_who_knows_the_password_comes_in(secured: Secured, client: str, mechanism: str) -> None:
    value = f"{client} {mechanism}".encode()
    CLIENTS[client](secured.settings(mechanism), value)
    assert value in read_all(secured)


# kafka-python asks again until its time is up.
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("client", proof_but(CLIENTS, "confluent-kafka", "aiokafka"))
@pytest.mark.parametrize("wrong", [{"password": "another"}, {"user": "nobody"}])
def test_nobody_else_does(
    secured: Secured, client: str, mechanism: str, wrong: Mapping[str, str]
) -> None:
    before = read_all(secured)
    with pytest.raises(_REFUSED):
        CLIENTS[client](secured.settings(mechanism, **wrong), b"refused")
    assert read_all(secured) == before


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(secured: Secured) -> None:
    from kio.schema.sasl_handshake.v0.request import SaslHandshakeRequest

    with tls_socket(secured, "SECURE") as stream:
        answer = ask(stream, SaslHandshakeRequest(mechanism="GSSAPI"))
        assert answer.error_code.name == "unsupported_sasl_mechanism"
        assert set(answer.mechanisms) == {"PLAIN", *SCRAM}
        assert stream.recv(1) == b""  # and that was the last answer


def test_tokens_may_come_in_frames_of_their_own(secured: Secured) -> None:
    """As before KIP-152: SaslHandshake v0."""
    from kio.schema.metadata.v1.request import MetadataRequest
    from kio.schema.sasl_handshake.v0.request import SaslHandshakeRequest

    with tls_socket(secured, "SECURE") as stream:
        answer = ask(stream, SaslHandshakeRequest(mechanism="PLAIN"))
        assert answer.error_code.name == "none"
        token = f"\0{USER}\0{PASSWORD}".encode()
        stream.sendall(struct.pack(">i", len(token)) + token)
        assert receive(stream) == b""
        answer = ask(stream, MetadataRequest(topics=()))
        assert {broker.port for broker in answer.brokers if broker.node_id == 0} == {
            secured.ports["SECURE"]
        }


# --- a login that is not valid for good (KIP-368) -------------------------------------------------


def log_in(stream: ssl.SSLSocket, user: str = USER) -> Any:
    from kio.schema.sasl_authenticate.v1.request import SaslAuthenticateRequest
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

    assert ask(stream, SaslHandshakeRequest(mechanism="PLAIN")).error_code.name == "none"
    token = f"\0{user}\0{PASSWORD}".encode()
    return ask(stream, SaslAuthenticateRequest(auth_bytes=token))


def knows_topics(stream: ssl.SSLSocket) -> bool:
    """Whether a request is answered; if not, the broker has ended the connection."""
    from kio.schema.metadata.v1.request import MetadataRequest

    try:
        return bool(ask(stream, MetadataRequest(topics=())).brokers)
    except (OSError, EOFError):
        return False


since_2_2 = pytest.mark.parametrize(
    "secured", proof_but(["neaptide:4.0", "kafka:3.9.1"], "neaptide:4.0"), indirect=True
)


@since_2_2
def test_kip_368_who_does_not_log_in_again_in_time_is_disconnected(secured: Secured) -> None:
    with tls_socket(secured, "BRIEF") as stream:
        assert log_in(stream).session_lifetime.total_seconds() == 1.5
        assert knows_topics(stream)
        until(lambda: not knows_topics(stream), "the connection is ended")


@since_2_2
def test_kip_368_who_logs_in_again_stays(secured: Secured) -> None:
    with tls_socket(secured, "BRIEF") as stream:
        began_at = time.monotonic()
        log_in(stream)
        while time.monotonic() < began_at + 4:
            time.sleep(1)  # no sooner
            assert log_in(stream).error_code.name == "none"
            assert knows_topics(stream)


@since_2_2
def test_kip_368_nobody_becomes_another(secured: Secured) -> None:
    with tls_socket(secured, "BRIEF") as stream:
        log_in(stream)
        refused = log_in(stream, "bob")
        assert refused.error_code.name == "sasl_authentication_failed"
        assert refused.error_message == (
            f"Cannot change principals during re-authentication from User.{USER}: User.bob"
        )
        assert is_ended(stream)


@since_2_2
def test_kip_368_librdkafka_logs_in_again(secured: Secured) -> None:
    settings = {**secured.settings("PLAIN"), "bootstrap.servers": secured.bootstrap("BRIEF")}
    errors: list[Any] = []
    producer = Producer({**settings, "error_cb": errors.append, "log_level": 0})
    began_at = time.monotonic()
    while time.monotonic() < began_at + 5:
        producer.produce("t", b"again", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    assert errors == []


@pytest.mark.parametrize("listener", _PROTOCOLS)
def test_who_asks_before_that_gets_no_answer(secured: Secured, listener: str) -> None:
    """A request, what is no TLS, and a connection that ends in the middle of its handshake."""
    port = secured.ports[listener]
    for bytes_ in (b"\0\0\0\x10" + bytes(16), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"):
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as plain:
            plain.sendall(bytes_)
            plain.shutdown(socket.SHUT_WR)
            assert is_ended(plain)
    if _PROTOCOLS[listener] == "SASL_SSL":
        with tls_socket(secured, listener) as stream:
            stream.sendall(b"\0\0\0\x0c" + struct.pack(">hhih", 3, 1, 7, 0) + b"\0\0")
            assert stream.recv(1) == b""
        if isinstance(secured.cluster.brokers, BrokerCluster):
            assert "the client has not logged in: METADATA" in secured.cluster.log(0)


def is_ended(connection: socket.socket) -> bool:
    """A broker may end with an alert of TLS first."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def test_a_client_without_a_certificate_stays_out_where_one_is_required(secured: Secured) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": secured.bootstrap("MUTUAL"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.ca),
        "log_level": 0,
    }
    key = {"ssl.key.location": str(secured.key), "ssl.certificate.location": str(secured.key)}
    assert AdminClient({**settings, **key}).list_topics("t", TIMEOUT_S).topics["t"].error is None
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics("t", 3.0)


def test_no_answer_has_a_password_or_a_key(secured: Secured) -> None:
    asked = ConfigResource(ConfigResource.Type.BROKER, "0")
    answer = secured.cluster.admin.describe_configs([asked])[asked]
    if secured.cluster.generation == "0.10":  # the API is of 0.11
        with pytest.raises(KafkaException):
            answer.result(TIMEOUT_S)
        return
    found = answer.result(TIMEOUT_S)
    of_login = "listener.name.secure.plain.sasl.jaas.config"
    assert found[of_login].value is None
    assert found[of_login].is_sensitive
    assert not any(_PLAIN_PASSWORD in (one.value or "") for one in found.values())
    assert found["sasl.enabled.mechanisms"].value == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"


# --- users that are added while brokers run -------------------------------------------------------


def has_credentials_api(secured: Secured) -> bool:
    """From 2.7 on (KIP-554)."""
    return secured.cluster.generation in ("2.8", "4.0") or isinstance(
        secured.cluster.brokers, KafkaCluster
    )


def test_a_user_comes_changes_the_password_and_goes(secured: Secured) -> None:
    admin: Any = secured.cluster.admin
    if not has_credentials_api(secured):
        with pytest.raises(KafkaException, match=r"not supported|UNSUPPORTED"):
            admin.describe_user_scram_credentials(["bob"])["bob"].result(TIMEOUT_S)
        return

    def alter(change: Any) -> None:
        admin.alter_user_scram_credentials([change])["bob"].result(TIMEOUT_S)

    def described() -> list[tuple[Any, int]]:
        found = admin.describe_user_scram_credentials(["bob"])["bob"].result(TIMEOUT_S)
        return [(one.mechanism, one.iterations) for one in found.scram_credential_infos]

    def comes_in(password: str) -> bool:
        try:
            librdkafka(secured.settings("SCRAM-SHA-512", "bob", password), b"of bob")
        except KafkaException:
            return False
        return True

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    assert not comes_in("first")
    alter(UserScramCredentialUpsertion("bob", info, b"first"))
    assert described() == [(ScramMechanism.SCRAM_SHA_512, 8192)]
    until(lambda: comes_in("first"), "the broker knows bob")
    alter(UserScramCredentialUpsertion("bob", info, b"second"))
    until(lambda: comes_in("second"), "the broker knows the other password")
    assert not comes_in("first")
    alter(UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512))
    until(lambda: not comes_in("second"), "the broker knows bob no more")
    with pytest.raises(KafkaException, match=r"RESOURCE_NOT_FOUND|credential"):
        described()


def test_credentials_that_kafka_refuses_are_refused(secured: Secured) -> None:
    if not has_credentials_api(secured):
        return  # the test above says what there is
    admin = secured.cluster.admin

    def error_of(*changes: Any) -> str:
        futures = admin.alter_user_scram_credentials(list(changes))
        with pytest.raises(KafkaException) as refused:
            futures[changes[0].user].result(TIMEOUT_S)
        return str(refused.value.args[0].name())

    sha256 = ScramMechanism.SCRAM_SHA_256
    few, many = ScramCredentialInfo(sha256, 4095), ScramCredentialInfo(sha256, 16_385)
    right = ScramCredentialInfo(sha256, 4096)
    for info in (few, many):
        change = UserScramCredentialUpsertion("carol", info, b"x")
        assert error_of(change) == "UNACCEPTABLE_CREDENTIAL"
    deletion = UserScramCredentialDeletion("carol", sha256)
    assert error_of(deletion) == "RESOURCE_NOT_FOUND"
    change = UserScramCredentialUpsertion("carol", right, b"x")
    assert error_of(change, deletion) == "DUPLICATE_RESOURCE"


# --- by hand --------------------------------------------------------------------------------------


def tls_socket(secured: Secured, listener: str) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(secured.ca))
    plain = socket.create_connection(("127.0.0.1", secured.ports[listener]), TIMEOUT_S)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def receive(stream: ssl.SSLSocket) -> bytes:
    def exactly(size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = stream.recv(size - len(found))
            if not part:
                raise EOFError("the broker has closed the connection")
            found += part
        return found

    return exactly(int.from_bytes(exactly(4), "big"))


def ask(stream: ssl.SSLSocket, request: Any) -> Any:
    from neaptide.clusters.broker.wire.apis import Api
    from neaptide.clusters.broker.wire.codec import decode_response, encode_request

    stream.sendall(encode_request(request, correlation_id=1, client_id="raw"))
    cls = type(request)
    return decode_response(receive(stream), Api(int(cls.__api_key__)), int(cls.__version__))[1]
