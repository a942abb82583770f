"""A reader and writer of EDN, the notation of Jepsen's histories: any text, one value, exactly.

Not here: what an operation means (`operations`), and the fast reader of ordinary lines (`tokens`),
which gives what this one gives.

A value is made of what JSON has, so that both readers can make it:

    nil, true, 1, 1.5   None, True, 1, 1.5
    :ok                 "ok"
    "text"              '"text', a string that begins with a quotation mark
    name, 1/2, ##NaN    {"'": "name"}, any other token, and integers beyond 64 bits
    [1 2] (1 2) #{1 2}  [1, 2]
    {:a 1, :b 2}        {"": ["a", 1, "b", 2]}

A tagged value is the value: histories need no more. The rule: the whole text must be read, and what
is wrong is said with its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from neaptide.results.errors import NeaptideError

SUFFIX: Final = ".edn"  # of a file
QUOTE: Final = '"'  # begins a value that is a string
MAP: Final = ""
SYMBOL: Final = "'"


class EdnError(NeaptideError):
    """The text is not EDN."""


_TOKEN: Final = re.compile(
    r"[\s,]*(?:;[^\n]*\n?[\s,]*)*"
    r'(#_|#\{|[()\[\]{}]|"(?:[^"\\]|\\.)*"|\\(?:newline|space|tab|return|u[0-9a-fA-F]{4}|.)'
    r"|#?[^\s,()\[\]{}\";\\]+|$)",
    re.DOTALL,
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+N?")
_FLOAT: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?M?")
_DIGITS_MAX: Final = 1_000
_INT64: Final = (-(2**63), 2**63 - 1)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES: Final[Mapping[str, str]] = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\",
}  # fmt: skip
_CHARACTERS: Final[Mapping[str, str]] = {
    "newline": "\n", "space": " ", "tab": "\t", "return": "\r",
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
        if token in _CLOSING:
            items = self._items(_CLOSING[token])
            return self._map(items) if token == "{" else items
        if token in ")]}":
            raise self.error(f"{token!r} closes nothing")
        if token.startswith("#:"):
            raise self.error("a map with a namespace is not read")
        if token.startswith("#") and not token.startswith("##"):
            return self.value()  # a tagged value
        return self._atom(token)

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
                return read(token)
        return {SYMBOL: token}


def _integer(token: str) -> Any:
    number = int(token.rstrip("N"))
    return number if _INT64[0] <= number <= _INT64[1] else {SYMBOL: str(number)}


def _string(token: str) -> str:
    def unescape(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, code)

    return QUOTE + _ESCAPE.sub(unescape, token[1:-1])


def _character(token: str) -> str:
    name = token[1:]
    if len(name) == 5 and name[0] == "u":
        return QUOTE + chr(int(name[1:], 16))
    return QUOTE + _CHARACTERS.get(name, name)


_ATOMS: Final[tuple[tuple[Callable[[str], object], Callable[[str], Any]], ...]] = (
    (lambda token: token[0] == ":", lambda token: token[1:]),
    (_INTEGER.fullmatch, lambda token: _integer(token)),
    (lambda token: token in _WORDS, lambda token: _WORDS[token]),
    (lambda token: token[0] == '"', _string),
    (_FLOAT.fullmatch, lambda token: float(token.rstrip("M"))),
    (lambda token: token[0] == "\\", _character),
)


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
        case {"'": name}:
            return str(name)
        case list():
            return "[" + " ".join(write(item) for item in value) + "]"
        case _:
            return str(value)


def _escaped(text: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escaped)
    return text
