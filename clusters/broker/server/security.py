"""How clients come in: what is spoken on each listener, its TLS, and who may log in there.

Names and defaults are Kafka's. Keys and certificates are PEM (KIP-651): Java's own stores cannot be
read here. Brokers speak to each other, and to ZooKeeper, in plain text.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from neaptide.clusters.broker.replication.model import Endpoint, SecurityProtocol
from neaptide.clusters.broker.replication.settings import InvalidSettingError
from neaptide.clusters.broker.server.sasl import MECHANISMS, PLAIN

_PROTOCOL_MAP: Final = "listener.security.protocol.map"
_MECHANISMS: Final = "sasl.enabled.mechanisms"
_JAAS: Final = "sasl.jaas.config"
_MAX_REAUTH: Final = "connections.max.reauth.ms"
_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """Who may log in. `plain_users`: passwords by user; `max_reauth_ms`, by mechanism: how long a
    login is valid (KIP-368), 0: for good."""

    mechanisms: tuple[str, ...] = ()  # none: nobody needs to
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)


def protocols(settings: Mapping[str, str], listeners: Sequence[str]) -> list[SecurityProtocol]:
    """What is spoken on each listener. One that the map does not name speaks plain text, unless
    its name is that of a protocol.

    Raises InvalidSettingError.
    """
    said = dict(zip(SecurityProtocol.__members__, SecurityProtocol, strict=True))
    for part in filter(None, (one.strip() for one in settings.get(_PROTOCOL_MAP, "").split(","))):
        listener, colon, name = part.partition(":")
        if not (listener and colon and name in SecurityProtocol.__members__):
            known = ", ".join(SecurityProtocol.__members__)
            raise InvalidSettingError(
                f"{_PROTOCOL_MAP}: {part!r} is not of the form NAME:PROTOCOL with one of {known}"
            )
        said[listener] = SecurityProtocol[name]
    return [said.get(listener, SecurityProtocol.PLAINTEXT) for listener in listeners]


def listener_security(settings: Mapping[str, str], endpoint: Endpoint) -> ListenerSecurity:
    """Raises InvalidSettingError."""
    of = _OfListener(settings, endpoint.listener)
    if not endpoint.protocol.has_sasl:
        return ListenerSecurity()
    mechanisms = tuple(part.strip() for part in of.required(_MECHANISMS).split(","))
    unknown = [name for name in mechanisms if name not in MECHANISMS]
    if unknown:
        raise InvalidSettingError(
            f"{_MECHANISMS}: {', '.join(unknown)} is not served, but {', '.join(MECHANISMS)}"
        )
    users = _plain_users(of) if PLAIN in mechanisms else {}
    return ListenerSecurity(mechanisms, users, {one: _max_reauth_ms(of, one) for one in mechanisms})


def _max_reauth_ms(of: _OfListener, mechanism: str) -> int:
    """A mechanism's own goes before that of its listener."""
    value = of.get(f"{mechanism.lower()}.{_MAX_REAUTH}") or of.get(_MAX_REAUTH) or "0"
    if not value.isdecimal():
        raise InvalidSettingError(f"{_MAX_REAUTH} must be a number of milliseconds, not {value!r}")
    return int(value)


@dataclass(frozen=True, slots=True)
class _OfListener:
    """A listener's own setting, `listener.name.client.…`, goes before that of all."""

    settings: Mapping[str, str]
    listener: str

    def get(self, name: str, otherwise: str | None = None) -> str | None:
        own = f"listener.name.{self.listener.lower()}.{name}"
        return self.settings.get(own, self.settings.get(name, otherwise))

    def required(self, name: str) -> str:
        value = self.get(name)
        if not value:
            raise InvalidSettingError(
                f"{name} is not set, which the listener {self.listener} needs"
            )
        return value


# --- SASL/PLAIN: users are in the login module's configuration ------------------------------------


_OPTION: Final = re.compile(
    r"""\s+([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|(\S+?))(?=[\s;])"""
)


def _plain_users(of: _OfListener) -> dict[str, str]:
    text = (of.get(f"{PLAIN.lower()}.{_JAAS}") or "").strip()
    module, _, rest = text.partition(" ")
    control, _, options = rest.strip().partition(" ")
    if module != _PLAIN_MODULE or control != "required" or not options.endswith(";"):
        raise InvalidSettingError(
            f"listener.name.{of.listener.lower()}.plain.{_JAAS} must be of the form "
            f'{_PLAIN_MODULE} required user_NAME="PASSWORD";'
        )
    users = {}
    end = 0
    options = f" {options}"
    for found in _OPTION.finditer(options):
        if found.start() != end:
            break
        end = found.end()
        name = found[1]
        value = next(one for one in found.groups()[1:] if one is not None)
        if name.startswith("user_"):
            users[name.removeprefix("user_")] = re.sub(r"\\(.)", r"\1", value)
    if options[end:].strip() != ";":
        raise InvalidSettingError(
            f"listener.name.{of.listener.lower()}.plain.{_JAAS} cannot be read to its end: each "
            'option is of the form NAME="VALUE", and behind the last one is a ;'
        )
    return users


# --- TLS ------------------------------------------------------------------------------------------


def tls_context(settings: Mapping[str, str], endpoint: Endpoint) -> ssl.SSLContext | None:
    """None: what is spoken is not encrypted. Raises InvalidSettingError, also for a file that
    cannot be read."""
    if not endpoint.protocol.has_tls:
        return None
    of = _OfListener(settings, endpoint.listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_key(of, context)
    asked = of.get("ssl.client.auth", "none")
    if asked not in _CLIENT_AUTH:
        raise InvalidSettingError(
            f"ssl.client.auth must be one of {', '.join(_CLIENT_AUTH)}, not {asked!r}"
        )
    context.verify_mode = _CLIENT_AUTH[asked]
    if context.verify_mode != ssl.CERT_NONE:
        _load_trusted(of, context)
    enabled = of.get("ssl.enabled.protocols") or ",".join(_TLS_VERSIONS)
    versions = [part.strip() for part in enabled.split(",")]
    unknown = [name for name in versions if name not in _TLS_VERSIONS]
    if unknown:
        raise InvalidSettingError(
            f"ssl.enabled.protocols must be of {', '.join(_TLS_VERSIONS)}, not {', '.join(unknown)}"
        )
    context.minimum_version = min(_TLS_VERSIONS[name] for name in versions)
    context.maximum_version = max(_TLS_VERSIONS[name] for name in versions)
    return context


def _is_pem(of: _OfListener, store: str) -> None:
    """Raises InvalidSettingError where it is one of Java's."""
    kind = of.get(f"ssl.{store}.type", "JKS")
    if kind != "PEM":
        raise InvalidSettingError(
            f"ssl.{store}.type must be PEM (KIP-651), not {kind}: `openssl pkcs12 -in FILE -nodes` "
            "writes a PKCS12 store so"
        )


def _load_key(of: _OfListener, context: ssl.SSLContext) -> None:
    _is_pem(of, "keystore")
    password = of.get("ssl.key.password") or ""
    location = of.get("ssl.keystore.location")
    if location:
        _load_file(context, Path(location), "ssl.keystore.location", password)
        return
    parts = [of.required(f"ssl.keystore.{part}") for part in ("key", "certificate.chain")]
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # which only its owner can read
        file.write("\n".join(parts) + "\n")
        file.flush()
        _load_file(context, Path(file.name), "ssl.keystore.certificate.chain", password)


def _load_file(context: ssl.SSLContext, file: Path, name: str, password: str) -> None:
    try:
        context.load_cert_chain(file, password=password)
    except (OSError, ValueError) as error:
        raise InvalidSettingError(f"{name}: no key and certificate: {_sentence(error)}") from None


def _load_trusted(of: _OfListener, context: ssl.SSLContext) -> None:
    _is_pem(of, "truststore")
    location, text = of.get("ssl.truststore.location"), of.get("ssl.truststore.certificates")
    if not (location or text):
        raise InvalidSettingError("ssl.client.auth needs ssl.truststore.location")
    try:
        context.load_verify_locations(cafile=location, cadata=None if location else text)
    except (OSError, ValueError) as error:
        raise InvalidSettingError(f"ssl.truststore: no certificates: {_sentence(error)}") from None


def _sentence(error: Exception) -> str:
    """An SSLError is an OSError whose text names a line of OpenSSL."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "it cannot be read as PEM"
    return str(getattr(error, "strerror", None) or error)
