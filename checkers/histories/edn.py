"""A reader and writer of EDN, the notation of Jepsen's histories: any text, one value, exactly.

Not here: what an operation means (`operations`), and the fast reader of ordinary lines (`tokens`),
which gives what this one gives.

A value is made of what JSON has, so that both readers can make it:

    nil, true, 1, 1.5   None, True, 1, 1.5
    :ok                 "ok"
    "text"              '"text', a string that begins with a quotation mark
    name, 1/2, \\a, 2M  {"'": "name"}, any other token, and integers beyond 64 bits
    [1 2] (1 2)         [1, 2]
    #{1 2}              {"#": [1, 2]}
    {:a 1, :b 2}        {"": ["a", 1, "b", 2]}

What is one value is read as one: 0x10 is 16, 2/4 is 1/2, 1.0M is 1.00M, (1 2) is [1 2], and a map
or a set has no order once it is text (`canonical`). A tagged value is the value, but for #inst and
#uuid; metadata is read and left out. The rule: two values have one canonical text where Clojure's
`=` has them equal. The whole text must be read, and what is wrong is said with its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final
from uuid import UUID

from neaptide.results.errors import NeaptideError

SUFFIX: Final = ".edn"  # of a file
QUOTE: Final = '"'  # begins a value that is a string
MAP: Final = ""
SET: Final = "#"
SYMBOL: Final = "'"


class EdnError(NeaptideError):
    """The text is not EDN."""


_TOKEN: Final = re.compile(
    r"[\s,]*(?:;[^\n]*\n?[\s,]*)*"
    r'(#_|#\{|[()\[\]{}]|"(?:[^"\\]|\\.)*"|\\(?:newline|space|tab|backspace|formfeed|return|u[0-9a-fA-F]{4}|o[0-7]{1,3}|.)'
    r"|#?\^|#?[^\s,()\[\]{}\";\\]+|$)",
    re.DOTALL,
)
# As Clojure's reader has them; what begins like a number and is none of these is refused.
_NUMBER: Final = re.compile(r"[+-]?[0-9].*", re.DOTALL)
_INTEGER: Final = re.compile(
    r"([+-]?)(?:(?P<d>0|[1-9][0-9]*)|0[xX](?P<x>[0-9A-Fa-f]+)|0(?P<o>[0-7]+)"
    r"|(?P<radix>[1-9][0-9]?)[rR](?P<r>[0-9A-Za-z]+))N?"
)
_RATIO: Final = re.compile(r"([+-]?[0-9]+)/([0-9]+)")
_FLOAT: Final = re.compile(r"([+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)(M?)")
_NO_FLOAT: Final = re.compile(r"[+-]?[0-9]+")  # an octal number that is none
_DIGITS_MAX: Final = 1_000
_INT64: Final = (-(2**63), 2**63 - 1)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES: Final[Mapping[str, str]] = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\",
}  # fmt: skip
_CHARACTERS: Final[Mapping[str, str]] = {
    "newline": "\n", "space": " ", "tab": "\t", "return": "\r", "backspace": "\b",
    "formfeed": "\f",
}  # fmt: skip
_WORDS: Final[Mapping[str, object]] = {"nil": None, "true": True, "false": False}
_CLOSING: Final[Mapping[str, str]] = {"(": ")", "[": "]", "{": "}", "#{": "}"}


def parse(text: str) -> Any:
    """The one value that the text holds."""
    reader = _Reader(text)
    try:
        value = reader.value()
    except RecursionError as error:
        raise reader.error("it is nested too deeply") from error
    if not reader.is_at_end():
        raise reader.error(f"{reader.token!r} follows the end of the value")
    return value


class _Reader:
    """One pass over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.token = ""
        self._advance()

    def error(self, what: str) -> EdnError:
        return EdnError(f"{what}, at character {self._at}")

    def is_at_end(self) -> bool:
        while self.token == "#_":
            self._advance()
            self.value()
        return not self.token

    def value(self) -> Any:
        if self.is_at_end():
            raise self.error("a value is missing")
        token = self.token
        self._advance()
        if token in ("^", "#^"):
            self.value()  # metadata, which is no part of a value
            return self.value()
        if token in _CLOSING:
            items = self._items(_CLOSING[token])
            return self._map(items) if token == "{" else self._set(items, token)
        if token in ")]}":
            raise self.error(f"{token!r} closes nothing")
        if token.startswith("#:"):
            return self._in_namespace(token[2:])
        if token.startswith("#") and not token.startswith("##"):
            return self._tagged(token)
        return self._atom(token)

    def _tagged(self, token: str) -> Any:
        value = self.value()
        if token not in _TAGS:
            return value
        try:
            return {SYMBOL: f'{token} "{_TAGS[token](value)}"'}
        except (TypeError, ValueError, IndexError) as error:
            raise self.error(f"{token} {write(value)} is none") from error

    def _in_namespace(self, name: str) -> Any:
        """#:a{:b 1} is {:a/b 1}; a key in the namespace _ is in none."""
        if self.token != "{" or not name or name.startswith(":"):
            raise self.error("a namespace is of a map")
        self._advance()
        items = self._items("}")
        return self._map([_qualified(x, name) if n % 2 == 0 else x for n, x in enumerate(items)])

    def _set(self, items: list[Any], token: str) -> Any:
        if token != "#{":
            return items
        if len({canonical(item) for item in items}) < len(items):
            raise self.error("a set has one value twice")
        return {SET: items}

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self.error("a string or character does not end")
        self.token = match[1]
        self._at = match.end()

    def _items(self, closing: str) -> list[Any]:
        items = []
        while not self.is_at_end() and self.token != closing:
            items.append(self.value())
        if self.token != closing:
            raise self.error(f"{closing!r} is missing")
        self._advance()
        return items

    def _map(self, items: list[Any]) -> dict[str, Any]:
        if len(items) % 2:
            raise self.error("a map has a key without a value")
        return {MAP: items}

    def _atom(self, token: str) -> Any:
        for is_it, read in _ATOMS:
            if is_it(token):
                if read is not _string and len(token) > _DIGITS_MAX:
                    raise self.error("a number or name is too long")
                try:
                    return read(token)
                except ValueError as error:
                    raise self.error(str(error)) from error
        return {SYMBOL: token}


def _integer(number: int) -> Any:
    return number if _INT64[0] <= number <= _INT64[1] else {SYMBOL: str(number)}


def _number(token: str) -> Any:
    """Raises ValueError."""
    if match := _INTEGER.fullmatch(token):
        bases = {"d": 10, "x": 16, "o": 8, "r": int(match["radix"] or 36)}
        digits, base = next((match[n], base) for n, base in bases.items() if match[n] is not None)
        try:
            return _integer(int(match[1] + digits, base))
        except ValueError as error:  # a digit that this base has not
            raise ValueError(f"{token} is no number") from error
    if match := _RATIO.fullmatch(token):
        if int(match[2]) == 0:
            raise ValueError(f"{token} divides by zero")
        ratio = Fraction(int(match[1]), int(match[2]))
        return _integer(ratio.numerator) if ratio.denominator == 1 else {SYMBOL: str(ratio)}
    match = _FLOAT.fullmatch(token)
    if match is None or _NO_FLOAT.fullmatch(token):
        raise ValueError(f"{token} is no number")
    if match[2]:
        return {SYMBOL: _decimal(match[1])}
    number = float(match[1])
    return number if math.isfinite(number) else {SYMBOL: "##Inf" if number > 0 else "##-Inf"}


def _decimal(text: str) -> str:
    """Without zeros at the end of its digits. Raises ValueError."""
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation as error:
        raise ValueError(f"{text}M is no number") from error
    if not isinstance(exponent, int):
        raise ValueError(f"{text}M is no number")
    whole = "".join(map(str, digits)).lstrip("0")
    kept = whole.rstrip("0")
    exponent += len(whole) - len(kept)
    if not kept:
        return "0M"
    return f"{'-' * sign}{kept}{f'E{exponent}' if exponent else ''}M"


def _qualified(key: Any, namespace: str) -> Any:
    name = key.get(SYMBOL) if isinstance(key, dict) else key
    if not isinstance(name, str) or name[:1] == QUOTE:
        return key
    prefix, slash, rest = name.partition("/")
    named = rest if slash and prefix == "_" else name if slash else f"{namespace}/{name}"
    return {SYMBOL: named} if isinstance(key, dict) else named


# Clojure takes a part of a moment for its beginning, and keeps milliseconds.
_INSTANT: Final = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:T(\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d+))?)?)?)?)?)?"
    r"(?:Z|([+-])(\d\d):(\d\d))?"
)


def _instant(value: Any) -> str:
    match = _INSTANT.fullmatch(value[1:])
    if match is None or value[:1] != QUOTE:
        raise ValueError(value)
    year, month, day, hour, minute, second, part, sign, hours, minutes = match.groups()
    ms = int((part or "0").ljust(3, "0")[:3])
    given = datetime(
        int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0),
        int(second or 0), ms * 1_000, tzinfo=UTC,
    )  # fmt: skip
    if sign is not None:
        away = timedelta(hours=int(hours), minutes=int(minutes))
        given = given - away if sign == "+" else given + away
    return given.isoformat(timespec="milliseconds").removesuffix("+00:00") + "-00:00"


def _uuid(value: Any) -> str:
    if value[:1] != QUOTE:
        raise ValueError(value)
    return str(UUID(value[1:]))


_TAGS: Final[Mapping[str, Callable[[Any], str]]] = {"#inst": _instant, "#uuid": _uuid}


def _string(token: str) -> str:
    def unescape(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8))
        return _ESCAPES.get(code, code)

    return QUOTE + _ESCAPE.sub(unescape, token[1:-1])


def _character(token: str) -> Any:
    """A character is no string of one."""
    name = token[1:]
    if len(name) == 5 and name[0] == "u":
        name = chr(int(name[1:], 16))
    elif len(name) > 1 and name[0] == "o":
        name = chr(int(name[1:], 8))
    one = _CHARACTERS.get(name, name)
    return {SYMBOL: f"\\{one}" if one.isprintable() and one != " " else f"\\u{ord(one):04x}"}


_ATOMS: Final[tuple[tuple[Callable[[str], object], Callable[[str], Any]], ...]] = (
    (lambda token: token[0] == ":", lambda token: token[1:]),
    (_NUMBER.fullmatch, lambda token: _number(token)),
    (lambda token: token in _WORDS, lambda token: _WORDS[token]),
    (lambda token: token[0] == '"', _string),
    (lambda token: token[0] == "\\", _character),
)


def canonical(value: object) -> str:
    """One text for all values that are equal: maps and sets have no order."""
    match value:
        case {"": items}:
            pairs = zip(items[::2], items[1::2], strict=True)
            return "{" + ", ".join(sorted(f"{canonical(k)} {canonical(v)}" for k, v in pairs)) + "}"
        case {"#": items}:
            return "#{" + " ".join(sorted(map(canonical, items))) + "}"
        case list():
            return "[" + " ".join(map(canonical, value)) + "]"
        case _:
            return write(value)


def write(value: object) -> str:
    """EDN text of a value."""
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case str() if value.startswith(QUOTE):
            return f'"{_escaped(value[1:])}"'
        case str():
            return f":{value}"
        case {"": items}:
            pairs = zip(items[::2], items[1::2], strict=True)
            return "{" + ", ".join(f"{write(k)} {write(v)}" for k, v in pairs) + "}"
        case {"#": items}:
            return "#{" + " ".join(map(write, items)) + "}"
        case {"'": name}:
            return str(name)
        case float():
            return str(value + 0.0)  # -0.0 is 0.0
        case list():
            return "[" + " ".join(write(item) for item in value) + "]"
        case _:
            return str(value)


def _escaped(text: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escaped)
    return text
