"""Lines of EDN as values, many at a time: EDN becomes JSON by a few replacements, and orjson reads.

Only ordinary text survives that: keywords, integers, plain strings, vectors and maps. Whatever else
a line holds makes its JSON invalid (a letter, `#`, `;`, `(` or `\\` outside a string is no JSON), and
the line is then read by `edn.parse`, alone. What would be JSON but mean something else is looked
for: the symbol `null`, a number too long for orjson, a line that closes brackets of another.

A map is `{"": [key, value, …]}`, and a line `{"l": value}`: EDN makes no colon behind a string, so
no text of a line can pass for the end of one.

The rule: what is read here is what `edn.parse` reads. Only a map that has a key without a value is
noticed later, by whoever looks into it (`pairs`).
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import orjson

from neaptide.checkers.histories.edn import MAP, EdnError, parse, write

Value = Any

_KEYWORD: Final = re.compile(rb":([A-Za-z][A-Za-z0-9_*!?+<>=./-]*)")
_STRING: Final = re.compile(rb'"([^"\\\n]*)"')
_HOLE: Final = b"\x00"  # where a string was
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_TOO_LONG: Final = b"0" * 19
_JEPSEN_OP: Final = (b"#jepsen.history.Op{", b"{")
_NIL: Final = (
    (b",nil,", b",null,"), (b",nil,", b",null,"), (b",nil]", b",null]"), (b"[nil,", b"[null,"),
    (b"[nil]", b"[null]"), (b",nil}", b",null}"),
)  # fmt: skip
_EMPTY: Final = (b"", b"[", b"]")  # lines that hold nothing


class Blank:
    """A line that holds nothing."""


BLANK: Final = Blank()


def read_lines(block: bytes) -> list[Value | EdnError | Blank]:
    """The value of each line; why it has none, where it cannot be read."""
    values = _ordinary(block)
    if values is not None:
        return values
    middle = block.find(b"\n", len(block) // 2)
    if middle < 0:
        middle = block.rfind(b"\n")
    if middle < 0:
        return [_alone(block)]
    return read_lines(block[:middle]) + read_lines(block[middle + 1 :])


def pairs(items: list[Value]) -> Iterator[tuple[Value, Value]]:
    """Keys and values of a map."""
    if len(items) % 2:
        raise EdnError("a map has a key without a value")
    each = iter(items)
    return zip(each, each, strict=True)


def require_whole(value: Value) -> None:
    """Raises EdnError where a map, however deep, has a key without a value."""
    if isinstance(value, dict):
        items = value.get(MAP, ())
        if len(items) % 2:
            raise EdnError("a map has a key without a value")
        value = items
    if isinstance(value, list):
        for item in value:
            require_whole(item)


@contextmanager
def without_collector() -> Iterator[None]:
    """Values of lines have no cycles, and to look for some takes longer than to read them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _ordinary(block: bytes) -> list[Value] | None:
    """Lines that are all ordinary."""
    strings: list[bytes] = []
    text = block
    if b'"' in block or _HOLE in block or b"\\" in block:
        if _HOLE in block or b"\\" in block:
            return None
        parts = _STRING.split(block)
        strings = parts[1::2]
        text = _HOLE.join(parts[0::2])
        if b'"' in text:
            return None
    if b"null" in text or _TOO_LONG in text.translate(_DIGITS):
        return None
    text = b'[{"l":' + _as_json(text).replace(b"\n", b'},{"l":') + b"}]"
    if strings:
        text = _filled(text, strings)
    try:
        lines = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return [line["l"] for line in lines]


def _as_json(text: bytes) -> bytes:
    if b"#" in text:
        text = text.replace(*_JEPSEN_OP)
    text = b'"'.join(_KEYWORD.split(text)).replace(b", ", b",").replace(b" ", b",")
    if b"nil" in text:
        for nil, null in _NIL:
            text = text.replace(nil, null)
    return text.replace(b"{", b'{"":[').replace(b"}", b"]}")


def _filled(text: bytes, strings: list[bytes]) -> bytes:
    """A string begins with a quotation mark, which a keyword does not."""
    between = text.split(_HOLE)
    whole = [b""] * (2 * len(between) - 1)
    whole[0::2] = between
    whole[1::2] = [b'"\\"' + string + b'"' for string in strings]
    return b"".join(whole)


def _alone(line: bytes) -> Value | EdnError | Blank:
    if line.strip() in _EMPTY:
        return BLANK
    try:
        text = line.decode()
        value = parse(text)
        write(value).encode()
    except UnicodeDecodeError as error:
        return EdnError(f"it is not UTF-8 at byte {error.start + 1}")
    except UnicodeEncodeError:
        return EdnError("it has a character that is half of a pair")
    except EdnError as error:
        return error
    return value
