"""The project's own code as one file, for executors that may have another version of it, or none.

They need Python of the same version, and the libraries that the code names.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[2]
OF_CHECKS: Final = ("checkers", "results")
_SUFFIXES: Final = (".py", ".sql", ".toml", ".html", ".typed")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the least that such an archive can say


def send_code(spark: SparkSession, packages: Sequence[str] = OF_CHECKS) -> None:
    """To whoever does the work of this session."""
    spark.addArtifacts(str(_packed(packages)), pyfile=True)


def _packed(packages: Sequence[str]) -> Path:
    """An archive in the cache, named by its content: executors fetch it when they start, so it has
    to outlive this call."""
    content = _archive(packages)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neaptide" / "code"
    cache.mkdir(parents=True, exist_ok=True)
    name = "-".join(packages)
    path = cache / f"neaptide-{name}-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    if not path.exists():
        for older in cache.glob(f"neaptide-{name}-*.zip"):
            older.unlink(missing_ok=True)
        new = path.with_suffix(f".{os.getpid()}.tmp")
        new.write_bytes(content)
        new.replace(path)
    return path


def _archive(packages: Sequence[str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, ROOT / "__init__.py", "neaptide/__init__.py")
        for package in packages:
            folder = (ROOT / package).resolve()
            for file in sorted(folder.rglob("*")):
                if file.suffix in _SUFFIXES:
                    _add(archive, file, f"neaptide/{package}/{file.relative_to(folder)}")
    return content.getvalue()


def _add(archive: zipfile.ZipFile, file: Path, name: str) -> None:
    """Without its time, so that the same code is the same archive."""
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), file.read_bytes())
