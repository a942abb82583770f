"""Keys and values that are too long to be shown whole: a beginning, the length and a digest.

The rule: whoever judges a run, and whoever reports on it, shortens alike, so that what one names
the other finds. The run itself has them whole.
"""

from __future__ import annotations

import hashlib
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

LONG_BYTES: Final = 512
_BEGINNING: Final = 64

# The same in Spark SQL, of a column.
SHORTENED_SQL: Final = (
    f"concat(left({{column}}, {_BEGINNING}), '… ⟨', octet_length({{column}}), ' bytes, sha256 ',"
    " sha2({column}, 256), '⟩')"
)


def shortened(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same texts, those longer than `LONG_BYTES` as beginning, length and digest."""
    is_long = pc.fill_null(pc.greater(pc.binary_length(column), LONG_BYTES), False)
    if not pc.any(is_long).as_py():
        return column
    short = [_short(text.as_py()) for text in column.filter(is_long)]
    return pc.replace_with_mask(column.combine_chunks(), is_long.combine_chunks(), pa.array(short))


def _short(text: str) -> str:
    content = text.encode()
    digest = hashlib.sha256(content).hexdigest()
    return f"{text[:_BEGINNING]}… ⟨{len(content)} bytes, sha256 {digest}⟩"
