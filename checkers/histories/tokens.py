"""Lines of EDN as operations, many at a time: EDN becomes JSON by replacements, and orjson reads.

Only ordinary lines survive that: a map of the fields that operations have, as Clojure prints it, of
keywords, integers, plain strings, vectors and maps. Whatever else a line holds makes its JSON
invalid (a letter, `#`, `;`, `(` or `\\` outside a string is no JSON), and the line is then read by
`edn.parse`, alone. What would be JSON but mean something else is looked for: the symbol `null`, a
number too long for orjson.

A line becomes `{"type":…,"f":…}`, a map inside it `{"":[key,value,…]}`. A bracket that closes
another's line closes nothing: no text of a line can pass for two, nor two for one. A field's colon
stands in an object only where the line's own map is, unless brackets are mixed up (`{], :value [}`
inside it): so fields are counted, those that are written against those that lines have.

The rule: what is read here is what `edn.parse` reads. Only a map that has a key without a value is
noticed later, by whoever looks into it (`pairs`, `require_whole`).
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import orjson

from neaptide.checkers.histories.edn import MAP, QUOTE, EdnError, parse, write

Value = Any  # as `edn` has it
Fields = dict[str, Value]  # of an operation, by their keywords

_FIELDS: Final = (
    b"index", b"time", b"type", b"process", b"f", b"value", b"error", b"node", b"rebalance-log",
)  # fmt: skip
_KEYWORD: Final = re.compile(rb":([A-Za-z][A-Za-z0-9_*!?+<>=./-]*)")
_STRING: Final = re.compile(rb'"([^"\\\n]*)"')
_STRING_HERE: Final = b"\x00"
_NEXT_LINE: Final = b"\x01"
_COLON: Final = b"\x02"  # that is no keyword's
_UNUSUAL: Final = (_STRING_HERE, _NEXT_LINE, _COLON, b"\\")
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_TOO_LONG: Final = b"0" * 19
_JEPSEN_OP: Final = (b"#jepsen.history.Op{", b"{")
_NIL: Final = (
    (b",nil,", b",null,"), (b",nil,", b",null,"), (b",nil]", b",null]"), (b"[nil,", b"[null,"),
    (b"[nil]", b"[null]"), (b",nil}", b",null}"), (b"\x02nil,", b"\x02null,"),
)  # fmt: skip
_EMPTY: Final = (b"", b"[", b"]")  # lines that hold nothing


class Blank:
    """A line that holds nothing."""


BLANK: Final = Blank()
Read = Fields | EdnError | Blank


def read_lines(block: bytes) -> Sequence[Read]:
    """The fields of the operation in each line; why there are none, where it cannot be read."""
    lines = _ordinary(block)
    if lines is not None:
        return lines
    middle = block.find(b"\n", len(block) // 2)
    if middle < 0:
        middle = block.rfind(b"\n")
    if middle < 0:
        return [_alone(block)]
    return [*read_lines(block[:middle]), *read_lines(block[middle + 1 :])]


def pairs(items: list[Value]) -> Iterator[tuple[Value, Value]]:
    """Keys and values of a map."""
    if len(items) % 2:
        raise EdnError("a map has a key without a value")
    each = iter(items)
    return zip(each, each, strict=True)


def require_whole(value: Value) -> None:
    """Raises EdnError where a map, however deep, has a key without a value."""
    if isinstance(value, dict):
        value = value.get(MAP, ())
        pairs(value)
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


def _ordinary(block: bytes) -> list[Fields] | None:
    """Lines that are all ordinary."""
    if any(sign in block for sign in _UNUSUAL):
        return None
    text = block
    strings: list[bytes] = []
    if b'"' in text:
        parts = _STRING.split(text)
        strings = parts[1::2]
        text = _STRING_HERE.join(parts[0::2])
        if b'"' in text:
            return None
    if b"#" in text:
        text = text.replace(*_JEPSEN_OP)
    if text[:1] != b"{" or text[-1:] != b"}":
        return None
    text = _NEXT_LINE + text[1:-1].replace(b"}\n{", _NEXT_LINE)
    if b"\n" in text or b"null" in text or _TOO_LONG in text.translate(_DIGITS):
        return None
    text, fields = _as_json(text)
    try:
        lines: list[Fields] = orjson.loads(_with(strings, text) if strings else text)
    except orjson.JSONDecodeError:
        return None
    return lines if sum(map(len, lines)) == fields else None


def _as_json(text: bytes) -> tuple[bytes, int]:
    """And how many fields the lines have."""
    for first in _KEYWORD.findall(text, 1, text.find(b" ")):
        text = text.replace(_NEXT_LINE + b":" + first + b" ", _NEXT_LINE + b'"' + first + b'"\x02')
    for name in _FIELDS:
        text = text.replace(b", :" + name + b" ", b',"' + name + b'"\x02')
    text = b'"'.join(_KEYWORD.split(text)).replace(b", ", b",").replace(b" ", b",")
    if b"nil" in text:
        for nil, null in _NIL:
            text = text.replace(nil, null)
    fields = text.count(_COLON)
    text = text.replace(b"{", b'{"":[').replace(b"}", b"]}").replace(_COLON, b":")
    return b"[" + text.replace(_NEXT_LINE, b"},{")[2:] + b"}]", fields


def _with(strings: list[bytes], text: bytes) -> bytes:
    """A string begins with a quotation mark, which a keyword does not."""
    between = text.split(_STRING_HERE)
    whole = [b""] * (2 * len(between) - 1)
    whole[0::2] = between
    whole[1::2] = [b'"\\"' + string + b'"' for string in strings]
    return b"".join(whole)


def _alone(line: bytes) -> Read:
    if line.strip() in _EMPTY:
        return BLANK
    try:
        value = parse(line.decode())
        write(value).encode()
    except UnicodeDecodeError as error:
        return EdnError(f"it is not UTF-8 at byte {error.start + 1}")
    except UnicodeEncodeError:
        return EdnError("it has a character that is half of a pair")
    except EdnError as error:
        return error
    if not isinstance(value, dict) or MAP not in value:
        return EdnError("it is no operation but something else than a map")
    names = value[MAP][::2]
    if not all(isinstance(name, str) and name[:1] != QUOTE for name in names):
        return EdnError("a field of it is no keyword")
    return dict(pairs(value[MAP]))
