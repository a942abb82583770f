"""How clients come in to brokers that neaptide starts: TLS and SASL on the listener of clients.

What is asked for is named as clients name it (librdkafka), as in `[client]` of a system file; from
it follows how brokers are set up. Keys, certificates and passwords are in a scratch directory, so
that no run directory has them. Brokers speak plain text to each other: the gate reads that.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from neaptide.clusters.broker.replication.model import SecurityProtocol
from neaptide.clusters.errors import MissingPartError, UsageError
from neaptide.clusters.properties import write_properties

# Of each broker: one for clients, one for other brokers, so that their links are not the same.
CLIENT_LISTENER: Final = "CLIENT"
REPLICATION_LISTENER: Final = "REPLICATION"
_PLAINTEXT: Final = "PLAINTEXT"
PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS: Final = (PLAIN, *SCRAM)
_NAMES: Final = ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password")
_ITERATIONS: Final = 4096
_LOGIN: Final = "org.apache.kafka.common.security"
_FILES: Final = {
    "config.providers": "file",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """`mechanism`, `user` and `password` are of SASL. `directory`: of keys and passwords."""

    protocol: str
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    directory: Path = Path()

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_scram(self) -> bool:
        return self.mechanism in SCRAM

    @property
    def client_settings(self) -> dict[str, str]:
        """librdkafka's."""
        settings = {"security.protocol": self.protocol}
        if self.has_tls:
            settings["ssl.ca.location"] = str(self.directory / "ca.pem")
        if self.mechanism:
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        return settings

    def of_broker(self, settings: Mapping[str, str]) -> dict[str, str]:
        """A broker's settings, with what its listener of clients speaks."""
        names = [part.partition("://")[0] for part in settings["listeners"].split(",")]
        spoken = dict.fromkeys(names, _PLAINTEXT)
        for part in filter(None, settings.get("listener.security.protocol.map", "").split(",")):
            name, _, protocol = part.partition(":")
            spoken[name] = protocol
        if CLIENT_LISTENER in names:
            spoken[CLIENT_LISTENER] = self.protocol
        listed = ",".join(f"{name}:{protocol}" for name, protocol in spoken.items())
        secured = {**settings, "listener.security.protocol.map": listed}
        if CLIENT_LISTENER in names:
            secured |= self._of_listener()
        return secured

    def _of_listener(self) -> dict[str, str]:
        settings = {}
        if self.has_tls:
            settings = {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.directory / "broker.pem"),
            }
        if not self.mechanism:
            return settings
        jaas = f"listener.name.{CLIENT_LISTENER.lower()}.{self.mechanism.lower()}.sasl.jaas.config"
        if self.has_scram:
            login = f"{_LOGIN}.scram.ScramLoginModule required;"
            return {**settings, "sasl.enabled.mechanisms": self.mechanism, jaas: login}
        login = f"${{file:{self._secrets}:jaas}}"
        return {**settings, **_FILES, "sasl.enabled.mechanisms": PLAIN, jaas: login}

    @property
    def _secrets(self) -> Path:
        return self.directory / "secrets.properties"

    def write(self) -> None:
        """The files that the settings name. Raises MissingPartError."""
        if self.has_tls:
            _write_certificates(self.directory)
        if self.mechanism == PLAIN:
            password = self.password.replace("\\", "\\\\").replace('"', '\\"')
            login = f'{_LOGIN}.plain.PlainLoginModule required user_{self.user}="{password}";'
            _write_private(self._secrets, write_properties({"jaas": login}).encode("utf-8"))

    def scram_settings(self) -> dict[str, str]:
        """What `/config/users` has of the user."""
        from neaptide.clusters.broker.server.sasl import SCRAM as DIGESTS
        from neaptide.clusters.broker.server.sasl import ScramCredential

        salt = os.urandom(16)
        salted = hashlib.pbkdf2_hmac(
            DIGESTS[self.mechanism], self.password.encode("utf-8"), salt, _ITERATIONS
        )
        credential = ScramCredential.of_salted(self.mechanism, salt, salted, _ITERATIONS)
        return {self.mechanism: str(credential)}


def write_user(connect: str, security: ClientSecurity) -> None:
    """A user of SCRAM, to a ZooKeeper that no broker has been at yet."""
    from kazoo.client import KazooClient

    from neaptide.clusters.broker.coordination import znodes

    client = KazooClient(hosts=connect)
    client.start()
    try:
        path = znodes.config_path(znodes.user_entity(security.user))
        data = znodes.encode_settings(security.scram_settings())
        client.create(path, data, makepath=True)
    finally:
        client.stop()
        client.close()


def parse_client_security(client: Mapping[str, str], directory: Path) -> ClientSecurity | None:
    """None: clients speak plain text. Raises UsageError."""
    unknown = sorted(client.keys() - set(_NAMES))
    if unknown:
        raise UsageError(f"client: {unknown[0]} is not read here; it may have {', '.join(_NAMES)}.")
    protocol = client.get("security.protocol", _PLAINTEXT)
    if protocol not in SecurityProtocol.__members__:
        known = ", ".join(SecurityProtocol.__members__)
        raise UsageError(f"client: security.protocol must be one of {known}, not {protocol!r}.")
    given = [name for name in _NAMES[1:] if name in client]
    if not protocol.startswith("SASL"):
        if given:
            raise UsageError(f"client: {given[0]} is for SASL_SSL or SASL_PLAINTEXT.")
        return None if protocol == _PLAINTEXT else ClientSecurity(protocol, directory=directory)
    missing = [name for name in _NAMES[1:] if not client.get(name)]
    if missing:
        raise UsageError(f"client: {protocol} needs {', '.join(missing)}.")
    mechanism, user, password = (client[name] for name in _NAMES[1:])
    if mechanism not in _MECHANISMS:
        raise UsageError(
            f"client: sasl.mechanism must be one of {', '.join(_MECHANISMS)}, not {mechanism!r}."
        )
    if not user.isidentifier():
        raise UsageError(f"client: sasl.username must be of letters, digits and _, not {user!r}.")
    return ClientSecurity(protocol, mechanism, user, password, directory)


def _write_certificates(directory: Path) -> None:
    """An authority of this cluster alone, and a certificate of its brokers. Java reads keys in
    PKCS 8 alone."""
    try:
        import trustme
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise MissingPartError(
            "TLS for clients needs trustme: pip install 'neaptide[tls]'."
        ) from None
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1", "localhost")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
    _write_private(directory / "broker.pem", key + chain)


def _write_private(path: Path, content: bytes) -> None:
    """Only its owner can read it."""
    path.touch(0o600)
    path.write_bytes(content)
