"""Keys and values of records as texts: one form of bytes in all tables, exact and reversible.

Whoever writes a record into a table (sends, polls, replicas' logs) or says it in a line between
processes uses these functions, so that one text is one record everywhere:

    paid                    bytes that are UTF-8
    hex:ff                  bytes that are not, or whose text would look like a form below
    (the column is null)    a null value
    paid ⟨3⟩                a record with the mark 3, which it has as a header: its value may be
                            sent more than once
    ⟨null, mark 3⟩          a null value with a mark
    ⟨null⟩, ⟨null, key k⟩   what rules and reports call a null value without a mark

The rule: two records that differ in their value or their mark never have the same text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # whoever needs texts alone does not load Arrow
    import pyarrow as pa

MARK_HEADER: Final = "neaptide-mark"
_HEX: Final = "hex:"
_OPENS, _CLOSES = "⟨", "⟩"
NULL: Final = f"{_OPENS}null"  # begins the text of every null value
_NULL_WORD: Final = NULL + _CLOSES

Headers = Iterable[tuple[str | bytes, bytes | None]] | None


def text_of(data: bytes | str | None) -> str | None:
    """Bytes of a key or a value."""
    if data is None:
        return None
    raw = data.encode("utf-8", errors="surrogatepass") if isinstance(data, str) else bytes(data)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return _HEX + raw.hex()
    is_form = text.startswith((_HEX, _OPENS)) or text.endswith(_CLOSES)
    return _HEX + raw.hex() if is_form else text


def bytes_of(text: str | None) -> bytes | None:
    """The bytes of the value that a record with this text has, whatever its mark."""
    if text is None or text.startswith(NULL):
        return None
    if text.endswith(_CLOSES):
        text = text.rpartition(f" {_OPENS}")[0]
    return bytes.fromhex(text.removeprefix(_HEX)) if text.startswith(_HEX) else text.encode()


def marked(text: str | None, mark: str | None) -> str | None:
    """The text of a value, for the record that has this mark."""
    if mark is None:
        return text
    if text is None:
        return f"{NULL}, mark {mark}{_CLOSES}"
    return f"{text} {_OPENS}{mark}{_CLOSES}"


def mark_header(mark: str) -> tuple[str, bytes]:
    """What a record carries."""
    return MARK_HEADER, mark.encode()


def record_text(value: bytes | None, headers: Headers) -> str | None:
    """A record that was read, from a broker or from a disk."""
    return marked(text_of(value), _mark_of(headers)) if headers else text_of(value)


def _mark_of(headers: Headers) -> str | None:
    for name, data in headers or ():
        if name in (MARK_HEADER, MARK_HEADER.encode()) and data is not None and data.isdigit():
            return data.decode()
    return None


# --- null values ---------------------------------------------------------------------------------

_NULL_SQL: Final = f"concat('{NULL}', coalesce(concat(', key ', key), ''), '{_CLOSES}')"
# Spark SQL, over the columns of a table: the value by which rules know a record, also a null one.
IDENTITY_SQL: Final = {
    "operations": (
        "IF(value IS NULL AND partition IS NOT NULL AND"
        f" (f = 'send' OR (f = 'poll' AND offset IS NOT NULL)), {_NULL_SQL}, value)"
    ),
    "replicas": f"IF(value IS NULL AND offset IS NOT NULL AND NOT control, {_NULL_SQL}, value)",
}


def identified(table: pa.Table) -> pa.Table:
    """The same of a table in memory, operations or replicas; one that lacks columns stays."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not {"key", "value", "offset"} <= {*table.column_names}:
        return table
    if "control" in table.column_names:
        is_record = pc.and_(pc.is_valid(table["offset"]), pc.invert(table["control"]))
    else:
        f = table["f"].cast(pa.string())
        is_read = pc.and_(pc.equal(f, "poll"), pc.is_valid(table["offset"]))
        is_record = pc.and_(pc.is_valid(table["partition"]), pc.or_(pc.equal(f, "send"), is_read))
    is_null = pc.and_(pc.is_null(table["value"]), is_record)
    if not pc.any(is_null).as_py():
        return table
    with_key = pc.binary_join_element_wise(f"{NULL}, key ", table["key"], _CLOSES, "")
    named = pc.if_else(is_null, pc.coalesce(with_key, pa.scalar(_NULL_WORD)), table["value"])
    return table.set_column(table.column_names.index("value"), "value", named)
