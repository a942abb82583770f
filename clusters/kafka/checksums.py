"""The checksums of fetched jars: kept when they come, compared before they are used.

Against a disk or a hand that changed a file since; what came over the network is Maven's to verify.
A jar whose size and modification time are as they were is not read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Seal:
    """What a jar was when it came."""

    path: str
    size: int
    mtime_ns: int
    sha256: str


def seal(jar: Path) -> Seal:
    stat = jar.stat()
    return Seal(str(jar), stat.st_size, stat.st_mtime_ns, _sha256(jar))


def verified(known: Seal) -> Seal | None:
    """The seal as it is to be kept; None: the jar is another. Raises OSError if it is gone."""
    stat = Path(known.path).stat()
    if (stat.st_size, stat.st_mtime_ns) == (known.size, known.mtime_ns):
        return known
    if stat.st_size != known.size or _sha256(Path(known.path)) != known.sha256:
        return None
    return replace(known, mtime_ns=stat.st_mtime_ns)


def write_seals(file: Path, seals: Iterable[Seal]) -> None:
    fresh = file.with_suffix(".fresh")
    fresh.write_text(json.dumps([asdict(each) for each in seals], indent=1), encoding="utf-8")
    fresh.replace(file)


def read_seals(file: Path) -> list[Seal]:
    return [Seal(**raw) for raw in json.loads(file.read_text(encoding="utf-8"))]


def _sha256(jar: Path) -> str:
    digest = hashlib.sha256()
    with jar.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
