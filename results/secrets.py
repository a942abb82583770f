"""What is a secret, by its name or by how it looks, and a text, a command or settings without it.

The one place that decides: for `run.json`, filled properties, commands and messages. What Kafka
itself calls a password (ConfigDef.Type.PASSWORD) is one, and what is called like one, or like a
key. Rather too much is left out than too little.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

NOT_RECORDED: Final = "(not recorded)"
# Of the type PASSWORD in Kafka 0.8 to 4.1, behind the prefix of a listener or of a client.
_OF_KAFKA: Final = (
    "delegation.token.master.key",
    "delegation.token.secret.key",
    "password.encoder.old.secret",
    "password.encoder.secret",
    "sasl.jaas.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.truststore.password",
)
# What has such a word in its name, however it is written: api_key, API-Key, apikey.
_WORDS: Final = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "credential",
    "token",
    "jaas",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "signingkey",
    "masterkey",
    "accountkey",
    "sharedkey",
    "authkey",
    "keypem",
    "sslkey",
    "certificatechain",
    "bearer",
    "cookie",
    "sas_key",
    "userinfo",
    "connectionstring",
]
# Words of their own: in `auth`, not in `author`; in `ssl.key`, not in `keystore`.
_WHOLE_WORDS: Final = frozenset({"pass", "pwd", "pw", "auth", "authorization", "key", "pin", "pem"})
# What a name ends with that only describes one: when it expires, where it is.
_DESCRIBES: Final = frozenset(
    [
        "ms",
        "s",
        "sec",
        "seconds",
        "min",
        "minutes",
        "hours",
        "days",
        "bytes",
        "length",
        "size",
        "count",
        "iterations",
        "algorithm",
        "type",
        "class",
        "location",
        "path",
        "file",
        "dir",
        "directory",
        "url",
        "uri",
        "endpoint",
        "provider",
        "protocol",
        "enable",
        "enabled",
        "disable",
        "disabled",
        "mechanism",
        "mechanisms",
        "id",
        "alias",
        "header",
        "expiry",
        "serializer",
        "deserializer",
        "name",
        "version",
        "format",
        "tab",
    ]
)
_NO_SECRETS: Final = ("ssl.client.auth",)  # of Kafka: none, requested, required
_WORD: Final = re.compile(r"[A-Za-z][a-z]*|[A-Z]+|\d+")
_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|$)", re.DOTALL)
_LOOKS_LIKE_ONE: Final = re.compile(
    r"\b(?:eyJ[\w-]{8,}\.[\w-]+\.[\w-]*"  # a JSON web token
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"  # of AWS
    r"|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|sk-[\w-]{20,}|AIza[\w-]{30,})"
)
# user:X@host, and user:X@ where a scheme stands before it
_IN_ADDRESS: Final = re.compile(r"(?<![\w.])([\w.%+-]*):([^\s:/@,'\"]+)@(?=[\w.\[{-])")
_SCHEME_ADDRESS: Final = re.compile(r"(://[^\s:/@'\"]*):([^\s/'\"]+)@")
# name=X, name: X, "name": "X", anywhere in a text
_ASSIGNED: Final = re.compile(
    r"""(?P<name>[\w.-]*\w)(?P<is>["']?\s*[=:]\s*)"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|(?:(?:Basic|Bearer)\s+)?[^\s,;&"'}]+}?)"""
)
# --name X, in the text of a shell
_OPTION: Final = re.compile(
    r"""(?P<name>(?<!\S)--?[\w.-]+)(?P<is>\s+)(?P<value>"[^"]*"|'[^']*'|[^\s-]\S*)"""
)
_SHORT: Final = frozenset({"-p", "-P", "-w", "-W", "-u", "-U", "-k"})
_SHORT_IN_TEXT: Final = re.compile(r"""(?<!\S)(-[pPwWuUk])(\s+|)("[^"]*"|'[^']*'|[^\s-]\S*)""")
_USER: Final = re.compile(r"(?<!\S)(--?(?:proxy-)?(?:user|login)[= ][^\s:]+):(\S+)")
_PLACEHOLDER: Final = re.compile(r"\{[a-z_]+\}")
_PLAIN: Final = ("true", "false", "null", "none", "")


def is_secret(name: str) -> bool:
    """Whether what is called so is a secret, by its name."""
    lowered = name.lower()
    if lowered.endswith(_NO_SECRETS):
        return False
    if any(lowered == one or lowered.endswith(f".{one}") for one in _OF_KAFKA):
        return True
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _DESCRIBES:
        return False
    joined = "".join(words)
    return any(word.replace("_", "") in joined for word in _WORDS) or (
        not _WHOLE_WORDS.isdisjoint(words)
    )


def looks_secret(value: str) -> bool:
    """Whether a text has a key, a token or a password in it, whatever it is called."""
    return any(found.search(value) for found in (_PEM, _LOOKS_LIKE_ONE, _SCHEME_ADDRESS))


def without_secrets(argv: Sequence[str]) -> list[str]:
    """A command as it may be kept."""
    kept: list[str] = []
    for position, word in enumerate(argv):
        before = argv[position - 1] if position else ""
        kept.append(_word_without(word, before) if position else _text_without(word))
    return kept


def text_without_secrets(text: str) -> str:
    """A message, a line or a shell's command as it may be kept."""
    return _text_without(text)


def settings_without_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they may be kept."""
    return {
        name: NOT_RECORDED
        if is_secret(name) and not is_named_elsewhere(str(value))
        else _text_without(value)
        if isinstance(value, str)
        else value
        for name, value in settings.items()
    }


def is_named_elsewhere(value: str) -> bool:
    """A config provider's name of it, a placeholder, or no secret at all."""
    return value.lower() in _PLAIN or "${" in value or _PLACEHOLDER.fullmatch(value) is not None


def document_without_secrets(value: Any) -> Any:
    """A document of which `settings` and `properties` are settings."""
    if isinstance(value, Mapping):
        return {
            name: settings_without_secrets(inner)
            if name in ("settings", "properties") and isinstance(inner, Mapping)
            else document_without_secrets(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [document_without_secrets(one) for one in value]
    return value


def _word_without(word: str, before: str) -> str:
    if is_named_elsewhere(word):
        return word
    if before in _SHORT or (before.startswith("-") and "=" not in before and is_secret(before)):
        return NOT_RECORDED
    if word[:2] in ("-p", "-P") and len(word) > 2 and "=" not in word and word[2] != "-":
        return word[:2] + NOT_RECORDED
    return _text_without(word)


def _text_without(text: str) -> str:
    text = _PEM.sub(NOT_RECORDED, text)
    text = _LOOKS_LIKE_ONE.sub(NOT_RECORDED, text)
    text = _SCHEME_ADDRESS.sub(rf"\1:{NOT_RECORDED}@", text)
    text = _IN_ADDRESS.sub(rf"\1:{NOT_RECORDED}@", text)
    text = _USER.sub(rf"\1:{NOT_RECORDED}", text)
    text = _ASSIGNED.sub(_unless_named_so, text)
    if any(letter.isspace() for letter in text):
        text = _OPTION.sub(_unless_named_so, text)
        text = _SHORT_IN_TEXT.sub(rf"\1\2{NOT_RECORDED}", text)
    return text


def _unless_named_so(found: re.Match[str]) -> str:
    value = found["value"].strip("\"'")
    if not is_secret(found["name"]) or is_named_elsewhere(value) or NOT_RECORDED.startswith(value):
        return found[0]
    return f"{found['name']}{found['is']}{NOT_RECORDED}"
