"""A run as a zip, a piece at a time: as much memory for a run of gigabytes as for a small one."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from neaptide.results.serve.inside import open_plain

_CHUNK_BYTES: Final = 256 * 1024
_COMPRESSED: Final = (".parquet", ".zst", ".gz", ".lz4", ".snappy")


class _Outgoing(io.RawIOBase):
    """What was written and not yet taken; nobody can go back in it."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(data)  # type: ignore[call-overload]
        self._parts.append(part)
        return len(part)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def zipped(folder: str, files: Iterable[tuple[str, Path]]) -> Iterator[bytes]:
    """The bytes of a zip in which every file is below `folder`. A file that has gone meanwhile is
    left out; of one that grows, what is there when it is read."""
    outgoing = _Outgoing()
    with zipfile.ZipFile(outgoing, "w") as archive:
        for name, path in files:
            try:
                source = open_plain(path)
            except OSError:
                continue
            with source:
                modified_s = path.stat().st_mtime
                info = zipfile.ZipInfo(f"{folder}/{name}", time.localtime(modified_s)[:6])
                is_compressed = path.suffix in _COMPRESSED
                info.compress_type = zipfile.ZIP_STORED if is_compressed else zipfile.ZIP_DEFLATED
                info.external_attr = 0o600 << 16
                with archive.open(info, "w", force_zip64=True) as target:
                    while chunk := source.read(_CHUNK_BYTES):
                        target.write(chunk)
                        yield outgoing.take()
            yield outgoing.take()
    yield outgoing.take()
