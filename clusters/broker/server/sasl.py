"""A connection that logs in: what it may send until then, and what each SASL mechanism answers.

As in Kafka (SaslServerAuthenticator): ApiVersions once, SaslHandshake, then tokens until the
mechanism is done. After SaslHandshake v0 the tokens are frames of their own, without a header;
after v1 they are in SaslAuthenticate (KIP-152). No IO here.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from neaptide.clusters.broker.wire.codec import MalformedMessageError

PLAIN: Final = "PLAIN"
SCRAM: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = (PLAIN, *SCRAM)
_log = logging.getLogger("broker")
RECEIVE_BYTES_MAX: Final = 524_288  # sasl.server.max.receive.size: of a request until then


class AuthenticationFailedError(Exception):
    """The message is for the client: it does not say whether there is such a user."""


class IllegalSaslStateError(MalformedMessageError):
    """A request that is not expected now."""


# --- what is kept of a user, for SCRAM (RFC 5802) -------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What `/config/users` has, and what a password cannot be got from."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of_salted(
        cls, mechanism: str, salt: bytes, salted_password: bytes, iterations: int
    ) -> ScramCredential:
        """As AlterUserScramCredentials has it (KIP-554)."""
        digest = SCRAM[mechanism]
        client_key = hmac.digest(salted_password, b"Client Key", digest)
        server_key = hmac.digest(salted_password, b"Server Key", digest)
        return cls(salt, hashlib.new(digest, client_key).digest(), server_key, iterations)

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Raises ValueError."""
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            salt, stored_key, server_key = (
                base64.b64decode(parts[name], validate=True)
                for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored_key, server_key, int(parts["iterations"]))
        except KeyError as error:
            raise ValueError(f"{error} is missing") from None

    def __str__(self) -> str:
        salt, stored_key, server_key = (
            base64.b64encode(part).decode("ascii")
            for part in (self.salt, self.stored_key, self.server_key)
        )
        return (
            f"salt={salt},stored_key={stored_key},server_key={server_key},"
            f"iterations={self.iterations}"
        )


def scram_credentials(user: str, settings: Mapping[str, str]) -> dict[str, ScramCredential]:
    """By mechanism. What cannot be read is left out, with a line in the log."""
    found = {}
    for mechanism in SCRAM.keys() & settings.keys():
        try:
            found[mechanism] = ScramCredential.parse(settings[mechanism])
        except ValueError as error:
            _log.warning("%s of user %r cannot be read: %s", mechanism, user, error)
    return found


class ScramUsers:
    """The credentials of all users, as the coordination service has them."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, ScramCredential]] = {}
        self.are_known = asyncio.Event()

    def take(self, user: str, settings: Mapping[str, str]) -> None:
        self._of[user] = scram_credentials(user, settings)

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._of.get(user, {}).get(mechanism)


# --- mechanisms -----------------------------------------------------------------------------------


class _Server(Protocol):
    """`user`: who has logged in; None until then."""

    user: str | None

    def answer(self, token: bytes) -> bytes:
        """Raises ValueError or AuthenticationFailedError where the client is not who it says."""
        ...


class _Plain:
    """RFC 4616: everything in one token."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.user: str | None = None

    def answer(self, token: bytes) -> bytes:
        acts_as, user, password = token.decode("utf-8").split("\0")
        known = self._users.get(user)
        right = (known or "").encode("utf-8")
        if not hmac.compare_digest(password.encode("utf-8"), right) or not known:
            raise AuthenticationFailedError("Authentication failed: Invalid username or password")
        if acts_as not in ("", user):
            raise AuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.user = user
        return b""


class _Scram:
    """RFC 5802: the client proves that it knows the password, and the server does too."""

    def __init__(self, mechanism: str, users: ScramUsers) -> None:
        from scramp import ScramException, ScramMechanism  # most brokers do without

        self._failure = ScramException
        self._mechanism = mechanism
        self._users = users
        self._server = ScramMechanism(mechanism).make_server(self._keys)
        self._asked = ""
        self._is_second = False
        self.user: str | None = None

    def answer(self, token: bytes) -> bytes:
        try:
            return self._answer(token.decode("utf-8")).encode("utf-8")
        except self._failure as error:
            raise ValueError(str(error)) from error

    def _answer(self, text: str) -> str:
        if not self._is_second:
            self._is_second = True
            self._server.set_client_first(text)
            return str(self._server.get_server_first())
        self._server.set_client_final(text)
        self.user = self._asked
        return str(self._server.get_server_final())

    def _keys(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        found = self._users.credential(self._mechanism, user)
        if found is None:
            raise ValueError("no such user")
        self._asked = user
        return found.salt, found.stored_key, found.server_key, found.iterations


# --- a connection ---------------------------------------------------------------------------------


class _State(Enum):
    BEGINS = "begins"
    HANDSHAKE = "handshake"  # ApiVersions was answered
    TOKENS = "tokens"  # in frames without a header
    AUTHENTICATE = "authenticate"  # tokens in SaslAuthenticate
    COMPLETE = "complete"


class SaslAuthenticator:
    """Of one connection. `mechanisms`: those that are enabled on its listener."""

    def __init__(
        self, mechanisms: tuple[str, ...], plain_users: Mapping[str, str], scram_users: ScramUsers
    ) -> None:
        self.mechanisms = mechanisms
        self.scram_users = scram_users
        self._plain_users = plain_users
        self._state = _State.BEGINS
        self._mechanism = ""
        self._server: _Server | None = None

    @property
    def is_complete(self) -> bool:
        return self._state is _State.COMPLETE

    @property
    def takes_tokens(self) -> bool:
        """The next frame is a token, and no request."""
        return self._state is _State.TOKENS

    @property
    def user(self) -> str | None:
        """Who has logged in."""
        return self._server.user if self._server is not None else None

    def ask_versions(self) -> None:
        """ApiVersions. Raises IllegalSaslStateError."""
        self._expect(_State.BEGINS)
        self._state = _State.HANDSHAKE

    def choose(self, version: int, mechanism: str) -> bool:
        """SaslHandshake. Whether the mechanism is enabled. Raises IllegalSaslStateError."""
        self._expect(_State.BEGINS, _State.HANDSHAKE)
        if mechanism not in self.mechanisms:
            return False
        self._mechanism = mechanism
        if mechanism == PLAIN:
            self._server = _Plain(self._plain_users)
        else:
            self._server = _Scram(mechanism, self.scram_users)
        self._state = _State.TOKENS if version == 0 else _State.AUTHENTICATE
        return True

    def authenticate(self, token: bytes) -> bytes:
        """A token in SaslAuthenticate. Raises IllegalSaslStateError, AuthenticationFailedError."""
        self._expect(_State.AUTHENTICATE)
        return self._answer(token)

    def take_token(self, token: bytes) -> bytes:
        """One in a frame of its own. Raises the same."""
        self._expect(_State.TOKENS)
        return self._answer(token)

    def _expect(self, *states: _State) -> None:
        if self._state not in states:
            raise IllegalSaslStateError(f"not expected: the state is {self._state.value}")

    def _answer(self, token: bytes) -> bytes:
        assert self._server is not None
        try:
            answer = self._server.answer(token)
        except ValueError:
            raise AuthenticationFailedError(
                "Authentication failed during authentication due to invalid credentials with SASL "
                f"mechanism {self._mechanism}"
            ) from None
        if self._server.user is not None:
            self._state = _State.COMPLETE
        return answer
