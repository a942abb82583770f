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
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol

from neaptide.clusters.broker.wire.codec import MalformedMessageError

PLAIN: Final = "PLAIN"
SCRAM: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = (PLAIN, *SCRAM)
_log = logging.getLogger("broker")
_REAUTH_INTERVAL_S: Final = 1.0
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
    BEGINS_AGAIN = "begins again"
    HANDSHAKE = "handshake"  # ApiVersions was answered
    TOKENS = "tokens"  # in frames without a header
    AUTHENTICATE = "authenticate"  # tokens in SaslAuthenticate
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class _Login:
    """`expires_at_s`: when the client has to have logged in again (KIP-368); None: never."""

    mechanism: str
    user: str
    expires_at_s: float | None = None


class SaslAuthenticator:
    """Of one connection. `mechanisms`: those that are enabled on its listener.

    `max_reauth_ms`, by mechanism: how long a login is valid; not there, or 0: for good.
    """

    def __init__(
        self,
        mechanisms: tuple[str, ...],
        plain_users: Mapping[str, str],
        scram_users: ScramUsers,
        max_reauth_ms: Mapping[str, int] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.mechanisms = mechanisms
        self.scram_users = scram_users
        self._plain_users = plain_users
        self._max_reauth_ms = max_reauth_ms
        self._clock = clock
        self._state = _State.BEGINS
        self._mechanism = ""
        self._server: _Server | None = None
        self._login: _Login | None = None
        self._began_again_at_s: float | None = None

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
        return None if self._login is None else self._login.user

    @property
    def lifetime_ms(self) -> int:
        """How long the login is valid; 0: for good, or there is none."""
        return self._max_reauth_ms.get(self._mechanism, 0) if self.is_complete else 0

    @property
    def is_expired(self) -> bool:
        expires_at_s = None if self._login is None else self._login.expires_at_s
        return self.is_complete and expires_at_s is not None and self._clock() > expires_at_s

    def begin_again(self) -> None:
        """A SaslHandshake of who has logged in (KIP-368). It is refused, as one that is not
        expected, where a login is valid for good, and within a second of the last one."""
        login, now_s, last_s = self._login, self._clock(), self._began_again_at_s
        if not self.is_complete or login is None or login.expires_at_s is None:
            return
        if last_s is None or now_s - last_s >= _REAUTH_INTERVAL_S:
            self._began_again_at_s = now_s
            self._state = _State.BEGINS_AGAIN

    def ask_versions(self) -> None:
        """ApiVersions. Raises IllegalSaslStateError."""
        self._expect(_State.BEGINS)
        self._state = _State.HANDSHAKE

    def choose(self, version: int, mechanism: str) -> bool:
        """SaslHandshake. Whether the mechanism is enabled. Raises IllegalSaslStateError."""
        self._expect(_State.BEGINS, _State.HANDSHAKE, _State.BEGINS_AGAIN)
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
        before = self._login
        if before is not None and before.mechanism != self._mechanism:
            raise AuthenticationFailedError(
                f"Cannot change the SASL mechanism during re-authentication from "
                f"{before.mechanism} to {self._mechanism}"
            )
        try:
            answer = self._server.answer(token)
        except ValueError:
            during = "authentication" if before is None else "re-authentication"
            raise AuthenticationFailedError(
                f"Authentication failed during {during} due to invalid credentials with SASL "
                f"mechanism {self._mechanism}"
            ) from None
        user = self._server.user
        if user is None:
            return answer
        if before is not None and before.user != user:
            raise AuthenticationFailedError(
                f"Cannot change principals during re-authentication from User.{before.user}: "
                f"User.{user}"
            )
        lifetime_ms = self._max_reauth_ms.get(self._mechanism, 0)
        expires_at_s = self._clock() + lifetime_ms / 1000 if lifetime_ms > 0 else None
        self._login = _Login(self._mechanism, user, expires_at_s)
        self._state = _State.COMPLETE
        return answer
