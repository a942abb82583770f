"""A reader of EDN, the notation of Jepsen's histories: text in, plain Python values out.

Not here: what an operation means (`checkers.edn_rows`). Keywords and symbols become `Keyword` and
`Symbol` (both are `str`), vectors, lists and sets become lists, maps become dicts, and a tagged
value becomes the value: histories need no more.

The rule: the whole text must be read, and what is wrong is said with its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from neaptide.results.errors import NeaptideError

SUFFIX: Final = ".edn"  # of a file


class EdnError(NeaptideError):
    """The text is not EDN."""


class Keyword(str):
    """`:ok` as `Keyword("ok")`."""

    __slots__ = ()


class Symbol(str):
    """A name that is no keyword."""

    __slots__ = ()


_TOKEN: Final = re.compile(
    r"[\s,]*(?:;[^\n]*\n?[\s,]*)*"
    r'(#_|#\{|[()\[\]{}]|"(?:[^"\\]|\\.)*"|\\(?:newline|space|tab|return|u[0-9a-fA-F]{4}|.)'
    r"|#?[^\s,()\[\]{}\";\\]+|$)",
    re.DOTALL,
)
_INTEGER: Final = re.compile(r"[+-]?\d+N?")
_FLOAT: Final = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?M?")
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
    value = reader.value()
    if reader.token:
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

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self.error("a string or character does not end")
        self.token = match[1]
        self._at = match.end()

    def value(self) -> Any:
        token = self.token
        while token == "#_":
            self._advance()
            self.value()
            token = self.token
        if not token:
            raise self.error("a value is missing")
        self._advance()
        if token in _CLOSING:
            items = self._items(_CLOSING[token])
            return self._map(items) if token == "{" else items
        if token in ")]}":
            raise self.error(f"{token!r} closes nothing")
        if token.startswith("#") and not token.startswith("##"):
            return self.value()  # a tagged value
        return self._atom(token)

    def _items(self, closing: str) -> list[Any]:
        items = []
        while self.token != closing:
            if self.token == "#_":
                self._advance()
                self.value()
                continue
            if not self.token:
                raise self.error(f"{closing!r} is missing")
            items.append(self.value())
        self._advance()
        return items

    def _map(self, items: list[Any]) -> dict[Any, Any]:
        if len(items) % 2:
            raise self.error("a map has a key without a value")
        keys = (tuple(key) if isinstance(key, list) else key for key in items[::2])
        try:
            return dict(zip(keys, items[1::2], strict=True))
        except TypeError as error:
            raise self.error("a map has a map as its key") from error

    def _atom(self, token: str) -> Any:
        for is_it, read in _ATOMS:
            if is_it(token):
                return read(token)
        return Symbol(token)


def _string(token: str) -> str:
    def unescape(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, code)

    return _ESCAPE.sub(unescape, token[1:-1])


def _character(token: str) -> str:
    name = token[1:]
    if len(name) == 5 and name[0] == "u":
        return chr(int(name[1:], 16))
    return _CHARACTERS.get(name, name)


_ATOMS: Final[tuple[tuple[Callable[[str], object], Callable[[str], Any]], ...]] = (
    (lambda token: token[0] == ":", lambda token: Keyword(token[1:])),
    (_INTEGER.fullmatch, lambda token: int(token.rstrip("N"))),
    (lambda token: token in _WORDS, lambda token: _WORDS[token]),
    (lambda token: token[0] == '"', _string),
    (_FLOAT.fullmatch, lambda token: float(token.rstrip("M"))),
    (lambda token: token[0] == "\\", _character),
)


def write(value: object) -> str:
    """EDN text of strings, numbers, keywords, nil, lists and dicts."""
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case Keyword():
            return f":{value}"
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{escaped}"'
        case dict():
            return "{" + ", ".join(f"{write(k)} {write(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + " ".join(write(item) for item in value) + "]"
        case _:
            return str(value)
