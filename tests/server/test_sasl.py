"""A connection that logs in: what it may send in which order, and whose tokens are taken."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp import ScramClient, ScramMechanism

from neaptide.clusters.broker.server.sasl import (
    MECHANISMS,
    SCRAM,
    AuthenticationFailedError,
    IllegalSaslStateError,
    SaslAuthenticator,
    ScramCredential,
    ScramUsers,
)

PLAIN_USERS = {"alice": "secret", "nobody": ""}
TOKEN = b"\0alice\0secret"


def users() -> ScramUsers:
    """Alice by both mechanisms, with the same password."""
    known = ScramUsers()
    known.take("alice", {name: str(credential(name)) for name in SCRAM})
    return known


def credential(mechanism: str, password: str = "secret") -> ScramCredential:
    salt, stored_key, server_key, iterations = ScramMechanism(mechanism).make_auth_info(
        password, iteration_count=4096, salt=b"of twelve or more"
    )
    return ScramCredential(salt, stored_key, server_key, iterations)


def authenticator(*mechanisms: str) -> SaslAuthenticator:
    return SaslAuthenticator(mechanisms or MECHANISMS, PLAIN_USERS, users())


def logged_in(mechanism: str, user: str, password: str) -> SaslAuthenticator:
    """By SaslAuthenticate, as far as it goes."""
    sasl = authenticator()
    assert sasl.choose(1, mechanism)
    client = ScramClient([mechanism], user, password)
    client.set_server_first(sasl.authenticate(client.get_client_first().encode()).decode())
    client.set_server_final(sasl.authenticate(client.get_client_final().encode()).decode())
    return sasl


# --- PLAIN ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [TOKEN, b"alice\0alice\0secret"])
def test_plain_takes_a_user_and_the_password(token: bytes) -> None:
    sasl = authenticator()
    assert sasl.choose(1, "PLAIN")
    assert not sasl.is_complete
    assert sasl.authenticate(token) == b""
    assert (sasl.is_complete, sasl.user) == (True, "alice")


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0Secret",
        b"\0alice\0",
        b"\0bob\0secret",
        b"\0\0",
        b"\0nobody\0",  # a user without a password is none
        b"bob\0alice\0secret",
        b"alice\0secret",
        TOKEN + b"\0",
        b"\0alice\0\xff",
        b"",
    ],
)
def test_plain_takes_nothing_else(token: bytes) -> None:
    sasl = authenticator()
    assert sasl.choose(1, "PLAIN")
    with pytest.raises(AuthenticationFailedError):
        sasl.authenticate(token)
    assert (sasl.is_complete, sasl.user) == (False, None)


# --- SCRAM ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram_takes_who_proves_to_know_the_password(mechanism: str) -> None:
    sasl = logged_in(mechanism, "alice", "secret")
    assert (sasl.is_complete, sasl.user) == (True, "alice")


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize(("user", "password"), [("alice", "Secret"), ("bob", "secret")])
def test_scram_takes_nobody_else(mechanism: str, user: str, password: str) -> None:
    with pytest.raises(AuthenticationFailedError) as refused:
        logged_in(mechanism, user, password)
    assert user not in str(refused.value)  # nor whether there is such a user
    assert mechanism in str(refused.value)


def test_a_proof_for_one_mechanism_is_none_for_the_other() -> None:
    known = ScramUsers()
    known.take("alice", {"SCRAM-SHA-256": str(credential("SCRAM-SHA-256"))})
    sasl = SaslAuthenticator(MECHANISMS, {}, known)
    assert sasl.choose(1, "SCRAM-SHA-512")
    client = ScramClient(["SCRAM-SHA-512"], "alice", "secret")
    with pytest.raises(AuthenticationFailedError):
        sasl.authenticate(client.get_client_first().encode())


@settings(max_examples=30)
@given(tokens=st.lists(st.binary(max_size=60), min_size=1, max_size=3))
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_noise_for_a_token_is_refused(mechanism: str, tokens: list[bytes]) -> None:
    sasl = authenticator()
    assert sasl.choose(1, mechanism)
    for token in tokens:
        with pytest.raises(AuthenticationFailedError):
            sasl.authenticate(token)
    assert not sasl.is_complete


@pytest.mark.parametrize("first", ["n,,n=alice,r=abc", "y,,n=alice,r=abc"])
def test_a_client_may_know_of_channel_binding_and_not_use_it(first: str) -> None:
    sasl = authenticator()
    assert sasl.choose(1, "SCRAM-SHA-256")
    assert sasl.authenticate(first.encode()).startswith(b"r=abc")


# --- in which order -------------------------------------------------------------------------------


def test_tokens_are_frames_of_their_own_after_the_first_version() -> None:
    sasl = authenticator()
    assert sasl.choose(0, "PLAIN")
    assert sasl.takes_tokens
    with pytest.raises(IllegalSaslStateError):
        sasl.authenticate(TOKEN)
    assert sasl.take_token(TOKEN) == b""
    assert sasl.is_complete
    assert not sasl.takes_tokens


def test_and_in_requests_after_the_second() -> None:
    sasl = authenticator()
    assert sasl.choose(1, "PLAIN")
    assert not sasl.takes_tokens
    with pytest.raises(IllegalSaslStateError):
        sasl.take_token(TOKEN)
    assert sasl.authenticate(TOKEN) == b""


def test_versions_are_asked_for_once_and_first() -> None:
    sasl = authenticator()
    sasl.ask_versions()
    with pytest.raises(IllegalSaslStateError):
        sasl.ask_versions()
    assert sasl.choose(1, "PLAIN")
    with pytest.raises(IllegalSaslStateError):
        sasl.ask_versions()


def test_a_mechanism_is_chosen_once() -> None:
    sasl = authenticator()
    assert sasl.choose(1, "PLAIN")
    with pytest.raises(IllegalSaslStateError):
        sasl.choose(1, "SCRAM-SHA-256")


def test_nobody_logs_in_before_a_mechanism_is_chosen_nor_twice() -> None:
    sasl = authenticator()
    for take in (sasl.authenticate, sasl.take_token):
        with pytest.raises(IllegalSaslStateError):
            take(TOKEN)
    assert sasl.choose(1, "PLAIN")
    sasl.authenticate(TOKEN)
    with pytest.raises(IllegalSaslStateError):
        sasl.authenticate(TOKEN)
    assert sasl.user == "alice"


def test_a_mechanism_that_is_not_enabled_changes_nothing() -> None:
    sasl = authenticator("SCRAM-SHA-256")
    assert not sasl.choose(1, "PLAIN")
    assert sasl.choose(1, "SCRAM-SHA-256")


# --- a login that is not valid for good (KIP-368) -------------------------------------------------


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def brief(clock: Clock) -> SaslAuthenticator:
    """Alice has logged in, by PLAIN, for 5 s; Bob is known, too."""
    both = {"alice": "secret", "bob": "secret"}
    sasl = SaslAuthenticator(MECHANISMS, both, users(), {"PLAIN": 5_000}, clock)
    sasl.choose(1, "PLAIN")
    sasl.authenticate(TOKEN)
    return sasl


def test_kip_368_a_login_is_over_after_its_time_and_begins_anew() -> None:
    clock = Clock()
    sasl = brief(clock)
    assert (sasl.lifetime_ms, sasl.is_expired) == (5_000, False)
    clock.now_s += 5.1
    assert sasl.is_expired
    sasl.begin_again()
    assert (sasl.is_complete, sasl.is_expired, sasl.lifetime_ms) == (False, False, 0)
    sasl.choose(1, "PLAIN")
    sasl.authenticate(TOKEN)
    assert (sasl.is_complete, sasl.is_expired, sasl.user) == (True, False, "alice")
    clock.now_s += 4.9
    assert not sasl.is_expired


def test_kip_368_no_more_often_than_once_a_second() -> None:
    clock = Clock()
    sasl = brief(clock)
    for wait_s, begins in ((0.0, True), (0.9, False), (0.2, True)):
        clock.now_s += wait_s
        sasl.begin_again()
        assert sasl.is_complete is not begins
        if begins:
            sasl.choose(1, "PLAIN")
            sasl.authenticate(TOKEN)


@pytest.mark.parametrize(
    ("mechanism", "token", "why"),
    [
        ("PLAIN", b"\0bob\0secret", "Cannot change principals"),
        ("PLAIN", b"\0alice\0Secret", "Invalid username or password"),
        ("PLAIN", b"alice", "during re-authentication"),
        ("SCRAM-SHA-256", b"n,,n=alice,r=x", "Cannot change the SASL mechanism"),
    ],
)
def test_kip_368_it_is_the_same_user_again(mechanism: str, token: bytes, why: str) -> None:
    sasl = brief(Clock())
    sasl.begin_again()
    assert sasl.choose(1, mechanism)
    with pytest.raises(AuthenticationFailedError, match=why):
        sasl.authenticate(token)
    assert not sasl.is_complete


@pytest.mark.parametrize("lifetime_ms", [{}, {"PLAIN": 0}, {"SCRAM-SHA-256": 5_000}])
def test_kip_368_a_login_that_is_valid_for_good_begins_but_once(
    lifetime_ms: dict[str, int],
) -> None:
    clock = Clock()
    sasl = SaslAuthenticator(MECHANISMS, PLAIN_USERS, users(), lifetime_ms, clock)
    sasl.choose(1, "PLAIN")
    sasl.authenticate(TOKEN)
    clock.now_s += 10**6
    sasl.begin_again()
    assert (sasl.is_complete, sasl.is_expired, sasl.lifetime_ms) == (True, False, 0)
    with pytest.raises(IllegalSaslStateError):
        sasl.choose(1, "PLAIN")


# --- what is kept of a user -----------------------------------------------------------------------


def test_a_credential_is_written_as_it_is_read() -> None:
    text = str(credential("SCRAM-SHA-256"))
    assert str(ScramCredential.parse(text)) == text


def test_a_salted_password_comes_to_the_same_keys() -> None:
    import hashlib

    salt = b"of twelve or more"
    salted = hashlib.pbkdf2_hmac("sha512", b"secret", salt, 4096)
    made = ScramCredential.of_salted("SCRAM-SHA-512", salt, salted, 4096)
    assert made == credential("SCRAM-SHA-512")


@pytest.mark.parametrize(
    "text", ["", "salt=YQ==", "salt=YQ==,stored_key=!,server_key=YQ==,iterations=1", "iterations=x"]
)
def test_what_cannot_be_read_is_no_credential(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        ScramCredential.parse(text)
    known = users()
    known.take("alice", {"SCRAM-SHA-256": text, "SCRAM-SHA-512": str(credential("SCRAM-SHA-512"))})
    assert known.credential("SCRAM-SHA-256", "alice") is None
    assert known.credential("SCRAM-SHA-512", "alice") is not None
