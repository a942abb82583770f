"""Blocks: tables as bytes, which is how rows travel between tasks, and to the driver.

Spark moves whole blocks, in columns of binary, and looks at no row. No Spark here, since tasks load
this.

The rule: what `to_bytes` made, `from_bytes` gives back, with its schema.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

# Numbers that hardly change from row to row: a third of the bytes, and Spark compresses nothing.
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_bytes(block: bytes | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(block).read_all()
